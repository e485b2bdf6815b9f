"""Do columns relate to each other in the held-out rows as they do in the training rows?

A join that slipped by a row, or a column whose values stand in other rows, leaves every column's own distribution as it
was. Here each column becomes its ranks within a block of rows, equal ones in random order: so each is spread evenly in
every block, whatever season or trend has done to it, and blocks differ by what columns say of each other alone. Quick
trees tell two blocks apart, cross-fitted by whole days or groups; their AUC is held against that of neighbouring blocks
of training rows, since healthy relations move as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.data.days import days_of
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.drift.shift import Shift
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.spec.split import SPLITS, SplitSpec

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

# Rows of a block that are looked at, and the fewest of each half that say something: cross-fitted AUCs of 500 against
# 500 rows without any difference have a standard error of 0.018.
BLOCK_ROWS, FEWEST_ROWS = 1_500, 250
# Rows that are ranked together. Of fewer a rank says little.
CELL_ROWS = 40
# Blocks of training rows, the newest ones: each pair costs a fifth of a CPU second with 45 columns.
MOST_BLOCKS, FEWEST_BLOCKS = 5, 4
# Times the greatest AUC beyond a half among all pairs of them. In 8 healthy stretches of flights with four blocks or
# more the held-out splits lay at 0.98 times it at most; with three blocks at 1.84 times.
TIMES = 1.5
ROUNDS, LEARNING_RATE, LEAVES = 25, 0.2, 15
# AUC beyond a half that is worth a word. Months of flights lie up to 0.13 apart, which their own history tells as well;
# with one of two columns that hang together slipped they lie 0.30 apart.
FLOOR = 0.1
_SEED = 0
_NAMED = 4
_PLACE = "\0place"
_OF_TRAINING = "the training rows before"
# Code of the finding.
JOINT = "joint"


@dataclass(frozen=True)
class Block:
    """Rows of one stretch of days, or of some groups: ranks (N, C) from 0 to 1, and the half of each (N,), 0 or 1."""

    name: str
    ranks: np.ndarray
    half: np.ndarray

    @property
    def fewest(self) -> int:
        """Rows of the smaller half."""
        ones = int(self.half.sum())
        return min(ones, len(self.half) - ones)


def joint_shifts(written: SplitFiles, columns: Sequence[str], spec: SplitSpec) -> list[Shift]:
    """A finding for each held-out split whose columns relate otherwise than history allows; the greatest first.

    In time each split is held against the rows just before it, so that a fault of one split is seen at both its ends;
    else each against training rows.
    """
    columns = _ranked(written, columns)
    if len(columns) < 2:
        return []
    training, held = _blocks(written, columns, spec)
    if len(training) < FEWEST_BLOCKS or any(block.fewest < FEWEST_ROWS for block in (*training, *held)):
        return []
    usual = max(_told_apart(first, second).auc - 0.5 for first, second in combinations(training, 2))
    threshold = max(FLOOR, TIMES * usual)
    before = [training[-1], *held[:-1]] if spec.time_column else [training[-1]] * len(held)
    found = [
        _shift(told, first.name, second.name, threshold, len(training), columns)
        for first, second in zip(before, held, strict=True)
        if (told := _told_apart(first, second)).auc - 0.5 > threshold
    ]
    return sorted(found, key=lambda one: -one.excess)


@dataclass(frozen=True)
class Apart:
    """Trees of each half of two blocks' days or groups, with the rows of the other half; AUC over all rows."""

    auc: float
    fitted: tuple[tuple[Any, np.ndarray, np.ndarray], ...]

    def falls(self) -> np.ndarray:
        """How far the AUC falls where a column's values are dealt to other rows, (C,)."""
        import numpy as np
        from threadpoolctl import threadpool_limits

        from trainworthy.lifecycle.tasks.probabilities import auc

        generator, falls = np.random.default_rng(_SEED), []
        of = np.concatenate([one[2] for one in self.fitted])
        # Threads only wait for each other on so few rows: 10 CPU seconds in the place of 1.
        with threadpool_limits(1):
            for column in range(self.fitted[0][1].shape[1]):
                scores = []
                for model, rows, _ in self.fitted:
                    moved = rows.copy()
                    moved[:, column] = generator.permutation(moved[:, column])
                    scores.append(model.predict_proba(moved)[:, 1])
                falls.append(self.auc - auc(of, np.concatenate(scores)))
        return np.asarray(falls)


