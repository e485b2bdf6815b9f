"""L2: a date or time that lies after the prediction time was written with the outcome, or later.

The rows say so, whatever availableAt claims: what has been recorded can't lie in the future. A planned time can, such
as a scheduled arrival, and only a person knows which of the two a column is. So a column that nobody was asked about
stops the step; one whose availableAt a person has declared passes, and the entry tells the share of such rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "later_times"
# The largest distance of a zone from UTC: two columns of which only one has a zone may be that far apart.
ZONES_HOURS = 14


def later_times(written: SplitFiles, contract: Contract, prediction_time: str | None) -> list[Leak]:
    """One finding for each feature of dates or times that holds later ones, over all rows; or one that none does."""
    if prediction_time is None:
        evidence = "the rows hold no times (no prediction_time), so there is no later"
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence=evidence)]
    moments = [
        name
        for name in contract.feature_columns
        if contract.column(name).logical_type in ("date", "timestamp") and name != prediction_time
    ]
    if not moments:
        return [Leak(taxon="L2", family=FAMILY, status="not_applicable", evidence="no feature is a date or time")]
    parts = [written.read(split, [*moments, prediction_time]) for split in ("training", *HELD_SPLITS)]
    leaks = []
    for name in moments:
        later = np.concatenate([is_later(part[name], part[prediction_time]) for part in parts])
        if later.any():
            leaks.append(_finding(contract, name, float(later.mean()), prediction_time))
    evidence = f"none of {len(moments)} dates and times lies after {prediction_time}"
    return leaks or [Leak(taxon="L2", family=FAMILY, status="pass", columns=tuple(moments), evidence=evidence)]


def is_later(moments: pd.Series, prediction_times: pd.Series) -> np.ndarray:
    """Rows `(N,)` whose moment is known and lies after the time at which the model is asked.

    Times of whole days are compared by days: of the same day nobody knows which came first.
    """
    left, right = pd.to_datetime(moments), pd.to_datetime(prediction_times)
    zoned = [values.dt.tz is not None for values in (left, right)]
    left, right = (
        values.dt.tz_convert(None) if zone else values for values, zone in zip((left, right), zoned, strict=True)
    )
    if (right.dropna() == right.dropna().dt.normalize()).all():
        left = left.dt.normalize()
    slack = pd.Timedelta(hours=ZONES_HOURS if zoned[0] != zoned[1] else 0)
    return (left > right + slack).to_numpy(bool, na_value=False)


def _finding(contract: Contract, name: str, share: float, prediction_time: str) -> Leak:
    column = contract.column(name)
    evidence = f"it lies after {prediction_time} in {share_words(share)} of the rows"
    if column.reviewed is True:
        known = f"{evidence}; contract.yaml declares it as known at {column.available_at}"
        return Leak(taxon="L2", family=FAMILY, status="pass", columns=(name,), observed=share, evidence=known)
    return Leak(
        taxon="L2", family=FAMILY, status="fail", columns=(name,), observed=share, threshold=0,
        evidence=f"{evidence}, so its value was written afterwards; nobody has reviewed it", fix=fix_of(FAMILY),
    )  # fmt: skip


def share_words(share: float) -> str:
    """A share above 0 in percent; it never reads as 0."""
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
