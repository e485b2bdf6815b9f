"""One batch through everything that a run will do: train, validate, checkpoint, resume, predict, export and reload.

Each part begins from a fresh state, and is tried only if those that it needs have passed. What model.py raises is
told by the battery, with its line; what is told here names figures of the whole batch, never a value of a row.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.artifact import load_artifact, write_artifact
from lifecycle.errors import TrainingError
from lifecycle.golden import draw_requests
from lifecycle.jobs import PreflightJob
from lifecycle.preflight.check import Check, Found
from lifecycle.preflight.one_batch.interrupted import kill_while_writing
from lifecycle.preflight.overfit.fit import outputs_of
from lifecycle.preflight.sample import Sample
from lifecycle.training.checkpoint import (
    load_checkpoint,
    load_newest,
    parameters_finite,
    parameters_sha256,
    save_checkpoint,
)
from lifecycle.training.loop import TrainState, train_step
from lifecycle.training.scoring import predict_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor

    Seen = tuple[PreflightJob, Sample]

# The exported graph may fuse operations; float32 probabilities then differ in the last digits.
EXPORT_TOLERANCE = 1e-4
# Rows in another order are other sums in a batch's statistics.
ORDER_TOLERANCE = 1e-3
UNCALIBRATED = {"slope": 1.0, "intercept": 0.0}
IDENTITY = "preflight"
# What the network gives is sound, though the loop cannot update it: what needs no update can still be asked.
NO_UPDATE = "no update"


def trains(seen: Seen) -> Found:
    """One update."""
    try:
        state, loss, norm = _updated(seen)
    except TrainingError as error:
        return Found("fail", error.problem, NO_UPDATE, cause="layers with sparse=True", fix=error.fix)
    if not abs(loss) < float("inf"):
        return Found("fail", f"the loss is {loss}")
    if not 0 < norm < float("inf"):
        return Found("fail", f"the gradient norm is {norm}")
    if not parameters_finite(state.model):
        return Found("fail", "after the update some weights are not finite")
    return Found("pass", f"{len(_rows(seen))} rows: loss {loss:.4f}, gradient norm {norm:.4f}")


def validates(seen: Seen) -> Found:
    """The loss of held-out rows in evaluation mode."""
    import torch

    subject = seen[1].subject
    rows = torch.arange(min(_size(seen), len(subject.held_out.targets)), device=subject.device)
    losses = outputs_of(subject, subject.model().eval(), subject.held_out, [rows]).losses()
    if losses.shape != rows.shape:
        return Found("fail", f"losses of shape {tuple(losses.shape)} for {len(rows)} rows")
    finite = int(torch.isfinite(losses).sum())
    if finite < len(rows):
        return Found("fail", f"{len(rows) - finite} of {len(rows)} held-out rows have a loss that is not finite")
    return Found("pass", f"{len(rows)} held-out rows: loss {float(losses.mean()):.4f}")


def checkpoints(seen: Seen) -> Found:
    """Save and load; weights, buffers and the optimizers' state are equal and finite."""
    state, again = _updated(seen)[0], seen[1].subject.state()
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
    state, job = _updated(seen)[0], seen[0]
    again = seen[1].subject.state()
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), IDENTITY, state)
        load_newest(Path(folder), IDENTITY, again)
    again.model.train()
    loss, _, norm = train_step(again, seen[1].data, _rows(seen), seen[1].subject.recipe)
    if not (abs(loss) < float("inf") and norm < float("inf")):
        return Found("fail", f"the first update after the checkpoint has a loss of {loss}, gradient norm {norm}")
    return Found("pass", f"seed {job.training.seed}: loss {loss:.4f} in the first update after the checkpoint")


def predicts(seen: Seen) -> Found:
    """Probabilities of the batch's rows, of one row, and of the rows in another order."""
    import numpy as np

    subject, features, size = seen[1].subject, _features(seen), _size(seen)
    found = _predicted(seen, features)
    if found.shape != (size,):
        return Found("fail", f"predict gave shape {found.shape} for {size} rows")
    if not bool(((found >= 0) & (found <= 1)).all()):
        return Found("fail", f"probabilities from {found.min()} to {found.max()}")
    if _predicted(seen, features.head(1)).shape != (1,):
        return Found("fail", "predict gave no single probability for a single row")
    order = np.random.default_rng(0).permutation(size)
    if subject.claims.evaluation == "deterministic":
        apart = float(np.abs(_predicted(seen, features.iloc[order]) - found[order]).max())
        if apart > ORDER_TOLERANCE:
            fix = "let to_tensors and forward keep the rows in their order, and make no use of their place or index"
            evidence = f"asked in another order, the same rows get probabilities that differ by {apart:.4f}"
            return Found("fail", evidence, apart, ORDER_TOLERANCE, fix=fix)
    return Found("pass", f"{size} rows: probabilities from {found.min():.4f} to {found.max():.4f}")


