"""A table that need not fit into memory, through the snapshot and one pass of training: seconds and peaks of memory.

Rows are drawn: eight numbers, two texts, a time, a key and a label that hangs on some of them. `trainworthy new` drafts
the use case of a few; only `tensors: per_batch`, one epoch and batches of 4,096 rows are set. The snapshot step and the
full stage are a process each, and its children. Of memory two peaks are told: what cannot be taken back (anonymous and
shared), and all that is resident, in which the pages of mapped files are that nobody else has asked for.

    make bench NAME=large                         1, 10 and 30 million rows, about 25 minutes on 2 cores
    python -m benchmarks.large --rows 1000000     other sizes
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import psutil
import yaml

from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, Rows, TrainJob
from trainworthy.lifecycle.protocol.records import Cost, DatasetVersion, Provenance, SnapshotBody
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.backends.backend import ENVIRONMENT
from trainworthy.resources.settings import PRODUCT

SIZES, SHORT_SIZES = (1_000_000, 10_000_000, 30_000_000), (20_000, 40_000)
# Of the largest table: what cannot be taken back of memory.
TARGETS = {"snapshot_gb": 4.0, "training_gb": 4.0}
NAME, DRAFTED_ROWS, PART_ROWS, DAYS = "large", 20_000, 1_000_000, 365
NUMBERS = tuple(f"x{number}" for number in range(1, 9))
NOTHING = Provenance(git_commit=None, git_dirty=None, code_sha256="", environment_sha256="", run_id="", created_at="")


class Taken(NamedTuple):
    """Of a process and its children: wall seconds, and peaks of memory in GB, not to be taken back and resident."""

    seconds: float
    held_gb: float
    resident_gb: float


def main() -> None:
    """Draft, then for each size: write the rows, take the step, train."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", help=f"sizes of the table; default {SIZES}")
    given = parser.parse_args()
    begin(given.short)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="large-") as name:
        project = drafted(Path(name))
        for rows in given.rows or (SHORT_SIZES if given.short else SIZES):
            with tempfile.TemporaryDirectory(prefix=f"{rows}-", dir=name) as folder:
                taken = measured(project, Path(folder), rows)
            for step, one in taken.items():
                print(
                    f"{rows:>12,} rows, {step}: {one.seconds:6.1f} s, {rows / one.seconds:10,.0f} rows/s, "
                    f"{one.held_gb:5.2f} GB held, {one.resident_gb:5.2f} GB resident",
                    flush=True,
                )
            figures = {f"{step}_gb": one.held_gb for step, one in taken.items()}
    finish("large", figures, TARGETS, short=given.short)


def measured(project: Path, folder: Path, rows: int) -> dict[str, Taken]:
    """The snapshot step and the full stage on so many rows, each in a process of its own."""
    write_rows(folder / "files", rows)
    return {
        "snapshot": followed([sys.executable, "-m", "benchmarks.large", "step", str(project), str(folder)]),
        "training": followed(
            [sys.executable, "-m", "trainworthy.lifecycle.worker", "--job", str(folder / "train" / "job.json")]
        ),
    }