def _told_apart(first: Block, second: Block) -> Apart:
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    from trainworthy.lifecycle.tasks.probabilities import auc

    rows, of = np.concatenate([first.ranks, second.ranks]), np.repeat([0, 1], [len(first.half), len(second.half)])
    half = np.concatenate([first.half, second.half])
    options: dict[str, Any] = {
        "max_iter": ROUNDS, "learning_rate": LEARNING_RATE, "max_leaf_nodes": LEAVES, "early_stopping": False,
        "random_state": _SEED,
    }  # fmt: skip
    fitted, scores = [], []
    with threadpool_limits(1):
        for part in (0, 1):
            model = HistGradientBoostingClassifier(**options).fit(rows[half != part], of[half != part])
            fitted.append((model, rows[half == part], of[half == part]))
            scores.append(model.predict_proba(rows[half == part])[:, 1])
    return Apart(float(auc(np.concatenate([one[2] for one in fitted]), np.concatenate(scores))), tuple(fitted))


def _halves(group: np.ndarray) -> np.ndarray:
    """0 or 1 for each row, equal within a day or group."""
    import numpy as np

    _, number = np.unique(group, return_inverse=True)
    return np.random.default_rng(_SEED).permutation(np.arange(number.max() + 1) % 2)[number]


def _shift(told: Apart, before: str, split: str, threshold: float, blocks: int, columns: Sequence[str]) -> Shift:
    """The finding, with the columns that the trees lean on: those of half the greatest fall of the AUC."""
    falls = told.falls()
    order: list[int] = (-falls).argsort(kind="stable")[:_NAMED].tolist()
    named = [columns[place] for place in order if falls[place] >= falls.max() / 2]
    others = f", with {', '.join(named[1:])}" if named[1:] else ""
    return Shift(
        column=named[0], statistic="auc_of_ranks_beyond_half", observed=told.auc - 0.5, threshold=threshold,
        threshold_from="the smallest size that is worth a word; blocks of training rows showed less"
        if threshold <= FLOOR else f"{TIMES:g} times the most by which two of {blocks} blocks of training rows differ",
        where=f"{split} against {before}", code=JOINT,
        cause=f"trees tell the splits apart by what columns say of each other (AUC {told.auc:.2f}): it stands beside "
        f"other values of the other columns than before{others}, though each is spread as it was: a join that slipped, "
        "rows of one column that were exchanged, or a world that hangs together otherwise",
        fix="look at the join that brings the column: does each row have its own value in both splits?",
    )  # fmt: skip


