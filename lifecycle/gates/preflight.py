"""Preflight's answer as checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from trainworthy.lifecycle.cost.duration import in_words
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.cost.skus import SkuCost, advice
from trainworthy.lifecycle.gates import own_trainer
from trainworthy.lifecycle.gates.check import CPU_ONLY, UNMEASURED, UNTRIED
from trainworthy.lifecycle.protocol.checks import CheckResult, at_most
from trainworthy.lifecycle.protocol.forecasts import MemoryForecast
from trainworthy.lifecycle.protocol.leak import leakage_check
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.frozen import Frozen

# The use case's own checks, which it may have none of.
OWN = "own"
# The families of the battery, each one check in Dagster: a check there costs 19 ms.
FAMILIES = (
    "configuration", "inputs", "one_batch", "wiring", "start", "determinism", "learning_rate", "overfit", "throughput",
    OWN,
)  # fmt: skip
# One more where a use case trains by a script of its own.
TRAINER = own_trainer.FAMILY
CHECKS = (*FAMILIES, "leakage_in_training", "memory_forecast", "cost_forecast")
# What decides a family, worst first.
_WORST = ("error", "fail", "insufficient", "pass", "not_applicable")
_SMALLER = (
    "a smaller batch, a smaller model, rows that stay on the disk (training.tensors: per_batch), or a machine with "
    "more memory (compute.sku in prices.yaml)"
)

Looked = TypeVar("Looked", Trial, CheckResult)


def cost_forecast(seconds: Forecast | None, sku: Sku) -> Forecast | None:
    """USD of the three stages at the SKU's price."""
    if seconds is None:
        return None
    rate = sku.usd_per_hour / 3600
    return Forecast(
        name="cost", unit="usd", value=seconds.value * rate, low=seconds.low * rate, high=seconds.high * rate
    )


def preflight_checks(
    result: PreflightResult,
    cost: Forecast | None,
    memory_limit_bytes: int,
    budget_usd: float,
    machines: Sequence[SkuCost] = (),
    gpu_sku: str | None = None,
) -> tuple[CheckResult, ...]:
    """One check a family; the upper end of a forecast decides. What was not measured is insufficient and stops.

    `gpu_sku` is the SKU whose GPU the job will use, None for a job on a CPU.
    """
    # Here, since the whole catalogue comes with it, which loading the definitions does not need.
    from trainworthy.lifecycle.gates.measured import with_measured_causes

    uses_cuda = gpu_sku is not None
    result = result.model_copy(update={"trials": with_measured_causes(result.trials, result.leakage)})
    families = (*FAMILIES, *((TRAINER,) if any(trial.family == TRAINER for trial in result.trials) else ()))
    return (
        *(_family(name, [trial for trial in result.trials if trial.family == name], result) for name in families),
        _leakage(result),
        for_device(_memory(result, memory_limit_bytes, gpu_sku), uses_cuda),
        for_device(_cost(cost, budget_usd, result, machines), uses_cuda),
    )


def for_device(looked: Looked, uses_cuda: bool) -> Looked:
    """A CPU's pass clears no CUDA job: it becomes insufficient, which caps the verdict and does not stop."""
    if not (uses_cuda and looked.device == "cpu" and looked.status == "pass"):
        return looked
    fix = "run preflight where the job will run, with a GPU and a CUDA build of torch"
    evidence = f"seen on a CPU only; this does not clear a CUDA job: {looked.evidence}"
    says = {"status": "insufficient", "required": False, "evidence": evidence, "fix": fix, "code": CPU_ONLY}
    return looked.model_copy(update=says)


def host_memory(result: PreflightResult, uses_cuda: bool) -> Forecast | None:
    """Peak bytes of the full stage's processes on the host: where the job uses a GPU, an update's lie there.

    Of all nodes or of the fewest, whichever a machine holds more with.
    """
    parts = (result, *(() if result.fewest is None else (result.fewest,)))
    known = [held for part in parts if (held := _on_host(part.memory, part.step_memory, uses_cuda)) is not None]
    return max(known, key=lambda held: held.high) if len(known) == len(parts) else None


def _on_host(memory: Forecast | None, step: MemoryForecast | None, uses_cuda: bool) -> Forecast | None:
    if memory is None or step is None or not uses_cuda:
        return memory
    value, low, high = step.together
    return memory.model_copy(
        update={"value": memory.value - value, "low": memory.low - low, "high": memory.high - high}
    )


def was_held_against(checks: Iterable[CheckResult], sku: str, gpu_memory_gb: float | None) -> bool:
    """True if recorded checks say that the training fits this SKU's GPU of that memory, by whichever nodes."""
    details = (row for check in checks if check.name == "memory_forecast" for row in check.details if "fits" in row)
    found = {(row["gpu_memory_gb"], row["fits"]) for row in details if row["sku"] == sku}
    return found == {(gpu_memory_gb, True)}


