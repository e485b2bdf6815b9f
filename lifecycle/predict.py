"""Scoring by an artifact, by its own code: rows with the baselines beside it, or its golden requests."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.artifact import Scorer, artifact_kind, load_artifact
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.evaluation.behaviour import behaviour_results
from trainworthy.lifecycle.evaluation.changed_inputs import changed_inputs
from trainworthy.lifecycle.evaluation.decision import decided, decision_column, fixed_threshold, threshold_for
from trainworthy.lifecycle.evaluation.rescored import InputProbe
from trainworthy.lifecycle.evaluation.row_costs import COST_COLUMN, cost_problems, refuse_costs, row_costs
from trainworthy.lifecycle.evaluation.slices import coded, coded_groups, slice_column
from trainworthy.lifecycle.golden import answer_golden, read_golden
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.latency import CALLS, measure_latency
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.figures import Behaviour
from trainworthy.lifecycle.protocol.jobs import PredictJob, Rows, VerifyJob
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import StoredFile
from trainworthy.lifecycle.protocol.results import PredictResult, VerifyResult
from trainworthy.lifecycle.sampling import ROWS_OF_QUANTILES, evenly_spread
from trainworthy.lifecycle.task import load_module, load_task
from trainworthy.lifecycle.tasks.kind import Kind, parts_of
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of, named_column, truth_of
from trainworthy.lifecycle.tasks.own import figure_columns, own_baseline, own_figures
from trainworthy.lifecycle.tasks.statistic_columns import as_columns, from_columns

if TYPE_CHECKING:
    from trainworthy.lifecycle.tasks.kind import Predictor


def run_predict(job: PredictJob) -> PredictResult:
    """Score job.rows_file and write predictions.parquet. Raises CheckpointError, DatasetError, EvaluationError."""
    score, kind = load_artifact(Path(job.artifact), job.artifact_sha256), artifact_kind(Path(job.artifact))
    weight = () if job.weight is None else (job.weight,)
    extra = (*job.columns, *weight, *job.metric_columns, *_cost_columns(job))
    rows = read_rows(job.rows_file, job.rows, extra=tuple(dict.fromkeys(extra)))
    if job.limit is not None:
        rows = rows.head(job.limit)
    costs, weights = _costs(job, rows), _weights(job, rows)
    baselines = _baselines(job, rows)
    columns = {
        "row": range(len(rows)),
        "group": _stored_groups(rows[job.rows.group], job).to_numpy(),
        "label": rows[job.rows.label].to_numpy(),
        **({} if weights is None else {"weight": weights}),
        **({} if costs is None else {COST_COLUMN: costs.scored}),
        **as_columns(kind, "candidate", score.statistics(rows, job.rows)),
        **{slice_column(name): _slice_values(rows, name, job).to_numpy() for name in job.columns},
    }
    for name, baseline in baselines.items():
        figures = baseline.figures(rows, job.rows, lambda truth, answers, _: kind.statistics(truth, answers))
        columns |= as_columns(kind, name, figures)
    if job.metrics:
        columns |= _own_metrics(job, score, rows, baselines)
    table, thresholds = pd.DataFrame(columns), _thresholds(job, score, baselines, costs)
    for model in ("candidate", *baselines):
        if (decide := _deciding(job, kind, thresholds.get(model))) is not None:
            table[decision_column(model)] = decide(from_columns(kind, model, table))
    path = Path(job.out) / "predictions.parquet"
    table.to_parquet(path, index=False)
    golden = read_golden(Path(job.artifact), kind)
    return PredictResult(
        predictions=_stored(path),
        reference=_reference(job, score, kind) if job.reference_files else None,
        rows=len(table),
        golden=answer_golden(golden, score, kind) if golden else None,
        latency=_latency(score, rows, job.latency_limit_ms),
        device="cpu",
        thresholds=thresholds,
        behaviour=_behaviour(job, score, rows, thresholds),
    )


def _behaviour(job: PredictJob, score: Scorer, rows: pd.DataFrame, thresholds: Mapping[str, float]) -> Behaviour:
    """What the artifact answers if its inputs change; nothing where it is not asked."""
    changes = job.changed_inputs
    if changes is None:
        return Behaviour()
    assert job.training_file is not None
    training = read_rows(job.training_file, job.rows)
    training = training.iloc[evenly_spread(len(training), ROWS_OF_QUANTILES)]
    probe = InputProbe(
        kind=score.kind,
        rows=rows,
        labels=labels_of(job.rows, rows),
        groups=rows[job.rows.group],
        weights=_weights(job, rows),
        answer=lambda some: score.statistics(some, job.rows),
        decide=_deciding(job, score.kind, thresholds.get("candidate")),
    )
    return Behaviour(
        changed_inputs=changed_inputs(probe, training, changes, say),
        behaviour=behaviour_results(probe, training, changes),
    )


def _deciding(job: PredictJob, kind: Kind, threshold: float | None) -> Callable[[np.ndarray], np.ndarray] | None:
    """What a model's answers decide; None where nothing is declared that such answers decide."""
    decision = job.decision
    if decision is None or not (decision.by_threshold or kind.takes_cost_matrix):
        return None
    return lambda answers: decided(decision, kind, answers, threshold)


