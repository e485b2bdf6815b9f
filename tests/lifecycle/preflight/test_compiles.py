"""Preflight of training.compile: a sound model passes, one that is compiled anew each time and a lost compiler fail."""

from dataclasses import replace

import pytest
import torch
from configured import Network, subject, tried
from torch import nn

from trainworthy.lifecycle.engine.preflight.throughput.step_time import measure_step


class Counting(Network):
    """A Python number that changes with every pass: the compiler takes it for a constant."""

    passes = 0

    def forward(self, input):
        self.passes += 1
        return super().forward(input) * (1.0 if self.passes % 2 else float(f"1.{self.passes}"))


def build(kind=Network):
    def made():
        torch.manual_seed(0)
        return kind(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))

    return made


def test_training_without_the_setting_is_not_judged():
    assert tried("compile", subject()).status == "not_applicable"


# In the place of torch.compile, whose own compilation the slow tests wait for.
def as_written(function, **options):
    return function


def of_other_kernels(function, **options):
    return lambda inputs: 2.0 * function(inputs)


def lost(function, **options):
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import InvalidCxxCompiler

    def compiled(inputs):
        raise BackendCompilerFailed(compiled, InvalidCxxCompiler(), None)

    return compiled


@pytest.mark.parametrize(
    ("compiler", "status", "evidence", "fix"),
    [
        (as_written, "pass", "gradients differ by 0 of their norm", ""),
        (of_other_kernels, "fail", "gradients differ by", "remove training.compile"),
        (lost, "fail", "cannot compile the model here", "C++ compiler"),
    ],
    ids=["as_written", "of_other_kernels", "lost"],
)
def test_compiler_is_held_against_the_plain_update(monkeypatch, compiler, status, evidence, fix):
    monkeypatch.setattr(torch, "compile", compiler)
    trial = tried("compile", replace(subject(build()), compiled=True))
    assert trial.status == status, trial.evidence
    assert evidence in trial.evidence
    assert fix in trial.fix


@pytest.mark.slow
def test_compiled_updates_of_a_sound_model_pass_and_are_timed():
    seen = replace(subject(build(), accumulate=3), compiled=True)
    trial = tried("compile", seen)
    assert trial.status == "pass", trial.evidence
    step = measure_step(seen)
    assert step.compile_seconds > 0
    assert step.operations > 0


@pytest.mark.slow
def test_model_that_is_compiled_anew_each_time_fails():
    trial = tried("compile", replace(subject(build(Counting)), compiled=True))
    assert (trial.status, trial.threshold) == ("fail", 0), trial.evidence
    assert "compiled anew" in trial.evidence


@pytest.mark.slow
def test_lost_compiler_fails_with_its_fix():
    from torch._inductor import config
    from torch._inductor.utils import fresh_inductor_cache

    # Found on disk, what was compiled before would need no compiler.
    with fresh_inductor_cache(), config.patch({"cpp.cxx": ("no-such-compiler",)}):
        trial = tried("compile", replace(subject(build()), compiled=True))
    assert trial.status == "fail", trial.evidence
    assert "C++ compiler" in trial.fix
