"""The rules of validation_contract.yaml by three engines: ours in one pass, Great Expectations, and pandera on polars.

Each measurement is a process of its own: CPU seconds of the validation alone, imports and contract left out, and the
process's peak of memory beyond what it held before. Rows are the flights of 2013, repeated.

    make bench NAME=validation                           about 3 minutes on 2 idle cores
    python -m benchmarks.validation --rows 336776        other sizes; the ratios are those of the target's size
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.flights_rows import published
from benchmarks.process import peak_beyond
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.rule import Rule, within
from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.resources.settings import PRODUCT

CONTRACT = Path(__file__).with_name("validation_contract.yaml")
FLIGHTS = 336_776
SIZES = (FLIGHTS, 10 * FLIGHTS, 30 * FLIGHTS)
TARGET_ROWS = 10 * FLIGHTS
ENGINES = ("fused", "great_expectations", "pandera")
# How often each engine judges a size; Great Expectations takes half a minute for the largest.
REPEATS = {FLIGHTS: 5, 10 * FLIGHTS: 3, 30 * FLIGHTS: 1}
# Fewer, and an engine takes no more memory than its imports have left.
SHORT_ROWS = 100_000
TARGETS = {"cpu_over_great_expectations": 0.25, "cpu_over_pandera": 1.5, "memory_over_pandera": 0.6}


def main() -> None:
    """Write the rows, run the engines in turn, print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="how many rows the engines judge")
    asked = parser.parse_args()
    begin(asked.short)
    sizes = (SHORT_ROWS,) if asked.short else tuple(asked.rows)
    source = published()
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="validation-") as folder:
            write_rows(source, Path(folder), rows)
            for _ in range(REPEATS.get(rows, 1)):
                for engine in (*ENGINES, "failing_rows"):
                    found.setdefault((rows, engine), []).append(measured(engine, Path(folder)))
        print(table(found, rows), flush=True)
    ratios = figures(found, TARGET_ROWS if TARGET_ROWS in sizes else sizes[-1])
    # Of another size they are printed, and meet nothing.
    targets = TARGETS if asked.short or TARGET_ROWS in sizes else {}
    finish("validation", ratios, targets, short=asked.short)