def drafted(folder: Path) -> Path:
    """The use case's folder, as `trainworthy new` drafts it for some of the rows."""
    (folder / "use_cases").mkdir()
    generator = np.random.default_rng(0)
    part(generator, 0, DRAFTED_ROWS, DRAFTED_ROWS).write_parquet(folder / "few.parquet")
    environment = {
        **os.environ, "TRAINWORTHY_PROJECT": str(folder), "TRAINWORTHY_VAR": str(folder / "var"),
        "TRAINWORTHY_USE_CASES": str(folder / "use_cases"),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "trainworthy.pipeline.cli", "new", NAME, "--data", str(folder / "few.parquet"),
        "--target", "late", "--time", "at", "--key", "row",
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    path = folder / "use_cases" / NAME / "use_case.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["training"] |= {"tensors": "per_batch", "epochs": 1, "batch_size": 4096}
    for key in ("early_stopping", "reserve", "evaluate_every"):
        spec["training"].pop(key, None)
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path.parent


def write_rows(folder: Path, rows: int) -> None:
    """A file of Parquet for each million rows, a day after the other."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    for number, first in enumerate(range(0, rows, PART_ROWS)):
        rows_of_part = part(generator, first, min(PART_ROWS, rows - first), rows)
        # As the drafted dataset.py prepares them.
        rows_of_part.with_columns(pl.col("at").dt.truncate("1d").alias("day")).write_parquet(
            folder / f"part-{number:03}.parquet"
        )


def part(generator: np.random.Generator, first: int, count: int, rows: int) -> pl.DataFrame:
    """Rows `first` to `first + count` of so many, which lie evenly in a year."""
    numbers = generator.normal(size=(len(NUMBERS), count)).astype("float32")
    shops, kinds = generator.integers(0, 40, count), generator.integers(0, 4, count)
    odds = numbers[0] - numbers[1] + 0.5 * numbers[2] * numbers[3] + 0.1 * (shops % 5) - 0.5
    seconds = (np.arange(first, first + count) * (DAYS * 86_400.0 / rows)).astype("int64")
    return pl.DataFrame(
        {"row": np.arange(first, first + count), "at": np.datetime64("2025-01-01", "us") + seconds.astype("m8[s]")}
        | dict(zip(NUMBERS, numbers, strict=True))
        | {
            "shop": np.array([f"shop {number:02}" for number in range(40)])[shops],
            "kind": np.array(["door", "window", "roof", "wall"])[kinds],
            "late": (generator.random(count) < 1 / (1 + np.exp(-odds))).astype("int64"),
        }
    )


def followed(command: list[str]) -> Taken:
    """Run the command to its end, looking at its memory and its children's twice a second."""
    process = psutil.Popen(
        command, cwd=PRODUCT, env=ENVIRONMENT | os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    began, peaks, ended = time.perf_counter(), [0.0, 0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            peaks[:] = [max(pair) for pair in zip(peaks, memory(process), strict=True)]

    thread = threading.Thread(target=look)
    thread.start()
    told, _ = process.communicate()
    ended.set()
    thread.join()
    assert process.returncode == 0, told[-3000:]
    return Taken(time.perf_counter() - began, *peaks)


def memory(process: psutil.Process) -> tuple[float, float]:
    """GB of a process and its children: what cannot be taken back, and all; pages that several share count once."""
    held = resident = 0
    for one in (process, *_children(process)):
        try:
            lines = Path(f"/proc/{one.pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            continue  # It has ended meanwhile.
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        held += kib["Pss_Anon"] + kib["Pss_Shmem"]
        resident += kib["Pss"]
    return held * 1024 / 1e9, resident * 1024 / 1e9


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def child(use_case_folder: Path, folder: Path) -> None:
    """The snapshot step in this process; the job of the full stage is written beside it."""
    use_case = load_use_case(use_case_folder)
    body = _snapshot(use_case, folder)
    contract, state = load_contract(use_case.contract_path), StateFolder(folder)
    spec, files = use_case.spec, {name: split.file.path for name, split in body.splits.items()}
    job = TrainJob(
        use_case_folder=str(use_case.folder), out=str(folder / "train"), device="cpu", identity="benchmark",
        rows=Rows(
            features=body.feature_columns, label=body.label, group=spec.split.resample_by,
            keys=tuple(contract.primary_key), target=target_of(spec.task, contract.label.classes),
        ),
        stage="full", stages=spec.stages, training=spec.training, hyperparameters=spec.hyperparameters,
        training_file=str(state.absolute(files["training"])), validation_file=str(state.absolute(files["validation"])),
        calibration_file=str(state.absolute(files["calibration"])),
    )  # fmt: skip
    (folder / "train").mkdir()
    (folder / "train" / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))


def _snapshot(use_case: UseCase, folder: Path) -> SnapshotBody:
    from trainworthy.assets.snapshot import checked_contract
    from trainworthy.lifecycle.protocol.checks import stopping
    from trainworthy.lifecycle.snapshot import make_snapshot

    contract, state = load_contract(use_case.contract_path), StateFolder(folder)
    rows = pl.scan_parquet(folder / "files" / "*.parquet").select(pl.len()).collect().item()
    dataset = DatasetVersion(
        use_case=use_case.name, parents={}, identity="", provenance=NOTHING, cost=Cost(), name=NAME, revision="v1",
        dvc_hash="", content_hash="0" * 64, rows=rows, path="files", files=(),
    )  # fmt: skip
    judge = functools.partial(checked_contract, state, use_case.name, dataset.content_hash, "auto")
    checks, body = make_snapshot(state, use_case, contract, dataset, judge)
    stopped = [f"{check.name}: {check.evidence[:300]}" for check in stopping(checks)]
    assert body is not None, json.dumps(stopped)
    return body


if __name__ == "__main__":
    child(Path(sys.argv[2]), Path(sys.argv[3])) if sys.argv[1:2] == ["step"] else main()
