"""The toy project on a machine with nothing else to do, and beside processes that compute without end.

Held against each other: the verdict, its controls, and the status of every check and every trial of preflight. Then the
latency of the trained model, beside more and more such processes. Target: no status differs, and no latency that is
within the limit alone is a fail beside other work.

    make bench NAME=busy              about 8 minutes on 2 idle cores; the tree must be committed
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.process import Usage, run
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.latency import measure_latency
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import STEPS, Snapshot, StageReport, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.resources.settings import PRODUCT

FIRST = '{"resources": {"intent": {"config": {"first_model": true}}}}'
# They end by themselves if this process is killed.
BUSY_SECONDS = 3600
LIMIT_MS = 50.0


def main() -> None:
    """Train and judge alone and beside other work, and compare."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    # A busy process takes a core from whatever runs beside a short run.
    cores = 1 if short else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A short run asks preflight alone again, which has most of the statuses: it needs a model, and no verdict.
        alone, usage = judged(folder, "alone", "experiment_toy" if short else "train_toy")
        print(f"alone: {alone.get('verdict', 'no verdict')}, {usage.wall_seconds:.0f} s; {hardware()}", flush=True)
        with busy(cores):
            beside, usage = judged(folder, "beside", "preflight_toy" if short else "train_toy")
        print(
            f"beside {cores}: {beside.get('verdict', 'preflight')}, {usage.wall_seconds:.0f} s; {hardware()}",
            flush=True,
        )
        if short:
            alone = {name: status for name, status in alone.items() if name in beside}
        latencies = {count: latency(folder / "alone", count) for count in ((0, 1) if short else (0, 2, 4, 8))}
    differ = different(alone, beside)
    print(table(alone, differ, latencies))
    failed = sum(found.within(LIMIT_MS) == "fail" for found in latencies.values())
    counted = {"statuses": len(alone), "different": len(differ), "latency_failed": failed}
    measured = {f"latency_ms_beside_{count}": found.most_ms for count, found in latencies.items()}
    targets = {"different": 0.0, "latency_failed": 0.0}
    finish("busy", {**counted, **measured}, targets, short=short, zero_allowed=("different", "latency_failed"))


def judged(folder: Path, name: str, job: str = "train_toy") -> tuple[dict[str, str], Usage]:
    """Every status of a first run of the job on a state of its own, by name, and what the command took."""
    root, state = folder / f"{name} project", folder / name
    shutil.copytree(PRODUCT / "tests" / "toy", root, ignore=shutil.ignore_patterns("__pycache__", "toy_rows"))
    committed(root)
    config = folder / "first.yaml"
    config.write_text(FIRST)
    named = {"TRAINWORTHY_VAR": str(state), "TRAINWORTHY_USE_CASES": str(root / "use_cases")}
    told = ["-c", str(config)] if job.startswith("train") else []
    command = ["-m", "dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions", "-j", job, *told]
    usage = run([sys.executable, *command], {**os.environ, "PYTHONPATH": str(PRODUCT / "src"), **named}, PRODUCT)
    return statuses(state, "toy"), usage


def committed(root: Path) -> None:
    """Make the folder a git repository with all its files: a verdict asks that its code is committed."""
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "files of a benchmark")):
        author = ("-c", "user.name=Benchmark", "-c", "user.email=bench@example.org")
        subprocess.run(["git", "-C", str(root), *author, *command], check=True)


def statuses(state: Path, use_case: str) -> dict[str, str]:
    """The verdict, its controls, each step's checks, and the trials that they hold, of the state's only run."""
    store = StateRecords(FolderState(state))
    found: dict[str, str] = {}
    run_ids = store.run_ids(use_case)
    assert len(run_ids) <= 1, run_ids
    for step in STEPS if run_ids else ():
        record = store.of_run(use_case, step, run_ids[0])
        if record is None:
            break
        if isinstance(record, Verdict):
            found["verdict"] = record.decision
        found |= {f"{step}/{check.name}": check.status for check in record.checks}
        found |= {f"{step}/{trial.check}": trial.status for trial in trials_of(record.checks)}
    return found


def different(alone: dict[str, str], beside: dict[str, str]) -> list[str]:
    """Each status that is not the same, in words."""
    names = [name for name in {**alone, **beside} if alone.get(name) != beside.get(name)]
    return [f"{name}: {alone.get(name, 'not there')} alone, {beside.get(name, 'not there')} beside" for name in names]


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute without end, ended by their own handles."""
    loop = f"import time\nend = time.monotonic() + {BUSY_SECONDS}\nwhile time.monotonic() < end: sum(range(10000))"
    processes = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def latency(state: Path, count: int) -> Latency:
    """Of the trained model's answer to one row, in this process, beside so many busy ones."""
    import pandas as pd

    folder = StateFolder(state)
    store = StateRecords(FolderState(folder.root))
    full, snapshot = store.newest("toy", "full"), store.newest("toy", "snapshot")
    assert isinstance(full, StageReport)
    assert isinstance(snapshot, Snapshot)
    assert full.artifact is not None
    assert full.artifact_sha256 is not None
    score = load_artifact(folder.absolute(full.artifact), full.artifact_sha256)
    rows = pd.read_parquet(folder.absolute(snapshot.splits["benchmark"].file.path))[list(snapshot.feature_columns)]
    ones = [rows.iloc[[position]] for position in range(50)]
    with busy(count):
        return measure_latency(lambda call: score(ones[call % 50]), LIMIT_MS)


def table(alone: dict[str, str], differ: list[str], latencies: dict[int, Latency]) -> str:
    """What differs, and a line for each number of busy processes."""
    lines = [f"{len(alone)} statuses, {len(differ)} differ", *(f"  {line}" for line in differ)]
    lines += [
        f"{'busy processes':<16}{'wall ms':>9}{'CPU ms':>9}{'judged ms':>11}{'rounds':>8}  within {LIMIT_MS:g} ms"
    ]
    for count, found in latencies.items():
        figures = f"{found.wall_ms:>9.1f}{found.cpu_ms:>9.1f}{found.most_ms:>11.1f}{found.rounds:>8}"
        lines.append(f"{count:<16}{figures}  {found.within(LIMIT_MS)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
