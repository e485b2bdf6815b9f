"""The programs of pytorch/examples as healthy ones: what the battery and a script's monitors say of them.

Each trains for some hundred updates on rows that are made here (published_programs.py), through the handle that a
script of one's own is given (docs/how-to/own-trainer.md); the battery tries those that have a network, a loss and rows.
Nothing is known to be wrong with them but what docs/benchmarks.md says, so that a critical alarm, or a failed check,
is false until somebody has shown that it is true of the program.

    git clone https://github.com/pytorch/examples
    python -m benchmarks.published_examples examples            ten minutes on 2 cores
    python -m benchmarks.published_examples examples mnist gat  some of them
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.preflight import Tried, battery, kind
from benchmarks.published_episodes import EPISODES
from benchmarks.published_programs import PROGRAMS, Program, Rows
from benchmarks.result import begin, hardware
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.trainers.session import TrainingSession
from trainworthy.lifecycle.engine.trainers.stage import run_script
from trainworthy.lifecycle.engine.training.state import Recipe
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol import jobs
from trainworthy.lifecycle.protocol.training_figures import Alarm
from trainworthy.lifecycle.spec.training import TrainingSpec
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

ALL: dict[str, Callable[[Path], Program]] = PROGRAMS | EPISODES
TOY = PRODUCT / "tests" / "toy" / "use_cases" / "toy"
# What a use case with a script has beside it; nothing is asked of it here, where a training ends with its last update.
MODEL = """
import torch

def fit_preprocessing(training, hyperparameters):
    return {}

def to_tensors(rows, preprocessing):
    return {"number": torch.tensor(rows[["number"]].to_numpy(dtype="float32"))}

def predict(outputs):
    return torch.sigmoid(outputs)
"""
SCRIPT = """
from benchmarks.published_examples import followed

def train(session):
    return followed(session)
"""


@dataclass(frozen=True)
class Watched:
    """A program's updates through the handle: how many were made of those planned, its losses, and what was told."""

    made: int
    planned: int
    losses: Sequence[float]
    alarms: Sequence[Alarm]
    seconds: float


def followed(session: TrainingSession) -> nn.Module:
    """The program that the job names, update by update until its end, as a script has to; called by train.py."""
    asked = session.hyperparameters
    torch.manual_seed(0)
    for loss in ALL[asked["program"]](Path(asked["folder"])).train(session):
        _LOSSES.append(loss)
        if session.should_stop:
            break
    return nn.Linear(1, 1)


# Of the training that runs: a script has no other way to say more than its model. One module has it, by whichever name.
_LOSSES: list[float] = []


def watched(name: str, examples: Path, program: Program) -> Watched:
    """Train it in a stage of its own, by the handle."""
    from benchmarks import published_examples

    published_examples._LOSSES.clear()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        ran = run_script(_job(Path(folder), name, examples, program), Clock(), lambda: False, None)
        seconds = time.perf_counter() - began
    losses = tuple(published_examples._LOSSES)
    return Watched(ran.log.done, program.updates, losses, ran.log.alarms, seconds)


def _job(folder: Path, name: str, examples: Path, program: Program) -> jobs.TrainJob:
    """A full stage of as many updates as the program has, on rows that nobody reads."""
    batch_rows = program.rows.batch_size if program.rows else 32
    for file, text in (("model.py", MODEL), ("train.py", SCRIPT)):
        (folder / file).write_text(text)
    count = program.updates * batch_rows
    rows = pd.DataFrame({"number": np.arange(count) % 7, "positive": np.arange(count) % 2})
    rows["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(count) % 30, unit="D")
    rows.to_parquet(folder / "rows.parquet")
    (folder / "out").mkdir()
    spec = load_use_case(TOY).spec
    training = spec.training.model_dump(mode="json") | {"batch_size": batch_rows, "epochs": 1}
    path = str(folder / "rows.parquet")
    return jobs.TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", stages=spec.stages, stage="full",
        rows=jobs.Rows(features=("number",), label="positive", group="day"), identity="published", trainer="train.py",
        training=TrainingSpec.model_validate(training), training_file=path, validation_file=path, calibration_file=path,
        hyperparameters={"program": name, "folder": str(examples)},
    )  # fmt: skip


