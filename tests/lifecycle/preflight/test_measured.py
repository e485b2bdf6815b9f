"""A measured cause goes before one that only could be."""

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor, nn

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.learning_rate import CHECKS, RISES, TOO_LARGE, TOO_SMALL
from trainworthy.lifecycle.engine.preflight.wiring import checks as wiring
from trainworthy.lifecycle.engine.preflight.wiring.columns import UNREAD
from trainworthy.lifecycle.engine.preflight.wiring.one_answer import CONSTANT_OUTPUTS, DEAD_UNITS
from trainworthy.lifecycle.gates.catalogue import CATALOGUE, check_of
from trainworthy.lifecycle.gates.check import Outcome, tried
from trainworthy.lifecycle.gates.ci import rows_of, table
from trainworthy.lifecycle.gates.findings import LEAKS
from trainworthy.lifecycle.gates.measured import with_measured_causes, with_measured_fixes
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS, fix_of
from trainworthy.lifecycle.protocol.checks import CheckResult, by_badness
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.protocol.trial import Trial


def trial(name: str, **found: Any) -> Trial:
    outcome = replace(Outcome("fail", "seen"), **found)
    return tried(check_of(name, lambda seen: outcome), outcome, "cpu")


def rate_found(factor: float) -> Trial:
    """What the check finds of a tuned rate times a factor."""
    setup = mlp(3)
    subject = replace(setup, learning_rate=setup.learning_rate * factor).subject()
    return run_checks(CHECKS, subject, device="cpu", not_applicable={})[0]


def failed(name: str, code: str = "") -> CheckResult:
    return CheckResult(name=name, status="fail", fix=fix_of(name, code), code=code)


@pytest.mark.parametrize(
    ("family", "status", "first"),
    [("rows_apart", "fail", True), ("rows_apart", "warning", False), ("preprocessing", "fail", False)],
)
def test_leak_that_was_measured_is_named_before_what_could_be(family, status, first):
    evidence = "to_tensors: numbers changes with a row alone"
    leak = Leak(taxon="L1.2", family=family, status=status, evidence=evidence, fix="compute with what was learned")
    prepared, rate = trial("inputs.same_preprocessing"), trial("learning_rate.range")
    told, other = with_measured_causes((prepared, rate), [leak])
    assert told.cause.startswith(f"{evidence} (measured by leakage_in_training); else: ") == first
    assert told.fix.startswith("compute with what was learned; else: ") == first
    assert other == rate


@pytest.mark.parametrize(("factor", "side"), [(1e-4, "too small"), (100, "too large")])
def test_rate_that_was_measured_is_named_before_what_could_be(factor, side):
    unlearned, rate = trial("overfit.ten_batches"), rate_found(factor)
    (told,) = with_measured_causes((unlearned, rate))[:1]
    assert told.cause.startswith(rate.cause)
    assert side in rate.cause
    assert told.fix.startswith(rate.fix)
    assert "declare a rate of about" in rate.fix
    # The others are still there, behind it.
    assert told.cause.endswith(unlearned.cause)
    assert told.fix.endswith(unlearned.fix)
    (stage,) = with_measured_fixes((failed("references", "network"),), (rate,))
    assert stage.fix.startswith(rate.cause)
    assert stage.fix.endswith(fix_of("references", "network"))


def test_rate_that_is_well_is_not_put_first():
    trials = (trial("overfit.ten_batches"), rate_found(1.0))
    assert with_measured_causes(trials) == trials
    checks = (failed("references", "network"), failed("loss_rise"))
    assert with_measured_fixes(checks, trials) == checks


def test_only_what_supports_the_finding_is_put_before_it():
    """A rate that is too small explains no divergence; rows that a reference learns nothing from are shown to be it."""
    small, large = (trial("learning_rate.range", code=code, cause=code) for code in (TOO_SMALL, TOO_LARGE))
    for check in (failed("references", "rows"), failed("references", "inputs"), failed("references", "diverged")):
        assert with_measured_fixes((check,), (small,)) == (check,)
    assert with_measured_fixes((failed("references", "diverged"),), (large,)) != (failed("references", "diverged"),)
    # A check that saw its own cause keeps it, and one that passed has none.
    seen = trial("overfit.ten_batches", cause="the loss has the wrong sign", fix="negate it")
    passed = trial("overfit.ten_batches", status="pass")
    assert with_measured_causes((seen, passed, small)) == (seen, passed, small)


def test_several_measured_causes_are_told_in_the_tables_order():
    gradients = trial("wiring.gradients", cause="layers in a plain list")
    trials = (trial("overfit.ten_batches"), trial("learning_rate.range", cause="small", code=TOO_SMALL), gradients)
    cause = with_measured_causes(trials)[0].cause
    assert cause.index("wiring.gradients") < cause.index("learning_rate.range") < cause.index(trials[0].cause)


@pytest.mark.parametrize(("code", "told"), [(TOO_SMALL, True), (TOO_LARGE, False), (RISES, False)])
def test_network_that_did_not_move_is_told_no_rate_that_is_too_large(code, told):
    unmoved, rate = failed("references", "unmoved"), trial("learning_rate.range", code=code, cause=code)
    (stage,) = with_measured_fixes((unmoved,), (rate,))
    assert (stage != unmoved) == told


@pytest.mark.parametrize("code", ["few_updates", "network", "unmoved", "diverged"])
@pytest.mark.parametrize("check", [check for check in CATALOGUE if check.runs == "worker"], ids=lambda check: check.id)
def test_cause_of_the_table_is_no_measurement(check, code):
    """It names what could be; the check saw that something is wrong, and not which."""
    guess = trial(check.id)
    assert with_measured_fixes((failed("references", code),), (guess,)) == (failed("references", code),)
    unlearned = trial("overfit.ten_batches")
    assert with_measured_causes((unlearned, guess))[0] == unlearned


