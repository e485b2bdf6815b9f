"""Activation checkpointing as a setting: less memory, the same bits, the same names, and no trace in the artifact."""

import copy
import random

import pytest
import torch
import toy_jobs
from test_resume import outcome
from test_techniques import stopping_at
from torch import nn

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.techniques.recompute import checkpoint_activations, recomputed
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.use_case import load_use_case


class Block(nn.Module):
    """All that a second pass could meet otherwise: batch norm's means, dropout, Python's random, a new buffer."""

    def __init__(self):
        super().__init__()
        self.norm, self.line, self.drop = nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Dropout(0.3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x, *, by):
        self.seen = self.seen + 1
        return x + self.drop(torch.relu(self.line(self.norm(x)))) * by * random.random() / self.seen


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Linear(8, 1)

    def forward(self, inputs):
        x = inputs["x"]
        for block in self.blocks:
            x = block(x, by=2.0)
        return self.head(x).squeeze(1)


def trained(patterns, change=lambda model: model):
    torch.manual_seed(0)
    random.seed(0)
    model = Network()
    checkpoint_activations(model, patterns)
    model = change(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model({"x": torch.randn(16, 8)}).square().mean().backward()
        optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("patterns", [("blocks.*",), ("blocks.1", "head"), ("blocks.*", "blocks.*.norm", "*")])
@pytest.mark.parametrize("change", [lambda model: model, copy.deepcopy])
def test_recomputed_network_trains_bit_for_bit_as_the_plain_one(patterns, change):
    plain, found = trained(()), trained(patterns, change)
    assert list(found) == list(plain)
    assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_recomputed_block_runs_again_in_backward_and_once_without_gradients():
    model, calls = Network(), []
    model.get_submodule("blocks.0.line").register_forward_hook(lambda *_: calls.append(1))
    checkpoint_activations(model, ("blocks.0",))
    model({"x": torch.randn(4, 8)}).sum().backward()
    assert len(calls) == 2
    with torch.no_grad():
        model({"x": torch.randn(4, 8)})
    assert len(calls) == 3


def test_star_stands_for_one_part_of_a_name():
    model = Network()
    checkpoint_activations(model, ("*.1", "blocks.[02].l*"))
    assert set(recomputed(model)) == {"blocks.1", "blocks.0.line", "blocks.2.line"}


def test_names_that_match_nothing_are_all_told_with_the_nearest():
    with pytest.raises(TrainingError) as error:
        checkpoint_activations(Network(), ("block.*", "blocks.*", "blocks.*.nrm"))
    assert error.value.value == ["block.*", "blocks.*.nrm"]
    assert "block.*: did you mean 'blocks.*'?; blocks.*.nrm: did you mean 'blocks.*.norm'?" in error.value.fix


def spec(*patterns, **training):
    return toy_jobs.spec_with(training={"activation_checkpointing": patterns, **training})


def test_recomputed_stage_gives_the_plain_stage_and_its_artifact(splits, tmp_path):
    plain = run_stage(toy_jobs.train_job(splits, tmp_path / "plain", "full"))
    found = run_stage(toy_jobs.train_job(splits, tmp_path / "again", "full", spec=spec("layers", "shop")))
    assert outcome(found) == outcome(plain)
    assert found.artifact_sha256 == plain.artifact_sha256


def test_recomputed_stage_resumes_bit_for_bit(splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path, "pilot", spec=spec("layers", precision="bf16", accumulate=2))
    whole = run_stage(replace_out(job, tmp_path / "whole"))
    with pytest.raises(PreemptedError):
        run_stage(job, stopping_at(9))
    assert outcome(run_stage(job)) == outcome(whole)


def replace_out(job, out):
    return job.model_copy(update={"out": str(out)})


def test_recomputed_modules_are_a_part_of_the_identity_only_where_they_are_named():
    plain = load_use_case(toy_jobs.TOY)
    named = plain.model_copy(update={"spec": spec("layers")})
    assert "activation_checkpointing" not in declared_sections(plain, "full")["training"]
    assert declared_sections(named, "full") != declared_sections(plain, "full")
