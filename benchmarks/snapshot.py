"""The whole snapshot step on the flights of 2013, once, ten times and thirty times over: CPU seconds and peak memory.

Each measurement is a process of its own: the contract's 204 rules, labels, splits, leakage, drift, history, writing,
hashing. CPU seconds are those of the step, imports left out; the peak is the whole process's. Repetitions differ in the
year of the key alone, so that keys stay unique and the splits keep their shape.

    make bench NAME=snapshot         about 3 minutes on 2 cores
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.flights_rows import published
from benchmarks.process import peak_bytes
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.lifecycle.protocol.records import Cost, DatasetVersion, Provenance
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT

TARGETS = {"cpu_seconds_1": 4.0, "peak_gb_30": 3.0, "cpu_per_row_30_over_1": 1.3}
# A month's rows in the step that warms up: the contract asks for 20,000 in all.
WARM_ROWS = 5_000
NOTHING = Provenance(git_commit=None, git_dirty=None, code_sha256="", environment_sha256="", run_id="", created_at="")


class Size(NamedTuple):
    """How often the step is taken by how many times over the flights are there, and which of their rows."""

    repeats: dict[int, int]
    every: int


WHOLE, SHORT = Size({1: 5, 10: 2, 30: 1}, every=1), Size({1: 1, 2: 1}, every=6)


def main() -> None:
    """Write the rows, take the step in fresh processes, print the table."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    size, source = SHORT if short else WHOLE, published()
    found: dict[int, list[dict[str, float]]] = {}
    for copies, repeats in size.repeats.items():
        with tempfile.TemporaryDirectory(prefix="snapshot-") as folder:
            write_rows(source, Path(folder, "files"), copies, size.every)
            found[copies] = [measured(Path(folder)) for _ in range(repeats)]
        one = found[copies][0]
        print(
            f"{one['rows']:>12,.0f} rows: {_median(found[copies], 'cpu_seconds'):6.2f} CPU s, "
            f"{_median(found[copies], 'peak_gb'):5.2f} GB, before the step {one['before_gb']:.2f} GB, "
            f"stopped by: {one['stopped'] or 'nothing'}",
            flush=True,
        )
    fewest, most = min(found), max(found)
    first, last = (_median(found[copies], "cpu_seconds") / found[copies][0]["rows"] for copies in (fewest, most))
    # In a short run the most is less than the names say, as every figure of it.
    figures = {
        "cpu_seconds_1": _median(found[fewest], "cpu_seconds"),
        "peak_gb_30": _median(found[most], "peak_gb"),
        "cpu_per_row_30_over_1": last / first,
    }
    finish("snapshot", figures, TARGETS, short=short)


def write_rows(source: Path, folder: Path, copies: int, every: int) -> None:
    """Every so many-th row of the files, repeated; repetition n has another year in the key, the first one's times."""
    folder.mkdir()
    for path in parquet_files(source).values():
        rows = pl.read_parquet(path).gather_every(every)
        for copy in range(copies):
            part = rows.with_columns(pl.lit(2013 + copy, dtype=pl.Int64).alias("year"))
            part.write_parquet(folder / f"{path.stem}-{copy:02}.parquet")


def measured(folder: Path) -> dict[str, float]:
    """What one step in a fresh process took."""
    command = [sys.executable, "-m", "benchmarks.snapshot", "step", str(folder)]
    done = subprocess.run(command, cwd=PRODUCT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def child(folder: Path) -> None:
    """The step in this process, after one on the first file alone, which loads what it imports."""
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    contract = load_contract(use_case.contract_path)
    with tempfile.TemporaryDirectory(dir=folder) as warm:
        (files := Path(warm, "files")).mkdir()
        for path in sorted((folder / "files").glob("*-00.parquet"))[:6]:
            rows = pl.read_parquet(path)
            rows.gather_every(max(1, len(rows) // WARM_ROWS)).write_parquet(files / path.name)
        warmed = _step(Path(warm), use_case, contract)
        assert not warmed, warmed
    before, started = peak_bytes() / 1e9, time.process_time()
    stopped = _step(folder, use_case, contract)
    cpu = time.process_time() - started
    print(
        json.dumps(
            {
                "rows": _rows(folder / "files"),
                "cpu_seconds": cpu,
                "peak_gb": peak_bytes() / 1e9,
                "before_gb": before,
                "stopped": stopped,
            }
        )
    )


def _step(folder: Path, use_case: UseCase, contract: Contract) -> str:
    """Names of the checks that stopped the step."""
    from trainworthy.assets.snapshot import checked_contract
    from trainworthy.lifecycle.protocol.checks import stopping
    from trainworthy.lifecycle.snapshot import make_snapshot

    dataset = DatasetVersion(
        use_case=use_case.name, parents={}, identity="", provenance=NOTHING, cost=Cost(), name="flights",
        revision="v12", dvc_hash="", content_hash="0" * 64, rows=_rows(folder / "files"), path="files", files=(),
    )  # fmt: skip
    state = StateFolder(folder)
    judge = functools.partial(checked_contract, state, use_case.name, dataset.content_hash, "auto")
    checks, _ = make_snapshot(state, use_case, contract, dataset, judge)
    return ", ".join(f"{check.name} ({check.evidence[:200]})" for check in stopping(checks))


def _rows(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in parquet_files(folder).values())


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in found)


if __name__ == "__main__":
    child(Path(sys.argv[2])) if sys.argv[1:2] == ["step"] else main()
