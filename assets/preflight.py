"""preflight: forecasts and trials on a sample, before anything expensive starts."""

import dagster as dg

from assets.comparable import candidate_is_refused, refuse_candidate
from assets.declare import gpu_pool, step_asset
from assets.step import Outcome, StepRun
from assets.training import job_base
from lifecycle.jobs import PreflightJob, PreflightResult
from lifecycle.preflight.gate import cost_forecast, preflight_checks
from lifecycle.records import PreflightReport, Record, Snapshot
from lifecycle.use_case import UseCase

GIB = 2**30


def preflight_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/preflight."""
    return step_asset(
        use_case,
        "preflight",
        try_out,
        kinds={"pytorch"},
        pool=gpu_pool(use_case),
        # An experiment may have made an equal preflight, and its reuse must not skip the questions to a candidate.
        reusable=lambda run, record: forecasts_still_fit(run, record) and not candidate_is_refused(run),
    )


def try_out(run: StepRun) -> Outcome:
    """Run the worker's preflight and hold its answer against memory and budget."""
    refuse_candidate(run)
    spec, snapshot, state = run.use_case.spec, run.record("snapshot", Snapshot), run.workspace.state
    limit = memory_limit_bytes(run.sku.memory_gb)
    job = PreflightJob(
        **job_base(run, snapshot, state.folder("preflight", run.use_case.name, run.run_id)),
        training=spec.training,
        stages=spec.stages,
        hyperparameters=spec.hyperparameters,
        training_file=str(state.absolute(snapshot.splits["training"].file.path)),
        validation_file=str(state.absolute(snapshot.splits["validation"].file.path)),
        claims=spec.preflight,
        split=spec.split,
        prediction_time=spec.prediction_time,
        data_folders=(str(state.folder("snapshots", run.use_case.name)), str(state.folder("datasets"))),
        memory_limit_bytes=limit,
        gpu_memory_gb={name: sku.gpu_memory_gb for name, sku in run.workspace.prices.skus.items() if sku.gpu_memory_gb},
    )
    result = run.launcher.run(run.context, job)
    assert isinstance(result, PreflightResult)
    cost = cost_forecast(result.seconds, run.sku)
    return Outcome(
        checks=preflight_checks(result, cost, limit, spec.budget.run_usd),
        fields={"memory_bytes": result.memory, "seconds": result.seconds, "cost_usd": cost},
        device=result.device,
        seeds=(spec.training.seed,),
    )


def forecasts_still_fit(run: StepRun, record: Record) -> bool:
    """True if the forecasts keep today's budget, price and memory, which are no part of the identity."""
    assert isinstance(record, PreflightReport)
    memory, cost = record.memory_bytes, cost_forecast(record.seconds, run.sku)
    if memory is None or cost is None or cost != record.cost_usd:
        return False
    fits = memory.high <= memory_limit_bytes(run.sku.memory_gb)
    return fits and cost.high <= run.use_case.spec.budget.run_usd


def memory_limit_bytes(declared_gb: float | None) -> int:
    """The SKU's memory, or this machine's if it is smaller or none is declared."""
    import psutil

    here = psutil.virtual_memory().total
    return min(here, int(declared_gb * GIB)) if declared_gb is not None else here
