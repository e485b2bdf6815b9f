"""Which insufficient checks of earlier steps still cap the verdict, and what is said when one comes about."""

import pytest

from trainworthy.lifecycle.promotion.earlier import open_checks, tell_open
from trainworthy.lifecycle.protocol.checks import CheckResult


def check(name: str, status: str, severity: str = "error", **more) -> CheckResult:
    return CheckResult.model_validate({"name": name, "status": status, "severity": severity, **more})


def found(continued: bool = False, **checks: list[CheckResult]) -> tuple[str, ...]:
    return open_checks(checks, continued=continued)  # pyright: ignore[reportArgumentType]


def test_open_checks_where_everything_was_measured_are_none():
    assert found(preflight=[check("overfit", "pass")], pilot=[check("learned", "pass")]) == ()


def test_open_checks_of_the_pilot_are_answered_by_fulls_pass_of_the_same_name():
    pilot = [check("learned", "insufficient")]
    assert found(pilot=pilot, full=[check("learned", "pass")]) == ()
    assert found(smoke=[check("loss_rise", "insufficient")], pilot=[check("loss_rise", "pass")]) == ()


@pytest.mark.parametrize(
    "full", [[], [check("seeds", "pass")], [check("learned", "not_applicable")], [check("learned", "fail", "warning")]]
)
def test_open_checks_of_the_pilot_without_such_a_pass_stay_open(full):
    assert found(pilot=[check("learned", "insufficient")], full=full) == ("pilot/learned",)


def test_open_checks_that_full_leaves_open_are_not_answered_by_an_earlier_stage():
    pilot, full = [check("learned", "pass")], [check("learned", "insufficient")]
    assert found(pilot=pilot, full=full) == ("full/learned",)


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
    learned = [check("learned", "pass")]
    assert found(preflight=[overfit("learned")], full=learned) == ()
    assert found(preflight=[overfit("learned")], pilot=learned) == ()
    assert found(preflight=[overfit("learned")], full=learned, continued=True) == ()


@pytest.mark.parametrize(
    ("preflight", "full"),
    [
        (overfit("learned"), [check("learned", "insufficient")]),
        (overfit("learned"), [check("learned", "fail", "warning")]),
        (overfit("learned"), []),
        (overfit("learned", ""), [check("learned", "pass")]),
        (overfit(""), [check("learned", "pass")]),
        (overfit("learned", "seeds"), [check("learned", "pass")]),
        (overfit(), [check("learned", "pass")]),
    ],
)
def test_open_trials_of_preflight_that_no_stage_answers_cap_the_verdict(preflight, full):
    assert found(preflight=[preflight], full=full)[0] == "preflight/overfit"


def test_tell_open_names_the_check_of_a_stage_that_may_answer_preflight():
    (line,) = tell_open("preflight", (overfit("learned"),), continued=True)
    assert line.endswith("; the verdict can be shadow at best, unless a later stage passes the check learned")
    (line,) = tell_open("preflight", (overfit("learned", ""),), continued=True)
    assert line.endswith("; the verdict can be shadow at best")


def test_open_checks_of_updates_that_are_in_the_shipped_model_stay_open_where_stages_continue():
    pilot, full = [check("monitors", "insufficient")], [check("monitors", "pass")]
    assert found(pilot=pilot, full=full) == ()
    assert found(pilot=pilot, full=full, continued=True) == ("pilot/monitors",)
    learned = {"pilot": [check("learned", "insufficient")], "full": [check("learned", "pass")]}
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
            (check("learned", "pass"), check("steps", "fail"), check("seeds", "not_applicable")),
            continued=False,
        )
        == ()
    )
    (line,) = tell_open("pilot", (check("beyond_linear", "fail", "warning", evidence="loses"),), continued=False)
    assert line == "beyond_linear: fail: loses; a warning, which does not limit the verdict"


def test_tell_open_promises_a_later_answer_only_where_it_counts():
    told = {
        name: tell_open("pilot", (check(name, "insufficient"),), continued=True)[0] for name in ("learned", "monitors")
    }
    assert {name: "unless a later stage" in line for name, line in told.items()} == {"learned": True, "monitors": False}