def _weights(job: PredictJob, rows: pd.DataFrame) -> np.ndarray | None:
    """What weighs the rows, `(N,)`, NaN where that is missing; None where they count alike."""
    return None if job.weight is None else rows[job.weight].to_numpy(dtype="float64", na_value=math.nan)


@dataclass(frozen=True)
class _Costs:
    """What rows cost if they are decided wrongly, `(N,)`: those that are scored, and the calibration rows.

    The calibration rows' labels and costs are None where no threshold is chosen by them.
    """

    scored: np.ndarray
    labels: np.ndarray | None = None
    calibration: np.ndarray | None = None


def _cost_columns(job: PredictJob) -> tuple[str, ...]:
    return () if job.decision is None else tuple(dict.fromkeys(job.decision.cost_columns.values()))


def _costs(job: PredictJob, rows: pd.DataFrame) -> _Costs | None:
    """The rows' own costs; None where they have none. Raises EvaluationError with all that is wrong with them."""
    extra = _cost_columns(job)
    if not extra:
        return None
    assert job.decision is not None
    assert job.decision.costs is not None
    declared, labels = job.decision.costs, labels_of(job.rows, rows)
    scored, weights = row_costs(declared, labels, rows), _weights(job, rows)
    problems = {"benchmark": cost_problems(declared, labels, scored, weights, chosen_on=False)}
    # What counts nowhere has no cost, so that none is stored that is missing or infinite.
    own_costs = _Costs(scored if weights is None else np.where(weights > 0, scored, 0.0))
    if job.threshold is None or job.baselines:
        assert job.calibration_file is not None
        calibration = read_rows(job.calibration_file, job.rows, extra)
        labels = labels_of(job.rows, calibration)
        costs = row_costs(declared, labels, calibration)
        own_costs = _Costs(own_costs.scored, labels, costs)
        problems["calibration"] = cost_problems(declared, labels, costs, chosen_on=True)
    refuse_costs(problems)
    return own_costs


def _thresholds(
    job: PredictJob, score: Scorer, baselines: Mapping[str, _Fitted], costs: _Costs | None
) -> dict[str, float]:
    """From which answer on each model decides for 1: its own from before, or by its answers to calibration rows."""
    decision = job.decision
    if decision is None or not decision.by_threshold:
        return {}
    labels, cost = (None, None) if costs is None else (costs.labels, costs.calibration)
    fixed = fixed_threshold(decision) if job.threshold is None else job.threshold
    if fixed is None:
        assert job.calibration_file is not None
        answers = score.statistics(read_rows(job.calibration_file, job.rows), job.rows)
        fixed = threshold_for(decision, answers, labels, cost)
    of_baselines = {
        name: threshold_for(decision, baseline.calibration, labels, cost) for name, baseline in baselines.items()
    }
    return {"candidate": fixed, **of_baselines}


def _own_metrics(
    job: PredictJob, score: Scorer, rows: pd.DataFrame, baselines: Mapping[str, _Fitted]
) -> dict[str, np.ndarray]:
    """Figures of each row by the use case's own metrics, for the candidate and each baseline, as columns."""
    module, kind = load_module(Path(job.use_case_folder), "metrics"), score.kind
    # Figures are stored row by row: what is sensitive may not become one.
    shown = rows[[name for name in job.metric_columns if name not in job.rows.sensitive]]

    def figures(name: str, truth: np.ndarray, answers: np.ndarray, some: slice) -> np.ndarray:
        answers = kind.aligned(truth, answers)
        return own_figures(module, name, truth, answers, shown.iloc[some].copy(), sensitive=bool(job.rows.sensitive))

    columns: dict[str, np.ndarray] = {}
    for name in job.metrics:
        made = functools.partial(figures, name)
        by_model = {"candidate": score.figures(rows, job.rows, made)}
        by_model |= {model: baseline.figures(rows, job.rows, made) for model, baseline in baselines.items()}
        for model, of_model in by_model.items():
            columns |= dict(zip(figure_columns(name, model, of_model.shape[1]), of_model.T, strict=True))
    return columns


def _slice_values(rows: pd.DataFrame, name: str, job: PredictJob) -> pd.Series:
    """A slice column as it may be stored row by row: of a sensitive one its values' numbers."""
    values = named_column(job.rows, rows, name)
    return coded(values) if name in job.rows.sensitive else values


def _stored_groups(groups: pd.Series, job: PredictJob) -> pd.Series:
    """The rows' groups as they may be stored: of a sensitive column its values' numbers."""
    return coded_groups(groups) if job.rows.group in job.rows.sensitive else groups


