"""What preflight finds out about a training script by a short trial."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import own_trainers
import pytest
import torch
import toy_jobs

from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.catalogue import TRAINER_CHECKS
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.engine.trainers.answers import squashed_twice
from trainworthy.lifecycle.engine.trainers.preflight import job_of_trial
from trainworthy.lifecycle.engine.trainers.trial import ScriptTrial, ended, try_here, try_script
from trainworthy.lifecycle.gates.preflight import TRAINER, preflight_checks
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.trial import Trial

HAND = own_trainers.documented("hand")


def job(splits, tmp_path, *replacements: tuple[str, str], script: str = HAND) -> PreflightJob:
    folder = own_trainers.use_case(tmp_path / "toy", script, *replacements)
    return toy_jobs.preflight_job(splits, tmp_path / "out", use_case=folder, trainer="train.py")


def tried(job: PreflightJob, folder: Path) -> dict[str, Trial]:
    """The trainer's checks after a trial in this process: another one takes seconds to start."""
    seen = try_here(job_of_trial(job, Path(job.training_file), folder), folder)
    trials = run_checks(TRAINER_CHECKS, seen, device="cpu", not_applicable={})
    return {trial.check.removeprefix("trainer."): trial for trial in trials}


@pytest.mark.parametrize("way", own_trainers.NEEDS | own_trainers.LONGER)
def test_documented_script_runs_stops_and_saves(splits, tmp_path, way):
    own_trainers.needs(way)
    found = tried(job(splits, tmp_path, script=own_trainers.documented(way)), tmp_path / "trial")
    assert {name: trial.status for name, trial in found.items() if name != "resumes"} == {
        "runs": "pass", "stops": "pass", "saves": "pass", "trains": "pass", "answers": "pass",
        "warnings": "pass",
    }  # fmt: skip
    # The short one begins an epoch that was cut with its first batch, in another order.
    assert found["resumes"].status == ("insufficient" if way == "Lightning" else "pass"), found["resumes"].evidence