def test_warning_is_no_cause_of_a_check_that_failed():
    columns = trial("wiring.uses_inputs", severity="warning", code=UNREAD, cause="forward takes a part of the input")
    weak = trial("learning_rate.range", severity="warning", code=TOO_SMALL, cause="a rate that is too small")
    failing, slow = trial("overfit.ten_batches"), trial("overfit.ten_batches", status="insufficient")
    assert with_measured_causes((failing, columns, weak)) == (failing, columns, weak)
    told = with_measured_causes((slow, columns, weak))[0].cause
    assert told == f"{weak.cause} (measured by learning_rate.range); else: {slow.cause}"
    # What is worse than a warning stops the run before a stage.
    (stage,) = with_measured_fixes((failed("references", "network"),), (weak,))
    assert stage.fix.startswith(weak.cause)


def test_measured_cause_that_was_put_before_a_guess_is_told_of_its_own_check_alone():
    """Records hold trials as they were told: those with a cause of others before their own guess."""
    rate = trial("learning_rate.range", code=TOO_SMALL, cause="a rate that is too small", fix="declare 0.03")
    told = with_measured_causes((trial("overfit.ten_batches"), rate))
    assert told[0].cause.startswith(rate.cause)
    (stage,) = with_measured_fixes((failed("references", "network"),), told)
    assert stage.fix == f"{rate.cause}, as preflight's {rate.check} measured: {rate.fix}; else: " + fix_of(
        "references", "network"
    )


def test_what_is_said_to_measure_a_cause_is_a_check_or_a_code_of_one():
    known = {check.id for check in CATALOGUE} | {TOO_LARGE, TOO_SMALL, CONSTANT_OUTPUTS, DEAD_UNITS}
    known |= {f"leakage.{leak.id}" for leak in LEAKS}
    by_stage = {name for check in STAGE_CHECKS for names in check.measured_by.values() for name in names}
    assert {name for check in CATALOGUE for name in check.measured_by} | by_stage <= known
    codes = {(check.name, code) for check in STAGE_CHECKS for code in check.measured_by if code}
    assert codes <= {(check.name, code) for check in STAGE_CHECKS for code in check.fixes}


def test_what_follows_from_another_failure_names_it_and_is_told_after_it():
    order, mixed = trial("one_batch.predict"), trial("wiring.rows_apart")
    guessed = order.cause
    told = with_measured_causes((order, mixed))
    assert [one.check for one in by_badness(told)] == ["wiring.rows_apart", "one_batch.predict"]
    assert told[0].follows == ("wiring.rows_apart",)
    assert told[0].cause == f"it may follow from wiring.rows_apart; else: {guessed}"
    assert told[0].fix.startswith("see wiring.rows_apart first; else: ")
    assert told[1] == mixed
    families = [CheckResult(name=one.family, status="fail", details=(one.model_dump(mode="json"),)) for one in told]
    lines = [line.split() for line in table(rows_of("preflight", families)).splitlines()]
    assert [line[1] for line in lines if line[0] == "fail"] == ["wiring.rows_apart", "one_batch.predict"]


def test_cause_that_a_check_saw_stays_before_what_it_may_follow_from():
    seen = trial("one_batch.predict", cause="rows change their order", fix="keep it")
    (told, _) = with_measured_causes((seen, trial("wiring.rows_apart")))
    assert told.cause == "rows change their order; it may follow from wiring.rows_apart as well"
    assert (told.fix, told.follows) == ("keep it", ("wiring.rows_apart",))


@pytest.mark.parametrize(
    "other", [trial("wiring.rows_apart", status="pass"), trial("wiring.rows_apart", status="insufficient"),
              trial("wiring.rows_apart", severity="warning"), trial("wiring.gradients")],
    ids=["passed", "inconclusive", "warned", "unrelated"],
)  # fmt: skip
def test_what_did_not_fail_is_no_reason_of_what_did(other):
    order = trial("one_batch.predict")
    assert with_measured_causes((order, other)) == (order, other)


def test_checks_follow_others_of_the_catalogue_and_not_each_other():
    follows = {check.id: check.follows for check in CATALOGUE}
    for id, others in follows.items():
        for other in others:
            assert other in follows
            # Else each of two would send the reader to the other.
            assert id not in follows[other]


class Drops(nn.Module):
    """A network whose dropout is active in evaluation, or that goes on from the last call's outputs."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.layer, self.keeps, self.kept = nn.Linear(12, 1), keeps, None

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        outputs = self.layer(inputs["numbers"]).squeeze(1)
        if not self.keeps:
            return nn.functional.dropout(outputs, 0.5)
        with_kept = outputs if self.kept is None else outputs + self.kept.mean()
        self.kept = outputs.detach()
        return with_kept


@pytest.mark.parametrize(
    ("keeps", "cause"), [(True, "a state that forward keeps"), (False, "random numbers are drawn")]
)
def test_answers_that_do_not_repeat_are_told_by_a_state_or_by_random_numbers(keeps, cause):
    subject = replace(mlp(6), network=lambda: Drops(keeps)).subject()
    check = next(check for check in wiring.CHECKS if check.id == "wiring.evaluation_repeats")
    (repeats,) = run_checks((check,), subject, device="cpu", not_applicable={})
    assert repeats.status == "fail"
    assert repeats.cause.startswith(cause)
