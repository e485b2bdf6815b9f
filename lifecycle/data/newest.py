"""The newest value of a column of times, read from a dataset's Parquet files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from trainworthy.lifecycle.contract.freshness import NewestValue
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import parquet_files


def newest_value(folder: Path, column: str, until: datetime) -> NewestValue:
    """The newest value no later than `until`, and how many rows lie after it; only this column is read.

    Times without a zone are UTC, as the contract's standard has it. Raises DatasetError for a column that is missing
    or holds no times.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    newest: datetime | None = None
    after, limit = 0, np.datetime64(until.astimezone(UTC).replace(tzinfo=None), "us")
    for path in parquet_files(folder).values():
        fix = "fetch the dataset again, or name a column of dates or times in contract.yaml: slaProperties"
        try:
            values = pq.read_table(path, columns=[column])[column]
        except (OSError, ValueError, KeyError) as error:
            raise DatasetError(f"{path.name}: the column {column} can't be read", value=str(path), fix=fix) from error
        if not (pa.types.is_timestamp(values.type) or pa.types.is_date(values.type)):
            raise DatasetError(f"{path.name}: the column {column} holds no times", value=str(values.type), fix=fix)
        instants = values.cast(pa.timestamp("us"), safe=False).drop_null().to_numpy()
        there = instants[instants <= limit]
        after += len(instants) - len(there)
        last = there.max().item() if len(there) else None
        if last is not None and (newest is None or last > newest):
            newest = last
    return NewestValue(newest.replace(tzinfo=UTC) if newest else None, after)