def subject(rows: Rows, updates: int) -> Subject:
    """The same training as the battery is given one."""

    def build() -> nn.Module:
        torch.manual_seed(1)
        return rows.network()

    def optimizers(model: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
        made = rows.optimizer(model)
        for group in made.param_groups:
            group["lr_scale"] = 1.0
        return (made,)

    count = len(rows.training.targets)
    passes, rate = count // rows.batch_size, rows.optimizer(build()).param_groups[0]["lr"]
    plan = Plan(
        rows=count, batch_size=rows.batch_size, steps_per_epoch=passes, horizon_steps=updates, first_step=0,
        last_step=updates, seed=0,
    )  # fmt: skip
    recipe = Recipe(
        loss_fn=rows.loss,
        learning_rate=lambda step: rate * rows.gamma ** (step // passes),
        clip_norm=min(rows.clip, 1e9),
    )
    return Subject(build, optimizers, recipe, rows.training, rows.held_out, plan, claims=rows.claims)


def tell(name: str, examples: Path, *, with_battery: bool) -> tuple[int, int, int]:
    """Print all that is said of a program; its critical alarms, the battery's failures, and warnings of both."""
    program = ALL[name](examples)
    seen = watched(name, examples, program)
    part = max(1, len(seen.losses) // 10)
    first, last = (sum(some) / len(some) if some else math.nan for some in (seen.losses[:part], seen.losses[-part:]))
    print(
        f"{name}: {seen.made} of {seen.planned} updates, loss {first:.4g} to {last:.4g}, {seen.seconds:.0f} s",
        flush=True,
    )
    for alarm in seen.alarms:
        print(f"        {alarm.severity} {alarm.monitor} at {alarm.step} ({alarm.rule}): {alarm.evidence}")
    critical = sum(alarm.severity == "critical" for alarm in seen.alarms)
    tried = _tried(name, program) if with_battery else None
    if program.rows is None:
        print("        battery: not tried, since it has no loss for each of its rows in a batch")
    for trial in tried.of("alarm", "warning", "not_told") if tried else ():
        print(f"        {kind(trial)} {trial.check}: {trial.evidence}", flush=True)
    failed, warned = (len(tried.of(word)) if tried else 0 for word in ("alarm", "warning"))
    return critical, failed, warned + len(seen.alarms) - critical


def _tried(name: str, program: Program) -> Tried | None:
    rows = program.rows
    return None if rows is None else battery(name, 0, lambda seed: subject(rows, program.updates))


def run() -> int:
    """Print what is said of each program, and of how many there is a critical alarm or a failed check; 1 if any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkout of pytorch/examples")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(ALL)}; all of them without it")
    parser.add_argument("--monitors", action="store_true", help="without the battery")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in ALL]:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(ALL)}")
    begin(short=False)
    torch.set_num_threads(1)
    # Of the published files: what they do is told by torch as well.
    warnings.simplefilter("ignore")
    names = given.names or tuple(ALL)
    told = {name: tell(name, given.folder.resolve(), with_battery=not given.monitors) for name in names}
    alarmed, failed, warned = ([name for name, one in told.items() if one[number]] for number in range(3))
    print(f"{len(told)} programs: {len(alarmed)} with a critical alarm ({', '.join(alarmed) or 'none'})")
    print(f"with a failed check: {', '.join(failed) or 'none'}; with a warning: {', '.join(warned) or 'none'}")
    print(hardware(), flush=True)
    return int(bool(alarmed or failed))


if __name__ == "__main__":
    sys.exit(run())
