"""What a stage says of a training by the use case's own script, of which it has seen less than of our loop."""

from __future__ import annotations

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.results import OwnTrainer
from trainworthy.lifecycle.protocol.signals import FIRST_UPDATE_SECONDS

FAMILY = "trainer"
IN_ORDER = "each update: zero_grad(), backward(), session.step with the model, the optimizer's step, in this order"
TELL = "give session.step the model, after backward and before the update"


def unseen(trainer: OwnTrainer) -> tuple[str, str] | None:
    """Why no alarm says nothing, and what fixes it; None where monitors saw the updates."""
    if not trainer.gradients:
        reason, fix = without_gradient(trainer)
        return f"{reason}, so that only its losses could be looked at", fix
    if trainer.unwatched:
        reason = f"{trainer.file} passed more models to step than can be watched: the later ones had no monitors"
        return reason, "give session.step the same module at each update, and not a copy"
    return None


def without_gradient(trainer: OwnTrainer) -> tuple[str, str]:
    """What is said of a script of which no gradient was seen, and the fix: it told no model, or one without any."""
    if trainer.weights:
        return f"no parameter of the model that {trainer.file} told had a gradient at any update", IN_ORDER
    return f"{trainer.file} reported no gradient", TELL


def trainer_check(trainer: OwnTrainer, device: str) -> CheckResult:
    """What a stage cannot vouch for. A warning: a script's training is judged by its model like any other."""
    gaps = [
        "whether a loss was of rows that no update had seen is not known: none is progressive validation",
        "the order of rows is the script's own",
        f"a hang shows only after {FIRST_UPDATE_SECONDS / 60:.0f} minutes without a call",
    ]
    fixes = []
    if trainer.gradients and not trainer.closer:
        gaps.append("monitors saw losses and gradients, and neither activations nor what an update changed")
        fixes.append("give session.step the optimizer, too")
    if not trainer.gradients:
        gaps.append("no gradient was seen before an update: one that is not finite would have reached the weights")
        fixes.append(without_gradient(trainer)[1])
    if not trainer.weights:
        gaps.append("the weights after the first updates were not seen: no rerun can be compared")
        fixes.append(TELL)
    if not trainer.checkpoints:
        gaps.append("no checkpoint was written in this attempt")
    if trainer.asked_to_end:
        gaps.append(f"it made another update although {trainer.asked_to_end}")
        fixes.append("look at session.should_stop after each update")
    if trainer.unread_weights:
        gaps.append("rows have weights, and it never read session.weights")
        fixes.append("weigh each row's loss by session.weights, or remove training.class_weights and the weight column")
    return CheckResult(
        name=FAMILY, status="insufficient", severity="warning", device=device, observed=trainer.file,
        evidence=f"{trainer.file}: {'; '.join(gaps)}", fix="; ".join(dict.fromkeys(fixes)),
    )  # fmt: skip
