"""What a checkpoint holds of a training, what is left of it after a kill, and whether training goes on from it.

A process that is killed while it writes a checkpoint.

The writer is a fork of this process, so that it writes by the real code, and no second torch has to be imported (1.8
CPU s). The bytes are made before the fork: torch refuses CUDA in a fork of a process that uses it, and its thread pool
is not there. The writer stops in the middle of state.pt, tells so, and is sent SIGKILL. It touches no file but that
one, never returns, and ends by itself if nobody kills it.
"""

from __future__ import annotations

import io
import os
import select
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.preflight.one_batch.update import JobAndSample, evaluated, update_rows
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import (
    load_checkpoint,
    load_newest,
    parameters_sha256,
    save_checkpoint,
    state_dict,
    write_checkpoint,
)
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.storage.durable.folder import FolderStore
from trainworthy.lifecycle.storage.durable.place import trial_store

IDENTITY = "preflight"
NOT_DURABLE = "the storage for copies of checkpoints is full, not writable, or gives back other bytes"


def checkpoints(job_and_sample: JobAndSample) -> Outcome:
    """Save and load; weights, buffers, the optimizers' state and what else is declared are equal and finite."""
    state, again = evaluated(job_and_sample), job_and_sample[1].subject.state()
    with tempfile.TemporaryDirectory() as folder:
        saved = save_checkpoint(Path(folder), IDENTITY, state)
        try:
            path = _copied(Path(saved.path), job_and_sample[1].subject.durable, Path(folder) / "copy")
        except OSError as error:
            fix = "free space there, make it writable, or name another place in TRAINWORTHY_DURABLE"
            return Outcome(
                "fail", f"the copy to {job_and_sample[1].subject.durable}: {error}", fix=fix, cause=NOT_DURABLE
            )
        load_checkpoint(path, IDENTITY, again, saved.sha256)
    if parameters_sha256(again.model) != parameters_sha256(state.model):
        return Outcome("fail", "the weights differ after saving and loading")
    if not all(_equal(before, other) for before, other in zip(_optimizers(state), _optimizers(again), strict=True)):
        return Outcome("fail", "the optimizers' state differs after saving and loading")
    if not all(_finite(optimizer_state) for optimizer_state in _optimizers(state)):
        return Outcome("fail", "the optimizers' state is not finite after one update")
    differing = [name for name in state.also if not _equal(_part(state, name), _part(again, name))]
    if differing:
        return Outcome("fail", f"{', '.join(differing)}: another state after saving and loading", len(differing), 0)
    more = "".join(f", {name.replace('_', ' ')}" for name in state.also)
    return Outcome("pass", f"weights, buffers, the optimizers' state{more} are equal after saving and loading")


def _copied(path: Path, durable: str | None, back: Path) -> Path:
    """The checkpoint, or what came back of it from the storage that outlives the machine. Raises OSError."""
    if durable is None:
        return path
    with trial_store(durable) as store:
        store.add(path)
        return Path(shutil.copytree(store.fetch(path.name), back))


def survives_a_kill(job_and_sample: JobAndSample) -> Outcome:
    """SIGKILL a process that writes a second checkpoint: the first is loaded, and the second can be written anew."""
    subject = job_and_sample[1].subject
    # On the CPU: an accelerator's memory does not outlive a fork.
    model = subject.build()
    state = TrainState(model, subject.optimizers(model), step=1, also=subject.also(model))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(folder, IDENTITY, state)
        state.step = 2
        if not kill_while_writing(folder, IDENTITY, state):
            evidence = "the writing process ended or hung before it could be killed"
            return Outcome("insufficient", evidence, fix="run preflight again; if it stays so, look at the disk")
        left = sum(file.stat().st_size for file in folder.rglob(".writing-*/*"))
        again = TrainState(model, state.optimizers, also=subject.also(model))
        load_newest([FolderStore(folder)], IDENTITY, again)
        if again.step != 1:
            return Outcome(
                "fail", f"after the kill the checkpoint of step {again.step} is loaded, and not the sound one"
            )
        save_checkpoint(folder, IDENTITY, state)
        load_newest([FolderStore(folder)], IDENTITY, again)
    if again.step != state.step:
        return Outcome("fail", "what the killed process left keeps the next checkpoint from being written")
    return Outcome("pass", f"killed with {left:,} bytes written: the checkpoint before is loaded, the next one written")


def resumes(job_and_sample: JobAndSample) -> Outcome:
    """Go on from a checkpoint for an update."""
    state, job = evaluated(job_and_sample), job_and_sample[0]
    again = job_and_sample[1].subject.state()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), IDENTITY, state)
        load_newest([FolderStore(Path(folder))], IDENTITY, again)
    again.model.train()
    loss, _, norm, *_ = train_step(
        again, job_and_sample[1].data, update_rows(job_and_sample), job_and_sample[1].subject.recipe
    )
    if not (abs(loss) < float("inf") and norm < float("inf")):
        return Outcome("fail", f"the first update after the checkpoint has a loss of {loss}, gradient norm {norm}")
    return Outcome("pass", f"seed {job.training.seed}: loss {loss:.4f} in the first update after the checkpoint")


def _part(state: TrainState, name: str) -> list[Any]:
    """One of the parts beside model and optimizers, as a flat list of values."""
    return tree_leaves(state.also[name].state_dict())


def _optimizers(state: TrainState) -> list[list[Any]]:
    """Each optimizer's state as a flat list of values."""
    return [tree_leaves(optimizer.state_dict()["state"]) for optimizer in state.optimizers]


def _equal(first: list[Any], other: list[Any]) -> bool:
    return len(first) == len(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(first, other, strict=True)
    )


def _finite(values: list[Any]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values if isinstance(value, torch.Tensor))


# Writing the first half takes milliseconds. Only a writer that hangs is waited for as long, and not one that other work
# keeps from a core.
SECONDS = 120.0


def kill_while_writing(folder: Path, identity: str, state: TrainState) -> bool:
    """Write a checkpoint of a state on the CPU in a process that is killed half-way; False if it never got there."""
    saved, whole = state_dict(state), io.BytesIO()
    torch.save(saved, whole)
    half = whole.getvalue()[: whole.tell() // 2]
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        _write_half(folder, identity, saved, half, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], SECONDS)
        half_way = bool(ready) and os.read(reading, 1) == b"1"
    finally:
        os.close(reading)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
    return half_way and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _write_half(folder: Path, identity: str, saved: dict[str, Any], half: bytes, ready_pipe: int) -> None:
    """In the fork: save, and stop for good once half of the bytes are written."""
    try:
        # Without the process that would kill it, it would be there for ever.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)

        def write(value: Any, file: Any) -> None:
            file.write(half)
            file.flush()
            os.write(ready_pipe, b"1")
            while True:
                signal.pause()

        torch.save = write
        write_checkpoint(folder, identity, saved)
    finally:
        os._exit(1)
