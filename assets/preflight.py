"""preflight: forecasts and trials on a sample, before anything expensive starts."""

from datetime import date

from trainworthy.assets.comparable import candidate_is_refused, refuse_candidate
from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepRun
from trainworthy.assets.training_job import job_base
from trainworthy.lifecycle.cost.duration import measured_step
from trainworthy.lifecycle.cost.skus import SkuCost, Work, costs
from trainworthy.lifecycle.evaluation.comparison import metric_columns
from trainworthy.lifecycle.gates.declared import SHARED_VOLUME, Host, file_system, is_writable
from trainworthy.lifecycle.gates.preflight import (
    cost_forecast,
    host_memory,
    preflight_checks,
    trials_of,
    was_for_nodes,
    was_held_against,
)
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.records import PreflightBody, PreflightReport, Record, Snapshot
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.storage.durable.bucket import is_bucket
from trainworthy.lifecycle.storage.durable.place import takes_copies
from trainworthy.resources.backends.choose import backend_of

GIB = 2**30


def try_out(run: StepRun) -> StepOutcome[PreflightBody]:
    """Look from the host, run the worker's preflight, and hold its answer against memory and budget."""
    # Here, since the whole catalogue comes with it, which loading the definitions does not need.
    from trainworthy.lifecycle.gates.host import before_worker, not_started, stops

    refuse_candidate(run)
    refuse_bad_costs(run)
    spec = run.use_case.spec
    host = host_of(run)
    first = before_worker(host)
    result = not_started(first, host) if stops(first) else worker_result(run, host, first)
    cost = cost_forecast(result.seconds, run.sku.times(spec.compute.nodes))
    uses_cuda = run.launcher.uses_cuda(spec.compute)
    limit, gpu_sku = memory_limit_bytes(run), spec.compute.sku if uses_cuda else None
    return StepOutcome(
        checks=preflight_checks(result, cost, limit, spec.budget.run_usd, machines(run, result), gpu_sku),
        body=PreflightBody(memory_bytes=host_memory(result, uses_cuda), seconds=result.seconds, cost_usd=cost),
        device=result.device,
        seeds=(spec.training.seed,),
    )


def refuse_bad_costs(run: StepRun) -> None:
    """Raises EvaluationError if rows have no cost that a decision can be told by: no training makes up for it."""
    from trainworthy.lifecycle.evaluation.row_costs import refuse_split_costs

    decision = run.use_case.spec.benchmark.decision
    if decision is None or decision.costs is None or not decision.cost_columns:
        return
    snapshot, state = run.record("snapshot", Snapshot), run.workspace.state
    base = job_base(run, snapshot, state.folder("preflight", run.use_case.name, run.run_id))
    files = {name: str(state.absolute(snapshot.splits[name].file.path)) for name in ("benchmark", "calibration")}
    refuse_split_costs(decision.costs, base["rows"], files, run.use_case.spec.benchmark.weight)


def worker_result(run: StepRun, host: Host, first: tuple[Trial, ...]) -> PreflightResult:
    """What the worker found, between what the host found before and after it."""
    from trainworthy.lifecycle.gates.host import with_host

    spec, snapshot, state = run.use_case.spec, run.record("snapshot", Snapshot), run.workspace.state
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
        memory_limit_bytes=memory_limit_bytes(run),
        trainer=spec.trainer,
        metrics=tuple(spec.benchmark.metrics),
        baselines=spec.benchmark.baselines,
        metric_columns=metric_columns(spec.benchmark, snapshot),
        durable=host.durable,
        processes=spec.compute.processes,
        nodes=spec.compute.nodes,
        least_nodes=spec.compute.least_nodes,
        sharding=spec.compute.sharding,
        gpu_counts={name: sku.gpus for name, sku in run.workspace.prices.skus.items() if sku.gpus},
        gpu_memory_gb={name: sku.gpu_memory_gb for name, sku in run.workspace.prices.skus.items() if sku.gpu_memory_gb},
    )
    # What it took to start is the forecast's start of a training, and torchrun forks no process with torch in it.
    result = run.in_worker(job, fresh=spec.compute.processes > 1)
    assert isinstance(result, PreflightResult)
    return with_host(result, first, host, run.launcher.uses_cuda(spec.compute))


def machines(run: StepRun, result: PreflightResult) -> tuple[SkuCost, ...]:
    """What the training would cost on each machine of prices.yaml; empty if its time was not measured."""
    if result.time is None or result.step is None:
        return ()
    spec = run.use_case.spec
    work = Work(result.step, result.time, spec.training.checkpoint_every_steps, spec.compute.nodes)
    return costs(work, run.workspace.prices, spec.compute.sku, date.today())


def host_of(run: StepRun) -> Host:
    """What is known before the worker starts."""
    state, use_case, durable = run.workspace.state, run.use_case, run.workspace.durable
    split = run.record("snapshot", Snapshot).splits["training"]
    # Who opens a bucket is another machine's matter where the worker runs there: it copies a checkpoint and back.
    checks_copies = durable and not (use_case.spec.compute.elsewhere and is_bucket(durable))
    return Host(
        spec=use_case.spec,
        training_rows=split.rows,
        positives=split.positives or 0,
        stores={
            "MLflow": run.tracking.reach,
            "records": run.workspace.shared.check,
            "snapshots": lambda: is_writable(state.folder("snapshots", use_case.name)),
            **(
                {f"copies of checkpoints in {durable}": lambda: takes_copies(durable)}
                if durable and checks_copies
                else {}
            ),
        },
        disk=SHARED_VOLUME if use_case.spec.compute.elsewhere else file_system(durable or state.root),
        durable=durable,
    )


def still_fits(run: StepRun, record: Record) -> bool:
    """True if the record keeps today's budget, price, memory, device and stores, which are no part of the identity."""
    from trainworthy.lifecycle.gates.host import still_holds

    assert isinstance(record, PreflightReport)
    host, compute = host_of(run).after(record.seconds, measured_step(record.checks)), run.use_case.spec.compute
    uses_cuda = run.launcher.uses_cuda(compute)
    if not still_holds(trials_of(record.checks), host, uses_cuda):
        return False
    if uses_cuda and not was_held_against(record.checks, compute.sku, run.sku.gpu_memory_gb):
        return False
    if not was_for_nodes(record.checks, compute.nodes, compute.fewest_nodes):
        return False
    memory, cost = record.memory_bytes, cost_forecast(record.seconds, run.sku.times(compute.nodes))
    if memory is None or cost is None or cost != record.cost_usd:
        return False
    fits = memory.high <= memory_limit_bytes(run)
    return fits and cost.high <= run.use_case.spec.budget.run_usd


def memory_limit_bytes(run: StepRun) -> int:
    """The SKU's memory, or what a worker may use where it runs if that is smaller or none is declared."""
    usable, declared_gb = backend_of(run.use_case.spec.compute).memory_bytes, run.sku.memory_gb
    return min(usable, int(declared_gb * GIB)) if declared_gb is not None else usable


# An experiment may have made an equal preflight, and its reuse must not skip the questions to a candidate.
STEP = StepWork(try_out, reusable=lambda run, record: still_fits(run, record) and not candidate_is_refused(run))