def was_for_nodes(checks: Iterable[CheckResult], nodes: int, fewest: int) -> bool:
    """True if recorded checks forecast the memory of a machine that is one of so many, and of the fewest."""
    details = (
        row for check in checks if check.name == "memory_forecast" for row in check.details if "processes" in row
    )
    return {row.get("nodes", 1) for row in details} in (set(), {nodes, fewest})


def trials_of(checks: Iterable[CheckResult]) -> tuple[Trial, ...]:
    """The trials that the families' checks hold in their details."""
    held = (row for check in checks if check.name in (*FAMILIES, TRAINER) for row in check.details if "check" in row)
    return tuple(Trial.model_validate(row) for row in held)


def _family(name: str, trials: Sequence[Trial], result: PreflightResult) -> CheckResult:
    """A family's trials as one check: its worst trial decides, and the details hold them all."""
    if not trials:
        return CheckResult(name=name, status="not_applicable", evidence="no check of this family applies here")
    # A warning never decides over an error's trial.
    serious = [trial for trial in trials if trial.severity == "error"] or list(trials)
    worst = min(serious, key=_badness)
    deciding = worst if worst.status not in ("pass", "not_applicable") else _mild(trials) or worst
    deciding_trials = [trial for trial in trials if trial.status == deciding.status]
    return CheckResult(
        name=name, status=deciding.status, severity=deciding.severity,
        required=any(trial.required for trial in deciding_trials if trial.severity == "error"), device=deciding.device,
        evidence=_evidence(deciding, deciding_trials, trials), 
        fix="; ".join(dict.fromkeys(trial.fix for trial in deciding_trials if trial.fix)),
        details=tuple(trial.model_dump(mode="json") for trial in trials),
    )  # fmt: skip


def _mild(trials: Sequence[Trial]) -> Trial | None:
    """The worst warning that did not pass, where nothing serious did."""
    alarming = (trial for trial in trials if trial.status not in ("pass", "not_applicable"))
    return min(alarming, key=_badness, default=None)


def _badness(trial: Trial) -> tuple[int, bool]:
    return _WORST.index(trial.status), not trial.required


def _evidence(deciding: Trial, deciding_trials: Sequence[Trial], trials: Sequence[Trial]) -> str:
    if deciding.status in ("pass", "not_applicable"):
        seconds = sum(trial.seconds for trial in trials)
        return f"{len(trials)} {'check' if len(trials) == 1 else 'checks'} in {seconds:.1f} s"
    return "; ".join(f"{trial.check}: {trial.evidence}" for trial in deciding_trials)


def _leakage(result: PreflightResult) -> CheckResult:
    if not result.leakage:
        return _unmeasured("leakage_in_training", result)
    return leakage_check("leakage_in_training", result.leakage, result.device)


def _memory(result: PreflightResult, limit: int, gpu_sku: str | None) -> CheckResult:
    """That of all nodes and of the fewest: it passes if both do, and the worse one decides."""
    of_all = _memory_of(result.model_copy(update={"fewest": None}), limit, gpu_sku)
    if result.fewest is None:
        return of_all
    few = result.model_copy(update={**dict(result.fewest), "fewest": None})
    of_few = _memory_of(few, limit, gpu_sku)
    said = [
        (of_all, f"with all nodes{_by(result.step_memory)}: {of_all.evidence}"),
        (of_few, f"with the fewest{_by(few.step_memory)}: {of_few.evidence}"),
    ]
    # The worst first; of equal ones that of all nodes.
    said.sort(key=lambda one: _WORST.index(one[0].status))
    evidence, details = "; ".join(words for _, words in said), (*of_all.details, *of_few.details)
    return said[0][0].model_copy(update={"evidence": evidence, "details": details})


def _by(step: MemoryForecast | None) -> str:
    return "" if step is None else f" (nodes: {step.nodes}, processes: {step.processes})"


def _memory_of(result: PreflightResult, limit: int, gpu_sku: str | None) -> CheckResult:
    """The process against this machine, and an update against the GPU of the SKU, where the job uses one.

    The details hold an update's bytes by kind, and a line for each GPU.
    """
    memory = host_memory(result, gpu_sku is not None)
    check = _forecast("memory_forecast", memory, limit, _SMALLER, result)
    if memory is None or result.step_memory is None:
        return check
    if gpu_sku is not None:
        check = _on_gpu(check, result, gpu_sku)
    other_gpus = (gpu.told for gpu in result.gpus if gpu.sku != gpu_sku)
    notes = (_of_processes(result.step_memory), step_in_words(result.step_memory), *other_gpus, result.untried)
    return _with(check, notes, (result.step_memory, *result.gpus))


