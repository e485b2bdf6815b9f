"""Preflight's answer as checks: which memory a GPU's job is held against, and what of a family stops."""

import pytest
import torch

from trainworthy.lifecycle.engine.preflight.memory.forecast import fits_here
from trainworthy.lifecycle.gates import host
from trainworthy.lifecycle.gates.check import CPU_ONLY
from trainworthy.lifecycle.gates.ci import github_annotations, rows_of
from trainworthy.lifecycle.gates.preflight import host_memory, preflight_checks, was_for_nodes, was_held_against
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.forecasts import GpuFit, MemoryForecast
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.results import FewestNodes, PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial

GB = 10**9
STEP = MemoryForecast(
    rows=64, accumulate=1, precision="fp32", source="calibrated", parameter_count=GB, kinds={"activations": 60 * GB},
    value=60 * GB, low=56 * GB, high=67 * GB,
)  # fmt: skip
MEMORY = Forecast(name="memory", unit="bytes", value=62 * GB, low=57 * GB, high=70 * GB)
SECONDS = Forecast(name="seconds", unit="seconds", value=10, low=5, high=20)
COST = Forecast(name="cost", unit="usd", value=1, low=1, high=2)


def gpu(sku: str, gb: float) -> GpuFit:
    fits = gb >= 73
    told = f"{sku}: at most 73 of {gb:g} GB"
    return GpuFit(sku=sku, gpu_memory_gb=gb, fits=fits, high_bytes=73 * GB, largest_rows=20, told=told)


def answer(device: str, *trials: Trial) -> PreflightResult:
    return PreflightResult(
        memory=MEMORY, step_memory=STEP, gpus=(gpu("small", 40), gpu("large", 80)), seconds=SECONDS, device=device,
        trials=trials,
    )  # fmt: skip


def checks_of(
    result: PreflightResult, host_gb: int = 100, gpu_sku: str | None = None, budget_usd: float = 100
) -> dict[str, CheckResult]:
    found = preflight_checks(result, COST, host_gb * GB, budget_usd, gpu_sku=gpu_sku)
    return {check.name: check for check in found}


def test_gpu_that_is_too_small_fails_memory_on_a_host_with_plenty():
    check = checks_of(answer("cuda"), gpu_sku="small")["memory_forecast"]
    assert (check.status, check.stops, check.device) == ("fail", True, "cuda")
    assert (check.observed, check.threshold) == (73 * GB, 40 * GB)
    assert check.evidence.startswith("small: at most 73 of 40 GB; on the host, without an update: ")


def test_update_on_the_gpu_needs_no_memory_of_a_small_host():
    found = checks_of(answer("cuda"), host_gb=4, gpu_sku="large")["memory_forecast"]
    assert found.status == "pass"
    # What is beside the update must still fit the host.
    assert checks_of(answer("cuda"), host_gb=2, gpu_sku="large")["memory_forecast"].status == "fail"
    # On a CPU all of it must.
    assert checks_of(answer("cpu"), host_gb=4)["memory_forecast"].status == "fail"
    beside = host_memory(answer("cuda"), uses_cuda=True)
    assert beside is not None
    assert (beside.low, beside.value, beside.high) == (1 * GB, 2 * GB, 3 * GB)


def test_gpu_of_unknown_memory_does_not_clear_a_job_and_does_not_stop_it():
    check = checks_of(answer("cuda"), gpu_sku="unknown")["memory_forecast"]
    assert (check.status, check.stops) == ("insufficient", False)
    assert "gpu_memory_gb" in check.fix


def test_forecasts_of_a_cpu_do_not_clear_a_cuda_job():
    for name in ("memory_forecast", "cost_forecast"):
        capped = checks_of(answer("cpu"), gpu_sku="large")[name]
        assert (capped.status, capped.stops) == ("insufficient", False)
        assert capped.code == CPU_ONLY
        assert checks_of(answer("cuda"), gpu_sku="large")[name].device == "cuda"
        assert checks_of(answer("cpu"))[name].status == "pass"
    assert checks_of(answer("cpu"), gpu_sku="large", budget_usd=1)["cost_forecast"].status == "fail"


@pytest.mark.parametrize(("sku", "gb", "stands"), [("large", 80, True), ("small", 40, False), ("large", 64, False)])
def test_record_stands_for_the_gpu_that_it_fits(sku, gb, stands):
    checks = checks_of(answer("cuda"), gpu_sku="large").values()
    assert was_held_against(checks, sku, gb) is stands


def test_update_on_cuda_runs_here_if_it_fits_the_free_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70 * GB, 80 * GB))
    assert fits_here(MEMORY, STEP, 4 * GB, "cuda")
    assert not fits_here(MEMORY, STEP, 2 * GB, "cuda")
    assert not fits_here(MEMORY, STEP, 4 * GB, "cpu")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 * GB, 80 * GB))
    assert not fits_here(MEMORY, STEP, 4 * GB, "cuda")


def test_preflight_of_a_gpu_is_not_reused_for_a_cpu(monkeypatch):
    monkeypatch.setattr(host, "before_worker", lambda seen: ())
    monkeypatch.setattr(host, "_tried", lambda checks, seen: ())
    for device, on_cuda, on_cpu in (("cuda", True, False), ("cpu", False, True), ("host", True, True)):
        recorded = (Trial(check="wiring.gradients", status="pass", device=device, evidence="x"),)
        assert host.still_holds(recorded, None, uses_cuda=True) is on_cuda  # pyright: ignore[reportArgumentType]
        assert host.still_holds(recorded, None, uses_cuda=False) is on_cpu  # pyright: ignore[reportArgumentType]


