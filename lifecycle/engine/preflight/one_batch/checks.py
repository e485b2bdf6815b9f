"""One batch through everything that a run will do: train, validate, checkpoint, resume, predict, export and reload.

Each part begins from a fresh state, and is tried only if those that it needs have passed. What model.py raises is
told by the battery, with its line; what is told here names figures of the whole batch, never a value of a row.
"""

from __future__ import annotations

import torch

from trainworthy.lifecycle.engine.preflight.one_batch.ahead import blind_ahead
from trainworthy.lifecycle.engine.preflight.one_batch.checkpoint_roundtrip import checkpoints, resumes, survives_a_kill
from trainworthy.lifecycle.engine.preflight.one_batch.export import exports, predicts
from trainworthy.lifecycle.engine.preflight.one_batch.update import JobAndSample, forward_rows, update_rows, updated
from trainworthy.lifecycle.engine.preflight.overfit.fit import outputs_of
from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_finite
from trainworthy.lifecycle.engine.training.loop import NO_GRADIENT, ONE_LOSS_A_ROW, SPARSE
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome

# What the network gives is sound, though the loop cannot update it: what needs no update can still be asked.
NO_UPDATE = "no_update"


def trains(job_and_sample: JobAndSample) -> Outcome:
    """One update."""
    try:
        state, loss, norm = updated(job_and_sample)
    except TrainingError as error:
        if error.code == ONE_LOSS_A_ROW:
            return Outcome("fail", error.problem, cause="a loss that is a mean or a sum over the rows", fix=error.fix)
        if error.code == NO_GRADIENT:
            cause = (
                "outputs or a loss that are detached from the network's parameters, or parameters that are all frozen"
            )
            return Outcome("fail", error.problem, cause=cause, fix=error.fix)
        return Outcome("fail", error.problem, code=NO_UPDATE, cause=_cause(error), fix=error.fix)
    if not abs(loss) < float("inf"):
        return Outcome("fail", f"the loss is {loss}")
    if not 0 < norm < float("inf"):
        return Outcome("fail", f"the gradient norm is {norm}")
    if not parameters_finite(state.model):
        return Outcome("fail", "after the update some weights are not finite")
    return Outcome("pass", f"{len(update_rows(job_and_sample))} rows: loss {loss:.4f}, gradient norm {norm:.4f}")


def _cause(error: TrainingError) -> str:
    return "layers with sparse=True" if error.code == SPARSE else "use_case.yaml and model.py do not fit together"


def validates(job_and_sample: JobAndSample) -> Outcome:
    """The loss of held-out rows in evaluation mode."""
    subject = job_and_sample[1].subject
    rows = torch.arange(min(forward_rows(job_and_sample), len(subject.held_out.targets)), device=subject.device)
    losses = outputs_of(subject, subject.model().eval(), subject.held_out, [rows]).losses()
    if losses.shape != rows.shape:
        return Outcome("fail", f"losses of shape {tuple(losses.shape)} for {len(rows)} rows")
    finite = int(torch.isfinite(losses).sum())
    if finite < len(rows):
        return Outcome("fail", f"{len(rows) - finite} of {len(rows)} held-out rows have a loss that is not finite")
    return Outcome("pass", f"{len(rows)} held-out rows: loss {float(losses.mean()):.4f}")


TRAINS = check_of("one_batch.train", trains)
CHECKS = (
    TRAINS,
    check_of("one_batch.validate", validates),
    check_of("one_batch.checkpoint", checkpoints),
    check_of("one_batch.interrupted_write", survives_a_kill),
    check_of("one_batch.resume", resumes),
    check_of("one_batch.predict", predicts),
    check_of("one_batch.ahead", blind_ahead),
    check_of("one_batch.export", exports),
)
