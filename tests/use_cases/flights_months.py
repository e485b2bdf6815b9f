"""Snapshots of real flights through a month, from one build: the newest month is the window."""

import os
from pathlib import Path

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import SplitFiles, read_columns, write_split_files
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_by_time, split_columns
from trainworthy.lifecycle.drift.check import drift_check
from trainworthy.lifecycle.use_case import load_use_case

FOLDER = Path(__file__).parents[2] / "use_cases" / "flight_delays"


def through(month: int, built: Path, into: Path) -> SplitFiles:
    """The written splits of version v<month>; `built` holds the files of all months."""
    source, folder = into / f"v{month}", into / f"splits-v{month}"
    source.mkdir()
    folder.mkdir()
    for path in sorted(built.glob("*.parquet"))[:month]:
        os.link(path, source / path.name)
    spec, contract = load_use_case(FOLDER).spec.split, load_contract(FOLDER / "contract.yaml")
    label = contract.label
    labelled = with_label(read_columns(source, (*split_columns(spec, contract), label.column)), label)
    splits = split_by_time(labelled, spec)
    positions = {name: np.asarray(rows.index) for name, rows in splits.items()}
    return write_split_files(source, folder, positions, pd.concat([rows[label.name] for rows in splits.values()]))


def flagged(written: SplitFiles, change=None, days: int = 30):
    """The drift check, and the flagged columns' rows, after `change` was made to the window's newest days."""
    path = written.path("benchmark")
    kept = path.read_bytes()
    if change is not None:
        rows = pd.read_parquet(path)
        new = rows["date"] > rows["date"].max() - pd.Timedelta(days=days)
        pd.concat([rows[~new], change(rows[new].copy())]).to_parquet(path, index=False)
    try:
        check = drift_check(written, load_contract(FOLDER / "contract.yaml"), load_use_case(FOLDER).spec.split)
    finally:
        path.write_bytes(kept)
    return check, {row["column"]: row for row in check.details if row["status"] == "fail"}
