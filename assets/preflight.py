"""preflight: forecasts and trials on a sample, before anything expensive starts."""

import dagster as dg

from assets.declare import asset_options, gpu_pool
from assets.step import Outcome, StepEvents, StepRun, run_step
from assets.training import job_base
from lifecycle.jobs import PreflightJob, PreflightResult
from lifecycle.preflight.gate import cost_forecast, preflight_checks
from lifecycle.records import PreflightReport, Record, Snapshot
from lifecycle.use_case import UseCase
from resources.launcher import Launcher
from resources.mlflow import Tracking
from resources.workspace import Workspace

GIB = 2**30


def preflight_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/preflight."""

    @dg.asset(name="preflight", pool=gpu_pool(use_case), kinds={"pytorch"}, **asset_options(use_case, "preflight"))
    def preflight(
        context: dg.AssetExecutionContext, workspace: Workspace, tracking: Tracking, launcher: Launcher
    ) -> StepEvents:
        yield from run_step(
            context,
            workspace,
            tracking,
            use_case,
            "preflight",
            lambda run: try_out(run, launcher),
            reusable=forecasts_still_fit,
        )

    return preflight


def try_out(run: StepRun, launcher: Launcher) -> Outcome:
    """Run the worker's preflight and hold its answer against memory and budget."""
    spec, snapshot, state = run.use_case.spec, run.record("snapshot", Snapshot), run.workspace.state
    limit = memory_limit_bytes(run.sku.memory_gb)
    job = PreflightJob(
        **job_base(run, snapshot, state.folder("preflight", run.use_case.name, run.run_id)),
        training=spec.training,
        stages=spec.stages,
        hyperparameters=spec.hyperparameters,
        training_file=str(state.absolute(snapshot.splits["training"].file.path)),
        memory_limit_bytes=limit,
    )
    result = launcher.run(run.context, job)
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
