"""The flights of 2013 as published, or a part of them for a short run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.files.content import parquet_files
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import PRODUCT, read_settings

# A short run takes every 20th row: 1,400 a month.
EVERY = 20


def published(version: str = "v12") -> Path:
    """The folder of a published version's Parquet files, one a month; built where it is missing, in some seconds."""
    var = read_settings().var
    return Path(DatasetStore(var).fetch(PRODUCT, "flights", version, var / "datasets").path)


def labelled(contract: Contract, short: bool, version: str = "v12") -> pd.DataFrame:
    """The rows of a version that have a label; in a short run some of those of v12, so that one version is built."""
    rows = with_label(read_columns(published("v12" if short else version)), contract.label)
    return rows.iloc[::EVERY].reset_index(drop=True) if short else rows


def thinned(source: Path, target: Path) -> Path:
    """The months of `source` with every EVERY-th row each, in the new folder `target`."""
    target.mkdir(parents=True)
    for name, path in parquet_files(source).items():
        pl.read_parquet(path).gather_every(EVERY).write_parquet(target / name)
    return target
