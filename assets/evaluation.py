"""evaluation: the exported artifact and its baselines on the benchmark. Asks only whether it was measured validly."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from trainworthy.assets.contract import judged_contract
from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.suite import benchmark_parts, benchmark_suite, groups_in_time, shown_values, slice_files
from trainworthy.assets.training_job import job_base
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.evaluation.comparison import metric_columns
from trainworthy.lifecycle.evaluation.decided_alike import decisions_check
from trainworthy.lifecycle.evaluation.decision import of_decisions
from trainworthy.lifecycle.evaluation.disjoint import candidate_overlap
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.input_columns import changed_inputs_job
from trainworthy.lifecycle.evaluation.prediction_drift import prediction_drift_check
from trainworthy.lifecycle.evaluation.seed_spread import with_seeds
from trainworthy.lifecycle.evaluation.suite import look, looks_check
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.figures import CANDIDATE, BenchmarkFigures
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.protocol.records import (
    BenchmarkAnswers,
    EvaluationBody,
    EvaluationReport,
    Record,
    Snapshot,
    StageReport,
    StoredFile,
    joined,
    part_of,
)
from trainworthy.lifecycle.protocol.results import PredictResult
from trainworthy.lifecycle.tasks.labels import kind_of_rows


def score_benchmark(run: StepRun) -> StepOutcome[EvaluationBody]:
    """Score every benchmark row in the worker, then measure."""
    import pandas as pd

    spec, state = run.use_case.spec, run.workspace.state
    snapshot, full = run.record("snapshot", Snapshot), run.record("full", StageReport)
    assert full.artifact is not None
    assert full.artifact_sha256 is not None
    contract = judged_contract(run)
    job = PredictJob(
        **job_base(run, snapshot, state.folder("evaluation", run.use_case.name, run.identity)),
        artifact=str(state.absolute(full.artifact)),
        artifact_sha256=full.artifact_sha256,
        rows_file=str(state.absolute(snapshot.splits["benchmark"].file.path)),
        columns=spec.benchmark.kept_columns,
        weight=spec.benchmark.weight,
        metrics=tuple(spec.benchmark.metrics),
        decision=spec.benchmark.decision,
        metric_columns=metric_columns(spec.benchmark, snapshot),
        training_file=str(state.absolute(snapshot.splits["training"].file.path)),
        calibration_file=str(state.absolute(snapshot.splits["calibration"].file.path)),
        baselines=spec.benchmark.baselines,
        reference_files=tuple(
            str(state.absolute(snapshot.splits[name].file.path)) for name in ("validation", "calibration")
        ),
        changed_inputs=changed_inputs_job(contract, snapshot.feature_columns, spec.benchmark.behaviour),
        seed=spec.training.seed,
    )
    result = run.in_worker(job)
    assert isinstance(result, PredictResult)
    assert result.reference is not None
    benchmark, predictions = snapshot.splits["benchmark"], pd.read_parquet(result.predictions.path)
    kind, files = kind_of_rows(job.rows), SplitFiles(state.absolute(benchmark.file.path).parent)
    parts, (features, cuts) = benchmark_parts(run, predictions), shown_values(run, snapshot, job.rows)
    measured = evaluate(
        predictions,
        spec.benchmark,
        kind,
        benchmark_rows=benchmark.rows,
        window=candidate_overlap(snapshot, spec.split, files, contract.primary_key),
        parts=parts,
        features=features,
        ordered=groups_in_time(run),
        cuts=cuts,
    )
    gains = tuple(
        with_seeds(comparison, full.trained, of_decisions=of_decisions(spec.benchmark, kind, comparison.metric))
        for comparison in measured.comparisons
    )
    file = result.predictions
    moved = prediction_drift_check(predictions, pd.read_parquet(result.reference.path), kind)
    suite = benchmark_suite(run, snapshot)
    looks = look(
        state.folder("suites", f"{suite.name}.jsonl"), suite, full.artifact_sha256,
        use_case=run.use_case.name, run_id=run.run_id, at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    answers = BenchmarkAnswers(
        benchmark=snapshot.benchmark,
        predictions=StoredFile(path=state.relative(Path(file.path)), sha256=file.sha256, bytes=file.bytes),
        latency_ms=result.latency.most_ms,
        artifact=full.artifact,
        artifact_sha256=full.artifact_sha256,
        thresholds=result.thresholds,
        suite=suite,
        looks=looks,
    )
    return StepOutcome(
        checks=(
            *measured.checks,
            *decisions_check(predictions, spec.benchmark, kind, result.thresholds.get(CANDIDATE)),
            moved,
            looks_check(looks, suite, spec.benchmark.looks),
        ),
        body=joined(EvaluationBody, part_of(measured, BenchmarkFigures), answers, result.behaviour).model_copy(
            update={"comparisons": gains}
        ),
        device=result.device,
        seeds=(spec.training.seed,),
    )


def predictions_stay(run: StepRun, record: Record) -> bool:
    """True if the predictions still have the bytes on record."""
    assert isinstance(record, EvaluationReport)
    path = run.workspace.state.absolute(record.predictions.path)
    return path.is_file() and sha256_file(path) == record.predictions.sha256


STEP = StepWork(score_benchmark, read=slice_files, reusable=predictions_stay)
