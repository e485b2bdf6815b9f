"""Hour and weekday of the moment at which the model is asked: known then, and what demand, load or visits go by."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from trainworthy.pipeline.scaffold.source import Kind, free_name

# The columns, with what pandas' .dt calls it: whole numbers, 0 at midnight and on Monday.
PARTS = {"hour": "hour", "weekday": "day_of_week"}
# Of two hours one is often midnight by another zone.
FEWEST_VALUES = {"hour": 3, "weekday": 2}
REMARK = "made by dataset.py of when the model is asked, so it is known then"


def clock_columns(
    raw: pd.DataFrame, time: str, kind: Kind, formats: Mapping[str, str], taken: Collection[str]
) -> dict[str, str]:
    """The columns that dataset.py makes of the column `time`, with pandas' name; none that is the same in all rows.

    Dates alone have no hour. A column of the file that already says so is not made again; of another one of that name
    the new column keeps clear.
    """
    times = pd.to_datetime(raw[time], format=formats.get(time, "ISO8601"), utc=kind == "instant")
    columns: dict[str, str] = {}
    for name, part in PARTS.items():
        values = getattr(times.dt, part)
        if name == "weekday" and _is_sparse(times):
            continue
        if values.nunique() < FEWEST_VALUES[name] or (name in raw.columns and _is_same(raw[name], values)):
            continue
        columns[free_name(name, time, [*taken, *columns])] = part
    return columns


def _is_sparse(times: pd.Series) -> bool:
    """Whether rows are of a day in a week or fewer, as months are: their weekday is the calendar's."""
    days = times.dropna().dt.normalize()
    return days.nunique() <= 1 + (days.max() - days.min()).days / 7


def _is_same(own: pd.Series, values: pd.Series) -> bool:
    return bool((pd.to_numeric(own, errors="coerce") == values).all())
