"""One update of a fresh state, and the rows that it is made of."""

from __future__ import annotations

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.parts import after_update
from trainworthy.lifecycle.protocol.jobs import PreflightJob

JobAndSample = tuple[PreflightJob, Sample]


def updated(job_and_sample: JobAndSample) -> tuple[TrainState, float, float]:
    """A state after one update, with its loss and gradient norm."""
    state = job_and_sample[1].subject.state()
    state.model.train()
    loss, _, norm, *_ = train_step(
        state, job_and_sample[1].data, update_rows(job_and_sample), job_and_sample[1].subject.recipe
    )
    state.step = 1
    return state, loss, norm


def evaluated(job_and_sample: JobAndSample) -> TrainState:
    """A state after one update and what follows one: the average moves, early stopping evaluates."""
    state = updated(job_and_sample)[0]
    after_update(state, last_step=state.step)
    return state


def forward_rows(job_and_sample: JobAndSample) -> int:
    """Rows of a forward pass."""
    return min(job_and_sample[0].training.batch_size, len(job_and_sample[1].rows))


def update_rows(job_and_sample: JobAndSample) -> Tensor:
    """Row numbers of an update, over all accumulated parts: those of fewer rows would be smaller than declared."""
    return torch.arange(
        min(job_and_sample[1].subject.plan.batch_size, len(job_and_sample[1].rows)),
        device=job_and_sample[1].subject.device,
    )