def _of_processes(step: MemoryForecast) -> str:
    """Why several processes take more than one; empty for one."""
    if step.processes == 1:
        return ""
    here, on = step.processes // step.nodes, f" on each of {step.nodes} machines" * (step.nodes > 1)
    many = f"{here} processes together" if here > 1 else "one process"
    if step.sharding == "fsdp":
        return (
            f"that is of {many}{on}: each holds all rows, its part of weights, gradients and optimizer state, and one "
            "block of them whole at a time (blocks); the first also has a copy of the whole state for checkpoints"
        )
    return (
        f"that is of {many}{on}: each holds all rows, weights, gradients and optimizer state, and the gradients once "
        "more to exchange them (buckets); only activations are shared out"
    )


def _on_gpu(check: CheckResult, result: PreflightResult, sku: str) -> CheckResult:
    """The host's check with what the GPU says: one that is too small fails it, an unknown one does not clear it."""
    gpu = next((gpu for gpu in result.gpus if gpu.sku == sku), None)
    evidence = gpu.told if gpu else f"not held against the GPU of {sku}"
    says: dict[str, object] = {"evidence": f"{evidence}; on the host, without an update: {check.evidence}"}
    if gpu is not None and not gpu.fits:
        limit, fix = round(gpu.gpu_memory_gb * 1e9), ", or ".join(gpu.ways) or _SMALLER
        says |= {"status": "fail", "fix": fix, "observed": gpu.high_bytes, "threshold": limit}
    elif gpu is None and check.status == "pass":
        says |= {"status": "insufficient", "fix": f"{sku} needs gpu_memory_gb in prices.yaml, and forward no values"}
    return check.model_copy(update=says)


def _cost(
    cost: Forecast | None, budget_usd: float, result: PreflightResult, machines: Sequence[SkuCost]
) -> CheckResult:
    """The budget's check, with the time by part, and what other machines would cost at least."""
    fix = "raise budget.run_usd, train for fewer epochs, or choose a cheaper SKU"
    check = _forecast("cost_forecast", cost, budget_usd, fix, result)
    if result.time is None or result.step is None:
        return check
    notes = (in_words(result.time, result.step), *(machines[0].told if machines else ()))
    advised = (advice(tuple(machines), result.step),) if machines else ()
    all_nodes = () if result.fewest is None else ("time and cost are those of all nodes: fewer take longer",)
    return _with(check, (*notes, *advised, *all_nodes), (result.step, result.time, *machines))


def _with(check: CheckResult, notes: Sequence[str], details: Sequence[Frozen]) -> CheckResult:
    """The check with more evidence, and details."""
    evidence = "; ".join(part for part in (check.evidence, *notes) if part)
    return check.model_copy(
        update={
            "evidence": evidence,
            "details": tuple(detail.model_dump(mode="json") for detail in details),
        }
    )


def _forecast(name: str, forecast: Forecast | None, limit: float, fix: str, result: PreflightResult) -> CheckResult:
    if forecast is None:
        return _unmeasured(name, result)
    value, low, high = (_shown(figure, forecast.unit) for figure in (forecast.value, forecast.low, forecast.high))
    evidence = f"forecast {value}, between {low} and {high}; the limit is {_shown(limit, forecast.unit)}"
    check = at_most(name, forecast.high, limit, evidence=evidence, device=result.device)
    return check if check.status == "pass" else check.model_copy(update={"fix": fix})


def _shown(value: float, unit: str) -> str:
    return f"{value / 2**30:.2f} GiB" if unit == "bytes" else f"{value:.4f} {unit.upper()}"


def _unmeasured(name: str, result: PreflightResult) -> CheckResult:
    fix = "fix what the other checks found, then run again"
    return CheckResult(
        name=name,
        status="insufficient",
        required=True,
        device=result.device,
        evidence=result.untried,
        fix=fix,
        code=UNTRIED if result.ended_early else UNMEASURED,
    )


# The rule of 40 GB per billion parameters. Told beside the forecast, since readers know it; it decides nothing.
RULE_BYTES = 40


def step_in_words(step: MemoryForecast) -> str:
    """The update's peak, its kinds from the largest on, and the common rule beside it."""
    kinds = sorted(((size, kind) for kind, size in step.kinds.items() if size), reverse=True)
    parts = ", ".join(f"{kind} {_megabytes(size)}" for size, kind in kinds)
    rule = _megabytes(RULE_BYTES * step.parameter_count)
    scoring = f"scoring the validation split holds more: {_megabytes(step.scoring)}; " * (step.scoring > step.value)
    each = f"in each of {step.processes} processes " * (step.processes > 1)
    return scoring + (
        f"{each}an update of {step.rows} rows a forward pass in {step.precision} holds {_megabytes(step.value)} "
        f"({parts or step.source}); by the rule of thumb of 40 GB per billion parameters {rule}"
    )


def _megabytes(size: int) -> str:
    if size < 1e6:
        return f"{size / 1e3:.0f} kB" if size >= 1e4 else f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"
