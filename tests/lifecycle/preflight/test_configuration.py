"""Configuration: the schedule walked, the parameters counted, sums, room, stores and spot machines."""

import math
import time
from dataclasses import replace

import pytest
import toy_jobs
import torch
from torch import nn

from lifecycle.preflight.battery import run_checks
from lifecycle.preflight.catalogue import AFTER_CHECKS, HOST_CHECKS
from lifecycle.preflight.check import Trial
from lifecycle.preflight.claims import PreflightSpec
from lifecycle.preflight.configuration import CHECKS
from lifecycle.preflight.declared import Host, file_system, is_writable
from lifecycle.preflight.host import CPU_ONLY, before_worker, for_device, not_started, still_holds, stops, with_host
from lifecycle.preflight.room import checkpoints, room, state_bytes
from lifecycle.preflight.schedule import judged, schedule_fits, walk
from lifecycle.preflight.subject import Subject
from lifecycle.records import Forecast
from lifecycle.training.loop import Recipe, TrainData
from lifecycle.training.plan import Plan, learning_rate
from lifecycle.training.recipe import make_optimizers
from lifecycle.use_case import OptimizerSpec

RATE = 0.01
CHECK = {check.id.partition(".")[2]: check for check in (*CHECKS, *HOST_CHECKS, *AFTER_CHECKS)}


def network(change=lambda model: None):
    def build() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        change(model)
        return model

    return build


def subject(build=None, optimizers=None, steps=200, rate=lambda step: RATE, claims=None, **recipe) -> Subject:
    def loss_fn(outputs, targets):
        return nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")

    spec = OptimizerSpec(name="adamw", learning_rate=RATE, weight_decay=0.01)
    plan = Plan(
        rows=256, batch_size=32, steps_per_epoch=8, horizon_steps=steps, first_step=0, last_step=steps, seed=0
    )
    x = torch.randn(64, 2)
    model = (build or network())()
    forward = type(model).forward
    del forward
    return Subject(
        build=build or network(),
        optimizers=optimizers or (lambda model: make_optimizers(object(), model, spec)),
        recipe=Recipe(loss_fn=loss_fn, learning_rate=rate, clip_norm=1.0, **recipe),
        training=TrainData({"x": x}, (x[:, 0] > 0).float()),
        held_out=TrainData({"x": x}, (x[:, 0] > 0).float()),
        plan=plan,
        claims=claims or PreflightSpec(),
    )


def tried(name: str, seen) -> Trial:
    (trial,) = run_checks((CHECK[name],), seen, device="cpu", not_applicable={})
    return trial
