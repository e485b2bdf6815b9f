"""What a verdict rests on: what promotion has to measure, what the verdict is about, and what it cost.

Measured are the registered artifact in a fresh process, and an equal rerun.
"""

from __future__ import annotations

from typing import Any

from trainworthy.assets.comparable import champion_window
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.scoring import benchmark_job, raise_unless_about_the_model
from trainworthy.assets.serving import size_mb
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training_job import train_job
from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.evaluation.disjoint import NAME as WINDOW
from trainworthy.lifecycle.evaluation.disjoint import trained_on_tags
from trainworthy.lifecycle.gates.earlier import open_checks
from trainworthy.lifecycle.golden import largest_difference
from trainworthy.lifecycle.leakage.unreviewed import NAME as REVIEWED
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.promotion.prefix import made_by_several, processes_of_rerun
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.operating_point import DECISIONS
from trainworthy.lifecycle.protocol.records import (
    STEPS,
    Cost,
    DatasetVersion,
    EvaluationReport,
    Record,
    Snapshot,
    StageReport,
    Step,
)
from trainworthy.lifecycle.protocol.results import PredictResult, TrainResult
from trainworthy.lifecycle.tasks.statistic_columns import from_columns
from trainworthy.resources.mlflow_model import RegisteredModel

# Checks that ask a person, each in a sentence of its own.
ASK = (REVIEWED, DECISIONS)
COMPARED_ROWS = 200


def deployment_evidence(run: StepRun, model: RegisteredModel) -> dict[str, Any]:
    """Load the registered files in a fresh process; answer the first benchmark rows and the golden requests again."""
    import pandas as pd

    evaluation = run.record("evaluation", EvaluationReport)
    evidence: dict[str, Any] = {
        "loaded": False, "rows_compared": 0, "difference": None, "golden_difference": None,
        "tolerance": ANSWER_TOLERANCE, "latency": None, "size_mb": size_mb(model.artifact),
    }  # fmt: skip
    try:
        features = run.record("snapshot", Snapshot).feature_columns
        latency_limit_ms = run.use_case.spec.benchmark.latency_ms
        job = benchmark_job(run, model, "deployment", features, limit=COMPARED_ROWS, latency_limit_ms=latency_limit_ms)
        # As a service: the workers that are forked from one process share the order of sets and what hash() gives.
        result = run.in_worker(job, fresh=True)
        assert isinstance(result, PredictResult)
    except WorkerError as error:
        raise_unless_about_the_model(error)
        run.context.log.error(f"deployment: {error}")
        return evidence
    kind, evaluated = (
        artifact_kind(model.artifact),
        pd.read_parquet(run.workspace.state.absolute(evaluation.predictions.path)),
    )
    served = from_columns(kind, "candidate", pd.read_parquet(result.predictions.path))
    expected = from_columns(kind, "candidate", evaluated.head(COMPARED_ROWS))
    difference = largest_difference(expected, served, kind.answer_scale(expected))
    return evidence | {
        "loaded": True,
        "rows_compared": len(served),
        # JSON has no infinity; any difference above 1 fails all the same.
        "difference": min(difference, 2.0),
        "golden_difference": result.golden.difference if result.golden else None,
        "latency": result.latency,
    }


def reproducibility_evidence(run: StepRun) -> str | None:
    """Hash of the parameters after an equal rerun of the training's first steps; None if it did not run.

    It has as many processes as made them, and is not made where these were several numbers.
    """
    snapshot, full = run.record("snapshot", Snapshot), run.record("full", StageReport)
    if made_by_several(full):
        return None
    processes = processes_of_rerun(full, run.use_case.spec.compute)
    try:
        job = train_job(
            run, snapshot, full.training_run, "full", full.seed, rerun_steps=full.prefix_steps, processes=processes
        )
        # Equal by itself, and not for what the two processes share.
        result = run.in_worker(job, fresh=True)
    except WorkerError as error:
        raise_unless_about_the_model(error)
        run.context.log.error(f"reproducibility: {error}")
        return None
    assert isinstance(result, TrainResult)
    return result.prefix_sha256


def benchmark_windows(
    run: StepRun, evaluation: EvaluationReport, champion: RegisteredModel | None
) -> tuple[CheckResult, ...]:
    """Whether the benchmark is apart from what the candidate saw, as evaluation found, and what the champion saw."""
    own = tuple(check for check in evaluation.checks if check.name == WINDOW)
    return own if champion is None else (*own, champion_window(run, champion))


