"""torch.compile by setting: updates alone are compiled, names stay, and an interrupted run ends as a whole one."""

import copy
from pathlib import Path

import pytest
import torch
import toy_jobs
from pydantic import ValidationError
from test_resume import outcome
from test_techniques import stopping_at
from torch import nn

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.techniques.compiled import compile_updates, uncompiled
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.use_case import load_use_case


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(3, 1)

    def forward(self, inputs):
        return torch.tanh(self.line(inputs["x"])).squeeze(1)


def spec(**training):
    return toy_jobs.spec_with(training={"compile": True, **training})


@pytest.fixture
def compilations(monkeypatch):
    """What torch.compile is asked for, each compiled by leaving it as it is."""
    asked = []

    def leave(function, **options):
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", leave)
    return asked


def test_passes_with_gradients_in_training_mode_alone_are_compiled(compilations):
    model, inputs = Network(), {"x": torch.randn(4, 3)}
    names = list(model.state_dict())
    compile_updates(model)
    assert list(model.state_dict()) == names
    with torch.no_grad():
        model(inputs)
    model.eval()(inputs)
    assert compilations == []
    model.train()
    for _ in range(3):
        model(inputs)
    assert len(compilations) == 1
    assert compilations[0]["dynamic"] is False


def test_copy_of_a_compiled_model_has_its_own_weights(compilations):
    model = Network()
    compile_updates(model)
    model({"x": torch.randn(4, 3)})
    other = copy.deepcopy(model)
    nn.init.zeros_(other.line.weight)
    nn.init.zeros_(other.line.bias)
    assert other({"x": torch.randn(4, 3)}).tolist() == [0.0] * 4
    assert len(compilations) == 2
    assert "forward" not in vars(uncompiled(model))


def test_compiling_beside_activation_checkpointing_is_refused():
    with pytest.raises(ValidationError, match="declare one of them"):
        spec(activation_checkpointing=["layers"])


def test_compiling_is_a_part_of_the_identity_only_where_it_is_declared():
    plain = load_use_case(toy_jobs.TOY)
    assert "compile" not in declared_sections(plain, "full")["training"]
    assert declared_sections(plain.model_copy(update={"spec": spec()}), "full")["training"]["compile"] is True


@pytest.mark.slow
def test_compiled_stage_resumes_bit_for_bit_and_is_near_the_plain_one(splits, tmp_path):
    """Parts of two sizes, dropout, and evaluations in between."""
    declared = {"accumulate": 3, "early_stopping": {"every": 5, "patience": 100, "min_steps": 20}}
    plain = run_stage(
        toy_jobs.train_job(splits, tmp_path / "plain", "full", spec=toy_jobs.spec_with(training=declared))
    )
    whole = run_stage(toy_jobs.train_job(splits, tmp_path / "whole", "full", spec=spec(**declared)))
    job = toy_jobs.train_job(splits, tmp_path / "again", "full", spec=spec(**declared))
    with pytest.raises(PreemptedError):
        run_stage(job, stopping_at(9))
    # As in a process that has compiled nothing.
    torch.compiler.reset()
    resumed = run_stage(job)
    assert outcome(resumed) == outcome(whole)
    assert resumed.artifact_sha256 == whole.artifact_sha256
    assert whole.metrics["val_loss"] == pytest.approx(plain.metrics["val_loss"], abs=0.01)
    state = torch.load(Path(whole.checkpoint.path) / "state.pt", weights_only=True)
    assert "_orig_mod" not in str(state["model"].keys())


@pytest.mark.slow
def test_missing_compiler_is_told_with_its_fix():
    from torch._inductor import config
    from torch._inductor.utils import fresh_inductor_cache

    torch.compiler.reset()
    model = Network()
    compile_updates(model)
    # Found on disk, what was compiled before would need no compiler.
    with (
        fresh_inductor_cache(),
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(TrainingError, match="cannot compile the model here: InvalidCxx") as error,
    ):
        model({"x": torch.randn(4, 3)})
    assert "install a C++ compiler" in error.value.fix