STOP = "        if session.should_stop:\n            break\n"
# What a script does wrong, and the trials that do not pass for it, each with a part of what it tells.
FAULTS = {
    "never_tells": (
        ("        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n", ""),
        {
            "runs": "told no update",
            **dict.fromkeys(("stops", "saves", "resumes", "trains", "answers", "warnings"), "broke off"),
        },
    ),
    "never_stops": (
        (STOP, ""),
        {
            "runs": "did not end when it was told to",
            "stops": "made another one",
            "saves": "no",
            "resumes": "no",
            "trains": "no model",
            "answers": "no model",
        },
    ),
    "never_saves": (
        ("        session.checkpoint(model=model, optimizer=optimizer)\n", ""),
        {"saves": "wrote no checkpoint", "resumes": "no checkpoint"},
    ),
    "starts_anew": (("first = session.resume(model=model, optimizer=optimizer)", "first = 0"), {"resumes": "anew"}),
    "loses_its_optimizer": (
        ("session.resume(model=model, optimizer=optimizer)", "session.resume(model=model)"),
        {"resumes": "other parts"},
    ),
    "other_rows_after_resuming": (("+ step)", "+ step - first_step)"), {"resumes": "other weights"}),
    "sigmoid_twice": (
        (
            "build_model(session.preprocessing, session.hyperparameters)",
            "torch.nn.Sequential(build_model(session.preprocessing, session.hyperparameters), torch.nn.Sigmoid())",
        ),
        {"answers": "outputs end with a sigmoid, and predict applies a sigmoid to them"},
    ),
    "frozen_copy": (
        ("    return model\n", "    return __import__('copy').deepcopy(model).requires_grad_(False)\n"),
        {"trains": "has requires_grad, as of a copy"},
    ),
    "frozen_by_mistake": (
        ("    optimizer = torch", "    next(model.parameters()).requires_grad_(False)\n    optimizer = torch"),
        {"trains": "parameters are frozen, which nobody declares"},
    ),
    # Of each pair of rows, and not of each row.
    "targets_of_another_shape": (
        (
            "loss_fn(outputs, session.targets[rows]).mean()",
            "torch.nn.functional.mse_loss(outputs.unsqueeze(1), session.targets[rows].float())",
        ),
        {"warnings": "torch warned, at train.py:14: Using a target size (torch.Size([128])) that is different"},
    ),
    "softmax_over_a_dimension_that_nobody_chose": (
        (
            "loss_fn(outputs, session.targets[rows]).mean()",
            "torch.nn.functional.softmax(outputs.unsqueeze(1) * outputs).mean() + outputs.mean()",
        ),
        {"warnings": "train.py:14: Implicit dimension choice for softmax"},
    ),
    "schedule_before_the_optimizer": (
        (
            "        optimizer.zero_grad()\n",
            "        optimizer.zero_grad()\n        "
            "torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 9).step()\n",
        ),
        {"warnings": "Detected call of `lr_scheduler.step()` before `optimizer.step()`"},
    ),
    "returns_a_loss": (("    return model\n", "    return loss\n"), {"runs": "returned Tensor"}),
    "breaks": (("        loss.backward()\n", "        loss.backwards()\n"), {"runs": " in train"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_script_with_a_fault_does_not_pass(splits, tmp_path, fault):
    replacement, told = FAULTS[fault]
    script = HAND
    if fault == "other_rows_after_resuming":
        script = HAND.replace("    for step", "    global first_step\n    first_step = first\n    for step")
    found = tried(job(splits, tmp_path, replacement, script=script), tmp_path / "trial")
    if fault == "breaks" or fault == "returns_a_loss":
        assert all("broke off" in trial.evidence for name, trial in found.items() if name != "runs")
        found = {"runs": found["runs"]}
    assert {name for name, trial in found.items() if trial.status != "pass"} == set(told)
    for name, words in told.items():
        assert words in found[name].evidence
        assert found[name].fix


CLASSES = torch.nn.Linear(3, 4)


@pytest.mark.parametrize(("forward", "predict", "told"), [
    (lambda x: CLASSES(x).softmax(1), lambda y: y.softmax(1), "a softmax, and predict applies a softmax to them"),
    (lambda x: CLASSES(x).softmax(1).reshape(-1, 2, 2), lambda y: y.softmax(1),
     "a softmax, and predict applies a softmax to them"),
    (lambda x: CLASSES(x)[:, 0].sigmoid().clone(), torch.sigmoid,
     "a sigmoid, and predict applies a sigmoid to them"),
    (lambda x: CLASSES(x)[:, :1].sigmoid(), lambda y: y.sigmoid().squeeze(1),
     "a sigmoid, and predict applies a sigmoid to them"),
    (lambda x: CLASSES(x)[:, :1].sigmoid(), lambda y: torch.sigmoid(y[:, 0]),
     "a sigmoid, and predict applies a sigmoid to them"),
    (lambda x: CLASSES(x)[:, :2].softmax(1), lambda y: y.softmax(1)[:, 1],
     "a softmax, and predict applies a softmax to them"),
    (lambda x: CLASSES(x).sigmoid(), lambda y: y.softmax(1), "a sigmoid, and predict applies a softmax to them"),
    (lambda x: CLASSES(x)[:, :1].sigmoid(), lambda y: y.squeeze(1), ""),
    (lambda x: CLASSES(x).softmax(1), lambda y: y, ""),
    (lambda x: CLASSES(x).softmax(1), lambda y: y / y.sum(1, keepdim=True), ""),
    (lambda x: CLASSES(x), lambda y: y.softmax(1), ""),
    # A gate of the hidden layer, a temperature, a logarithm of it, a share of two.
    (lambda x: CLASSES(x).sigmoid() * CLASSES(x), lambda y: y.softmax(1), ""),
    (lambda x: CLASSES(x).softmax(1).log(), lambda y: y.softmax(1), ""),
    (lambda x: CLASSES(x).softmax(1), lambda y: y[:, 1], ""),
    (lambda x: (CLASSES(x), x), lambda y: y[0], ""),
])  # fmt: skip
def test_squash_that_predict_applies_once_more_is_told(forward, predict, told):
    class Given(torch.nn.Module):
        def forward(self, inputs):
            return forward(inputs["x"])

    inputs = {"x": torch.randn(8, 3, generator=torch.Generator().manual_seed(0))}
    assert squashed_twice(Given(), inputs, cast(Any, SimpleNamespace(predict=predict))) == told


def test_network_that_bears_no_graph_where_it_is_asked_is_no_finding():
    class WritesIntoItsWeight(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, inputs):
            return torch.sigmoid(inputs["x"] * self.scale.clamp_(0, 1))

    network = WritesIntoItsWeight()
    predict = cast(Any, SimpleNamespace(predict=torch.sigmoid))
    assert squashed_twice(network, {"x": torch.ones(8)}, predict) == ""
    # It is as it was.
    assert network.scale.requires_grad


def test_parameters_that_are_declared_frozen_are_meant(splits, tmp_path):
    freeze = ("    optimizer = torch", "    next(model.parameters()).requires_grad_(False)\n    optimizer = torch")
    asked = job(splits, tmp_path, freeze)
    (undeclared,) = tried(asked, tmp_path / "a")["trains"].evidence.partition(": ")[2:]
    claims = asked.claims.model_copy(update={"frozen": (undeclared,)})
    found = tried(asked.model_copy(update={"claims": claims}), tmp_path / "b")["trains"]
    assert (found.status, "trains or is declared frozen" in found.evidence) == ("pass", True)


def test_warnings_that_change_no_number_and_those_of_others_code_are_no_finding(splits, tmp_path):
    warns = (
        "    import warnings\n    warnings.warn('two of the columns are empty')\n"
        "    torch.nn.functional.tanh(torch.zeros(1))\n"
        "    torch.from_numpy(__import__('numpy').broadcast_to(0.0, 3))\n"
        "    torch.nn.Transformer(8, 2, 1, 1, 8)\n    return model\n"
    )
    found = tried(job(splits, tmp_path, ("    return model\n", warns)), tmp_path / "trial")
    assert found["warnings"].status == "pass", found["warnings"].evidence


def test_preflight_with_a_script_forecasts_by_its_updates_and_leaves_out_what_is_about_our_loop(splits, tmp_path):
    asked = job(splits, tmp_path)
    result = run_preflight(asked)
    found = {trial.check: trial for trial in result.trials}
    assert {check.id for check in TRAINER_CHECKS} <= found.keys()
    assert [name for name, trial in found.items() if trial.status in ("fail", "error")] == []
    assert found["determinism.resume"].status == "not_applicable"
    assert "train.py trains" in found["determinism.resume"].evidence
    assert found["wiring.uses_inputs"].status == "pass"
    assert result.step is not None
    assert f"{1e3 * result.step.seconds:.2f} ms" in found["trainer.runs"].evidence
    checks = preflight_checks(result, None, 2**40, 1.0)
    (line,) = [check for check in checks if check.name == TRAINER]
    assert line.status == "pass"
    # The trial's own seconds, and not those of looking at what it saw.
    assert f"{len(TRAINER_CHECKS)} checks in " in line.evidence
    assert "in 0.0 s" not in line.evidence


def test_preflight_of_a_model_that_only_the_script_knows_forecasts_by_its_trial(splits, tmp_path):
    asked = job(splits, tmp_path)
    model = Path(asked.use_case_folder) / "model.py"
    model.write_text(model.read_text().replace("def loss_fn(", "def own_loss(").replace("loss_fn", "own_loss"))
    script = Path(asked.use_case_folder) / "train.py"
    script.write_text(HAND.replace("build_model, loss_fn", "build_model, own_loss as loss_fn"))
    result = run_preflight(asked)
    assert {trial.status for trial in result.trials if trial.family not in (TRAINER,)} == {"not_applicable"}
    assert {trial.status for trial in result.trials if trial.family == TRAINER} == {"pass"}
    assert result.memory is not None
    assert result.memory.low > 100 * 2**20
    assert result.seconds is not None
    assert result.time is not None
    assert result.time.updates > 300
    assert {leak.status for leak in result.leakage} <= {"pass", "not_applicable"}


def test_script_that_was_not_tried_is_insufficient_and_stops():
    seen = ScriptTrial(problem="train.py did not end within 180 s", fix="x")
    trials = run_checks(TRAINER_CHECKS, seen, device="cpu", not_applicable={})
    assert {trial.check: trial.status for trial in trials} == {
        "trainer.runs": "fail", "trainer.stops": "insufficient", "trainer.saves": "insufficient",
        **dict.fromkeys(("trainer.resumes", "trainer.trains", "trainer.answers", "trainer.warnings"), "insufficient"),
    }  # fmt: skip


def test_process_of_a_trial_that_dies_or_never_ends_is_told(splits, tmp_path, monkeypatch):
    dies = job(splits, tmp_path, ("def train(session):\n", "def train(session):\n    __import__('os')._exit(3)\n"))
    seen = try_script(job_of_trial(dies, Path(dies.training_file), tmp_path / "a"), tmp_path / "a")
    assert "ended with 3 and left no answer" in seen.problem
    monkeypatch.setattr("trainworthy.lifecycle.engine.trainers.trial.MOST_SECONDS", 0.05)
    seen = try_script(job_of_trial(dies, Path(dies.training_file), tmp_path / "b"), tmp_path / "b")
    assert "did not end within" in seen.problem


class Process:
    """A trial that never ends; each look at it takes a second, and other work has its core for a share of it."""

    pid = 1

    def __init__(self, share: float = 0.0, ends_after: float = float("inf")) -> None:
        self.time, self.share, self.ends_after = 0.0, share, ends_after

    def wait(self, timeout: float) -> int:
        self.time += timeout
        if self.time >= self.ends_after:
            return 0
        raise subprocess.TimeoutExpired("trial", timeout)

    def ended(self) -> int | None:
        return ended(cast(Any, self), 180.0, now=lambda: self.time, waited=lambda pid: self.share * self.time)


def test_trial_that_other_work_keeps_from_a_core_has_its_own_seconds_all_the_same():
    alone, beside, for_ever = Process(), Process(share=0.75, ends_after=600.0), Process(share=1.0)
    assert (alone.ended(), alone.time) == (None, 180.0)
    assert beside.ended() == 0
    assert (Process(ends_after=170.0).ended(), Process(ends_after=200.0).ended()) == (0, None)
    assert (for_ever.ended(), for_ever.time) == (None, 1800.0)
