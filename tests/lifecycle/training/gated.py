"""A stage's checks, and curves for them."""

import numpy as np

from trainworthy.lifecycle.engine.training.judging.references import Asking, OwnRows, measure_references
from trainworthy.lifecycle.engine.training.judging.rise import Judge
from trainworthy.lifecycle.gates.stage import (
    CHECKS,
    stage_checks,
)
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.results import Arm, Progress, References, TrainResult
from trainworthy.lifecycle.protocol.training_figures import Alarm, CurvePoint


def checks_of(stage: str, result: TrainResult) -> dict[str, CheckResult]:
    names = ("seeds", "data_curve", "inputs_reviewed")
    beside = [CheckResult(name=name, status="not_applicable", severity="warning") for name in names]
    found = stage_checks(stage, result, 0.1, 0.2, 0.5, *beside)
    assert tuple(check.name for check in found) == CHECKS[stage]
    return {check.name: check for check in found if check not in beside}


class Answered:
    """Rows of which every reference gives the same answers, or others of the stage's rows."""

    def __init__(self, there, stage):
        self.there, self.stage = there, stage

    def cross_fitted(self, fit, seed, most_rows):
        return self.there

    def refitted(self, fit, seed, most_rows):
        return [self.stage] * 5

    def fitted(self, fit, seed, most_rows=None):
        return self.stage

    def of_itself(self, fit, seed, most_rows):
        return None


def measured_of(kind, labels, network, reference, groups, stage=None, tensors=None) -> References:
    seen = Answered(reference, reference if stage is None else stage)
    judge = Judge(kind, labels, groups, 0)
    asking = Asking(judge, network, seen, 500, lambda: tensors)  # pyright: ignore[reportArgumentType]
    return measure_references(asking, network, kind.prior(labels), OwnRows(), nonlinear=True, compare_network=True)


def ranked_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, groups and the true logits of 14 groups of 80 rows."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=1120) * 1.8
    return (generator.random(1120) < 1 / (1 + np.exp(-logits))).astype(int), np.repeat(np.arange(14), 80), logits


SPIKE = Alarm(
    step=90, onset=83, last_step=90, monitor="loss_spike", severity="critical", symptom="the loss jumped", evidence="5",
    cause="a bad batch", fix="look at its rows", action="warn",
)  # fmt: skip


def falling(first: float, last: float) -> tuple[CurvePoint, ...]:
    """A curve of twenty windows of 100 rows from one loss to another."""
    losses = np.linspace(first, last, 20)
    return tuple(
        CurvePoint(step=n, rows=100, loss=loss, standard_error=0.02, learning_rate=0.1) for n, loss in enumerate(losses)
    )


FALLING = falling(0.7, 0.5)


def estimate(value: float, error: float = 0.001) -> Estimate:
    return Estimate(value=value, low=value - 2 * error, high=value + 2 * error, standard_error=error, groups=14)


def references(network: float, linear: float, error: float = 0.001, stage: float | None = None, **values) -> References:
    of_stage = [] if stage is None else [arm(stage, error, fitted_on="stage", draws=5)]
    more = values.pop("arms", ())
    return References(
        network=estimate(network, error), arms=(arm(linear, error), *of_stage, *more),
        **{"label_entropy": 0.5, "network_loss": 0.4, "stretched_loss": 0.4, "prior_loss": 0.5, **values},
    )  # fmt: skip


def arm(rise: float, error: float = 0.001, **values) -> Arm:
    return Arm(**{"reference": "linear", "fitted_on": "validation", "rise": estimate(rise, error), **values})


def moved(fall: float, share: float = 0.1, untrained: float = 0.6) -> Progress:
    """A training that lowered its loss of 0.7 by so much."""
    return Progress(first_loss=0.7, fall=estimate(fall, 1e-5), share_of_full=share, untrained_loss=untrained)