def _blocks(written: SplitFiles, columns: Sequence[str], spec: SplitSpec) -> tuple[list[Block], list[Block]]:
    """Blocks of training rows, in order, and the held-out splits as one each.

    In time blocks are the newest ones, each as many days as the shortest held-out split; else parts of the groups.
    """
    import numpy as np

    in_time = spec.time_column is not None
    groups = {split: _groups(written, split, spec) for split in SPLITS}
    group = groups["training"]
    if spec.time_column:
        length = min(int(np.ptp(groups[split])) + 1 for split in SPLITS[1:])
        age = (group.max() - group) // length
        whole = min(MOST_BLOCKS, (int(np.ptp(group)) + 1) // length)
        number = np.where(age < whole, whole - 1 - age, -1)
    else:
        # Each part has two groups at least, one for each half.
        whole = min(MOST_BLOCKS, (int(group.max()) + 1) // 2)
        number = np.random.default_rng(_SEED).permutation(group.max() + 1)[group] % max(1, whole)
    places = {f"training {one}": np.flatnonzero(number == one) for one in range(whole)}
    rows = _rows(written, "training", columns, places)
    known = _ordered(list(rows.values()), columns)
    training = [_block(_OF_TRAINING, frame, group[at], columns, known, in_time) for at, frame in rows.values()]
    held = []
    for split in SPLITS[1:]:
        ((at, frame),) = _rows(written, split, columns, {split: np.arange(len(groups[split]))}).values()
        held.append(_block(split, frame, groups[split][at], columns, known, in_time))
    return training, held


def _groups(written: SplitFiles, split: str, spec: SplitSpec) -> np.ndarray:
    """The day of each row, else the number of its group, (N,)."""
    import numpy as np
    import pyarrow.parquet as pq

    name = spec.time_column or spec.resample_by
    values = pq.ParquetFile(written.path(split)).read(columns=[name]).column(name).combine_chunks()
    if spec.time_column:
        return days_of(values).astype(np.int64)
    return values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)


def _rows(
    written: SplitFiles, split: str, columns: Sequence[str], places: Mapping[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, pl.DataFrame]]:
    """At most BLOCK_ROWS of the rows at these places of a split, with their places."""
    import numpy as np
    import polars as pl

    chosen = {name: at[evenly_spread(len(at), BLOCK_ROWS)] for name, at in places.items()}
    every = np.sort(np.concatenate(list(chosen.values())))
    rows = pl.scan_parquet(written.path(split)).select(columns).with_row_index(_PLACE)
    found = rows.filter(pl.col(_PLACE).is_in(pl.Series(every.astype(np.uint32)).implode())).collect()
    return {name: (at, found[np.searchsorted(every, at)].drop(_PLACE)) for name, at in chosen.items()}


def _ordered(frames: Sequence[tuple[np.ndarray, pl.DataFrame]], columns: Sequence[str]) -> dict[str, dict[str, int]]:
    """Texts in the order of how often training holds them, by column: ranks need an order."""
    import polars as pl

    rows = pl.concat([frame for _, frame in frames])
    texts = [name for name in columns if not _is_number(rows[name].dtype)]
    return {
        name: {value: place for place, value in enumerate(
            rows[name].cast(pl.String).drop_nulls().value_counts(sort=True).sort(["count", name])[name].to_list()
        )}
        for name in texts
    }  # fmt: skip


def _ranked(written: SplitFiles, columns: Sequence[str]) -> list[str]:
    """The columns whose values have ranks: numbers, times and texts, and neither lists nor what is all null."""
    import polars as pl

    kinds = pl.read_parquet_schema(written.path("training"))
    return [
        name
        for name in columns
        if name in kinds and (_is_number(kinds[name]) or kinds[name] in (pl.String, pl.Categorical))
    ]


def _is_number(kind: pl.DataType) -> bool:
    import polars as pl

    return kind.is_numeric() or kind.is_temporal() or kind == pl.Boolean


def _block(
    name: str,
    rows: pl.DataFrame,
    group: np.ndarray,
    columns: Sequence[str],
    known: dict[str, dict[str, int]],
    in_time: bool,
) -> Block:
    """The rows' ranks in every column from 0 to 1 within each cell, nulls lowest, equal values in random order."""
    import numpy as np
    import polars as pl

    cell = _cells(group) if in_time else _halves(group)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cell))])
    generator, ranks = np.random.default_rng(_SEED), np.empty((len(rows), len(columns)), dtype=np.float32)
    for place, column in enumerate(columns):
        values = rows[column]
        if column in known:
            values = values.cast(pl.String).replace_strict(known[column], default=-1, return_dtype=pl.Int64)
        else:
            values = values.to_physical()
        numbers = values.cast(pl.Float64).fill_null(-np.inf).fill_nan(-np.inf).to_numpy()
        order = np.lexsort((generator.random(len(rows)), numbers, cell))
        within = np.arange(len(rows)) - starts[cell[order]]
        ranks[order, place] = (within + 0.5) / np.diff(starts)[cell[order]]
    return Block(name, ranks, _halves(cell) if in_time else cell)


def _cells(day: np.ndarray) -> np.ndarray:
    """The number of each row's day, or of a few days together where one has fewer rows than CELL_ROWS."""
    import numpy as np

    days, number, rows = np.unique(day, return_inverse=True, return_counts=True)
    cell, held = np.zeros(len(days), dtype=np.int64), 0
    for place in range(1, len(days)):
        held += rows[place - 1]
        cell[place] = cell[place - 1] + (held >= CELL_ROWS)
        held = 0 if held >= CELL_ROWS else held
    return cell[number]
