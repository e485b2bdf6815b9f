"""Which insufficient checks of earlier steps still cap the verdict, and what is said when one comes about."""

import pytest

from trainworthy.lifecycle.gates.earlier import open_checks, tell_open
from trainworthy.lifecycle.protocol.checks import CheckResult


def check(name: str, status: str, severity: str = "error", **more) -> CheckResult:
    return CheckResult.model_validate({"name": name, "status": status, "severity": severity, **more})


def found(continued: bool = False, **checks: list[CheckResult]) -> tuple[str, ...]:
    return open_checks(checks, continued=continued)  # pyright: ignore[reportArgumentType]


def test_open_checks_where_everything_was_measured_are_none():
    assert found(preflight=[check("overfit", "pass")], pilot=[check("references", "pass")]) == ()


def test_open_checks_of_the_pilot_are_answered_by_fulls_pass_of_the_same_name():
    pilot = [check("references", "insufficient")]
    assert found(pilot=pilot, full=[check("references", "pass")]) == ()
    assert found(smoke=[check("loss_rise", "insufficient")], pilot=[check("loss_rise", "pass")]) == ()


@pytest.mark.parametrize(
    "full",
    [[], [check("seeds", "pass")], [check("references", "not_applicable")], [check("references", "fail", "warning")]],
)
def test_open_checks_of_the_pilot_without_such_a_pass_stay_open(full):
    assert found(pilot=[check("references", "insufficient")], full=full) == ("pilot/references",)


def test_open_checks_that_full_leaves_open_are_not_answered_by_an_earlier_stage():
    pilot, full = [check("references", "pass")], [check("references", "insufficient")]
    assert found(pilot=pilot, full=full) == ("full/references",)


def test_open_checks_of_preflight_and_the_rows_are_not_answered_by_a_stage():
    assert found(preflight=[check("trainer", "insufficient")], full=[check("trainer", "pass")]) == (
        "preflight/trainer",
    )
    assert found(snapshot=[check("drift", "insufficient")], full=[check("drift", "pass")]) == ("snapshot/drift",)


def overfit(*answered_by: str) -> CheckResult:
    """Preflight's family with an insufficient trial for each, beside one that passed."""
    rows = [
        {"check": "overfit.x", "status": "insufficient", "severity": "error", "answered_by": n} for n in answered_by
    ]
    passed = {"check": "overfit.ten_batches", "status": "pass", "severity": "error", "answered_by": ""}
    return check("overfit", "insufficient", details=[passed, *rows], evidence="weak")


def test_open_trials_of_preflight_are_answered_by_the_check_of_a_stage_that_asks_the_same():
    learned = [check("references", "pass")]
    assert found(preflight=[overfit("references")], full=learned) == ()
    assert found(preflight=[overfit("references")], pilot=learned) == ()
    assert found(preflight=[overfit("references")], full=learned, continued=True) == ()


@pytest.mark.parametrize("code", ["less", "less_inputs", "by_heart"])
def test_open_checks_are_answered_by_a_network_that_learned_something_and_less_than_a_reference(code):
    behind = check("references", "fail", "warning", code=code)
    assert found(preflight=[overfit("references")], pilot=[behind]) == ()
    assert found(pilot=[check("references", "insufficient")], full=[behind]) == ()


def test_open_checks_of_records_with_an_earlier_name_are_answered_by_todays_and_the_other_way_round():
    assert found(preflight=[overfit("learned")], full=[check("references", "pass")]) == ()
    assert found(preflight=[overfit("references")], full=[check("learned", "pass")]) == ()
    assert found(pilot=[check("learned", "insufficient")], full=[check("references", "pass")]) == ()
    assert found(pilot=[check("learned", "insufficient")], full=[]) == ("pilot/learned",)
    assert found(preflight=[overfit("learned")], pilot=[check("beyond_linear", "pass")]) == ("preflight/overfit",)


@pytest.mark.parametrize(
    ("preflight", "full"),
    [
        (overfit("references"), [check("references", "insufficient")]),
        (overfit("references"), [check("references", "fail", "warning")]),
        (overfit("references"), []),
        (overfit("references", ""), [check("references", "pass")]),
        (overfit(""), [check("references", "pass")]),
        (overfit("references", "seeds"), [check("references", "pass")]),
        (overfit(), [check("references", "pass")]),
    ],
)
def test_open_trials_of_preflight_that_no_stage_answers_cap_the_verdict(preflight, full):
    assert found(preflight=[preflight], full=full)[0] == "preflight/overfit"


def test_tell_open_names_the_check_of_a_stage_that_may_answer_preflight():
    (line,) = tell_open("preflight", (overfit("references"),), continued=True)
    assert line.endswith("; the verdict can be shadow at best, unless a later stage passes the check references")
    (line,) = tell_open("preflight", (overfit("references", ""),), continued=True)
    assert line.endswith("; the verdict can be shadow at best")


def test_open_checks_of_updates_that_are_in_the_shipped_model_stay_open_where_stages_continue():
    pilot, full = [check("monitors", "insufficient")], [check("monitors", "pass")]
    assert found(pilot=pilot, full=full) == ()
    assert found(pilot=pilot, full=full, continued=True) == ("pilot/monitors",)
    learned = {"pilot": [check("references", "insufficient")], "full": [check("references", "pass")]}
    assert found(**learned, continued=True) == ()


def test_open_checks_of_inputs_that_wait_for_a_review_are_answered_by_full_in_both_modes():
    asked, answered = [check("inputs_reviewed", "insufficient")], [check("inputs_reviewed", "pass")]
    assert found(pilot=asked, full=answered, continued=True) == found(pilot=asked, full=answered) == ()
    assert found(pilot=asked, full=asked, continued=True) == ("pilot/inputs_reviewed", "full/inputs_reviewed")


def test_open_checks_leave_warnings_out():
    assert found(snapshot=[check("history", "insufficient", "warning")]) == ()


@pytest.mark.parametrize(
    ("step", "ends"),
    [
        ("snapshot", "; the verdict can be shadow at best\n  fix: more days"),
        ("pilot", "; the verdict can be shadow at best, unless a later stage passes the same check\n  fix: more days"),
        ("full", "; the verdict can be shadow at best\n  fix: more days"),
    ],
)
def test_tell_open_says_what_an_insufficient_check_means_for_the_verdict(step, ends):
    (line,) = tell_open(step, (check("drift", "insufficient", evidence="3 days.", fix="more days"),), continued=False)
    assert line == f"drift: insufficient: 3 days{ends}"


def test_tell_open_names_a_failed_warning_and_nothing_that_passed_or_stops():
    assert (
        tell_open(
            "pilot",
            (check("references", "pass"), check("steps", "fail"), check("seeds", "not_applicable")),
            continued=False,
        )
        == ()
    )
    (line,) = tell_open("pilot", (check("data_curve", "fail", "warning", evidence="loses"),), continued=False)
    assert line == "data_curve: fail: loses; a warning, which does not limit the verdict"


def test_tell_open_promises_a_later_answer_only_where_it_counts():
    told = {
        name: tell_open("pilot", (check(name, "insufficient"),), continued=True)[0]
        for name in ("references", "monitors")
    }
    assert {name: "unless a later stage" in line for name, line in told.items()} == {
        "references": True,
        "monitors": False,
    }
