"""What ends a training by a script before it returns."""

from __future__ import annotations

from trainworthy.lifecycle.engine.training.session import Why

WORDS: dict[Why, str] = {
    "planned": "all planned updates are made",
    "asked": "it was asked to end",
    "budget": "the run's budget is as good as spent",
    "rerun": "the updates of the rerun are made",
    "alarm": "a monitor ended it",
}


class TrainingEndedError(Exception):
    """The training ended here: an alarm, or a script that was told to end and makes another update."""