def binds(run: StepRun) -> dict[str, str]:
    """sha256 of all that the verdict is about."""
    dataset, snapshot = run.record("dataset", DatasetVersion), run.record("snapshot", Snapshot)
    evaluation = run.record("evaluation", EvaluationReport)
    return {
        "model": evaluation.artifact_sha256,
        "dataset": dataset.content_hash,
        "split": snapshot.content_hash,
        "suite": evaluation.suite.sha256 if evaluation.suite else evaluation.identity,
        "contract": snapshot.contract_sha256,
        "label": snapshot.label_sha256,
        "code": evaluation.provenance.code_sha256,
        "training_code": run.record("full", StageReport).provenance.code_sha256,
        "environment": evaluation.provenance.environment_sha256,
    }


def step_costs(run: StepRun) -> dict[str, Cost]:
    """What each step cost this run; a reused step cost it nothing."""
    records = {step: run.workspace.records.of_run(run.use_case.name, step, run.run_id) for step in STEPS[:-1]}
    return {
        step: record.cost if record.provenance.run_id == run.run_id else Cost()
        for step, record in records.items()
        if record is not None
    }


def model_cost(run: StepRun) -> Cost:
    """What the model cost in all, whichever run paid for it: every record that it was made from."""
    stages = stage_costs(run).values()
    other_costs = (run.upstream[step].cost for step in ("dataset", "snapshot", "preflight", "evaluation"))
    return sum((*other_costs, *stages), Cost())


def insufficient_checks(run: StepRun) -> tuple[str, ...]:
    """Checks upstream that could not be measured, and that no later stage answered; they cap the verdict at shadow."""
    return tuple(name for name in _open_checks(run) if name.partition("/")[2] not in ASK)


def open_questions(run: StepRun) -> tuple[str, ...]:
    """What checks upstream ask a person, and how it is answered, each by the last step that asks it.

    They cap the verdict at shadow as well.
    """
    last = {name.partition("/")[2]: name for name in _open_checks(run)}
    return tuple(
        f"{check.evidence.rstrip('.')}; {check.fix}"
        for step, record in _upstream(run).items()
        for check in record.checks
        if check.name in ASK and f"{step}/{check.name}" == last.get(check.name)
    )


def _open_checks(run: StepRun) -> tuple[str, ...]:
    checks: dict[Step, tuple[CheckResult, ...]] = {}
    for step, record in _upstream(run).items():
        checks[step] = record.checks
    return open_checks(checks, continued=run.use_case.spec.stages.mode == "continue")


def _upstream(run: StepRun) -> dict[Step, Record]:
    return stage_records(run) | dict(run.upstream)


def accepted_inputs(run: StepRun) -> str:
    """Which inputs were accepted without a question about each, and why; empty if none were."""
    contract = judged_contract(run)
    accepted = contract.accepted_features
    if not accepted:
        return ""
    reasons = "; ".join(dict.fromkeys(reason.strip().rstrip(".") for reason in accepted.values()))
    return f"{len(accepted)} of {len(contract.feature_columns)} inputs were accepted without a review: {reasons}"


def stage_records(run: StepRun) -> dict[Step, Record]:
    """smoke and pilot by the chain of parents, and full."""
    store, name, full = run.workspace.records, run.use_case.name, run.upstream["full"]
    pilot = store.get(name, "pilot", full.parents["pilot"])
    smoke = store.get(name, "smoke", pilot.parents["smoke"])
    return {"smoke": smoke, "pilot": pilot, "full": full}


def stage_costs(run: StepRun) -> dict[Step, Cost]:
    """What the three stages cost when they were trained."""
    return {step: record.cost for step, record in stage_records(run).items()}


def benchmark_tags(run: StepRun) -> dict[str, str]:
    """What a later comparison must know about the model."""
    snapshot, contract = run.record("snapshot", Snapshot), judged_contract(run)
    return {
        **trained_on_tags(snapshot, run.use_case.spec.split, contract),
        "label_sha256": snapshot.label_sha256,
        "task": run.use_case.spec.task.kind,
        "run_id": run.run_id,
    }
