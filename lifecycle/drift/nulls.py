"""history of rows without times: there are no days to compare, so the splits are compared with each other, in nulls.

A split by group, strata or hash deals the rows by chance. Where a column is null far more often in one split than in
training, it was not chance that dealt them: files of two sources whose keys differ, or a join that reached some groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from trainworthy.lifecycle.data.file_rows import is_sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.protocol.checks import FEWEST_ROWS, CheckResult
from trainworthy.lifecycle.spec.split import SPLITS, SplitSpec

# Points of nulls, and standard errors by group, beyond which a split is unlike training; as for days (history.py).
FLOOR, ERRORS = 0.2, 5.0
_SHOWN = 50


@dataclass(frozen=True)
class Unlike:
    """A column whose share of nulls in a split differs from training's."""

    column: str
    split: str
    share: float
    training: float


def nulls_between_splits(written: SplitFiles, spec: SplitSpec) -> CheckResult:
    """The check `history` where no column gives days: it warns of columns whose nulls lie in some splits alone."""
    shares = {split: _shares(written, split, spec.resample_by) for split in SPLITS}
    unlike = [
        Unlike(column, split, share, shares["training"][column][0])
        for split in SPLITS[1:]
        for column, (share, error) in shares[split].items()
        if abs(share - shares["training"][column][0]) > max(FLOOR, ERRORS * (error + shares["training"][column][1]))
    ]
    unlike.sort(key=lambda column_share: -abs(column_share.share - column_share.training))
    columns, reason = len(shares["training"]), "the rows hold no times, so splits are compared instead of days"
    if not unlike:
        return CheckResult(
            name="history", status="pass", severity="warning", observed=0, threshold=0,
            evidence=f"{reason}: in {columns} columns the share of nulls is that of training in every split",
        )  # fmt: skip
    shown = "; ".join(
        f"{column_share.column} is null in {column_share.share:.0%} of {column_share.split} and "
        f"{column_share.training:.0%} of training"
        for column_share in unlike[:5]
    )
    return CheckResult(
        name="history", status="fail", severity="warning", observed=len(unlike), threshold=0,
        evidence=f"{reason}: {shown}", fix="ask where these rows come from: a join or a feed reached some groups alone",
        details=tuple(_row(column_share) for column_share in unlike[:_SHOWN]),
    )  # fmt: skip


def _row(column_share: Unlike) -> dict[str, object]:
    return {
        "column": column_share.column, "status": "fail", "statistic": "null_share", "where": column_share.split,
        "observed": round(column_share.share, 4), "usual": round(column_share.training, 4),
    }  # fmt: skip


def _shares(written: SplitFiles, split: str, group: str) -> dict[str, tuple[float, float]]:
    """Each column's share of nulls in a split and its standard error, rows of one group counted together."""
    rows = pl.scan_parquet(written.path(split))
    names = [name for name in rows.collect_schema().names() if name != group and not is_sha_column(name)]
    floats = {name for name, kind in rows.collect_schema().items() if kind.is_float()}
    missing = [
        (pl.col(name).is_null() | (pl.col(name).is_nan().fill_null(False) if name in floats else False))
        .cast(pl.Float64)
        .alias(name)
        for name in names
    ]
    sums = rows.select(pl.col(group), *missing).group_by(group).agg(pl.len().alias("\0rows"), pl.col(names).sum())
    by_group = sums.collect()
    sizes = by_group["\0rows"].cast(pl.Float64)
    total = float(sizes.sum())
    if total < FEWEST_ROWS and split != "training":
        return {}
    by_column = {}
    for name in names:
        nulls = by_group[name]
        share = float(nulls.sum()) / total
        away = nulls - share * sizes
        by_column[name] = share, float((away * away).sum()) ** 0.5 / total
    return by_column
