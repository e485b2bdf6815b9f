import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.throughput.seconds import run_time
from trainworthy.lifecycle.engine.training.loop import DENSE
from trainworthy.lifecycle.engine.training.loop import SPARSE_PROBLEM as SPARSE_GRADIENTS
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.gates.preflight import CHECKS, cost_forecast, preflight_checks
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial

LIMIT = 4 * 2**30
SKU = Sku(usd_per_hour=0.1)
STEP = {
    "seconds": 0.01, "rows_seconds": 0.001, "augment_seconds": 0.0, "checkpoint_seconds": 0.1, "cores_busy": 1.9,
    "others_busy": 0.0, "cores": 2, "flops": 1e9, "operations": 200, "joules": None, "device": "cpu",
}  # fmt: skip
NETWORK = "nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))"
FORWARD = "    def forward(self, inputs):\n"
OUTPUT = 'return self.layers(torch.cat([inputs["numbers"], self.shop(inputs["shop"])], dim=1)).squeeze(1)'
DETACHED = ".detach().squeeze"
BUILT = '    return Network(hyperparameters["width"])'


def checks_of(result: PreflightResult, budget_usd: float = 0.5) -> dict[str, CheckResult]:
    found = preflight_checks(result, cost_forecast(result.seconds, SKU), LIMIT, budget_usd)
    assert tuple(check.name for check in found) == CHECKS
    return {check.name: check for check in found}


def alarms(check: CheckResult) -> bool:
    return check.status not in ("pass", "not_applicable")


def passed_or_let_through(checks: dict[str, CheckResult]) -> list[str]:
    """What passed, and what does not stop without being a warning."""
    lets = (c for c in checks.values() if c.status == "pass" or not (c.stops or c.severity == "warning"))
    return [check.name for check in lets if check.status != "not_applicable"]


def tried(splits, tmp_path, *replacements, **sections) -> dict[str, CheckResult]:
    """The checks of preflight with the toy's model changed."""
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    spec = toy_jobs.spec_with(**sections)
    return checks_of(run_preflight(toy_jobs.preflight_job(splits, tmp_path, spec=spec, use_case=use_case)))


@pytest.fixture(scope="module")
def healthy(splits, tmp_path_factory) -> PreflightResult:
    """Preflight of the toy as it is, with two GPUs in the price table."""
    job = toy_jobs.preflight_job(splits, tmp_path_factory.mktemp("healthy"))
    return run_preflight(job.model_copy(update={"gpu_memory_gb": {"l4": 24.0, "a100": 80.0}}))


def test_healthy_toy_passes_every_check(healthy):
    checks = checks_of(healthy)
    assert {name: check.evidence for name, check in checks.items() if alarms(check)} == {}
    assert {check.status for check in checks.values()} <= {"pass", "not_applicable"}
    assert all(checks[name].details for name in ("one_batch", "overfit"))


@pytest.mark.parametrize(
    ("replacements", "sections"),
    [
        ([("nn.Dropout(0.1)", "nn.Dropout(0.5)")], {}),
        ([(NETWORK, "nn.Linear(4, 1)")], {}),
        (
            [(NETWORK, "nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1))")],
            {},
        ),
        ([], {"training": {"optimizer": {"learning_rate": 0.001}}}),
        ([], {"training": {"optimizer": {"name": "sgd"}}}),
        ([], {"training": {"batch_size": 1}}),
        ([], {"stages": {"mode": "continue"}}),
        ([], {"training": {"tensors": "per_batch"}}),
        ([], {"training": {"class_weights": "balanced"}}),
        ([], {"training": {"class_weights": {"positive": 5.0}}}),
    ],
    ids=[
        "dropout",
        "linear",
        "batch_norm",
        "slow",
        "sgd",
        "batches_of_one",
        "continue",
        "loaders",
        "balanced",
        "weighed",
    ],
)
def test_other_healthy_models_pass_every_check(splits, tmp_path, replacements, sections):
    checks = tried(splits, tmp_path, *replacements, **sections)
    assert {
        name: check.evidence for name, check in checks.items() if check.stops or check.status == "insufficient"
    } == {}


