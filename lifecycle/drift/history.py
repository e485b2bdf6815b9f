"""history: are the days that are new like the same weekdays before, in rows and in nulls?

A single odd day is told with its date: a holiday, a storm. Days in a row, or half of all new days, are told first: a
feed that broke, a level that changed for good. Neither stops a run: what may not happen belongs into contract.yaml.

Rows and nulls of a dataset by day, in one pass over its files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.batches import BATCH_ROWS
from trainworthy.lifecycle.data.days import days_of
from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS, CheckResult
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.lifecycle.spec.split import Windows, hours
from trainworthy.lifecycle.storage.metrics import VersionMetrics, metrics_of
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.use_case import UseCase

# Same weekdays that a day needs before it, and how many of the newest are looked at: a season, not a year.
LEAST_WEEKDAYS, MOST_WEEKDAYS = 4, 12
# An odd day lies this many robust standard deviations off, and by at least this share of rows or of nulls.
_SPREADS, _VOLUME_FLOOR, _NULL_FLOOR = 5.0, 0.3, 0.2
# A single day is told if it lies farther out than any of the twelve weeks before, by this factor.
_BEYOND = 1.25
# Odd days in a row that are no holiday any more: Christmas takes two or three.
_RUN = 4
# The days that are judged in a first version whose splits do not follow each other in time.
_NEWEST_DAYS = 28
# Fewer rows than say something, farther than this from all others, are a slip or a placeholder, not days of the data.
_APART_DAYS = 366
_SHOWN = 50


@dataclass(frozen=True)
class OddDays:
    """Odd days of one column (None: rows), all in one direction; `usual` and `observed` are of the oddest one."""

    column: str | None
    up: bool
    days: tuple[date, ...]
    usual: float
    observed: float
    kind: Literal["level", "run", "days"]


def judged_days(
    state: StateFolder, use_case: UseCase, source: Path, dataset: DatasetVersion
) -> tuple[CheckResult | None, VersionMetrics | None]:
    """The check, None where the rows hold no times; and the version's metrics to keep, None without days in them."""
    spec = use_case.spec.split
    column = spec.time_column or use_case.spec.prediction_time
    if column is None:
        return None, None
    if not gives_days(source, column):
        evidence = f"{column} holds no dates or timestamps: there are no days to compare"
        return CheckResult(name="history", status="not_applicable", severity="warning", evidence=evidence), None
    metrics = measure_days(source, dataset, column)
    window_days = max(1, hours(spec.benchmark.window) // 24) if isinstance(spec, Windows) else _NEWEST_DAYS
    return history_check(metrics, metrics_of(state, use_case.name), window_days), metrics


def history_check(metrics: VersionMetrics, earlier: Sequence[VersionMetrics], window_days: int) -> CheckResult:
    """Judges the days that the newest earlier version lacks; without an earlier one the newest `window_days`."""
    places = _settled(metrics)
    if not len(places):
        return _insufficient(f"no day with {FEWEST_ROWS} rows within a year of it: there is nothing to compare")
    days = np.array([metrics.days[place].toordinal() for place in places])
    new_day = _first_new(days, metrics, earlier, window_days)
    # Of the days before the new ones no more is looked at; a whole calendar of centuries would be zeros.
    start = max(int(days[0]), new_day - 7 * MOST_WEEKDAYS)
    first, new = date.fromordinal(start), new_day - start
    inside = days >= start

    def by_day(counts: Sequence[int]) -> np.ndarray:
        values = np.zeros(int(days[-1]) - start + 1)
        values[days[inside] - start] = np.array(counts)[places][inside]
        return values

    rows = by_day(metrics.rows)
    span = f"{first + timedelta(days=new)} to {first + timedelta(days=len(rows) - 1)}"
    if new < 7 * LEAST_WEEKDAYS:
        return _insufficient(f"{new} days before {span}: a day needs {LEAST_WEEKDAYS} same weekdays before it")
    odd_days = _odd_days(None, rows, np.sqrt(np.maximum(rows, 1)), _VOLUME_FLOOR * rows, new, first)
    for column, counts in metrics.nulls.items():
        share = np.where(rows >= FEWEST_ROWS, by_day(counts) / np.maximum(rows, 1), np.nan)
        noise = np.sqrt(np.maximum(share * (1 - share), 1 / np.maximum(rows, 1)) / np.maximum(rows, 1))
        odd_days += _odd_days(column, share, noise, np.full(len(rows), _NULL_FLOOR), new, first)
    return _result(odd_days, span, len(rows) - new)


def _settled(metrics: VersionMetrics) -> np.ndarray:
    """Places of the days that count: not a few rows of a wrong century, or of 9999 for never."""
    days = np.array([day.toordinal() for day in metrics.days], dtype=np.int64)
    stretch = np.cumsum(np.diff(days, prepend=days[:1]) > _APART_DAYS)
    return np.flatnonzero(np.bincount(stretch, weights=metrics.rows)[stretch] >= FEWEST_ROWS)


def _first_new(days: np.ndarray, metrics: VersionMetrics, earlier: Sequence[VersionMetrics], window_days: int) -> int:
    """The ordinal of the first day to judge."""
    before = [entry for entry in earlier if entry.dataset == metrics.dataset and entry.day_column == metrics.day_column]
    hashes = [entry.content_hash for entry in before]
    if metrics.content_hash in hashes:
        before = before[: hashes.index(metrics.content_hash)]
    if before and len(places := _settled(before[-1])):
        known = before[-1].days[places[-1]].toordinal() + 1
        if days[0] < known <= days[-1]:
            return known
    return max(int(days[0]), int(days[-1]) + 1 - window_days)


def _insufficient(evidence: str) -> CheckResult:
    fix = "nothing to do: later versions are judged by the days of this one"
    return CheckResult(name="history", status="insufficient", severity="warning", evidence=evidence, fix=fix)


def _odd_days(
    column: str | None, values: np.ndarray, noise: np.ndarray, floor: np.ndarray, new: int, first: date
) -> list[OddDays]:
    """Days from place `new` on that lie far from the median of the same weekdays before, up and down apart."""
    start = max(0, new - 7 * MOST_WEEKDAYS)
    usual, limit = np.full(len(values), np.nan), np.full(len(values), np.inf)
    for weekday in range(7):
        before = values[start:new][(np.arange(start, new) % 7) == weekday]
        before = before[~np.isnan(before)]
        if len(before) >= LEAST_WEEKDAYS:
            same = np.arange(len(values)) % 7 == weekday
            usual[same] = np.median(before)
            limit[same] = _SPREADS * np.maximum(1.4826 * np.median(np.abs(before - np.median(before))), noise[same])
    if column is None:
        floor = _VOLUME_FLOOR * usual
    limit = np.maximum(limit, floor)
    away = np.nan_to_num(values - usual)
    groups = [
        _grouped(column, up, away if up else -away, limit, usual, values, start, new, first) for up in (True, False)
    ]
    return [odd for odd in groups if odd]


def _grouped(
    column: str | None, up: bool, away: np.ndarray, limit: np.ndarray, usual: np.ndarray, values: np.ndarray,
    start: int, new: int, first: date,
) -> OddDays | None:  # fmt: skip
    """The odd days in one direction: all of them if they are many or in a row, else those that beat earlier ones.

    Where such days were common before, as with a station that reports pressure now and then, they are no news.
    """
    odd = away > limit
    before, now = odd[start:new], odd[new:]
    kind: Literal["level", "run", "days"] = "days"
    if len(now) >= 7 and now.mean() > max(0.5, 2 * before.mean()):
        kind = "level"
    elif _longest(now) >= max(_RUN, 2 * _longest(before)):
        kind = "run"
    else:
        now = now & (away[new:] > _BEYOND * max(0.0, float(away[start:new].max())))
    places = new + np.flatnonzero(now)
    if not len(places):
        return None
    most = int(places[away[places].argmax()])
    when = tuple(first + timedelta(days=int(place)) for place in places)
    return OddDays(column, up, when, float(usual[most]), float(values[most]), kind)


def _longest(odd: np.ndarray) -> int:
    """The most odd days in a row."""
    longest = run = 0
    for value in odd:
        run = run + 1 if value else 0
        longest = max(longest, run)
    return longest


def _result(groups: list[OddDays], span: str, judged: int) -> CheckResult:
    lasting = [odd for odd in groups if odd.kind != "days"]
    details = tuple(_row(odd) for odd in sorted(groups, key=lambda odd: ("level", "run", "days").index(odd.kind)))
    if not groups:
        return CheckResult(
            name="history", status="pass", severity="warning", observed=0, threshold=0,
            evidence=f"{judged} new days, {span}: rows and nulls like those of the same weekdays before",
        )  # fmt: skip
    sentences = "; ".join(_sentences(lasting) + _sentences([odd for odd in groups if odd.kind == "days"]))
    odd_days = len({day for odd in groups for day in odd.days})
    fix = "ask the source what happened on these days; if it is meant, nothing is to be done"
    if lasting:
        fix = "a feed may be broken: ask the source; leave the days out, or publish the version again once it is fixed"
    return CheckResult(
        name="history", status="fail", severity="warning", observed=odd_days, threshold=0,
        evidence=f"{odd_days} of {judged} new days, {span}, are unlike the same weekdays before: {sentences}",
        fix=fix, details=details[:_SHOWN],
    )  # fmt: skip


def _sentences(groups: list[OddDays]) -> list[str]:
    """One for each set of equal days: a source that fails takes all of its columns with it."""
    together: dict[tuple[Any, ...], list[OddDays]] = defaultdict(list)
    for odd in groups:
        together[(odd.kind, odd.column is None, odd.up, odd.days)].append(odd)
    return [_sentence(same) for same in list(together.values())[:10]]


def _sentence(same: list[OddDays]) -> str:
    odd = same[0]
    when = {"level": "lasting, ", "run": "in a row, ", "days": ""}[odd.kind] + _days(odd.days)
    if odd.column is None:
        what = "no rows at all" if odd.observed == 0 else f"{odd.observed:,.0f} rows where {odd.usual:,.0f} are usual"
        return f"{what} ({when})"
    names = ", ".join(str(other.column) for other in same[:3]) + (f" and {len(same) - 3} more" if len(same) > 3 else "")
    return f"{names} null in {odd.observed:.0%} where {odd.usual:.0%} is usual ({when})"


def _days(days: Sequence[date]) -> str:
    named = ", ".join(str(day) for day in days[:5])
    return named if len(days) <= 5 else f"{len(days)} days from {days[0]} to {days[-1]}"


def _row(odd: OddDays) -> dict[str, Any]:
    return {
        "column": odd.column or "(rows)",
        "status": "fail",
        "statistic": "rows" if odd.column is None else "null_share",
        "observed": round(odd.observed, 4),
        "usual": round(odd.usual, 4),
        "kind": {"level": "lasting change of level", "run": "days in a row", "days": "single days"}[odd.kind],
        "days": _days(odd.days),
    }


_EPOCH = date(1970, 1, 1)


def gives_days(source: Path, column: str) -> bool:
    """True if the column is there and holds dates or timestamps."""
    schema = pq.read_schema(next(iter(parquet_files(source).values())))
    return column in schema.names and (
        pa.types.is_timestamp(schema.field(column).type) or pa.types.is_date(schema.field(column).type)
    )


def measure_days(source: Path, dataset: DatasetVersion, day_column: str) -> VersionMetrics:
    """The metrics of the dataset in `source` by day of a date or timestamp column; rows without a day are left out."""
    files = [pq.ParquetFile(path) for path in parquet_files(source).values()]
    columns = [name for name in files[0].schema_arrow.names if name != day_column]
    rows: Counter[int] = Counter()
    nulls: dict[str, Counter[int]] = {}
    for file in files:
        nullable = _with_nulls(file, columns)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[day_column, *nullable], use_threads=False):
            days, place = _days_of_values(batch.column(day_column))
            _add(rows, days, place[place >= 0])
            for name in nullable:
                missing = batch.column(name).is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
                if missing.any():
                    _add(nulls.setdefault(name, Counter()), days, place[missing & (place >= 0)])
    order = sorted(rows)
    return VersionMetrics(
        dataset=dataset.name,
        version=dataset.revision,
        content_hash=dataset.content_hash,
        day_column=day_column,
        days=tuple(_EPOCH + timedelta(days=day) for day in order),
        rows=tuple(rows[day] for day in order),
        columns=tuple(columns),
        nulls={name: tuple(counts[day] for day in order) for name, counts in nulls.items() if counts},
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _with_nulls(file: Any, columns: Sequence[str]) -> list[str]:
    """Columns that may hold a null: the file's own statistics rule it out, but for NaN, which they don't count.

    A dataset's columns are flat, so that a column of the file is a field of its schema.
    """
    nullable = {field.name for field in file.schema_arrow if pa.types.is_floating(field.type)}
    for group in range(file.num_row_groups):
        for place, name in enumerate(file.schema_arrow.names):
            statistics = file.metadata.row_group(group).column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                nullable.add(name)
    return [name for name in columns if name in nullable]


def _days_of_values(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """The days that occur, sorted, and each row's place among them; -1 for null and for years beyond 1 to 9999."""
    known = values.is_valid().to_numpy(zero_copy_only=False)
    day_numbers = days_of(values) if known.all() else days_of(values.fill_null(0))
    days, place = np.unique(day_numbers, return_inverse=True)
    first, last = ((day - _EPOCH).days for day in (date.min, date.max))
    return days, np.where(known & (day_numbers >= first) & (day_numbers <= last), place, -1)


def _add(counts: Counter[int], days: np.ndarray, places: np.ndarray) -> None:
    added = np.bincount(places, minlength=len(days))
    counts.update({int(days[place]): int(added[place]) for place in np.flatnonzero(added)})
