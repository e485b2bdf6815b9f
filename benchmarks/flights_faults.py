"""Faults planted into a copy of the flights dataset: what goes wrong between a source and a training table.

Each fault changes one month file and leaves the others as they are. `plant` writes the copy; `healthy_april` is the
control: a copy without any fault.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

KILOMETRES_A_MILE = 1.609344
CLIPPED_AT_MINUTES = 30
LOST_CARRIER = "EV"
COPY_OF_TARGET = "late_hint"


@dataclass(frozen=True)
class Fault:
    """A change of the rows of one month file; `columns` are those that the change can be seen in."""

    name: str
    month: str
    story: str
    change: Callable[[pd.DataFrame], pd.DataFrame]
    columns: tuple[str, ...]


def _miles_as_kilometres(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(distance=(rows["distance"] * KILOMETRES_A_MILE).round().astype("int64"))


def _nulls(rows: pd.DataFrame) -> pd.DataFrame:
    lost = np.random.default_rng(0).random(len(rows)) < 0.30
    return rows.assign(temp=rows["temp"].mask(lost))


def _lost_carrier(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["carrier"] != LOST_CARRIER].reset_index(drop=True)


def _clipped(rows: pd.DataFrame) -> pd.DataFrame:
    names = ["dep_delay", "arr_delay", "tail_previous_dep_delay", "tail_previous_arr_delay"]
    return rows.assign(**{name: rows[name].clip(upper=CLIPPED_AT_MINUTES) for name in names})


def _backfill(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(arr_delay=rows["arr_delay"] - 10)


def _unchanged(rows: pd.DataFrame) -> pd.DataFrame:
    return rows


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("miles_as_kilometres", "2013-04", "distance comes in kilometres", _miles_as_kilometres, ("distance",)),
        Fault("nulls", "2013-04", "30 % of the temperatures are missing", _nulls, ("temp",)),
        Fault("lost_carrier", "2013-04", f"the feed of {LOST_CARRIER} is lost", _lost_carrier, ("carrier",)),
        Fault(
            "clipped_delays",
            "2013-04",
            f"delays end at {CLIPPED_AT_MINUTES} minutes",
            _clipped,
            ("dep_delay", "arr_delay", "tail_previous_dep_delay", "tail_previous_arr_delay"),
        ),
        Fault("backfill", "2013-03", "March's arrivals are rewritten, 10 minutes earlier", _backfill, ("arr_delay",)),
        Fault("healthy_april", "2013-04", "nothing: an ordinary April", _unchanged, ()),
    )
}


def plant(name: str, source: Path, target: Path) -> Path:
    """Copy the month files of `source` to the new folder `target`, with the named fault in its month; `target`."""
    fault = FAULTS[name]
    shutil.copytree(source, target)
    _rewrite(target / f"{fault.month}.parquet", fault.change)
    return target


def plant_copy_of_target(source: Path, target: Path, flipped: float = 0.05) -> Path:
    """Copy `source` with one more column in each file: whether the flight was late, `flipped` of it wrong.

    What a badly joined "delay risk" of another team looks like: 0 or 1, no nulls, every range kept.
    """
    shutil.copytree(source, target)
    random = np.random.default_rng(0)
    for path in sorted(target.glob("*.parquet")):
        _rewrite(path, lambda rows: rows.assign(**{COPY_OF_TARGET: _flipped(rows, random, flipped)}))
    return target


def _flipped(rows: pd.DataFrame, random: np.random.Generator, share: float) -> pd.Series:
    late = (rows["arr_delay"] > 15).astype("int64")
    return late.where(random.random(len(rows)) >= share, 1 - late)


def _rewrite(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    rows = change(pd.read_parquet(path))
    # A copy may come read-only from a store.
    path.unlink()
    rows.to_parquet(path, engine="pyarrow", compression="zstd", index=False)


def offer_as_features(contract: Path, target: Path, *names: str) -> Path:
    """Write the contract to `target` with these columns in the role feature; one that is new claims to be known."""
    values = yaml.safe_load(contract.read_text(encoding="utf-8"))
    properties = values["schema"][0]["properties"]
    known = {item["name"]: item for item in properties}
    for name in names:
        if name not in known:
            available = {"property": "availableAt", "value": "PT0S"}
            properties.append(
                {"name": name, "logicalType": "integer", "required": True, "customProperties": [available]}
            )
            known[name] = properties[-1]
        others = [item for item in known[name]["customProperties"] if item["property"] != "role"]
        known[name]["customProperties"] = [{"property": "role", "value": "feature"}, *others]
    target.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return target
