"""Trainings of the toy with a fault in their model.py, which comes about once or at each update."""

import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.protocol.jobs import TrainJob

# A checkpoint every few updates, so that little is lost.
SPEC = toy_jobs.spec_with(training={"batch_size": 32, "epochs": 3, "checkpoint_every_steps": 5})
# What a planted fault may use; a marker says that it came about.
HEAD = """import torch
import os
import pathlib
import signal
import time

MARK = pathlib.Path({mark!r})


def once(after=1):
    seen = int(MARK.read_text()) if MARK.exists() else 0
    MARK.write_text(str(seen + 1))
    return seen + 1 == after


def die(number=signal.SIGKILL, after=0.0):
    # Time for the thread that writes the checkpoint of the step before.
    time.sleep(after)
    os.kill(os.getpid(), number)


"""


def in_training(fault: str) -> tuple[str, str]:
    """The fault's lines before a forward pass of the training; the loss is also asked before it begins."""
    return "        return self.layers(torch.cat", "        if self.training:\n" + textwrap.indent(fault, 8 * " ")


def planted(splits: Path, folder: Path, *faults: tuple[str, str], stage: str = "full", **fields) -> TrainJob:
    """A training of the toy whose model.py has each (place, fault): the fault is put before the place."""
    head = ("import torch\n", HEAD.format(mark=str(folder / "mark")))
    edits = [(place, f"{fault}\n{place}") for place, fault in faults]
    use_case = toy_jobs.changed_use_case(folder / "toy", head, *edits)
    return toy_jobs.train_job(splits, folder / "out", stage, spec=SPEC, use_case=use_case, **fields)
