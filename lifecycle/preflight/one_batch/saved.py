"""What a checkpoint holds of a training, what is left of it after a kill, and whether training goes on from it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.preflight.check import Found
from lifecycle.preflight.one_batch.interrupted import kill_while_writing
from lifecycle.preflight.one_batch.update import update_rows, updated
from lifecycle.training.checkpoints.checkpoint import load_checkpoint, load_newest, parameters_sha256, save_checkpoint
from lifecycle.training.loop import TrainState, train_step

if TYPE_CHECKING:
    from lifecycle.preflight.one_batch.update import Seen

IDENTITY = "preflight"


def checkpoints(seen: Seen) -> Found:
    """Save and load; weights, buffers and the optimizers' state are equal and finite."""
    state, again = updated(seen)[0], seen[1].subject.state()
    with tempfile.TemporaryDirectory() as folder:
        saved = save_checkpoint(Path(folder), IDENTITY, state)
        load_checkpoint(Path(saved.path), IDENTITY, again, saved.sha256)
    if parameters_sha256(again.model) != parameters_sha256(state.model):
        return Found("fail", "the weights differ after saving and loading")
    if not all(_equal(one, other) for one, other in zip(_optimizers(state), _optimizers(again), strict=True)):
        return Found("fail", "the optimizers' state differs after saving and loading")
    if not all(_finite(one) for one in _optimizers(state)):
        return Found("fail", "the optimizers' state is not finite after one update")
    return Found("pass", "weights, buffers and the optimizers' state are equal after saving and loading")


def survives_a_kill(seen: Seen) -> Found:
    """SIGKILL a process that writes a second checkpoint: the first is loaded, and the second can be written anew."""
    subject = seen[1].subject
    # On the CPU: an accelerator's memory does not outlive a fork.
    model = subject.build()
    state = TrainState(model, subject.optimizers(model), step=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_checkpoint(folder, IDENTITY, state)
        state.step = 2
        if not kill_while_writing(folder, IDENTITY, state):
            return Found("insufficient", "the writing process ended before it could be killed")
        left = sum(file.stat().st_size for file in folder.rglob(".writing-*/*"))
        again = TrainState(model, state.optimizers)
        load_newest(folder, IDENTITY, again)
        if again.step != 1:
            return Found("fail", f"after the kill the checkpoint of step {again.step} is loaded, and not the sound one")
        save_checkpoint(folder, IDENTITY, state)
        load_newest(folder, IDENTITY, again)
    if again.step != state.step:
        return Found("fail", "what the killed process left keeps the next checkpoint from being written")
    return Found("pass", f"killed with {left:,} bytes written: the checkpoint before is loaded, the next one written")


def resumes(seen: Seen) -> Found:
    """Go on from a checkpoint for an update."""
    state, job = updated(seen)[0], seen[0]
    again = seen[1].subject.state()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), IDENTITY, state)
        load_newest(Path(folder), IDENTITY, again)
    again.model.train()
    loss, _, norm, *_ = train_step(again, seen[1].data, update_rows(seen), seen[1].subject.recipe)
    if not (abs(loss) < float("inf") and norm < float("inf")):
        return Found("fail", f"the first update after the checkpoint has a loss of {loss}, gradient norm {norm}")
    return Found("pass", f"seed {job.training.seed}: loss {loss:.4f} in the first update after the checkpoint")


def _optimizers(state: TrainState) -> list[list[Any]]:
    """Each optimizer's state as a flat list of values."""
    from torch.utils._pytree import tree_leaves

    return [tree_leaves(optimizer.state_dict()["state"]) for optimizer in state.optimizers]


def _equal(one: list[Any], other: list[Any]) -> bool:
    import torch

    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(one, other, strict=True)
    )


def _finite(values: list[Any]) -> bool:
    import torch

    return all(bool(torch.isfinite(value).all()) for value in values if isinstance(value, torch.Tensor))
