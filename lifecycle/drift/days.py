"""Rows and nulls of a dataset by day, in one pass over its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.contract.batches import BATCH_ROWS
from trainworthy.lifecycle.data.days import days_of
from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.lifecycle.protocol.records import DatasetVersion
from trainworthy.lifecycle.storage.metrics import VersionMetrics

if TYPE_CHECKING:
    import numpy as np

_EPOCH = date(1970, 1, 1)


def gives_days(source: Path, column: str) -> bool:
    """True if the column is there and holds dates or timestamps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(next(iter(parquet_files(source).values())))
    return column in schema.names and (
        pa.types.is_timestamp(schema.field(column).type) or pa.types.is_date(schema.field(column).type)
    )


def measure_days(source: Path, dataset: DatasetVersion, day_column: str) -> VersionMetrics:
    """The metrics of the dataset in `source` by day of a date or timestamp column; rows without a day are left out."""
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(path) for path in parquet_files(source).values()]
    columns = [name for name in files[0].schema_arrow.names if name != day_column]
    rows: Counter[int] = Counter()
    nulls: dict[str, Counter[int]] = {}
    for file in files:
        nullable = _with_nulls(file, columns)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[day_column, *nullable], use_threads=False):
            days, place = _days(batch.column(day_column))
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
        nulls={name: tuple(found[day] for day in order) for name, found in nulls.items() if found},
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _with_nulls(file: Any, columns: Sequence[str]) -> list[str]:
    """Columns that may hold a null: the file's own statistics rule it out, but for NaN, which they don't count.

    A dataset's columns are flat, so that a column of the file is a field of its schema.
    """
    import pyarrow as pa

    found = {field.name for field in file.schema_arrow if pa.types.is_floating(field.type)}
    for group in range(file.num_row_groups):
        for place, name in enumerate(file.schema_arrow.names):
            statistics = file.metadata.row_group(group).column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found.add(name)
    return [name for name in columns if name in found]


def _days(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """The days that occur, sorted, and each row's place among them; -1 for null and for years beyond 1 to 9999."""
    import numpy as np

    known = values.is_valid().to_numpy(zero_copy_only=False)
    found = days_of(values) if known.all() else days_of(values.fill_null(0))
    days, place = np.unique(found, return_inverse=True)
    first, last = ((day - _EPOCH).days for day in (date.min, date.max))
    return days, np.where(known & (found >= first) & (found <= last), place, -1)


def _add(counts: Counter[int], days: np.ndarray, places: np.ndarray) -> None:
    import numpy as np

    found = np.bincount(places, minlength=len(days))
    counts.update({int(days[place]): int(found[place]) for place in np.flatnonzero(found)})
