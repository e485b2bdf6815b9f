"""What of a check is told, when it is told again, and what closes it; any check is carried without being named."""

import pytest

from trainworthy.lifecycle.alert import (
    About,
    AlertState,
    Subject,
    read_alerts,
    severity_of,
    what,
    with_event,
    with_findings,
    write_alerts,
)
from trainworthy.lifecycle.protocol.checks import CheckResult

PUBLISHED = ("rows@v1", "rows@v2", "rows@v3")


def about(version="v2", run="run", subject: Subject = "data"):
    return About(use_case="toy", subject=subject, dataset=f"rows@{version}", step="snapshot", run_id=run)


def check(name="null_drift", status="fail", **rest):
    return CheckResult(name=name, status=status, evidence="12 of 40 columns moved", fix="look", **rest)


def after(*checks, version="v2", state=None, run="run", published=()):
    """The state after these checks of a version."""
    return with_findings(state or AlertState(), about(version, run), checks, published)


def sent(state):
    """The state once a receiver took all that waited."""
    return state.model_copy(update={"waiting": ()})


def alert_of(found):
    (alert,) = after(found).waiting
    return alert


@pytest.mark.parametrize(
    ("status", "rest", "severity"),
    [
        ("fail", {}, "error"),
        ("error", {}, "error"),
        ("insufficient", {"required": True}, "error"),
        ("fail", {"severity": "warning"}, "warning"),
        ("error", {"severity": "warning"}, "warning"),
        ("pass", {"details": ({"rule": "a", "status": "fail", "severity": "warning"},)}, "warning"),
        ("pass", {"details": ({"rule": "a", "status": "fail", "severity": "info"},)}, None),
        ("fail", {"severity": "info"}, None),
        ("insufficient", {}, None),
        ("pass", {}, None),
        ("not_applicable", {}, None),
    ],
)
def test_alert_is_for_what_stops_or_warns_and_for_nothing_else(status, rest, severity):
    assert severity_of(check(status=status, **rest)) == severity
    assert len(after(check(status=status, **rest)).waiting) == (severity is not None)


def test_alert_of_a_check_that_nobody_named_is_called_by_its_name():
    alert = alert_of(check())
    assert (alert.what, alert.check, alert.step) == ("null drift", "null_drift", "snapshot")
    assert alert.text == "null drift: rows@v2 of toy (error): 12 of 40 columns moved; fix: look"


def test_alert_holds_no_detail_and_no_address_with_a_password():
    found = check(details=({"column": "name", "value": "Ada"},))
    found = found.model_copy(update={"evidence": "postgresql://me:hunter2@host/db\nis gone " + "x" * 5000})
    alert = alert_of(found)
    assert "Ada" not in alert.model_dump_json()
    assert "hunter2" not in alert.text
    assert "\n" not in alert.text
    assert len(alert.text) < 1000


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["row_count"], "volume"),
        (["type"], "schema change"),
        (["range", "row_count"], "contract broken, volume"),
        (["brand_new_rule"], "contract broken"),
    ],
)
def test_alert_of_a_contract_is_called_by_the_kinds_of_its_broken_rules(kinds, said):
    parts = [{"rule": kind, "kind": kind, "status": "fail", "severity": "error"} for kind in kinds]
    held = {"rule": "a", "kind": "unique", "status": "pass", "severity": "error"}
    assert what("data", check("contract", details=(*parts, held))) == said


def test_alert_of_a_missing_column_is_a_schema_change_though_other_rules_could_not_be_asked():
    parts = (
        {"rule": "x.type", "kind": "type", "status": "fail", "severity": "error"},
        {"rule": "x.range", "kind": "range", "status": "error", "severity": "error"},
    )
    assert what("data", check("contract", details=parts)) == "schema change"


def test_finding_with_other_figures_is_the_same_and_with_another_part_is_new():
    rule = {"rule": "x1.range", "status": "fail", "severity": "error", "observed": "12 of 90 rows", "unexpected": 12}
    first = check(details=(rule,))
    known = sent(after(first))
    more = {"evidence": "13 of 40 columns moved", "details": (rule | {"observed": "13 of 90 rows", "unexpected": 13},)}
    assert after(first.model_copy(update=more), state=known, run="next") == known
    other = first.model_copy(update={"details": (rule | {"rule": "x2.range"},)})
    assert len(after(other, state=known).waiting) == 1
    assert len(after(first, version="v3", state=known).waiting) == 1


def test_finding_is_closed_by_its_own_or_a_later_version_and_by_no_earlier_one():
    known, good = sent(after(check())), check(status="pass")
    assert after(good, version="v1", state=known, published=PUBLISHED) == known
    for version in ("v2", "v3"):
        closed = after(good, version=version, state=known, published=PUBLISHED)
        (alert,) = closed.waiting
        assert (alert.severity, alert.what, alert.fix, closed.sent) == ("recovered", "null drift", "", ())
        assert (alert.dataset, alert.key) == (f"rows@{version}", alert_of(check()).key)
        assert after(good, version=version, state=closed, published=PUBLISHED) == closed


@pytest.mark.parametrize("status", ["fail", "insufficient"])
def test_finding_is_not_closed_by_what_did_not_pass(status):
    known = sent(after(check()))
    assert after(check(status=status), state=known) == known
    assert after(check("other", "pass"), state=known) == known


def test_finding_of_a_version_that_was_never_published_is_closed_by_any():
    known = sent(after(check(), version="v99"))
    assert len(after(check(status="pass"), version="v1", state=known, published=PUBLISHED).waiting) == 1


def test_finding_that_recovers_before_it_was_heard_of_is_not_sent_at_all():
    assert after(check(status="pass"), state=after(check())) == AlertState()


def test_event_is_sent_once_and_nothing_closes_it():
    of, found = about(subject="verdict"), check("promote", "pass")
    state = with_event(AlertState(), of, found, "info", "sha256")
    (alert,) = state.waiting
    assert (alert.what, alert.severity, alert.evidence) == ("verdict", "info", "12 of 40 columns moved")
    assert with_event(state, about(subject="verdict", run="next"), found, "info", "sha256") == state
    assert len(with_event(state, of, found, "info", "another").waiting) == 2


def test_state_survives_and_a_broken_file_counts_as_none(tmp_path):
    path, state = tmp_path / "alerts" / "toy.json", after(check(), check("other"))
    assert read_alerts(path) == AlertState()
    write_alerts(path, state)
    assert read_alerts(path) == state
    path.write_text(path.read_text()[:-30])
    assert read_alerts(path) == AlertState()
