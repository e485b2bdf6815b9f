"""Preflight of activation checkpointing: healthy blocks pass, and what is without effect or not the same is told."""

from dataclasses import replace

import torch
from configured import Network, subject, tried
from torch import nn

from trainworthy.lifecycle.engine.preflight.memory.fake_step import trace_step

ID = "activation_checkpointing"


class Counted(nn.Sequential):
    """A second pass that is another one than the first: the count is no buffer."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x / self.calls)


def network(block=nn.Sequential, blocks=3):
    def build():
        torch.manual_seed(0)
        parts = (block(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Dropout(0.2)) for _ in range(blocks))
        return Network(nn.Sequential(*parts), nn.Linear(2, 1))

    return build


def seen(*names, build=None, **recipe):
    return replace(subject(build or network(), **recipe), activation_checkpointing=names)


def test_recomputed_blocks_pass_in_any_precision():
    for recipe in ({}, {"precision": "bf16"}):
        trial = tried(ID, seen("0.*", "1", **recipe))
        assert (trial.status, trial.observed) == ("pass", 0.0), trial.evidence
        assert trial.evidence.startswith("4 modules are recomputed")


def test_training_without_the_setting_is_not_judged():
    assert tried(ID, seen()).status == "not_applicable"


def test_second_pass_that_differs_fails():
    trial = tried(ID, seen("0.*", build=network(Counted)))
    assert trial.status == "fail"
    assert "differs by" in trial.evidence


class Listed(Network):
    """Its blocks are called, the list that holds them is not."""

    def forward(self, input):
        x = input["x"]
        for block in self[0]:
            x = block(x)
        return self[1](x)


def test_list_that_is_never_called_fails_by_its_name():
    def build():
        return Listed(*network()().children())

    trial = tried(ID, seen("0", build=build))
    assert (trial.status, trial.observed) == ("fail", 1)
    assert "no effect on 0:" in trial.evidence
    assert tried(ID, seen("0.*", build=build)).status == "pass"


def test_unknown_name_leaves_the_check_untried_with_the_nearest_one():
    trial = tried(ID, seen("0.x"))
    assert trial.status == "insufficient"
    assert "does not have" in trial.evidence
    assert "did you mean '0.0'" in trial.fix or "known:" in trial.fix


def test_forecast_of_memory_counts_what_is_recomputed():
    build = network(blocks=12)
    plain, again = (
        trace_step(seen(*names, build=build), 4096, accumulate=1, precision="fp32") for names in ((), ("0.*",))
    )
    assert again.peak < 0.7 * plain.peak
