"""One batch through everything that a run will do: train, validate, checkpoint, resume, predict, export and reload.

Each part begins from a fresh state, and is tried only if those that it needs have passed. What model.py raises is
told by the battery, with its line; what is told here names figures of the whole batch, never a value of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lifecycle.errors import TrainingError
from lifecycle.preflight.check import Check, Found
from lifecycle.preflight.one_batch.ahead import blind_ahead
from lifecycle.preflight.one_batch.saved import checkpoints, resumes, survives_a_kill
from lifecycle.preflight.one_batch.shipped import exports, predicts
from lifecycle.preflight.one_batch.update import forward_rows, update_rows, updated
from lifecycle.preflight.overfit.fit import outputs_of
from lifecycle.training.checkpoints.checkpoint import parameters_finite
from lifecycle.training.loop import NO_GRADIENT, ONE_A_ROW, SPARSE

if TYPE_CHECKING:
    from lifecycle.preflight.one_batch.update import Seen

# What the network gives is sound, though the loop cannot update it: what needs no update can still be asked.
NO_UPDATE = "no update"


def trains(seen: Seen) -> Found:
    """One update."""
    try:
        state, loss, norm = updated(seen)
    except TrainingError as error:
        if error.problem.startswith(ONE_A_ROW):
            return Found("fail", error.problem, cause="a loss that is a mean or a sum over the rows", fix=error.fix)
        if error.problem == NO_GRADIENT:
            cause = (
                "outputs or a loss that are detached from the network's parameters, or parameters that are all frozen"
            )
            return Found("fail", error.problem, cause=cause, fix=error.fix)
        return Found("fail", error.problem, NO_UPDATE, cause=_cause(error), fix=error.fix)
    if not abs(loss) < float("inf"):
        return Found("fail", f"the loss is {loss}")
    if not 0 < norm < float("inf"):
        return Found("fail", f"the gradient norm is {norm}")
    if not parameters_finite(state.model):
        return Found("fail", "after the update some weights are not finite")
    return Found("pass", f"{len(update_rows(seen))} rows: loss {loss:.4f}, gradient norm {norm:.4f}")


def _cause(error: TrainingError) -> str:
    return "layers with sparse=True" if SPARSE in error.problem else "use_case.yaml and model.py do not fit together"


def validates(seen: Seen) -> Found:
    """The loss of held-out rows in evaluation mode."""
    import torch

    subject = seen[1].subject
    rows = torch.arange(min(forward_rows(seen), len(subject.held_out.targets)), device=subject.device)
    losses = outputs_of(subject, subject.model().eval(), subject.held_out, [rows]).losses()
    if losses.shape != rows.shape:
        return Found("fail", f"losses of shape {tuple(losses.shape)} for {len(rows)} rows")
    finite = int(torch.isfinite(losses).sum())
    if finite < len(rows):
        return Found("fail", f"{len(rows) - finite} of {len(rows)} held-out rows have a loss that is not finite")
    return Found("pass", f"{len(rows)} held-out rows: loss {float(losses.mean()):.4f}")


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
        question="Does each row get an answer of the kind of task, alone as in a batch, in any order?",
        symptom="validation metrics are those of chance, or scoring a single row breaks",
        cause="predict gives something else than an answer of the kind a row, or rows change their order on the way",
        fix="predict must give for each row a probability of label 1, one of each class, a number, or rising quantiles",
        look=predicts,
        after="one_batch.validate",
    ),
    Check(
        "one_batch.ahead",
        question="Does no answer know the byte that it predicts, or later ones?",
        symptom="a loss far below any other model's, and a text without sense when it is generated",
        cause="inputs that are not shifted by one against the targets, an attention without a mask, a layer that reads "
        "backwards, or an input that is made of the whole text",
        fix="give place t the bytes before t: shift them by one in to_tensors, a start symbol first; mask attention "
        "with torch.tril, pad convolutions on the left, read in one direction, and make no input of the whole text",
        look=blind_ahead,
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