def rare(rows: pd.DataFrame) -> pd.DataFrame:
    """One positive in fifty."""
    keep = (rows["positive"] == 0) | (np.random.default_rng(3).random(len(rows)) < 0.02)
    return rows[keep].reset_index(drop=True)


@pytest.mark.parametrize("change", [lambda rows: rows.iloc[::29].reset_index(drop=True), rare], ids=["few", "rare"])
def test_few_rows_and_rare_positives_pass_every_check(splits, tmp_path, change):
    few = toy_jobs.copy_splits(splits, tmp_path / "splits", training=change)
    checks = tried(few, tmp_path)
    assert {
        name: check.evidence for name, check in checks.items() if check.stops or check.status == "insufficient"
    } == {}


@pytest.mark.parametrize(
    "replacement",
    [
        ('torch.cat([inputs["numbers"]', 'torch.cat([inputs["numbers"] * 0'),
        ("def to_tensors(rows, preprocessing):\n", "def to_tensors(rows, preprocessing):\n    rows = rows[::-1]\n"),
        (BUILT, BUILT.replace("return", "model =") + "\n    model.layers.requires_grad_(False)\n    return model"),
        (OUTPUT, OUTPUT.replace("self.layers(", "self.layers[-1].bias + self.layers(").replace(".squeeze", DETACHED)),
    ],
    ids=["zeroed_inputs", "rows_mixed_up", "frozen", "detached"],
)  # fmt: skip
def test_network_that_cannot_learn_its_rows_fails_overfit(splits, tmp_path, replacement):
    checks = tried(splits, tmp_path, replacement)
    assert checks["overfit"].stops
    assert checks["overfit"].fix


@pytest.mark.parametrize("learning_rate", [1e-7, 10.0])
def test_learning_rate_that_is_far_off_fails_overfit(splits, tmp_path, learning_rate):
    checks = tried(splits, tmp_path, training={"optimizer": {"learning_rate": learning_rate}})
    assert checks["overfit"].stops


@pytest.mark.parametrize(
    ("replacement", "part"),
    [
        ((BUILT, BUILT.replace("return", "model =") + "\n    return model.requires_grad_(False)"), "train: "),
        ((', reduction="none")', ")"), "train: loss_fn must give one loss a row"),
        ((OUTPUT, OUTPUT.replace(".squeeze(1)", "")), "train: "),
        ((OUTPUT, OUTPUT + ".detach()"), "train: "),
        ((OUTPUT, OUTPUT + " * float('nan')"), "train: the loss is nan"),
        (("return torch.sigmoid(outputs)", "return outputs * 100"), "outside [0, 1]"),
        (("return torch.sigmoid(outputs)", "return torch.sigmoid(outputs)[1:]"), "predict: predict gave"),
        ((FORWARD, FORWARD + "        if inputs['numbers'].sum() > 1e9:\n            raise ValueError\n"), "export: "),
        ((FORWARD, FORWARD + "        assert len(inputs['shop']) == 128\n"), "predict: AssertionError"),
    ],
    ids=[
        "frozen", "mean_loss", "loss_shape", "detached", "nan", "no_probabilities", "row_less", "branch", "fixed_batch",
    ],
)  # fmt: skip
def test_model_that_breaks_somewhere_fails_one_batch_with_the_part_named(splits, tmp_path, replacement, part):
    checks = tried(splits, tmp_path, replacement)
    assert checks["one_batch"].stops
    assert part in checks["one_batch"].evidence
    assert checks["one_batch"].fix
    # What could not be tried is not passed; the cheap families are asked all the same, since they may know the cause.
    assert set(passed_or_let_through(checks)) <= {"inputs", "wiring", "start"}
    assert checks["overfit"].stops


def test_dropout_in_evaluation_is_told_beside_the_prediction_that_it_breaks(splits, tmp_path):
    always = OUTPUT.replace("return ", "return nn.functional.dropout(") + ")"
    checks = tried(splits, tmp_path, (OUTPUT, always))
    assert checks["one_batch"].stops
    (modes,) = [trial for trial in checks["wiring"].details if trial["check"] == "wiring.modes"]
    assert modes["status"] == "fail"


