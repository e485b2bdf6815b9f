"""What declared limits allow: bounds and margins of slices, differences between protected values, behaviour."""

from typing import Any

import pytest
from decided import NAN, changed, disparity, estimate, evidence, limited
from pydantic import ValidationError

from trainworthy.lifecycle.promotion.decide import Decision, decide
from trainworthy.lifecycle.protocol.figures import (
    BehaviourResult,
    RateOfValue,
    SliceResult,
)
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, SliceSpec


def sliced(
    at_most=None, margin=None, then: Any = "shadow", *, found=None, over=None, told=""
) -> tuple[SliceResult, ...]:
    """A slice with a bound on a loss or a margin to the champion, and what was measured of it."""
    declared = SliceSpec(where="night == True", at_most=at_most, champion_margin=margin, on_underpowered=then)
    return (
        SliceResult(
            slice="night", declared=declared, rows=300, groups=30, metric="log_loss", told=told,
            estimate=estimate(*found) if found else None, gain=estimate(*over) if over else None,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("then", ["block", "shadow", "warn"])
@pytest.mark.parametrize(
    ("measured", "shows"),
    [
        ({"at_most": 0.4, "found": (0.2, 0.3)}, "kept"),
        ({"at_most": 0.4, "found": (0.2, 0.4)}, "kept"),
        ({"at_most": 0.4, "found": (0.3, 0.5)}, "nothing"),
        ({"at_most": 0.4, "found": (0.41, 0.5)}, "broken"),
        ({"at_most": 0.4, "told": "3 groups, fewer than 8"}, "nothing"),
        ({"at_most": 0.4, "found": (NAN, NAN)}, "nothing"),
        # No spread: a few events look like that as well as a sure thing.
        ({"at_most": 0.4, "found": (0.2, 0.2)}, "nothing"),
        ({"margin": 0.02, "over": (-0.01, 0.01)}, "kept"),
        ({"margin": 0.02, "over": (-0.02, 0.01)}, "nothing"),
        ({"margin": 0.02, "over": (-0.05, 0.01)}, "nothing"),
        ({"margin": 0.02, "over": (-0.05, -0.03)}, "broken"),
        ({"margin": 0.02, "told": "3 groups, fewer than 8"}, "nothing"),
        # A gain that is the same in all groups, though it lies on the right side.
        ({"margin": 0.02, "over": (0.0, 0.0)}, "nothing"),
        ({"margin": 0.02, "over": (-0.03, -0.03)}, "nothing"),
    ],
)
def test_a_slice_decides_as_declared(measured, shows, then):
    under = {"block": "reject", "shadow": "shadow", "warn": "promote"}[then]
    wanted = {"kept": "promote", "broken": "reject", "nothing": under}[shows]
    found = decide(evidence(champion=(0.001, 0.01), slices=sliced(then=then, **measured)))
    assert found.decision == wanted
    standing = {"kept": "kept", "broken": "broken", "nothing": "not_shown"}[shows]
    assert {f"slice_bound.{standing}", f"slice_champion.{standing}"} & set(found.codes)


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ((-0.05, -0.01), "Worse than the champion on a slice, and not shown to be so within its margin: "),
        ((-0.05, 0.01), "Not shown to be as good as the champion on a slice: "),
    ],
)
def test_a_slice_that_is_worse_for_certain_is_told_as_worse(over, told):
    found = decide(evidence(champion=(0.001, 0.01), slices=sliced(margin=0.02, over=over)))
    assert found.decision == "shadow"
    assert found.reasons[0].startswith(told)


def test_a_margin_to_the_champion_asks_nothing_of_a_first_model():
    assert decide(evidence(slices=sliced(margin=0.02))).decision == "promote"


def test_a_slice_lifts_no_other_rule():
    kept = sliced(at_most=0.4, found=(0.2, 0.3))
    assert decide(evidence(prior=(-0.03, -0.01), slices=kept)).decision == "reject"


