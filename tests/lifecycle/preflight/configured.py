"""A training as the checks of its configuration see it, and one of them tried."""

import shutil
from pathlib import Path

import torch
import toy_jobs
from torch import nn

from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.configuration import disk_space
from trainworthy.lifecycle.engine.preflight.configuration.checks import CHECKS, KERNELS
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.recipe import make_optimizers
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.gates.declared import Host
from trainworthy.lifecycle.gates.host import (
    AFTER_CHECKS,
    HOST_CHECKS,
)
from trainworthy.lifecycle.gates.seeds import updates_of_stages
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.training import OptimizerSpec

RATE = 0.01
CHECK = {check.id.partition(".")[2]: check for check in (KERNELS, *CHECKS, *HOST_CHECKS, *AFTER_CHECKS)}


class Network(nn.Sequential):
    def forward(self, input):
        return super().forward(input["x"].to(next(self.parameters()).dtype))


def network(change=lambda model: None):
    def build() -> nn.Module:
        torch.manual_seed(0)
        model = Network(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        change(model)
        return model

    return build


def subject(build=None, optimizers=None, steps=200, rate=lambda step: RATE, claims=None, **recipe) -> Subject:
    def loss_fn(outputs, targets):
        return nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")

    spec = OptimizerSpec(name="adamw", learning_rate=RATE, weight_decay=0.01)
    plan = Plan(rows=256, batch_size=32, steps_per_epoch=8, horizon_steps=steps, first_step=0, last_step=steps, seed=0)
    x = torch.randn(64, 2)
    return Subject(
        build=build or network(),
        optimizers=optimizers or (lambda model: make_optimizers(object(), model, spec)),  # pyright: ignore[reportArgumentType]
        recipe=Recipe(loss_fn=loss_fn, learning_rate=rate, clip_norm=1.0, **recipe),
        training=TrainData({"x": x}, (x[:, 0] > 0).float()),
        held_out=TrainData({"x": x}, (x[:, 0] > 0).float()),
        plan=plan,
        claims=claims or PreflightSpec(),
    )


def tried(name: str, seen) -> Trial:
    (trial,) = run_checks((CHECK[name],), seen, device="cpu", not_applicable={})
    return trial


def one(*groups):
    return lambda model: tuple(torch.optim.SGD(list(group(model)), lr=RATE) for group in groups)


def host(
    rows: int = 5000, stores=None, disk: str = "ext4", seconds: float | None = 30.0, write: float = 0.1, durable=None,
    others_busy: float = 0.0, **sections,
) -> Host:  # fmt: skip
    """`seconds` are all of the updates' and nothing else."""
    spec = toy_jobs.spec_with(**sections)
    updates = sum(updates_of_stages(rows, rows // 2, spec.training, spec.stages).values())
    step = StepTime(
        seconds=(seconds or 0.0) / updates, rows_seconds=0.0, augment_seconds=0.0, checkpoint_seconds=0.01,
        write_seconds=write, cores_busy=1.0, others_busy=others_busy, cores=2, flops=0.0, operations=1, joules=None,
        device="cpu",
    )  # fmt: skip
    forecast = None if seconds is None else Forecast(
        name="seconds", unit="seconds", value=seconds, low=seconds * 0.6, high=seconds * 2
    )  # fmt: skip
    return Host(spec, rows, rows // 2, stores or {"MLflow": lambda: None}, disk, forecast, durable, step)


def free(monkeypatch, sizes):
    """Free bytes by folder, all else of the disk in use; 0 is a folder that tells no size."""

    def usage(path):
        size = next(size for folder, size in sizes.items() if Path(path) == folder)
        return shutil._ntuple_diskusage(2 * size, size, size)  # pyright: ignore[reportAttributeAccessIssue]

    monkeypatch.setattr(disk_space.shutil, "disk_usage", usage)