@pytest.mark.parametrize("where", [FORWARD, "def to_tensors(rows, preprocessing):\n"], ids=["forward", "to_tensors"])
def test_message_of_the_model_is_kept_back_if_a_feature_is_sensitive(splits, tmp_path, where):
    indent = "    " * (2 if where == FORWARD else 1)
    # Only on the rows of the exported artifact's requests, or on tensors that hold values.
    seen = "len(inputs['shop']) == 128" if where == FORWARD else "len(rows) < 129"
    fault = f"{where}{indent}if {seen}: raise ValueError('no place for north')\n"
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (where, fault))
    rows = toy_jobs.ROWS.model_copy(update={"sensitive": ("shop",)})
    result = run_preflight(toy_jobs.preflight_job(splits, tmp_path, use_case=use_case, rows=rows))
    (trial,) = [trial for trial in result.trials if trial.status in ("fail", "error")]
    assert trial.family == "one_batch"
    assert "ValueError: its message is kept back" in trial.evidence
    assert "model.py:" in trial.evidence
    assert "north" not in result.model_dump_json()


def test_preprocessing_that_is_no_json_is_refused(splits, tmp_path):
    with pytest.raises(UseCaseError, match="fit_preprocessing"):
        tried(splits, tmp_path, ("float(training[name].std())", "float('nan')"))


def test_model_that_does_not_fit_fails_memory_without_being_built(splits, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # A table of 16 GB; with gradients and two moments 64 GB.
    checks = tried(splits, tmp_path, ("nn.Embedding(len(SHOPS) + 1, 2)", "nn.Embedding(2_000_000_000, 2)"))
    assert checks["memory_forecast"].status == "fail"
    assert float(checks["memory_forecast"].observed or 0) > 60 * 2**30
    assert "not tried" in checks["one_batch"].evidence
    assert not passed_or_let_through(checks)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB


def test_model_that_reads_values_is_measured_on_small_batches(splits, tmp_path):
    checks = tried(
        splits,
        tmp_path,
        ("        self.shop =", "        self.scale = float(torch.ones(3).sum())\n        self.shop ="),
    )
    assert checks["memory_forecast"].status == "pass"
    assert checks["memory_forecast"].details[0]["source"] == "extrapolated"
    assert "without values" in checks["memory_forecast"].evidence


def test_gpus_of_the_price_table_are_told_a_line_each(healthy):
    check = checks_of(healthy)["memory_forecast"]
    assert [detail["sku"] for detail in check.details[1:]] == ["l4", "a100"]
    assert "l4: at most 1.0 of 24 GB: fits" in check.evidence


def test_memory_forecast_holds_against_the_worker_of_the_full_stage(splits, tmp_path):
    # Both as processes of their own, since the forecast starts from what the process holds.
    preflight = toy_jobs.preflight_job(splits, tmp_path / "preflight")
    full = toy_jobs.train_job(splits, tmp_path / "full", "full")
    answers = []
    for job in (preflight, full):
        assert toy_jobs.run_worker(job) == (0, {})
        answers.append(read_result(Path(job.out), job))
    forecast, peak = answers[0].memory, answers[1].metrics["peak_memory_bytes"]
    assert forecast.low < peak < forecast.high


def test_budget_that_is_too_small_fails_the_cost_forecast(healthy):
    assert checks_of(healthy, budget_usd=0.5)["cost_forecast"].status == "pass"
    check = checks_of(healthy, budget_usd=1e-6)["cost_forecast"]
    assert check.stops
    assert "budget.run_usd" in check.fix


def test_update_that_raises_while_it_is_timed_leaves_all_trials(splits, tmp_path, monkeypatch):
    def broken(subject):
        raise ValueError("no time today")

    monkeypatch.setattr("trainworthy.lifecycle.engine.preflight.run.step_time", broken)
    result = run_preflight(toy_jobs.preflight_job(splits, tmp_path))
    assert (result.seconds, result.step, result.time) == (None, None, None)
    checks = checks_of(result)
    assert checks["overfit"].status == "pass"
    assert checks["memory_forecast"].status == "pass"
    assert checks["cost_forecast"].stops
    assert "no time today" in checks["cost_forecast"].evidence


def test_finish_grows_with_the_validation_rows_and_not_with_other_trials(splits, tmp_path, ticks):
    few = toy_jobs.preflight_job(splits, tmp_path)
    rows = read_rows(few.training_file, few.rows)
    sample, step = draw_sample(few, rows, "cpu"), StepTime.model_validate(STEP)
    killed = Trial(check="one_batch.interrupted_write", status="pass", evidence="", seconds=1000.0)
    exported = Trial(check="one_batch.export", status="pass", evidence="", seconds=7.0)

    def finish(job, *trials):
        return run_time(job, sample, rows, step, 1.0, trials).finish_seconds

    def with_rows(times):
        many = toy_jobs.copy_splits(splits, tmp_path / str(times), validation=lambda rows: pd.concat([rows] * times))
        return few.model_copy(update={"validation_file": str(many / "validation.parquet")})

    assert finish(few, killed, exported) == pytest.approx(finish(few) + 7.0)
    assert finish(with_rows(3)) > finish(few)
    assert finish(with_rows(5)) - finish(few) == pytest.approx(2 * (finish(with_rows(3)) - finish(few)))


SPARSE = ("nn.Embedding(len(SHOPS) + 1, 2)", "nn.Embedding(len(SHOPS) + 1, 2, sparse=True)")
SPARSE_ADAM = (
    "def loss_fn(",
    "def build_optimizers(model, optimizer):\n"
    "    sparse, rest = model.shop.parameters(), model.layers.parameters()\n"
    "    return [torch.optim.SparseAdam(sparse, lr=0.01), torch.optim.AdamW(rest, lr=0.01)]\n\n\n"
    "def loss_fn(",
)


@pytest.mark.parametrize("changes", [(SPARSE,), (SPARSE, SPARSE_ADAM)], ids=["declared", "own_optimizers"])
def test_sparse_gradients_fail_one_check_that_says_so_and_what_needs_no_update_is_asked(splits, tmp_path, changes):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *changes)
    result = run_preflight(toy_jobs.preflight_job(splits, tmp_path, use_case=use_case))
    found = {trial.check: trial for trial in result.trials}
    assert [trial.check for trial in result.trials if trial.status in ("fail", "error")] == ["one_batch.train"]
    assert found["one_batch.train"].evidence == f"shop.weight: {SPARSE_GRADIENTS}"
    assert found["one_batch.train"].fix == DENSE
    asked = ("inputs.scaled", "wiring.rows_apart", "wiring.uses_inputs", "start.micro_batches")
    assert {found[check].status for check in asked} == {"pass"}
    assert found["wiring.gradients"].evidence.startswith("not tried")


