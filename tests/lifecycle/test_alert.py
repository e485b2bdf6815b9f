"""What of a check is told, when it is told again, and what closes it; any check is carried without being named."""

import pytest

from trainworthy.lifecycle.alert import (
    Judged,
    after_telling,
    read_told,
    recovered,
    severity_of,
    unsent,
    what,
    write_told,
)
from trainworthy.lifecycle.protocol.checks import CheckResult

PUBLISHED = ("rows@v1", "rows@v2", "rows@v3")


def judged(version="v2", run="run"):
    return Judged(use_case="toy", dataset=f"rows@{version}", step="snapshot", run_id=run)


def check(name="null_drift", status="fail", **rest):
    return CheckResult(name=name, status=status, evidence="12 of 40 columns moved", fix="look", **rest)


def known_of(*checks, version="v2"):
    known = ()
    for _, entry in unsent(judged(version), checks, known):
        known = after_telling(known, entry)
    return known


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
    assert len(list(unsent(judged(), [check(status=status, **rest)], ()))) == (severity is not None)


def test_alert_of_a_check_that_nobody_named_is_called_by_its_name():
    ((alert, _),) = unsent(judged(), [check()], ())
    assert (alert.what, alert.check, alert.step) == ("null drift", "null_drift", "snapshot")
    assert alert.text == "null drift: rows@v2 of toy (error): 12 of 40 columns moved; fix: look"


def test_alert_holds_no_detail_and_no_address_with_a_password():
    found = check(details=({"column": "name", "value": "Ada"},))
    found = found.model_copy(update={"evidence": "postgresql://me:hunter2@host/db\nis gone " + "x" * 5000})
    ((alert, _),) = unsent(judged(), [found], ())
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
    assert what(check("contract", details=(*parts, held))) == said


def test_alert_of_a_missing_column_is_a_schema_change_though_other_rules_could_not_be_asked():
    parts = (
        {"rule": "x.type", "kind": "type", "status": "fail", "severity": "error"},
        {"rule": "x.range", "kind": "range", "status": "error", "severity": "error"},
    )
    assert what(check("contract", details=parts)) == "schema change"


def test_finding_with_other_figures_is_the_same_and_with_another_part_is_new():
    rule = {"rule": "x1.range", "status": "fail", "severity": "error", "observed": "12 of 90 rows", "unexpected": 12}
    first = check(details=(rule,))
    known = known_of(first)
    more = {"evidence": "13 of 40 columns moved", "details": (rule | {"observed": "13 of 90 rows", "unexpected": 13},)}
    assert list(unsent(judged(run="next"), [first.model_copy(update=more)], known)) == []
    other = first.model_copy(update={"details": (rule | {"rule": "x2.range"},)})
    assert len(list(unsent(judged(), [other], known))) == 1
    assert len(list(unsent(judged("v3"), [first], known))) == 1


def test_finding_is_closed_by_its_own_or_a_later_version_and_by_no_earlier_one():
    known, good = known_of(check()), [check(status="pass")]
    assert list(recovered(judged("v1"), good, known, PUBLISHED)) == []
    for version in ("v2", "v3"):
        ((alert, closed),) = recovered(judged(version), good, known, PUBLISHED)
        assert (alert.severity, alert.what, alert.fix, closed) == ("recovered", "null drift", "", known)


@pytest.mark.parametrize("status", ["fail", "insufficient"])
def test_finding_is_not_closed_by_what_did_not_pass(status):
    known = known_of(check())
    assert list(recovered(judged(), [check(status=status)], known, PUBLISHED)) == []
    assert list(recovered(judged(), [check("other", "pass")], known, PUBLISHED)) == []


def test_finding_of_a_version_that_was_never_published_is_closed_by_any():
    known = known_of(check(), version="v99")
    assert len(list(recovered(judged("v1"), [check(status="pass")], known, PUBLISHED))) == 1


def test_told_findings_survive_and_a_broken_file_counts_as_none(tmp_path):
    path, known = tmp_path / "alerts" / "toy.json", known_of(check(), check("other"))
    assert read_told(path) == ()
    write_told(path, known)
    assert read_told(path) == known
    path.write_text(path.read_text()[:-30])
    assert read_told(path) == ()