def exports(seen: Seen) -> Found:
    """Export, reload in load_artifact, and predict one row and all as the model itself does."""
    job, sample = seen
    state, features = _updated(seen)[0], _features(seen)
    # With an example of one row, torch.export would fix the batch size to one.
    several = sample.rows[list(job.rows.features)].head(max(2, _size(seen)))
    with tempfile.TemporaryDirectory() as folder:
        artifact, sha256 = write_artifact(
            Path(folder) / "artifact",
            task_folder=Path(job.use_case_folder),
            model=state.model,
            example=sample.task.to_tensors(several, sample.preprocessing),
            preprocessing=sample.preprocessing,
            calibration=UNCALIBRATED,
            requests=draw_requests(several, job.rows.sensitive, job.training.seed),
        )
        score = load_artifact(Path(artifact), sha256)
        for rows in (1, len(features)):
            direct = predict_rows(
                sample.task, state.model, sample.preprocessing, features.head(rows), sample.subject.device
            )
            apart = float(abs(score(features.head(rows)) - direct).max())
            if not apart <= EXPORT_TOLERANCE:
                evidence = f"exported and direct predictions of {rows} rows differ by {apart}"
                return Found("fail", evidence, apart, EXPORT_TOLERANCE)
    return Found("pass", f"exported and reloaded: 1 and {len(features)} rows are predicted as before")


def _updated(seen: Seen) -> tuple[TrainState, float, float]:
    """A state after one update, with its loss and gradient norm."""
    state = seen[1].subject.state()
    state.model.train()
    loss, _, norm = train_step(state, seen[1].data, _rows(seen), seen[1].subject.recipe)
    state.step = 1
    return state, loss, norm


def _size(seen: Seen) -> int:
    """Rows of a forward pass."""
    return min(seen[0].training.batch_size, len(seen[1].rows))


def _rows(seen: Seen) -> Tensor:
    """Row numbers of an update, over all accumulated parts: those of fewer rows would be smaller than declared."""
    import torch

    return torch.arange(min(seen[1].subject.plan.batch_size, len(seen[1].rows)), device=seen[1].subject.device)


def _features(seen: Seen) -> pd.DataFrame:
    return seen[1].rows[list(seen[0].rows.features)].head(_size(seen))


def _predicted(seen: Seen, features: pd.DataFrame) -> np.ndarray:
    sample = seen[1]
    return predict_rows(sample.task, sample.subject.model(), sample.preprocessing, features, sample.subject.device)


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


CHECKS = (
    Check(
        "one_batch.train",
        question="Does one update go through, with a finite loss and gradient?",
        symptom="the run ends with an error in its first update, or its weights become NaN",
        cause="shapes that do not fit, no trainable parameter in the graph, or values that are not finite",
        fix="try model.py on a few rows: forward takes the dict of to_tensors, loss_fn gives one loss a row",
        look=trains,
    ),
    Check(
        "one_batch.validate",
        question="Does the loss of held-out rows come out finite in evaluation mode?",
        symptom="training goes well until the first validation, which breaks or gives NaN",
        cause="a branch of evaluation mode, or a value of the held-out rows, that no training row has",
        fix="try model.eval() on held-out rows: unseen categories, missing values, running statistics",
        look=validates,
        after="one_batch.train",
    ),
    Check(
        "one_batch.checkpoint",
        question="Is all of the training's state in a checkpoint, equal after loading?",
        symptom="the first checkpoint breaks the run, or what is loaded is not what was saved",
        cause="state that state_dict() does not hold or load_state_dict() does not take",
        fix="every parameter and buffer must be part of state_dict() and finite",
        look=checkpoints,
        after="one_batch.train",
    ),
    Check(
        "one_batch.interrupted_write",
        question="Does a process that is killed while it writes a checkpoint leave the one before sound?",
        symptom="after a crash the newest checkpoint cannot be read, and the run begins anew",
        cause="a checkpoint that is written in place, or a half-written one that is taken for whole",
        fix="look at the disk: is it full, or does it rename files in another way than POSIX says",
        look=survives_a_kill,
        on_device=False,
        after="one_batch.checkpoint",
    ),
    Check(
        "one_batch.resume",
        question="Does training go on from a checkpoint?",
        symptom="a run that was interrupted cannot be continued",
        cause="a model or an optimizer that takes its state and then cannot train with it",
        fix="make in build_model all that load_state_dict() fills; make nothing at the first forward pass",
        look=resumes,
        after="one_batch.checkpoint",
    ),
    Check(
        "one_batch.predict",
        question="Does each row get a probability, alone as in a batch, in any order?",
        symptom="validation metrics are those of chance, or scoring a single row breaks",
        cause="predict gives something else than a probability a row, or rows change their order on the way",
        fix="predict must give one finite probability in [0, 1] a row",
        look=predicts,
        after="one_batch.validate",
    ),
    Check(
        "one_batch.export",
        question="Does the exported model predict as the trained one, for one row and for many?",
        symptom="after hours of training the model cannot be exported, or answers otherwise once it is",
        cause="branches on values, Python state, or a batch size that is fixed in forward",
        fix="torch.export must trace forward: no branches on values, no Python state, batch size left free; "
        "and golden requests, whose columns are drawn apart from each other and sensitive ones blank, need an answer",
        look=exports,
        after="one_batch.predict",
    ),
)
