"""Several trainings of one stage: which seeds, how many updates, which one counts, and how far they lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.plan import plan_of_counts
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec
from trainworthy.lifecycle.wording import stage_metric_name


def seeds_of(training: TrainingSpec, stage: str) -> tuple[int, ...]:
    """Seeds of a stage's trainings, the declared one first."""
    count = {"pilot": training.pilot_seeds, "full": training.full_seeds}.get(stage, 1)
    return tuple(range(training.seed, training.seed + count))


def of_seed(training: TrainingSpec, seed: int) -> TrainingSpec:
    """One training of one seed: what a worker is asked for."""
    return training.model_copy(update={"seed": seed, "pilot_seeds": 1, "full_seeds": 1})


def updates_of_stages(rows: int, positives: int, training: TrainingSpec, stages: StagesSpec) -> dict[str, int]:
    """Updates of all trainings of each stage; `rows` are all training rows, `positives` the positive ones of them.

    In mode continue the declared seed goes on where the stage before ended, and every other one starts anew.
    """
    updates = {}
    for stage in STAGES:
        plan = plan_of_counts(rows, positives, training, stages, stage)
        other_seeds = len(seeds_of(training, stage)) - 1
        updates[str(stage)] = plan.last_step - plan.first_step + other_seeds * plan.last_step
    return updates


def one_that_counts(stage: str, results: Mapping[int, TrainResult]) -> int:
    """The seed whose training goes on: of full the one with the median validation loss, else the declared one.

    Declared before any result is seen, so that no one picks the luckiest. A training without a loss counts as worst;
    one that the budget ended counts before all, so that the stage is no go and goes on from there.
    """
    if stage != "full":
        return next(iter(results))
    unfinished = [seed for seed, result in results.items() if result.ended == "budget"]
    if unfinished:
        return unfinished[0]
    ordered = sorted(results, key=lambda seed: _or_infinite(results[seed].metrics.get("val_loss")))
    return ordered[(len(ordered) - 1) // 2]


def seed_results(
    stage: str, results: Mapping[int, TrainResult], score: str, lost: Mapping[int, WorkerError] | None = None
) -> tuple[SeedResult, ...]:
    """Each training in brief; empty for one. `score` is Kind.score, `lost` are those without an answer, and why."""
    lost = lost or {}
    if len(results) + len(lost) < 2:
        return ()
    answered = tuple(
        SeedResult(
            seed=seed,
            val_loss=_finite(result.metrics.get("val_loss")),
            val_score=_finite(result.metrics.get(f"val_{score}")),
            score=score,
            validated=result.artifact_metrics,
            resumed_from_step=result.resumed_from_step,
            stopped_by=tuple(check.name for check in training_checks(stage, result) if check.stops),
        )
        for seed, result in results.items()
    )
    unanswered = (
        SeedResult(seed=seed, val_loss=None, score=score, resumed_from_step=0, error=error.problem)
        for seed, error in lost.items()
    )
    return (*answered, *unanswered)


def lost_gpu_seconds(device: str, lost: Mapping[int, WorkerError]) -> float:
    """What those without an answer used of the answered ones' device: nobody knows when it was idle."""
    return sum(attempt.seconds for error in lost.values() for attempt in error.attempts) if device == "cuda" else 0.0


def spread(trained: Sequence[SeedResult]) -> dict[str, float]:
    """`val_loss_sd` and `val_<score>_sd`, standard deviations over the seeds; without what fewer than two have."""
    values: dict[str, list[float]] = {}
    for seed_result in trained:
        for name, value in (("val_loss", seed_result.val_loss), (f"val_{seed_result.score}", seed_result.scored)):
            values.setdefault(name, []).extend([] if value is None else [value])
    return {f"{name}_sd": statistics.stdev(values) for name, values in values.items() if len(values) > 1}


def seeds_check(stage: str, trained: Sequence[SeedResult], counts: int) -> CheckResult:
    """Warns if another seed would have been stopped, or gave no answer and so was not measured.

    The one that counts has its own checks and stops for itself.
    """
    if not trained:
        evidence = f"one training: how far another seed would lie is not known; training.{stage}_seeds: 3 measures it"
        return CheckResult(name="seeds", status="not_applicable", severity="warning", evidence=evidence)
    stopped = [seed_result for seed_result in trained if seed_result.stopped_by]
    lost = "; ".join(
        f"seed {seed_result.seed} gave no answer: {seed_result.error}"
        for seed_result in trained
        if seed_result.error is not None
    )
    spreads = ", ".join(f"{stage_metric_name(name)} {sd:.2g}" for name, sd in spread(trained).items())
    evidence = (
        f"{len(trained)} trainings, of which seed {counts} counts; {spreads or 'no spread: too few were validated'}"
    )
    evidence = f"{evidence}; {lost}" if lost else evidence
    if lost and not stopped:
        fix = f"fix what ended them, and train the {stage} again for a spread over all seeds"
        return CheckResult(name="seeds", status="insufficient", severity="warning", evidence=evidence, fix=fix)
    if not stopped:
        return CheckResult(name="seeds", status="pass", severity="warning", evidence=evidence)
    named = "; ".join(f"seed {seed_result.seed} by {', '.join(seed_result.stopped_by)}" for seed_result in stopped)
    return CheckResult(
        name="seeds", status="fail", severity="warning", observed=len(stopped), threshold=0,
        evidence=f"{evidence}; stopped would be {named}",
        fix=fix_of("seeds"),
    )  # fmt: skip


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _or_infinite(value: float | None) -> float:
    finite = _finite(value)
    return math.inf if finite is None else finite
