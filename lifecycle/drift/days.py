"""Rows and nulls of a dataset by day, in one pass over its files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lifecycle.data.content import parquet_files
from lifecycle.data.days import days_of
from lifecycle.data.files import BATCH_ROWS
from lifecycle.records import DatasetVersion
from lifecycle.storage.metrics import VersionMetrics

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
    rows: dict[int, int] = {}
    nulls: dict[str, dict[int, int]] = {}
    for file in files:
        nullable = _with_nulls(file, columns)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=[day_column, *nullable], use_threads=False):
            if not batch.num_rows:
                continue
            day, known = _days(batch.column(0))
            _add(rows, day[known])
            for place, name in enumerate(nullable, start=1):
                missing = _missing(batch.column(place))
                if missing is not None:
                    _add(nulls.setdefault(name, {}), day[missing & known])
    first, last = (min(rows), max(rows)) if rows else (0, -1)
    return VersionMetrics(
        dataset=dataset.name,
        version=dataset.revision,
        content_hash=dataset.content_hash,
        day_column=day_column,
        first_day=(_EPOCH + timedelta(days=first)).isoformat(),
        rows=tuple(rows.get(day, 0) for day in range(first, last + 1)),
        columns=tuple(columns),
        nulls={name: tuple(found.get(day, 0) for day in range(first, last + 1)) for name, found in nulls.items()},
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _with_nulls(file: Any, columns: Sequence[str]) -> list[str]:
    """Columns for which the file's own statistics don't rule out nulls, or NaN beside them."""
    groups = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
    found = set()
    for group in groups:
        for place in range(group.num_columns):
            statistics = group.column(place).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found.add(group.column(place).path_in_schema.split(".")[0])
    return [name for name in columns if name in found]


def _days(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Day of each row and whether it has one."""
    import numpy as np

    known = values.is_valid().to_numpy(zero_copy_only=False)
    return (days_of(values) if known.all() else np.where(known, days_of(values.fill_null(0)), 0)), known


def _missing(values: Any) -> np.ndarray | None:
    return values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False) if values.null_count else None


def _add(counts: dict[int, int], days: np.ndarray) -> None:
    import numpy as np

    if len(days):
        least = int(days.min())
        for day, count in enumerate(np.bincount(days - least), start=least):
            if count:
                counts[day] = counts.get(day, 0) + int(count)
