"""L1.4: the same file, byte for byte, in a training row and in a row of a held-out split.

The hash of each file's bytes stands in the splits, so names do not matter. A model has seen such a row's picture before
it is asked about it. Only features are looked at: an empty mask comes many times. A file that was changed by one bit,
or stored anew, is another file here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS
from trainworthy.lifecycle.protocol.leak import Leak

FAMILY = "equal_files"
# Where less than this share of a split's rows is found in training, it changes no figure, and the rows are told.
MINIMUM_SHARE, NAMED_ROWS = 0.01, 3


def file_features(contract: Contract) -> tuple[str, ...]:
    """The features that are files."""
    return tuple(column.name for column in contract.file_columns if column.role == "feature")


def equal_files(written: SplitFiles, contract: Contract, *, by_time: bool) -> list[Leak]:
    """A finding for each column and held-out split that holds a file of training; reads all rows of these columns.

    A fail from MINIMUM_SHARE of a split's rows on. Under a split by time a warning: a thing that is seen again
    unchanged is what the model will meet.
    """
    names = file_features(contract)
    if not names:
        return []
    keys = [*contract.primary_key]
    parts = {split: written.read(split, [*keys, *map(sha_column, names)]) for split in ("training", *HELD_SPLITS)}
    leaks = [
        leak
        for name in names
        for split in HELD_SPLITS
        if (leak := _of_split(name, split, parts["training"], parts[split], keys, by_time=by_time))
    ]
    evidence = f"no file of {', '.join(names)} in a held-out split is one of training, by the hash of its bytes"
    return leaks or [Leak(taxon="L1.4", family=FAMILY, status="pass", threshold=MINIMUM_SHARE, evidence=evidence)]


def _of_split(
    name: str, split: str, training: pd.DataFrame, held: pd.DataFrame, keys: Sequence[str], *, by_time: bool
) -> Leak | None:
    hashes = sha_column(name)
    known = training.dropna(subset=[hashes])
    twice = held[held[hashes].notna() & held[hashes].isin(known[hashes])]
    if not len(twice):
        return None
    first = known.drop_duplicates(hashes).set_index(hashes)
    pairs = [
        f"{_row(row, keys)} has the file of {_row(first.loc[row[hashes]], keys)} in training"
        for _, row in twice.head(NAMED_ROWS).iterrows()
    ]
    more = f"; and {len(twice) - len(pairs):,} more" if len(twice) > len(pairs) else ""
    share = len(twice) / len(held)
    evidence = (
        f"{len(twice):,} rows of {split} ({share:.2%}) name a file that is in training too, byte for byte: "
        f"{'; '.join(pairs)}{more}"
    )
    status = "fail" if share >= MINIMUM_SHARE and not by_time else "warning"
    return Leak(
        taxon="L1.4", family=FAMILY, status=status, columns=(name,), observed=share, threshold=MINIMUM_SHARE,
        evidence=evidence, fix=fix_of(FAMILY),
    )  # fmt: skip


def _row(row: Any, keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={row[key]}" for key in keys)
