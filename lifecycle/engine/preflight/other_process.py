"""What the use case's code makes of the same rows in another process: input tensors and a fresh model's weights.

The workers of a run are forked from one process and share its hash seed, and a service shares nothing with any of them.
So the code is run once more by a new interpreter with another seed, beside the other checks: 3 CPU seconds, most of
them torch's import, which are spent where something in the code may come out otherwise (process_bound.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.process_bound import process_bound
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.random_state import random_kept
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Check, Outcome
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, PreflightJob
from trainworthy.lifecycle.task import Task, fit_preprocessing, load_task
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

# Preprocessing is fitted on so many of the first training rows, and tensors are made of so many.
FITTED_ROWS, ROWS = 2_000, 256
# Weights of a larger model would be held twice more.
MOST_PARAMETERS = 2**26
# Of a tensor's largest value: what the same sums on the same machine may differ by.
TOLERANCE = 1e-5
# After so long nobody waits any more: a machine that is that busy tells nothing of the code.
MOST_SECONDS = 300.0
NAMED = 3
# What PYTHONHASHSEED is in the other process; SEEDS[1] where this one has that already.
SEEDS = ("1", "2")


@dataclass(frozen=True)
class Asked:
    """The other process and where it writes to; none where nothing in the code hangs on the process."""

    job: PreflightJob
    task: Task
    weights: bool
    process: subprocess.Popen[bytes] | None = None
    answer: Path = Path()


@contextlib.contextmanager
def asked(job: PreflightJob, task: Task, parameters: int) -> Iterator[Asked]:
    """The other process, at work on the job; ended and its files gone afterwards.

    `parameters` is how many the network has, 0 where that is not known.
    """
    weights = job.trainer is None and 0 < parameters <= MOST_PARAMETERS
    if not process_bound(Path(job.use_case_folder)):
        yield Asked(job, task, weights)
        return
    with tempfile.TemporaryDirectory(dir=job.out, prefix=".other-process-") as folder:
        file, answer = Path(folder) / "job.json", Path(folder) / "made.npz"
        file.write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
        seed = SEEDS[os.environ.get("PYTHONHASHSEED") == SEEDS[0]]
        # Its tensors stay on the CPU; what it prints this process has printed.
        environment = {**os.environ, "PYTHONHASHSEED": seed, "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(file), str(answer), *(["weights"] if weights else [])],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Asked(job, task, weights, process, answer)
        finally:
            process.kill()
            process.wait()


def made_by(job: PreflightJob, task: Task, weights: bool) -> dict[str, np.ndarray]:
    """The input tensors of the first rows, and with `weights` those of a fresh model, by their names.

    Raises what the use case's code raises.
    """
    rows = read_rows(job.training_file, job.rows, limit=FITTED_ROWS)
    with random_kept():
        seed_everything(job.training.seed)
        features, labels = rows[list(job.rows.features)], labels_of(job.rows, rows)
        target = kind_of_rows(job.rows).target_state(labels)
        preprocessing = fit_preprocessing(task, features, job.hyperparameters, target)
        inputs = task.to_tensors(features.iloc[:ROWS], preprocessing)
        made = {f"input {name}": _numbers(tensor) for name, tensor in inputs.items()}
        if weights:
            seed_everything(job.training.seed)
            state = task.build_model(preprocessing, job.hyperparameters).state_dict()
            made |= {f"weight {name}": _numbers(of) for name, of in state.items() if isinstance(of, torch.Tensor)}
    return made


def same_elsewhere(asked: Asked) -> Outcome:
    """What this process makes of the rows against what the other one made."""
    if asked.process is None:
        return Outcome("not_applicable", "nothing in its code comes out otherwise in another process")
    try:
        here = made_by(asked.job, asked.task, asked.weights)
    except Exception as error:
        # Of few rows that lie side by side, such as those of one label: the sample is what other checks go by.
        return Outcome("not_applicable", f"the first {FITTED_ROWS:,} rows alone cannot be prepared: {error}")
    try:
        code = asked.process.wait(MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome("insufficient", f"another process had not made the same tensors after {MOST_SECONDS:.0f} s")
    if code != 0 or not asked.answer.is_file():
        evidence = f"what this process makes of {ROWS} rows, another could not: it ended with {code}"
        return Outcome("fail", evidence, code, 0, cause="code that needs what only this process has")
    with np.load(asked.answer, allow_pickle=False) as there:
        differing = _differing(here, there)
    what = f"{_count(here, 'input')} and {_count(here, 'weight')} from {ROWS} rows"
    if differing:
        return Outcome("fail", f"made again in another process, {_named(differing)}", len(differing), 0)
    return Outcome("pass", f"{what}, made again in another process, are the same", 0, 0)


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    values = tensor.detach().cpu()
    # numpy has no bfloat16, and nothing sparse or quantised.
    values = torch.view_as_real(values) if values.is_complex() else values
    values = values.to_dense() if values.layout != torch.strided else values
    return (values.double() if values.is_floating_point() else values.long()).numpy()


def _differing(here: Mapping[str, np.ndarray], there: Mapping[str, np.ndarray]) -> list[str]:
    """What is not the same, by name, with the share of its rows or values that are not."""
    lines = [f"{name} is there only once" for name in sorted(set(here) ^ set(there))]
    for name in (name for name in here if name in there):
        first, other = here[name], there[name]
        if first.shape != other.shape:
            lines.append(f"{name} has the shape {other.shape} and not {first.shape}")
            continue
        scale = np.abs(first[np.isfinite(first)]).max(initial=0.0)
        # Whole numbers are codes more often than not.
        within = TOLERANCE * scale if first.dtype.kind == "f" else 0.0
        apart = ~np.isclose(first, other, rtol=0.0, atol=within, equal_nan=True)
        if apart.any():
            of = apart.reshape(len(apart), -1).any(axis=1) if name.startswith("input") and apart.ndim else apart
            lines.append(f"{name} differs in {np.mean(of):.0%} of its {'rows' if of is not apart else 'values'}")
    return lines


def _count(made: Mapping[str, np.ndarray], what: str) -> str:
    number = sum(name.startswith(what) for name in made)
    return f"{number} {'tensor' if number == 1 else 'tensors'} of {what}s"


def _named(lines: list[str]) -> str:
    more = f", and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return f"{'; '.join(lines[:NAMED])}{more}"


def main(job_file: Path, answer: Path, weights: bool) -> None:
    """Make them, and write them where they are waited for."""
    # Also where nobody is left to end it.
    signal.alarm(int(2 * MOST_SECONDS))
    job = JobFile.model_validate_json(job_file.read_bytes()).job
    assert isinstance(job, PreflightJob)
    made = made_by(job, load_task(Path(job.use_case_folder)), weights)
    written = answer.with_suffix(".part.npz")
    np.savez(written, allow_pickle=False, **made)
    written.replace(answer)


CHECKS: tuple[Check[Asked], ...] = (check_of("determinism.other_process", same_elsewhere),)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "weights" in sys.argv[3:])