def write_rows(source: Path, folder: Path, rows: int) -> None:
    """The flights' columns that the contract names, repeated to `rows` rows, the repetition's number in `copy`."""
    names = [column.name for column in load_contract(CONTRACT).columns if column.name != "copy"]
    flights = pl.read_parquet(list(parquet_files(source).values()), columns=names)
    for copy in range(-(-rows // len(flights))):
        part = flights.head(rows - copy * len(flights)).with_columns(pl.lit(copy, dtype=pl.Int64).alias("copy"))
        part.write_parquet(folder / f"part-{copy:03}.parquet")


def measured(engine: str, folder: Path) -> dict[str, float]:
    """CPU seconds and peak bytes of one engine in a fresh process, and how many rules failed."""
    command = [sys.executable, "-m", "benchmarks.validation", "engine", engine, str(folder)]
    done = subprocess.run(command, cwd=PRODUCT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def child(engine: str, folder: Path) -> None:
    """One engine in this process; its imports are warmed on one row of the same columns."""
    contract = load_contract(CONTRACT)
    work: Callable[[Path, Contract], int] = {
        "fused": _fused, "great_expectations": _great_expectations, "pandera": _pandera, "failing_rows": _failing_rows,
    }[engine]  # fmt: skip
    with tempfile.TemporaryDirectory() as warm:
        first = next(iter(parquet_files(folder).values()))
        pl.read_parquet(first, n_rows=10).write_parquet(Path(warm, "rows.parquet"))
        work(Path(warm), contract)
    failed, started = [], time.process_time()
    peak = peak_beyond(lambda: failed.append(work(folder, contract)))
    cpu = time.process_time() - started
    print(json.dumps({"cpu_seconds": cpu, "peak_bytes": peak, "failed": failed[0]}))


def _fused(folder: Path, contract: Contract) -> int:
    from trainworthy.lifecycle.contract.polars_engine import validate_files

    return sum(result.status != "pass" for result in validate_files(folder, contract))


def _great_expectations(folder: Path, contract: Contract) -> int:
    from trainworthy.expectations.validate import validate_files

    return sum(result.status != "pass" for result in validate_files(folder, contract))


def _failing_rows(folder: Path, contract: Contract) -> int:
    """The second pass alone: all rows of two rules that a third of the rows break, written to files."""
    from trainworthy.lifecycle.contract.failing_rows import write_failing_rows
    from trainworthy.lifecycle.contract.result import RuleResult
    from trainworthy.lifecycle.contract.rule import NO_ROW, make_rule

    rules = (
        make_rule("far", "range", ("distance",), bound=NO_ROW, maximum=1000),
        make_rule("not_newark", "allowed", ("origin",), bound=NO_ROW, values=["JFK", "LGA"]),
    )
    results = [RuleResult(rule=rule, status="fail", rows=1, count=1) for rule in rules]
    with tempfile.TemporaryDirectory() as target:
        return len(write_failing_rows(folder, contract, results, Path(target)))


def _pandera(folder: Path, contract: Contract) -> int:
    """The contract as a pandera schema with lazy=True on a polars frame: on a LazyFrame it looks at no values."""
    import pandera.errors
    import pandera.polars as pa

    frame = pl.read_parquet(list(parquet_files(folder).values()), columns=[one.name for one in contract.columns])
    key = next(list(rule.columns) for rule in contract.rules if rule.kind == "unique")
    types = {"integer": pl.Int64, "number": pl.Float64, "string": pl.String}
    columns = {
        column.name: pa.Column(
            types[column.logical_type],
            nullable=not any(rule.kind == "nulls" and rule.id.endswith(".required") and column.name in rule.columns
                             for rule in contract.rules),
            checks=[_check(rule) for rule in contract.rules if rule.columns == (column.name,) and _is_check(rule)],
        )
        for column in contract.columns
    }  # fmt: skip
    pairs = [_pair(rule) for rule in contract.rules if rule.kind == "less_or_equal"]
    schema = pa.DataFrameSchema(columns, checks=[*pairs, _rows_between(contract)], unique=key)
    try:
        schema.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as errors:
        return len(errors.failure_cases)
    return 0


def _is_check(rule: Rule) -> bool:
    return rule.kind in ("range", "pattern", "allowed") or (rule.kind == "nulls" and not rule.id.endswith(".required"))


def _check(rule: Rule) -> Any:
    import pandera.polars as pa

    if rule.kind == "range":
        return pa.Check.in_range(rule.parameters["minimum"], rule.parameters["maximum"])
    if rule.kind == "pattern":
        return pa.Check.str_matches(rule.parameters["pattern"])
    if rule.kind == "allowed":
        return pa.Check.isin(rule.parameters["values"])
    bound = rule.parameters["bound"]
    return pa.Check(lambda data: data.lazyframe.select(_share_holds(data.key, bound)), ignore_na=False)


def _share_holds(column: str, bound: Mapping[str, Any]) -> pl.Expr:
    assert bound["unit"] == "percent", bound
    share = pl.col(column).is_null().mean() * 100
    return share <= bound["value"] if bound["operator"] == "mustBeLessOrEqualTo" else share < bound["value"]


def _pair(rule: Rule) -> Any:
    import pandera.polars as pa

    low, high = rule.columns
    return pa.Check(lambda data: data.lazyframe.select((pl.col(low) <= pl.col(high)).fill_null(value=True)))


def _rows_between(contract: Contract) -> Any:
    import pandera.polars as pa

    bounds = [rule.parameters["bound"] for rule in contract.rules if rule.kind == "row_count"]
    return pa.Check(
        lambda data: data.lazyframe.select(
            pl.len().map_elements(lambda rows: all(within(bound, rows, rows) for bound in bounds), pl.Boolean)
        )
    )


def median(found: Mapping[tuple[int, str], list[dict[str, float]]], rows: int, engine: str, name: str) -> float:
    """The median of one figure."""
    return statistics.median(one[name] for one in found[rows, engine])


def figures(found: Mapping[tuple[int, str], list[dict[str, float]]], rows: int) -> dict[str, float]:
    """The memory of each engine, and the ratios that the targets name, at so many rows."""
    cpu = {engine: median(found, rows, engine, "cpu_seconds") for engine in ENGINES}
    memory = {engine: median(found, rows, engine, "peak_bytes") for engine in ENGINES}
    return {
        "rows": rows,
        **{f"{engine}_peak_mb": peak / 1e6 for engine, peak in memory.items()},
        "cpu_over_great_expectations": cpu["fused"] / cpu["great_expectations"],
        "cpu_over_pandera": cpu["fused"] / cpu["pandera"],
        "memory_over_pandera": memory["fused"] / memory["pandera"],
    }


def table(found: Mapping[tuple[int, str], list[dict[str, float]]], rows: int) -> str:
    """One line an engine: medians, and the range of CPU seconds."""
    lines = [f"{rows:,} rows{'':<12}{'CPU s':>8}{'peak MB':>9}   CPU s, least to most; rules that failed"]
    for engine in (*ENGINES, "failing_rows"):
        cpu = sorted(one["cpu_seconds"] for one in found[rows, engine])
        peak, failed = median(found, rows, engine, "peak_bytes") / 1e6, found[rows, engine][0]["failed"]
        lines.append(
            f"{engine:<24}{statistics.median(cpu):>8.2f}{peak:>9.0f}   {cpu[0]:.2f} to {cpu[-1]:.2f}; {failed:g}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    child(sys.argv[2], Path(sys.argv[3])) if sys.argv[1:2] == ["engine"] else main()
