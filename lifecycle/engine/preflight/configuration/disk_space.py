"""The room that checkpoints, their copies and the artifact will take, against what is free where they will lie."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.sample import Sample
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.techniques.parts import after_update
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.gates.seeds import seeds_of
from trainworthy.lifecycle.plan import plan_of_counts
from trainworthy.lifecycle.protocol.jobs import PreflightJob
from trainworthy.lifecycle.protocol.records import STAGES
from trainworthy.lifecycle.storage.checkpoints import KEEP
from trainworthy.lifecycle.storage.durable.bucket import is_bucket

# The artifact of full, the same in MLflow, and once on its way there.
ARTIFACTS = 3
# Logs, records, features and other runs share the disk.
MARGIN = 2.0


@dataclass(frozen=True)
class Place:
    """A disk and the bytes that training will take there; `free` is None where it tells no size."""

    name: str
    free: int | None
    needed: int
    variable: str = "TRAINWORTHY_VAR"


def checkpoints_have_room(job_and_sample: tuple[PreflightJob, Sample]) -> Outcome:
    """The folder of answers, whose disk the checkpoints share, and the one that they are copied to."""
    job, sample = job_and_sample
    labels = sample.subject.labels
    assert labels is not None
    folder = next(path for path in (Path(job.out), *Path(job.out).parents) if path.exists())
    count = checkpoints(job, len(labels), int((labels == 1).sum()))
    weights, other_state = state_bytes(sample.subject)
    copies, own = count * (weights + other_state), count * (weights + other_state) + ARTIFACTS * weights
    what = f"{count} checkpoints of {(weights + other_state) / 1e6:.1f} MB"
    if job.training.tensors == "per_batch":
        mapped = mapped_rows_bytes(sample, len(labels))
        own, what = own + job.processes * mapped, f"{what}, rows of {mapped / 1e6:.1f} MB"
    if job.durable is None or is_bucket(job.durable):
        # A bucket has no size.
        return room(what, [_place("here", folder, own)])
    if same_disk(folder, Path(job.durable)):
        return room(what, [_place("here and for their copies", folder, own + copies)])
    return room(
        what, [_place("here", folder, own), _place("for copies", Path(job.durable), copies, "TRAINWORTHY_DURABLE")]
    )


def mapped_rows_bytes(sample: Sample, rows: int) -> int:
    """What so many rows like the sample's take on the disk while a stage trains on them (data/mapped.py)."""
    return round(sample.rows.memory_usage(index=False, deep=False).sum() / len(sample.rows) * rows)


def _place(name: str, folder: Path, needed: int, variable: str = "TRAINWORTHY_VAR") -> Place:
    usage = shutil.disk_usage(folder)
    # Buckets that are mounted as folders may have no size.
    return Place(name, usage.free if usage.total else None, needed, variable)


def same_disk(*folders: Path) -> bool:
    return len({folder.stat().st_dev for folder in folders}) == 1


def room(what: str, places: Sequence[Place]) -> Outcome:
    """Whether each disk has MARGIN times what is needed there; the one that is shortest of it decides."""
    free_space = "; ".join(
        f"{place.name} {'an unknown size' if place.free is None else f'{place.free / 1e9:.1f} GB'} free, and "
        f"{MARGIN:g} times {place.needed / 1e9:.3g} GB is asked"
        for place in places
    )
    known = [place for place in places if place.free is not None]
    evidence = f"{what} and the artifact: {free_space}"
    if not known:
        return Outcome("insufficient", evidence)
    worst = min(known, key=lambda place: (place.free or 0) - MARGIN * place.needed)
    enough = (worst.free or 0) >= MARGIN * worst.needed
    fix = f"free space {worst.name}, or name a larger disk in {worst.variable}"
    return Outcome("pass" if enough else "fail", evidence, worst.free, int(MARGIN * worst.needed), fix=fix)


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
    """Bytes of the model's state, and of all else that a checkpoint holds after an update with gradients of zero."""
    state = subject.state()
    for parameter in state.model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for optimizer in state.optimizers:
        optimizer.step()
    # Early stopping keeps the weights of its best evaluation.
    after_update(state, last_step=state.step)
    weights = sum(t.numel() * t.element_size() for t in state.model.state_dict().values() if torch.is_tensor(t))
    other_parts = [optimizer.state_dict() for optimizer in state.optimizers]
    other_parts += [part.state_dict() for part in state.also.values()]
    return weights, sum(tensor.numel() * tensor.element_size() for tensor in _tensors(other_parts))


def _tensors(value: Any) -> Iterator[Tensor]:
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner)
