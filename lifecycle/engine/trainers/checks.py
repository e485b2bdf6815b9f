"""What preflight asks of a training script, by its short trial (trial.py); and what a stage says of it.

What no trial and no stage can know of somebody else's loop is told as insufficient, and never as passed.
"""

from __future__ import annotations

from trainworthy.lifecycle.engine.trainers.trial import AFTER, BEFORE, ScriptTrial
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Found

BROKE_OFF = "the trial broke off before: see trainer.runs"


def runs(seen: ScriptTrial) -> Found:
    """Some updates, and a model that gives the kind's answers and can be exported."""
    if seen.problem:
        return Found("fail", seen.problem, fix=seen.fix)
    if seen.export_problem:
        return Found("fail", f"the returned model cannot be exported: {seen.export_problem}")
    if seen.went_on:
        return Found("insufficient", "it did not end when it was told to, so that it returned no model", required=True)
    return Found("pass", f"{seen.updates} updates of {1e3 * seen.update_seconds:.2f} ms, a model, its export")


def stops(seen: ScriptTrial) -> Found:
    """It ends at the update after which it is told to."""
    if seen.problem and not seen.went_on:
        return Found("insufficient", BROKE_OFF, required=True)
    if not seen.updates:
        return Found("insufficient", "it told no update", required=True)
    if seen.went_on:
        return Found("fail", f"told to end after {seen.updates} updates, it made another one")
    return Found("pass", f"ended after {seen.updates} updates, when it was told to")


def saves(seen: ScriptTrial) -> Found:
    """It writes a checkpoint when it is asked to end."""
    if seen.problem:
        return Found("insufficient", BROKE_OFF)
    if seen.saved:
        return Found("pass", f"a checkpoint after {BEFORE} updates, in {seen.checkpoint_seconds:.2f} s")
    why = seen.resume_problem or "asked to end, it wrote no checkpoint: an interruption costs all that was trained"
    return Found("insufficient", why)


def resumes(seen: ScriptTrial) -> Found:
    """It goes on from its checkpoint, and ends with the same weights."""
    if seen.problem:
        return Found("insufficient", BROKE_OFF, severity="warning")
    if not seen.saved:
        return Found("insufficient", "there was no checkpoint to go on from", severity="warning")
    if seen.resume_problem:
        return Found("fail", seen.resume_problem)
    if not seen.resumed_from:
        told = f"started anew although there was a checkpoint of {BEFORE} updates"
        return Found("insufficient", told, severity="warning")
    what = f"{BEFORE} updates, a checkpoint, and {AFTER} more"
    if seen.equal:
        return Found("pass", f"{what}: the weights are equal bit for bit")
    return Found("insufficient", f"{what}: other weights than without the interruption", severity="warning")


CHECKS: tuple[Check[ScriptTrial], ...] = (
    check_of("trainer.runs", runs),
    check_of("trainer.stops", stops),
    check_of("trainer.saves", saves),
    check_of("trainer.resumes", resumes),
)


def not_for_a_script(file: str) -> dict[str, str]:
    """Checks of our own loop that say nothing about a script's, each with why."""
    why = f"{file} trains: the trainer checks ask this of it"
    own = (
        "determinism.same_seed", "determinism.resume", "one_batch.checkpoint", "one_batch.resume",
        "one_batch.interrupted_write", "configuration.optimizer_parameters", "configuration.learning_rate_schedule",
        "learning_rate.range", "throughput.data_wait",
    )  # fmt: skip
    return dict.fromkeys(own, why)
