"""The spread between seeds in the interval of a gain."""

import numpy as np
import pytest
from scipy.special import expit

from trainworthy.lifecycle.engine.training.export import calibrated_metrics
from trainworthy.lifecycle.evaluation.seed_spread import with_seeds
from trainworthy.lifecycle.protocol.figures import Comparison, Estimate
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.interval import mean_estimate, rows_and_room
from trainworthy.lifecycle.tasks.metric import gain, value


def seeds(*losses: float | None, metric: str = "log_loss") -> tuple[SeedResult, ...]:
    """Trainings with so much of a metric of their calibrated answers; the networks' own losses lie far apart."""
    return tuple(
        SeedResult(seed=place, val_loss=0.5 + place, val_score=0.5 + place, resumed_from_step=0,
                   validated={} if loss is None else {metric: float(loss)})
        for place, loss in enumerate(losses)
    )  # fmt: skip


def over(metric: str = "log_loss", value: float = 0.01, reach: float = 0.004, groups: int = 30) -> Comparison:
    from scipy.special import stdtrit

    error = reach / float(stdtrit(groups - 1, 0.975))
    gain = Estimate(value=value, low=value - reach, high=value + reach, standard_error=error, groups=groups)
    return Comparison(reference="champion", metric=metric, gain=gain)


def test_a_gain_of_one_seed_stays_bit_for_bit():
    plain = over()
    assert with_seeds(plain, ()) is plain
    assert with_seeds(plain, seeds(0.4)) is plain
    assert plain.seeds is None


def test_the_spread_of_seeds_is_told_apart_from_that_of_the_rows():
    plain, trained = over(), seeds(0.40, 0.42, 0.41)
    found = with_seeds(plain, trained)
    assert found.seeds is not None
    assert (found.seeds.seeds, found.seeds.by_rows) == (3, plain.gain)
    assert found.seeds.sd == pytest.approx(0.01)
    assert found.gain.value == plain.gain.value
    assert found.gain.low < plain.gain.low < plain.gain.high < found.gain.high
    told = "with the spread between 3 seeds, sd 0.0100; without it [+0.0060, +0.0140]"
    assert (found.gain.method, found.gain.made) == ("with_seeds", f"t by group; {told}")


def test_equal_seeds_leave_the_interval_where_it_was():
    found = with_seeds(over(), seeds(0.4, 0.4, 0.4))
    assert (found.gain.low, found.gain.high) == (over().gain.low, over().gain.high)


def test_the_spread_is_of_the_metric_that_is_compared():
    trained = [
        loss.model_copy(update={"validated": loss.validated | brier.validated})
        for loss, brier in zip(seeds(0.40, 0.42, 0.41), seeds(0.1, 0.2, 0.3, metric="brier"), strict=True)
    ]
    for metric, sd in (("log_loss", 0.01), ("brier", 0.1)):
        found = with_seeds(over(metric), trained).seeds
        assert found is not None
        assert found.sd == pytest.approx(sd)


def test_the_spread_of_what_a_declared_decision_makes_of_answers_is_not_known():
    plain, trained = over("accuracy"), seeds(0.70, 0.71, 0.72, metric="accuracy")
    healthy = with_seeds(plain, trained).seeds
    assert healthy is not None
    assert healthy.sd == pytest.approx(0.01)
    found = with_seeds(plain, trained, of_decisions=True)
    assert found.gain == plain.gain
    assert found.seeds is not None
    assert found.seeds.sd is None
    assert found.seeds.told == "3 of 3 seeds have no accuracy of what they decide of the validation rows"


def test_seeds_that_differ_by_their_temperature_alone_leave_the_interval_where_it_was():
    random = np.random.default_rng(0)
    scores = random.normal(size=6000) * 1.5
    labels, groups = (random.random(6000) < expit(scores)).astype(int), np.arange(6000) // 100
    validation, calibration, benchmark = slice(0, 2000), slice(2000, 4000), slice(4000, 6000)
    trained, artifacts, raw = [], [], []
    for seed, temperature in enumerate((1.0, 1.5, 2.2)):
        answers = expit(scores * temperature)
        state = BINARY.fit_calibration(labels[calibration], answers[calibration])
        raw.append(value(BINARY.metrics["log_loss"], labels[validation], answers[validation]))
        validated = calibrated_metrics(BINARY, labels[validation], answers[validation], state)
        artifacts.append(BINARY.calibrated(answers[benchmark], state))
        trained.append(SeedResult(seed=seed, val_loss=raw[-1], resumed_from_step=0, validated=validated))
    champion = expit(scores * 0.8 + random.normal(size=6000) * 0.5)[benchmark]
    plain = gain(BINARY.metrics["log_loss"], labels[benchmark], artifacts[1], champion, groups[benchmark])
    found = with_seeds(Comparison(reference="champion", metric="log_loss", gain=plain), trained)
    assert np.std(raw, ddof=1) > 0.05
    assert found.seeds is not None
    assert found.seeds.sd == pytest.approx(0.0, abs=1e-6)
    assert (found.gain.low, found.gain.high) == pytest.approx((plain.low, plain.high), rel=1e-3)
    assert found.gain.shows_gain


@pytest.mark.parametrize(("metric", "losses"), [("log_loss", (0.4, None, 0.41)), ("recall", (0.4, 0.42, 0.41))])
def test_a_seed_that_was_not_measured_leaves_the_spread_unknown_and_says_why(metric, losses):
    plain = over(metric)
    found = with_seeds(plain, seeds(*losses))
    assert found.gain == plain.gain
    assert found.seeds is not None
    assert found.seeds.sd is None
    assert "of calibrated answers to the validation rows" in found.seeds.told


def test_a_gain_without_width_gets_none_from_its_seeds():
    plain = over(reach=0.0)
    found = with_seeds(plain, seeds(0.40, 0.42, 0.41))
    assert not found.gain.has_width
    assert found.seeds is not None


def test_more_groups_narrow_what_the_rows_leave_and_nothing_of_the_seeds():
    found = with_seeds(over(), seeds(0.400, 0.402, 0.401))
    by_rows, room = rows_and_room(found, 0.01)
    assert by_rows == over().gain
    assert room == pytest.approx((0.01**2 - (4.302653 * 0.001) ** 2) ** 0.5)
    wide = with_seeds(over(), seeds(0.40, 0.42, 0.41))
    assert rows_and_room(wide, 0.01)[1] == 0
    assert rows_and_room(over(), 0.01) == (over().gain, 0.01)


def test_an_interval_with_seeds_holds_the_recipes_gain_where_one_of_the_rows_alone_misses_it():
    random, held = np.random.default_rng(0), {"rows": 0, "seeds": 0}
    groups = np.arange(300) % 30
    for _ in range(600):
        # The recipe gains 0.1; its seeds lie 0.1 apart, and the first one ships.
        of_seeds = 0.1 * random.normal(size=3)
        rows = 0.1 + of_seeds[0] + random.normal(size=300) * 0.5
        plain = Comparison(reference="champion", metric="log_loss", gain=mean_estimate(rows, groups))
        found = with_seeds(plain, seeds(*(0.4 - of_seeds))).gain
        held["rows"] += plain.gain.low <= 0.1 <= plain.gain.high
        held["seeds"] += found.low <= 0.1 <= found.high
    assert held["rows"] / 600 < 0.6
    assert held["seeds"] / 600 >= 0.93
