"""L3.2: the same entity (a customer, an aircraft) in training and in a held-out split.

Under a split by time that is what the model will meet, so it is told and is no fault. Under one by chance a benchmark
of patients that training knows says little of new ones: a warning. Where the split promises to keep a column's values
apart, one that lies on both sides breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import polars as pl

from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "entity_overlap"
# Of held-out rows: fewer that training knows move no figure by much.
FEW = 0.05


def counts_things(values: pd.Series) -> bool:
    """Whether whole numbers go hardly further from end to end than there are, as those of patients do.

    One that counts nothing may be a measure: an income is nearly one of each person, too.
    """
    known = values.dropna()
    return not known.empty and int(known.max()) - int(known.min()) < 2 * known.nunique()


def entity_overlap(
    written: SplitFiles, entities: Sequence[str], group_columns: Sequence[str] = (), *, by_chance: bool = False
) -> list[Leak]:
    """One finding a column: how many held-out rows share its value with training. Nulls share nothing.

    `by_chance`: each row is split by itself, neither by time nor by group.
    """
    columns = list(dict.fromkeys([*group_columns, *entities]))
    if not columns:
        evidence = "no column has the role entity, and the split keeps none apart"
        return [Leak(taxon="L3.2", family=FAMILY, status="not_applicable", evidence=evidence)]
    return [_overlap(written, column, column in group_columns, by_chance) for column in columns]


def _overlap(written: SplitFiles, column: str, is_group_column: bool, by_chance: bool) -> Leak:
    known = pl.read_parquet(written.path("training"), columns=[column])[column].drop_nulls().unique()
    shares = {}
    for split in HELD_SPLITS:
        values = pl.read_parquet(written.path(split), columns=[column])[column].drop_nulls()
        shares[split] = int(values.is_in(known.implode()).sum()) / max(len(values), 1)
    most = max(shares.values())
    listed = ", ".join(f"{split} {share:.1%}" for split, share in shares.items())
    evidence = f"rows whose {column} is in training too: {listed}"
    if is_group_column and most > 0:
        return Leak(
            taxon="L3.2", family=FAMILY, status="fail", columns=(column,), observed=most, threshold=0.0,
            evidence=f"{evidence}; the split keeps it apart", fix=fix_of(FAMILY),
        )  # fmt: skip
    if by_chance and most > FEW:
        return Leak(
            taxon="L3.2", family=FAMILY, status="warning", columns=(column,), observed=most, threshold=FEW,
            evidence=f"{evidence}; the split is by chance, so that all figures are those of a known {column}",
            fix=f"where the model is to meet a new {column}, split by it: {{by: group, group: {column}}} under split",
        )  # fmt: skip
    return Leak(taxon="L3.2", family=FAMILY, status="pass", columns=(column,), observed=most, evidence=evidence)
