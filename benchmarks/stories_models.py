"""The models of the data stories: the product's own gradient boosting, on chosen rows and columns."""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc


def fitted(rows: pd.DataFrame, columns: list[str] | tuple[str, ...], label: str):
    """The product's own gradient boosting, fitted on these rows and columns."""
    return fit_baselines(rows, list(columns), label, ["gradient_boosting"], seed=0, kind=BINARY)["gradient_boosting"]


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


def auc_alone(column: pd.Series, labels: pd.Series) -> float:
    """AUC of one column as it is, in whichever direction separates better; rows where it is null are left out."""
    there = column.notna()
    value = auc(labels[there], column[there].rank(pct=True))
    return max(value, 1 - value)