NO_KERNEL = (
    ("class Network(nn.Module):", "class Scaled(nn.Module):\n    def forward(self, x):\n        "
     "return torch.special.erfcx(x)\n\n\nclass Network(nn.Module):"),
    ("        self.layers = ", "        self.scaled = Scaled()\n        self.layers = "),
    (OUTPUT, OUTPUT.replace("self.layers(", "self.scaled(self.layers(").replace(".squeeze(1)", ").squeeze(1)")),
)  # fmt: skip


@pytest.mark.parametrize(("device", "status"), [("cpu", "fail"), ("cuda", "insufficient")])
def test_layer_without_a_kernel_is_one_failure_and_what_would_run_it_is_not_tried(
    splits, tmp_path, monkeypatch, device, status
):
    # A job for CUDA is tried on the CPU where there is no GPU, and what that lacks the GPU may have.
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *NO_KERNEL)
    spec = toy_jobs.spec_with(training={"precision": "bf16"})
    job = toy_jobs.preflight_job(splits, tmp_path, spec=spec, use_case=use_case).model_copy(update={"device": device})
    result = run_preflight(job)
    _, kernels, *rest = result.trials
    assert (kernels.check, kernels.status, kernels.observed) == ("configuration.kernels", status, "scaled")
    assert [trial.check for trial in rest if trial.status in ("fail", "error")] == []
    assert {trial.status for trial in rest if trial.family == "inputs"} <= {"pass", "not_applicable"}
    untried = [trial for trial in rest if trial.family != "inputs"]
    assert {trial.evidence for trial in untried} == {f"not tried, since {kernels.evidence}"}
    checks = checks_of(result)
    assert checks["configuration"].stops
    assert checks["memory_forecast"].stops