def run_verify(job: VerifyJob) -> VerifyResult:
    """Load the artifact and answer its golden requests. Raises CheckpointError if it was changed or has none."""
    folder, started = Path(job.artifact), time.perf_counter()
    score = load_artifact(folder, job.artifact_sha256)
    load_seconds = time.perf_counter() - started
    kind = artifact_kind(folder)
    golden = read_golden(folder, kind)
    if golden is None:
        fix = "train the model again: every artifact that is written now has them"
        raise CheckpointError("the artifact has no golden requests to verify it by", value=folder.name, fix=fix)
    answered, latency = answer_golden(golden, score, kind), _latency(score, golden.requests)
    return VerifyResult(golden=answered, load_seconds=load_seconds, latency=latency)


def _reference(job: PredictJob, score: Scorer, kind: Kind) -> StoredFile:
    """What the artifact says of rows from before the benchmark."""
    path = Path(job.out) / "reference.parquet"
    tables = []
    for file in job.reference_files:
        rows = read_rows(file, job.rows)
        answers = as_columns(kind, "candidate", score.statistics(rows, job.rows))
        tables.append(pd.DataFrame({"group": rows[job.rows.group].to_numpy(), **answers}))
    table = pd.concat(tables, ignore_index=True)
    # All files at once: a group of two of them is one group.
    table.assign(group=_stored_groups(table["group"], job)).to_parquet(path, index=False)
    return _stored(path)


def _stored(path: Path) -> StoredFile:
    return StoredFile(path=str(path), sha256=sha256_file(path), bytes=path.stat().st_size)


@dataclass(frozen=True)
class _Fitted:
    """A baseline's calibrated answers to the rows of a slice, and to the calibration rows."""

    kind: Kind
    answers: Callable[[slice], np.ndarray]
    calibration: np.ndarray

    def figures(
        self, rows: pd.DataFrame, columns: Rows, made: Callable[[np.ndarray, np.ndarray, slice], np.ndarray]
    ) -> np.ndarray:
        """As Scorer.figures."""
        parts = parts_of(self.kind, len(rows))
        return np.concatenate([made(truth_of(columns, rows.iloc[some]), self.answers(some), some) for some in parts])


def _baselines(job: PredictJob, rows: pd.DataFrame) -> dict[str, _Fitted]:
    """Each baseline, fitted on the training rows and calibrated on the calibration rows.

    The candidate was calibrated on the same rows. Against baselines as they come from training, a network that
    gives one constant gained 0.043 nats on flights: the base rate had drifted, and only one side had seen it.
    The prior becomes the base rate of the calibration rows.
    """
    from trainworthy.lifecycle.tasks.baselines import BASELINES, fit_baselines

    if not job.baselines:
        return {}
    assert job.training_file is not None
    assert job.calibration_file is not None
    training, calibration = read_rows(job.training_file, job.rows), read_rows(job.calibration_file, job.rows)
    say(f"evaluation: fitting baselines {', '.join(job.baselines)} on {len(training):,} rows")
    features, labels = list(job.rows.features), labels_of(job.rows, calibration)
    label, kind = job.rows.label, kind_of_rows(job.rows)
    known = [name for name in job.baselines if name in BASELINES]
    fitted = fit_baselines(training[[*features, label]], features, label, known, job.seed, kind)
    if own := [name for name in job.baselines if name not in BASELINES]:
        task = load_task(Path(job.use_case_folder))
        fitted |= {
            name: own_baseline(task, name, training, features, label, kind, sensitive=bool(job.rows.sensitive))
            for name in own
        }
    plain = {name: predict(calibration[features]) for name, predict in fitted.items()}
    return {
        name: _fitted(kind, predict, kind.fit_calibration(labels, plain[name]), plain[name], rows[features])
        for name, predict in fitted.items()
    }


def _fitted(kind: Kind, predict: Predictor, state: Mapping[str, Any], plain: np.ndarray, rows: pd.DataFrame) -> _Fitted:
    """Of whole answers, where the predictor gives such; `plain` are those to the calibration rows."""
    whole, calibration = getattr(predict, "whole", None), kind.calibrated(plain, state)
    if whole is not None:
        return _Fitted(kind, lambda some: kind.calibrated(whole(rows.iloc[some]), state), calibration)
    answers = kind.calibrated(predict(rows), state)
    return _Fitted(kind, lambda some: answers[some], calibration)


def _latency(score: Callable[[pd.DataFrame], np.ndarray], rows: pd.DataFrame, limit_ms: float | None = None) -> Latency:
    """Of one row, preprocessing included."""
    ones = [rows.iloc[[position]] for position in range(min(len(rows), CALLS))]
    return measure_latency(lambda call: score(ones[call % len(ones)]), limit_ms)
