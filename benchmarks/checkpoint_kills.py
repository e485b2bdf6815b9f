"""A real worker that is killed at random moments: how soon it trains again, and whether its end is the same.

The first of its lives are processes of their own, by which the way back is timed. The others are forks of one
that has imported all, or imports would be nine tenths of the benchmark; what they run is the worker's own main.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.process import run
from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, Rows, TrainJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

TOY = PRODUCT / "tests" / "toy" / "use_cases" / "toy"
DAYS, BATCH_ROWS, EVERY_STEPS = 60, 32, 20
# Lives end before this share of the clean run's training is through, so that it lasts for all of them.
SHARE = 0.4
# The first lines of the network's code: the time of the first update that is through, which is when the second begins.
STAMPS = """import os, time
_losses = []
def _stamp():
    _losses.append(1)
    if len(_losses) == 2:
        with open(os.environ["STAMP"] + ".new", "w") as file:
            file.write(str(time.time()))
        os.replace(os.environ["STAMP"] + ".new", os.environ["STAMP"])
"""
# What the worker imports until it trains; the optimizer brings torch._dynamo.
IMPORTS = (
    "numpy", "pandas", "pyarrow.parquet", "torch", "torch._dynamo", "trainworthy.lifecycle.worker",
    "trainworthy.lifecycle.engine.training.stage", "trainworthy.lifecycle.engine.training.judging.references",
)  # fmt: skip
Life = subprocess.Popen[bytes] | ForkServerProcess
ENVIRONMENT = {"PYTHONPATH": str(PRODUCT / "src"), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


class Lives(NamedTuple):
    """How often the worker is killed, how many of its lives are processes of their own, how often imports alone are
    timed, and for how many epochs it trains."""

    kills: int
    starts: int
    imports: int
    epochs: int


def kills(lives: Lives, seed: int) -> dict[str, float]:
    """Kill a training so often, let it end, and compare it with a clean one."""
    count = lives.kills
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["benchmarks.checkpoint_kills", *IMPORTS])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        use_case = _use_case(folder / "toy")
        clean, job = _job(folder, "clean", use_case, lives.epochs), _job(folder, "killed", use_case, lives.epochs)
        began, life = _begun(_forked(forks, clean), clean)
        assert _exit_code(life) == 0
        seconds, generator = time.time() - began, random.Random(seed)
        resumes: list[float] = []
        done, writing, resumed, killed_at = 0, 0, 0, 0.0
        while done < count:
            first_update, life = _begun(_started(job) if done < lives.starts else _forked(forks, job), job)
            if 0 < done < lives.starts:
                resumes.append(first_update - killed_at)
            resumed += _newest(job) is not None
            # On a busy machine a life may be too short for a checkpoint: every other one has one before it may end.
            before = _newest(job)
            while done % 2 and _newest(job) == before and _is_alive(life):
                time.sleep(0.005)
            time.sleep(generator.uniform(0, SHARE * seconds / count))
            life.kill()
            killed_at = time.time()
            if _exit_code(life) != -signal.SIGKILL:
                break
            done += 1
            writing += bool(list((Path(job.out) / "checkpoints").glob(".writing-*")))
        _, life = _begun(_forked(forks, job), job)
        assert _exit_code(life) == 0
        result, expected = _answer(job), _answer(clean)
        imports = statistics.median(_import_seconds() for _ in range(lives.imports))
    differing = [name for name, value in _outcome(expected).items() if _outcome(result)[name] != value]
    beyond = statistics.median(resumes) - imports
    print(f"\nclean run: {expected.steps} updates in {seconds:.1f} s; killed {done} times, {writing} in a write")
    print(f"{'lives that went on from a checkpoint':44}{resumed:9d}")
    print(f"{'from SIGKILL to the next new update, median':44}{statistics.median(resumes):9.2f} s")
    print(f"{f'imports alone, median of {lives.imports}':44}{imports:9.2f} s")
    print(f"{'the last life went on from update':44}{result.resumed_from_step:9d}")
    print(f"{'the end differs in':44}{', '.join(differing) or 'nothing':>9}")
    return {
        "kills": done,
        "lost_kills": count - done,
        "kills_in_a_write": writing,
        "resumed_lives": resumed,
        "resume_seconds": statistics.median(resumes),
        "import_seconds": imports,
        "resume_seconds_beyond_imports": beyond,
        "differing_ends": len(differing),
    }


def _use_case(folder: Path) -> Path:
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "model.py").read_text()
    loss = "def loss_fn(outputs, targets):\n"
    assert loss in source
    (folder / "model.py").write_text(STAMPS + source.replace(loss, f"{loss}    _stamp()\n"))
    return folder


def _job(folder: Path, name: str, use_case: Path, epochs: int) -> TrainJob:
    import pandas as pd

    rows, spec = folder / "rows.parquet", load_use_case(TOY).spec
    if not rows.exists():
        one_day = runpy.run_path(str(TOY / "dataset.py"))["one_day"]
        frame = pd.concat([one_day(day, 1) for day in range(DAYS)], ignore_index=True).dropna()
        frame.assign(positive=(frame["score"] > 0).astype(int)).to_parquet(rows)
    values = {"batch_size": BATCH_ROWS, "epochs": epochs, "checkpoint_every_steps": EVERY_STEPS}
    job = TrainJob(
        use_case_folder=str(use_case), out=str(folder / name), device="cpu",
        rows=Rows(features=("shop", "x1", "x2"), label="positive", group="day"), identity="benchmark", stage="full",
        stages=spec.stages, training=spec.training.model_copy(update=values), hyperparameters=spec.hyperparameters,
        training_file=str(rows), validation_file=str(rows), calibration_file=str(rows),
    )  # fmt: skip
    (folder / name).mkdir()
    (folder / name / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    return job


def _started(job: TrainJob) -> Life:
    """The worker as a process of its own."""
    with (Path(job.out) / "told.txt").open("ab") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "trainworthy.lifecycle.worker", "--job", str(Path(job.out) / "job.json")],
            env=_environment({"STAMP": str(Path(job.out) / "stamp")}), cwd=PRODUCT, stderr=told,
        )  # fmt: skip


def _forked(forks: ForkServerContext, job: TrainJob) -> Life:
    """The worker in a fork of a process that has imported all."""
    process = forks.Process(target=_live, args=(job.out,))
    process.start()
    return process


def _live(out: str) -> None:
    import torch

    from trainworthy.lifecycle.worker import main

    torch.set_num_threads(1)
    os.environ["STAMP"] = f"{out}/stamp"
    told = os.open(f"{out}/told.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(told, 2)
    sys.exit(main(["--job", f"{out}/job.json"]))


def _begun(life: Life, job: TrainJob) -> tuple[float, Life]:
    """When its first new update was through; now, if it ended before."""
    stamp = Path(job.out) / "stamp"
    while not stamp.exists() and _is_alive(life):
        time.sleep(0.005)
    began = float(stamp.read_text()) if stamp.exists() else time.time()
    stamp.unlink(missing_ok=True)
    return began, life


def _newest(job: TrainJob) -> str | None:
    return max((path.name for path in (Path(job.out) / "checkpoints").glob("step-*")), default=None)


def _is_alive(life: Life) -> bool:
    return life.poll() is None if isinstance(life, subprocess.Popen) else life.is_alive()


def _exit_code(life: Life) -> int | None:
    if isinstance(life, subprocess.Popen):
        return life.wait()
    life.join()
    return life.exitcode


def _import_seconds() -> float:
    return run([sys.executable, "-c", f"import {', '.join(IMPORTS)}"], _environment({}), PRODUCT).wall_seconds


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER_PIPES")}
    return {**own, **ENVIRONMENT, **more}


def _answer(job: TrainJob) -> TrainResult:
    result = read_result(Path(job.out), job)
    assert isinstance(result, TrainResult), (Path(job.out) / "told.txt").read_text()[-2000:]
    return result


def _outcome(result: TrainResult) -> dict[str, Any]:
    """All that must be equal: not paths, times, memory and the way there."""
    told = json.loads(
        result.model_dump_json(exclude={"artifact", "checkpoint", "resumed_from_step", "notes", "seconds"})
    )
    told["metrics"].pop("peak_memory_bytes")
    told.pop("gpu_seconds")
    return told
