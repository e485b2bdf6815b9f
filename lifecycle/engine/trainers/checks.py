"""What preflight asks of a training script, by its short trial (trial.py); and what a stage says of it.

What no trial and no stage can know of somebody else's loop is told as insufficient, and never as passed.
"""

from __future__ import annotations

from trainworthy.lifecycle.engine.trainers.trial import AFTER, BEFORE, ScriptTrial
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome

BROKE_OFF = "the trial broke off before: see trainer.runs"


def runs(trial: ScriptTrial) -> Outcome:
    """Some updates, and a model that gives the kind's answers and can be exported."""
    if trial.problem:
        return Outcome("fail", trial.problem, fix=trial.fix)
    if trial.export_problem:
        return Outcome("fail", f"the returned model cannot be exported: {trial.export_problem}")
    if trial.went_on:
        return Outcome(
            "insufficient", "it did not end when it was told to, so that it returned no model", required=True
        )
    return Outcome("pass", f"{trial.updates} updates of {1e3 * trial.update_seconds:.2f} ms, a model, its export")


def stops(trial: ScriptTrial) -> Outcome:
    """It ends at the update after which it is told to."""
    if trial.problem and not trial.went_on:
        return Outcome("insufficient", BROKE_OFF, required=True)
    if not trial.updates:
        return Outcome("insufficient", "it told no update", required=True)
    if trial.went_on:
        return Outcome("fail", f"told to end after {trial.updates} updates, it made another one")
    return Outcome("pass", f"ended after {trial.updates} updates, when it was told to")


def saves(trial: ScriptTrial) -> Outcome:
    """It writes a checkpoint when it is asked to end."""
    if trial.problem:
        return Outcome("insufficient", BROKE_OFF)
    if trial.saved:
        return Outcome("pass", f"a checkpoint after {BEFORE} updates, in {trial.checkpoint_seconds:.2f} s")
    why = trial.resume_problem or "asked to end, it wrote no checkpoint: an interruption costs all that was trained"
    return Outcome("insufficient", why)


def resumes(trial: ScriptTrial) -> Outcome:
    """It goes on from its checkpoint, and ends with the same weights."""
    if trial.problem:
        return Outcome("insufficient", BROKE_OFF, severity="warning")
    if not trial.saved:
        return Outcome("insufficient", "there was no checkpoint to go on from", severity="warning")
    if trial.resume_problem:
        return Outcome("fail", trial.resume_problem)
    if not trial.resumed_from:
        evidence = f"started anew although there was a checkpoint of {BEFORE} updates"
        return Outcome("insufficient", evidence, severity="warning")
    what = f"{BEFORE} updates, a checkpoint, and {AFTER} more"
    if trial.equal:
        return Outcome("pass", f"{what}: the weights are equal bit for bit")
    return Outcome("insufficient", f"{what}: other weights than without the interruption", severity="warning")


def trains(trial: ScriptTrial) -> Outcome:
    """All parameters of the returned model train, or are declared frozen."""
    if not trial.returned:
        return _no_model(trial)
    if trial.parameters and not trial.trains:
        return Outcome("insufficient", f"none of {trial.parameters} parameters has requires_grad, as of a copy")
    if not trial.frozen:
        return Outcome("pass", f"each of {trial.parameters} parameters trains or is declared frozen", 0, 0)
    shown = ", ".join(trial.frozen[:3]) + (f" and {len(trial.frozen) - 3} more" if len(trial.frozen) > 3 else "")
    evidence = f"{len(trial.frozen)} of {trial.parameters} parameters are frozen, which nobody declares: {shown}"
    fix = f"let them train (requires_grad_(True)); if it is meant, {trial.claim}, or leave it if the script thaws them"
    return Outcome("fail", evidence, len(trial.frozen), 0, fix=fix)


def answers(trial: ScriptTrial) -> Outcome:
    """What the outputs have been through once, predict does not do again."""
    if not trial.returned:
        return _no_model(trial)
    if not trial.squashed_twice:
        return Outcome("pass", "predict squashes no outputs that are squashed already")
    return Outcome("fail", f"the model's outputs end with {trial.squashed_twice}")


def _no_model(trial: ScriptTrial) -> Outcome:
    evidence = BROKE_OFF if trial.problem else "it returned no model"
    return Outcome("insufficient", evidence, severity="warning")


def warnings(trial: ScriptTrial) -> Outcome:
    """Torch warned of nothing that it computed for the script."""
    if trial.warnings:
        return Outcome("fail", f"torch warned, at {'; at '.join(trial.warnings)}", float(len(trial.warnings)), 0.0)
    if trial.problem:
        return Outcome("insufficient", BROKE_OFF)
    return Outcome("pass", f"torch warned of nothing in {trial.updates} updates", 0.0, 0.0)


CHECKS: tuple[Check[ScriptTrial], ...] = (
    check_of("trainer.runs", runs),
    check_of("trainer.stops", stops),
    check_of("trainer.saves", saves),
    check_of("trainer.resumes", resumes),
    check_of("trainer.trains", trains),
    check_of("trainer.answers", answers),
    check_of("trainer.warnings", warnings),
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