def trial(status, severity, required=False) -> Trial:
    return Trial(
        check=f"wiring.{status}", status=status, severity=severity, required=required, evidence=status, device="cpu"
    )


def test_warning_never_stops_its_family():
    warned = trial("insufficient", "warning", required=True)
    for others in ((trial("insufficient", "error"),), (trial("pass", "error"),), ()):
        family = checks_of(answer("cpu", warned, *others))["wiring"]
        assert (family.status, family.stops) == ("insufficient", False)
    assert checks_of(answer("cpu", warned, trial("insufficient", "error", required=True)))["wiring"].stops


def test_worst_warning_is_told_where_nothing_serious_is():
    trials = (trial("insufficient", "warning"), trial("fail", "warning"), trial("pass", "error"))
    family = checks_of(answer("cpu", *trials))["wiring"]
    assert (family.status, family.severity, family.stops) == ("fail", "warning", False)


@pytest.mark.parametrize(("ended_early", "told"), [(False, 3), (True, 0)])
def test_forecast_that_could_not_be_measured_is_told_and_one_that_was_not_come_to_is_counted(ended_early, told):
    """A time that breaks stops the step by itself: a pull request must see why."""
    result = PreflightResult(
        memory=None, seconds=None, untried="time was not measured: KeyError (model.py:31)", ended_early=ended_early,
        device="cpu",
    )  # fmt: skip
    checks = preflight_checks(result, None, 2**30, 1.0)
    annotations = github_annotations(rows_of("preflight", checks), "use_cases/toy", ("model.py",))
    assert len(annotations) == told
    assert all("model.py,line=31" in one for one in annotations)


def test_memory_of_several_processes_says_why_it_is_more():
    shared = STEP.model_copy(update={"processes": 2})
    memory = MEMORY.model_copy(update={"value": 130 * GB, "low": 115 * GB, "high": 140 * GB})
    result = answer("cuda").model_copy(update={"step_memory": shared, "memory": memory})
    told = checks_of(result, host_gb=200)["memory_forecast"].evidence
    assert "that is of 2 processes together: each holds all rows" in told
    assert "in each of 2 processes an update of 64 rows" in told
    on_two = result.model_copy(update={"step_memory": shared.model_copy(update={"processes": 4, "nodes": 2})})
    checks = checks_of(on_two, host_gb=200)
    assert "that is of 2 processes together on each of 2 machines: each holds" in checks["memory_forecast"].evidence
    # Recorded for another number of machines, it is no answer for this one.
    assert was_for_nodes(checks.values(), 2, 2)
    assert not was_for_nodes(checks.values(), 1, 1)
    # On GPUs all updates lie there, and not one.
    on_host = host_memory(result, uses_cuda=True)
    assert on_host is not None
    assert (on_host.value, on_host.low, on_host.high) == (10 * GB, 3 * GB, 6 * GB)
    assert "processes" not in checks_of(answer("cpu"))["memory_forecast"].evidence


def elastic(all_gb: int, fewest_gb: int, device: str = "cpu") -> PreflightResult:
    """The answer of two nodes, and of the one that may be left, with so much memory at most."""

    def held(gb: int) -> Forecast:
        return MEMORY.model_copy(update={"value": gb * GB, "high": gb * GB})

    both = STEP.model_copy(update={"processes": 2, "nodes": 2})
    fewest = FewestNodes(memory=held(fewest_gb), step_memory=STEP, gpus=(gpu("large", 80),))
    result = answer(device).model_copy(
        update={"memory": held(all_gb), "step_memory": both, "gpus": (gpu("large", 80),)}
    )
    return result.model_copy(update={"fewest": fewest})


@pytest.mark.parametrize(
    ("all_gb", "fewest_gb", "status", "first"),
    [
        (70, 71, "pass", "with all nodes (nodes: 2, processes: 2)"),
        (70, 101, "fail", "with the fewest (nodes: 1, processes: 1)"),
        (101, 70, "fail", "with all nodes (nodes: 2, processes: 2)"),
    ],
)
def test_memory_passes_if_all_nodes_and_the_fewest_fit_and_names_the_number_that_fails(
    all_gb, fewest_gb, status, first
):
    checks = checks_of(elastic(all_gb, fewest_gb))
    check = checks["memory_forecast"]
    assert (check.status, check.evidence.startswith(first)) == (status, True), check.evidence
    assert "with the fewest (nodes: 1" in check.evidence
    assert "with all nodes (nodes: 2" in check.evidence
    held = host_memory(elastic(all_gb, fewest_gb), uses_cuda=False)
    assert held is not None
    assert held.high == max(all_gb, fewest_gb) * GB
    # A record of these nodes is one of no others.
    assert was_for_nodes(checks.values(), 2, 1)
    assert not was_for_nodes(checks.values(), 2, 2)


def test_gpu_that_only_all_nodes_fit_fails_and_is_no_record_of_one_that_does():
    result = elastic(70, 70, "cuda")
    assert result.fewest is not None
    full = result.fewest.model_copy(update={"gpus": (gpu("large", 80).model_copy(update={"fits": False}),)})
    checks = checks_of(result.model_copy(update={"fewest": full}), gpu_sku="large")
    assert checks["memory_forecast"].status == "fail"
    assert checks["memory_forecast"].evidence.startswith("with the fewest")
    assert not was_held_against(checks.values(), "large", 80)
    assert was_held_against(checks_of(result, gpu_sku="large").values(), "large", 80)