FEW = RateOfValue(value="x", rows=5, groups=2, reason="5 rows, fewer than 100")


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        (disparity(), "promote"),
        (disparity(widest=(0.05, 0.15)), "shadow"),
        (disparity(widest=(0.2, 0.3)), "reject"),
        # The extremes keep it, and another pair reaches beyond.
        (disparity(widest=(-0.1, 0.2), surest=(0.07, 0.09)), "shadow"),
        # A pair is surely beyond, and another one reaches farther.
        (disparity(widest=(0.05, 0.9), surest=(0.2, 0.3)), "reject"),
        (changed(disparity(), difference=None, widest=None, surest=None, reason="one value"), "shadow"),
        (changed(disparity(), widest=None), "shadow"),
        # Rates that are the same in all groups have a widest pair, and no difference that would be told with a width.
        (changed(disparity(), difference=None, surest=None), "promote"),
        (changed(disparity(), values=(*disparity().values, FEW)), "shadow"),
        (changed(disparity(), other_values=2, other_rows=9), "shadow"),
        # Records that name no pairs have the extremes.
        (changed(disparity(values=2), widest=None, surest=None), "promote"),
        (changed(disparity(values=3), widest=None, surest=None), "shadow"),
        (changed(disparity(widest=(0.2, 0.3)), widest=None, surest=None), "reject"),
    ],
)
def test_limit_of_fairness_is_kept_by_all_pairs_of_all_values(found, decision):
    assert decide(limited(found)).decision == decision
    # Without a limit it is told and decides nothing.
    assert decide(evidence(disparities=(found,))).decision == "promote"


@pytest.mark.parametrize(("declared", "decision"), [("block", "reject"), ("shadow", "shadow"), ("warn", "promote")])
def test_limit_of_fairness_that_too_few_rows_tell_of_decides_as_declared(declared, decision):
    small = changed(disparity(), values=(*disparity().values, FEW))
    unmeasured = changed(disparity(), difference=None, widest=None, surest=None, reason="one value")
    for found in (small, unmeasured, disparity(widest=(0.05, 0.15))):
        judged = decide(limited(found).model_copy(update={"on_underpowered_difference": declared}))
        assert judged.decision == decision
        pairs = zip(judged.codes, judged.reasons, strict=True)
        (told,) = [reason for code, reason in pairs if code.startswith("fairness.")]
        assert ("on_underpowered" in told) == (declared != "shadow")
    # What is surely beyond is no question of rows, and what is kept is kept.
    for found, expected in ((disparity(widest=(0.2, 0.3)), "reject"), (disparity(), "promote")):
        update = {"on_underpowered_difference": declared}
        assert decide(limited(found).model_copy(update=update)).decision == expected


def test_limit_of_fairness_that_nothing_was_measured_for_is_not_kept():
    assert (decide(limited()).decision, decide(limited()).codes[0]) == ("shadow", "fairness.not_measured")
    assert decide(limited(disparity(), columns=("region", "age"))).decision == "shadow"
    assert decide(limited(changed(disparity(), rate="true_positive_rate"))).decision == "shadow"
    with pytest.raises(ValidationError):
        limited(disparity(), columns=())


def test_limit_of_fairness_is_broken_only_beyond_what_the_choice_of_two_among_many_values_makes():
    def judged(values: int) -> str:
        return decide(limited(disparity(values, widest=(0.102, 0.2)))).decision

    assert (judged(2), judged(15)) == ("reject", "shadow")


def test_declared_behaviour_decides_as_it_was_measured():
    test = BehaviourSpec(column="shop", invariant_to="swapped", at_most=0.05)

    def judged(*results: BehaviourResult) -> Decision:
        return decide(evidence(behaviour=results, behaviour_tests=(test,)))

    def measured(low: float, high: float) -> BehaviourResult:
        return BehaviourResult(declared=test, measure="flip_rate", rows=900, estimate=estimate(low, high))

    assert judged(measured(0.0, 0.04)).decision == "promote"
    assert judged(measured(0.04, 0.06)).decision == "shadow"
    rejected = judged(measured(0.06, 0.08))
    assert rejected.decision == "reject"
    assert rejected.codes[0] == "behaviour.broken"
    assert "unchanged when shop is swapped; share of decisions" in rejected.reasons[0]
    assert (judged().decision, judged().codes[0]) == ("shadow", "behaviour.not_measured")
    # Without a declared test nothing is asked.
    assert decide(evidence(behaviour=(measured(0.06, 0.08),))).decision == "promote"
