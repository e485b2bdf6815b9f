import itertools
import math

import numpy as np
import pytest
import toy_jobs
from hypothesis import given, settings
from hypothesis import strategies as st

from trainworthy.lifecycle.plan import MIN_STEPS, learning_rate, make_plan, stage_rows
from trainworthy.lifecycle.protocol.records import STAGES

RESTART, CONTINUE = toy_jobs.SPEC.stages, toy_jobs.spec_with(stages={"mode": "continue"}).stages
SIZES = st.integers(1, 3000)


def training(**values):
    return toy_jobs.spec_with(training=values).training


@given(
    horizon=st.integers(MIN_STEPS, 2000),
    warmup=st.floats(0, 0.999),
    decay=st.sampled_from(["cosine", "linear", "constant", "wsd"]),
)
@settings(max_examples=100, deadline=None)
def test_learning_rate_is_above_zero_at_every_step_and_reaches_its_peak(horizon, warmup, decay):
    share = {"decay_share": 1 - warmup} if decay == "wsd" else {}
    spec = training(schedule={"warmup": warmup, "decay": decay, **share})
    rates = [learning_rate(step, horizon, spec) for step in range(horizon)]
    peak, warm = spec.optimizer.learning_rate, round(warmup * horizon)
    assert min(rates) > 0
    assert max(rates) == pytest.approx(peak)
    assert rates[max(0, warm - 1)] == pytest.approx(peak)
    assert all(before < after for before, after in itertools.pairwise(rates[:warm]))
    assert all(before >= after for before, after in itertools.pairwise(rates[warm:]))


def test_wsd_is_stable_until_its_declared_share_and_then_falls_linearly():
    spec = training(schedule={"warmup": 0.1, "decay": "wsd", "decay_share": 0.2})
    shares = [learning_rate(step, 100, spec) / spec.optimizer.learning_rate for step in range(100)]
    assert shares[10:81] == [1.0] * 71
    assert shares[80:] == pytest.approx([(100 - step) / 20 for step in range(80, 100)])


@pytest.mark.parametrize(
    "schedule",
    [
        {"warmup": 0.1, "decay": "wsd"},
        {"warmup": 0.1, "decay": "cosine", "decay_share": 0.2},
        {"warmup": 0.5, "decay": "wsd", "decay_share": 0.6},
    ],
)
def test_decay_share_that_does_not_fit_the_decay_is_refused(schedule):
    with pytest.raises(ValueError, match="decay_share"):
        training(schedule=schedule)


@given(rows=SIZES, batch_size=st.integers(1, 4000), epochs=st.integers(1, 5), stage=st.sampled_from(STAGES))
@settings(max_examples=100, deadline=None)
def test_plan_of_a_restarted_stage_has_at_least_the_declared_epochs_and_20_steps(rows, batch_size, epochs, stage):
    plan = make_plan(rows, training(batch_size=batch_size, epochs=epochs), RESTART, stage)
    assert (plan.first_step, plan.last_step) == (0, plan.horizon_steps)
    assert plan.horizon_steps >= max(MIN_STEPS, epochs * plan.steps_per_epoch)
    assert 1 <= plan.batch_size <= rows
    assert plan.horizon_steps % plan.steps_per_epoch == 0


@given(
    rows=SIZES,
    batch_size=st.integers(1, 500),
    epochs=st.integers(1, 5),
    fractions=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(sorted),
)
@settings(max_examples=100, deadline=None)
def test_pauses_of_a_continued_run_add_up_to_its_horizon(rows, batch_size, epochs, fractions):
    stages = toy_jobs.spec_with(stages={"smoke": fractions[0], "pilot": fractions[1], "mode": "continue"}).stages
    spec = training(batch_size=batch_size, epochs=epochs)
    plans = [make_plan(rows, spec, stages, stage) for stage in STAGES]
    assert plans[0].first_step == 0
    assert plans[0].last_step >= min(MIN_STEPS, plans[0].horizon_steps)
    assert plans[0].last_step == plans[1].first_step
    assert plans[1].last_step == plans[2].first_step
    assert plans[2].last_step == plans[2].horizon_steps
    assert len({plan.horizon_steps for plan in plans}) == 1
    assert plans[1].last_step >= fractions[1] * plans[1].horizon_steps


@given(rows=SIZES, batch_size=st.integers(1, 500), seed=st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_batches_of_an_epoch_hold_each_row_at_most_once_and_leave_less_than_a_batch(rows, batch_size, seed):
    plan = make_plan(rows, training(batch_size=batch_size, seed=seed, epochs=2), RESTART, "full")
    for epoch in (0, 1):
        first = epoch * plan.steps_per_epoch
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        assert {len(batch) for batch in batches} == {plan.batch_size}
        seen = [int(row) for batch in batches for row in batch]
        assert len(seen) == len(set(seen)) > rows - plan.batch_size
        assert set(seen) <= set(range(rows))


def test_order_of_an_epoch_depends_on_seed_and_epoch_only():
    one = make_plan(1000, training(batch_size=100, epochs=3), RESTART, "full")
    other = make_plan(1000, training(batch_size=50, epochs=9, optimizer={"learning_rate": 0.5}), CONTINUE, "smoke")
    order = [one.batch(step).tolist() for step in range(30)]
    # Asked in another order and after other epochs, the answer is the same.
    assert [one.batch(step).tolist() for step in reversed(range(30))] == order[::-1]
    halves = [[*other.batch(2 * step).tolist(), *other.batch(2 * step + 1).tolist()] for step in range(10)]
    assert halves == order[:10]
    assert order[:10] != order[10:20]
    reseeded = make_plan(1000, training(batch_size=100, epochs=3, seed=8), RESTART, "full")
    assert reseeded.batch(0).tolist() != order[0]


def test_neighbouring_seeds_and_epochs_share_no_order():
    orders = {
        tuple(make_plan(50, training(batch_size=50, seed=seed), RESTART, "full").batch(epoch).tolist())
        for seed in range(6)
        for epoch in range(6)
    }
    assert len(orders) == 36


@given(
    labels=st.lists(st.integers(0, 1), min_size=1, max_size=400),
    fractions=st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(sorted),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=200, deadline=None)
def test_stage_rows_are_nested_stratified_ascending_and_unique(labels, fractions, seed):
    values = np.array(labels, dtype="int8")
    small, large = (stage_rows(values, fraction, seed) for fraction in fractions)
    assert set(small) <= set(large) <= set(range(len(labels)))
    for chosen, fraction in zip((small, large), fractions, strict=True):
        assert (np.diff(chosen) > 0).all()
        for value in np.unique(values):
            members = int((values == value).sum())
            assert (values[chosen] == value).sum() == max(1, math.ceil(fraction * members))
    assert stage_rows(values, 1.0, seed).tolist() == list(range(len(labels)))
    assert stage_rows(values, fractions[0], seed).tolist() == small.tolist()
