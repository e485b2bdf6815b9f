"""The room that checkpoints and artifact will take, against what is free where they will lie."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.jobs import PreflightJob
from lifecycle.preflight.check import Found
from lifecycle.preflight.sample import Sample
from lifecycle.preflight.subject import Subject
from lifecycle.records import STAGES
from lifecycle.training.checkpoints.checkpoint import KEEP
from lifecycle.training.judging.seeds import seeds_of
from lifecycle.training.plan import plan_of_counts

if TYPE_CHECKING:
    from torch import Tensor

# The artifact of full, the same in MLflow, and once on its way there.
ARTIFACTS = 3
# Logs, records, features and other runs share the disk.
MARGIN = 2.0


def checkpoints_have_room(seen: tuple[PreflightJob, Sample]) -> Found:
    """Free bytes of the folder of answers, whose disk the checkpoints share."""
    job, sample = seen
    labels = sample.subject.labels
    assert labels is not None
    folder = next(path for path in (Path(job.out), *Path(job.out).parents) if path.exists())
    return room(sample.subject, checkpoints(job, len(labels), int((labels == 1).sum())), shutil.disk_usage(folder).free)


def room(subject: Subject, count: int, free_bytes: int) -> Found:
    """The model's tensors and its optimizers' after one update, as often as they will be kept."""
    weights, moments = state_bytes(subject)
    needed = count * (weights + moments) + ARTIFACTS * weights
    told = (
        f"{free_bytes / 1e9:.1f} GB free; {count} checkpoints of {(weights + moments) / 1e6:.1f} MB and the artifact "
        f"take {needed / 1e9:.3g} GB, and {MARGIN:g} times that is asked"
    )
    enough = free_bytes >= MARGIN * needed
    return Found("pass" if enough else "fail", told, free_bytes, int(MARGIN * needed))


def checkpoints(job: PreflightJob, rows: int, positives: int) -> int:
    """Checkpoints on disk at the end of the full stage, and the one that is being written; of all training rows."""
    plans = {stage: plan_of_counts(rows, positives, job.training, job.stages, stage) for stage in STAGES}
    # Left out, as often as pays: as if each stage were long enough for all that are kept.
    every = job.training.checkpoint_every_steps or 1
    return 1 + sum(
        len(seeds_of(job.training, stage)) * min(KEEP, 1 + (plan.last_step - plan.first_step - 1) // every)
        for stage, plan in plans.items()
    )


def state_bytes(subject: Subject) -> tuple[int, int]:
    """Bytes of the model's state and of its optimizers' after an update with gradients of zero."""
    import torch

    state = subject.state()
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for optimizer in state.optimizers:
        optimizer.step()
    weights = sum(t.numel() * t.element_size() for t in state.model.state_dict().values() if torch.is_tensor(t))
    moments = (tensor for optimizer in state.optimizers for tensor in _tensors(optimizer.state_dict()))
    return weights, sum(tensor.numel() * tensor.element_size() for tensor in moments)


def _tensors(value: Any) -> Iterator[Tensor]:
    import torch

    if torch.is_tensor(value):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner)
