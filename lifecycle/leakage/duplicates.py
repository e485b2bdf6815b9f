"""L1.4: rows of training that come again in a held-out split under another key, as they were or a little changed.

Equal rows alone prove nothing: tables of few categories repeat themselves, and so do a customer who comes again and
the weather of a season. So the training rows are looked up among those of other times too.
Rows that were copied everywhere, before a random split for example, recur everywhere. They are told from nature by
two things together: their values are too fine to meet by chance, and their labels came along. For that alone the
benchmark's labels are read too: copies may lie in no other split, and customers who come again look like them.

How often rows come again among training rows of other times, and how often they may by nature.

The training's time is cut into twentieths. A training row recurs if an equal one lies in another part, beyond the
neighbours: an hour looks like the hour before it. Nature is what recurs in the part where most rows do, for a held-out
split may lie in such a season, or in such a state of a machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from trainworthy.lifecycle.contract.batches import BATCH_ROWS
from trainworthy.lifecycle.data.days import day_of, days_of
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.gates.findings import fix_of
from trainworthy.lifecycle.leakage.about_same import about_the_same
from trainworthy.lifecycle.leakage.binning import HELD_SPLITS, Cells, LabelledRows
from trainworthy.lifecycle.leakage.coincidence import coincidental
from trainworthy.lifecycle.protocol.leak import Leak

# The columns that tell rows apart best; two rows that are equal in all of them are equal enough.
COMPARED_COLUMNS, COARSE_COLUMNS = 12, 4
# Where less than this share of a split comes again, it changes no figure.
MINIMUM_SHARE, MINIMUM_ROWS, SIGMAS = 0.01, 20, 5.0
# Labels of copies agree; those of rows that recur by nature differ as often as chance has it.
CAME_ALONG = 0.25
# Near: equal cells (bins of a 64th of the rows) in all but one of four groups of columns. In bins of a sixteenth
# 5.3 to 7.3 % of the tutorial's held-out hours equal an hour of training, in these 0.6 to 1.1 %.
NEAR_GROUPS = 4


def duplicates(
    written: SplitFiles,
    cells: Mapping[str, Cells],
    label: str,
    order: str | None,
    event: Callable[[Any], np.ndarray],
    *,
    by_time: bool,
) -> list[Leak]:
    """One finding for each held-out split that holds rows of training again; reads all rows, in batches.

    Whether labels came along is asked of one `event` of theirs, 1 where it holds, of values of the label's column.

    `order` is the column of time that the split goes by; None where it goes by none.
    """
    columns = sorted(cells, key=lambda name: -cells[name].distinct)[:COMPARED_COLUMNS]
    views = {name: _exact(written, name, columns, label, order, event) for name in ("training", *HELD_SPLITS)}
    coincidences = functools.cache(lambda: coincidental(written.path("training"), columns, _again(views)))
    return _findings("duplicates", views, by_time=by_time, coincidences=coincidences)


def _again(views: Mapping[str, Views]) -> np.ndarray:
    """The hashes that training shares with a held-out split."""
    held = np.concatenate([views[name].hashes[0] for name in HELD_SPLITS])
    return np.intersect1d(views["training"].hashes[0], held)


def near_duplicates(rows: LabelledRows, cells: Mapping[str, Cells], order: str | None, *, by_time: bool) -> list[Leak]:
    """The same for rows that are equal but for a few columns, or for small changes, on the sampled rows."""
    varying = sorted(
        (name for name, column_cells in cells.items() if column_cells.distinct > 1),
        key=lambda name: -cells[name].distinct,
    )
    if len(varying) < NEAR_GROUPS * 2:
        evidence = f"fewer than {NEAR_GROUPS * 2} features that vary: rows that are nearly equal are not looked for"
        return [Leak(taxon="L1.4", family="near_duplicates", status="not_applicable", evidence=evidence)]
    # How often labels agree by chance follows from their shares, which hold among even rows.
    even = rows.training_even
    training = _near([cells[name].training[even] for name in varying])
    held = _near([cells[name].held for name in varying])
    part = parts_of(day_of(rows.training, order).to_numpy()[even] if order else None, training.shape[1])
    views = {"training": Views(training, rows.training_labels[even], part, training[0])}
    for name in HELD_SPLITS:
        here = (rows.held_split == name) & rows.held_even
        views[name] = Views(held[:, here], rows.held_labels[here], part[:0], held[0, here])
    leaks = _findings("near_duplicates", views, by_time=by_time, sampled_share=rows.training_share)
    if by_time or any(leak.status != "pass" for leak in leaks):
        return leaks
    same = _about_the_same(rows, cells, varying, training, held)
    return [same] if same else leaks


def _about_the_same(
    rows: LabelledRows, cells: Mapping[str, Cells], varying: Sequence[str], training: np.ndarray, held: np.ndarray
) -> Leak | None:
    """What about_same.py finds in the group of columns left out, of NEAR_GROUPS, without which most rows come again."""
    held = held[:, rows.held_even]
    left = int(np.argmax([np.isin(there, here).mean() for here, there in zip(training, held, strict=True)]))
    names = [name for place, name in enumerate(varying) if place % NEAR_GROUPS != left]
    columns = [(cells[name].training[rows.training_even], cells[name].held[rows.held_even]) for name in names]
    return about_the_same(rows, (training[left], held[left]), columns)


def _exact(
    written: SplitFiles,
    split: str,
    columns: list[str],
    label: str,
    order: str | None,
    event: Callable[[Any], np.ndarray],
) -> Views:
    """The rows of a split, each column's value taken as it is; 24 bytes of memory a row."""
    file, parts = pq.ParquetFile(written.path(split)), []
    needed = list(dict.fromkeys([*columns, label, *([order] if order else [])]))
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=needed):
        frame = pl.DataFrame(batch)
        day = days_of(batch.column(order)) if order else np.zeros(len(frame), dtype=np.int32)
        hashes = [frame.select(some).hash_rows().to_numpy() for some in (columns, columns[:COARSE_COLUMNS])]
        parts.append((*hashes, event(frame[label].to_numpy()).astype(np.int8), day))
    hashes, coarse, labels, when = (np.concatenate(some) for some in zip(*parts, strict=True))
    return Views(hashes[None], labels, parts_of(when if order else None, len(labels)), coarse)


def _near(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Hashes of the rows without one group of columns each, shape (NEAR_GROUPS, rows)."""
    groups = [_mixed(columns[start::NEAR_GROUPS]) for start in range(NEAR_GROUPS)]
    return np.stack([_mixed(groups[:left] + groups[left + 1 :]) for left in range(NEAR_GROUPS)])


def _mixed(columns: Sequence[np.ndarray]) -> np.ndarray:
    """One 64-bit number for the values of a row."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _findings(
    family: Literal["duplicates", "near_duplicates"],
    views: Mapping[str, Views],
    *,
    by_time: bool,
    sampled_share: float = 1.0,
    coincidences: Callable[[], np.ndarray] = lambda: np.zeros(0, dtype=np.uint64),
) -> list[Leak]:
    """`sampled_share` is the share of the training rows that were looked at: copies of the others stay unseen.

    `coincidences` gives the hashes of rows that others equal by chance (coincidence.py).
    """
    training = views["training"]
    known = [known_rows(hashes, training) for hashes in training.hashes]
    nature = by_nature(training.part, known)

    def judged(name: str, rows: Views) -> tuple[Repeats, Leak | None]:
        repeats = repeats_of(rows, known)
        return repeats, _judged(
            family, name, repeats, nature, (training, rows), by_time=by_time, sampled_share=sampled_share,
            coincidences=coincidences,
        )  # fmt: skip

    each = {name: judged(name, views[name]) for name in HELD_SPLITS}
    leaks = [finding for _, finding in each.values() if finding]
    if not leaks:
        # Together they may hold enough rows to tell.
        _, finding = judged("the held-out splits together", joined([views[name] for name in HELD_SPLITS]))
        leaks = [finding] if finding else []
    if leaks:
        return leaks
    shares = [f"{name} {repeats.share:.2%}" for name, (repeats, _) in each.items()]
    evidence = (
        f"rows that equal a training row: {', '.join(shares)}; training rows equal one another up to {nature:.2%}"
    )
    return [Leak(taxon="L1.4", family=family, status="pass", threshold=MINIMUM_SHARE, evidence=evidence)]


def _judged(
    family: str, split: str, repeats: Repeats, nature: float, both: tuple[Views, Views], *,
    by_time: bool, sampled_share: float, coincidences: Callable[[], np.ndarray],
) -> Leak | None:  # fmt: skip
    if repeats.matched < MINIMUM_ROWS or repeats.share < MINIMUM_SHARE * sampled_share:
        return None
    base = float(both[0].labels.mean())
    by_chance = 2 * base * (1 - base) * repeats.matched
    measurable = by_chance >= 5
    error = (max(nature, 1 / len(both[0].labels)) / repeats.rows) ** 0.5
    more = repeats.share - nature >= max(MINIMUM_SHARE * sampled_share, SIGMAS * error)
    came_along = repeats.disagreeing <= CAME_ALONG * by_chance
    if more and (came_along or not measurable):
        status, why = "fail", f"going by how training rows recur at other times, at most {nature:.2%} should"
    elif family == "duplicates" and measurable and came_along and are_fine(both) and _surprise(both, coincidences()):
        # Under a split by time an entity that comes again unchanged is what the model will meet.
        status = "warning" if by_time else "fail"
        why = (
            f"their values are too fine to meet by chance, and {repeats.disagreeing:.0f} have another label where "
            f"chance would give {by_chance:.0f}"
        )
    else:
        return None
    equal = "equal" if family == "duplicates" else "nearly equal"
    evidence = f"{repeats.matched:,} rows of {split} ({repeats.share:.2%}) {equal} a training row; {why}"
    return Leak(
        taxon="L1.4", family=family, status=status, observed=repeats.share, threshold=MINIMUM_SHARE, evidence=evidence,
        fix=fix_of(family),
    )  # fmt: skip


def _surprise(both: tuple[Views, Views], coincidental_rows: np.ndarray) -> bool:
    """True if enough of the held rows equal one of training that hardly any other would equal by chance."""
    training, rows = both
    copies = np.setdiff1d(training.hashes[0], coincidental_rows)
    count = int(np.isin(rows.hashes[0], copies).sum())
    return count >= max(MINIMUM_ROWS, MINIMUM_SHARE * rows.hashes.shape[1])


PARTS, NEIGHBOUR = 20, 1
# A longer history holds more customers to come again. Of 400 healthy tables with seasons, states of a machine and
# customers who return 1 raised an alarm, with a growth of 1.0 19.
GROWTH = 1.5
# Values are fine if hardly two rows are equal in a few columns.
FINE_SHARE, MINIMUM_SINGLE_ROWS = 0.99, 100


@dataclass(frozen=True)
class Views:
    """Rows as hashes, one for each way of looking at them, shape (views, rows), their labels, and `part` (parts_of).

    `coarse` is the hash of a few columns only, shape (rows,).
    """

    hashes: np.ndarray
    labels: np.ndarray
    part: np.ndarray
    coarse: np.ndarray


@dataclass(frozen=True)
class Known:
    """The different hashes of the training rows: the first and last part of each, and its share of positives.

    `row` is the place of each training row's hash among them.
    """

    hashes: np.ndarray
    row: np.ndarray
    first: np.ndarray
    last: np.ndarray
    positives: np.ndarray


@dataclass(frozen=True)
class Repeats:
    """How many of some rows come among older training rows, and how many of those under another label."""

    rows: int
    matched: int
    disagreeing: float

    @property
    def share(self) -> float:
        return self.matched / max(self.rows, 1)


def parts_of(when: np.ndarray | None, rows: int) -> np.ndarray:
    """The part of the time, 0 … PARTS - 1, in which each row lies; without a time any PARTS-th of the rows is one.

    Drawn, as the split is: in a sorted file equal rows lie side by side, and a split by chance parts them as well.
    """
    if when is None:
        return np.random.default_rng(0).permutation(rows) % PARTS
    if len(np.unique(when)) < PARTS:
        when = np.arange(rows)
    return np.searchsorted(np.quantile(when, np.arange(1, PARTS) / PARTS, method="higher"), when, side="right")


def known_rows(hashes: np.ndarray, training: Views) -> Known:
    """The training rows, looked at in one way."""
    distinct, row, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    first, last = np.full(len(distinct), PARTS), np.full(len(distinct), -1)
    np.minimum.at(first, row, training.part)
    np.maximum.at(last, row, training.part)
    return Known(
        distinct, row, first, last, np.bincount(row, weights=training.labels, minlength=len(distinct)) / counts
    )


def by_nature(part: np.ndarray, known: Sequence[Known]) -> float:
    """The share of rows that may recur by nature: that of training rows in the part where most recur, and growth."""
    again = np.zeros(len(part), dtype=bool)
    for view in known:
        again |= (view.first[view.row] < part - NEIGHBOUR) | (view.last[view.row] > part + NEIGHBOUR)
    if not again.any():
        return 0.0
    rows, mean = np.bincount(part), again.mean()
    shares = (np.bincount(part, weights=again) / np.maximum(rows, 1))[rows > 0]
    # Parts of few rows differ by chance; only what they differ by beyond that is a season.
    by_chance = mean * (1 - mean) * (1 / rows[rows > 0]).mean()
    season = max(0.0, 1 - by_chance / max(shares.var(), by_chance, 1e-12)) ** 0.5
    return float(min(1.0, GROWTH * (mean + season * (shares.max() - mean + shares.std()))))


def repeats_of(rows: Views, known: Sequence[Known]) -> Repeats:
    """Rows that are found among the older ones, in any view, and the share of those of the other label."""
    count = rows.hashes.shape[1]
    matched, rate = np.zeros(count, dtype=bool), np.zeros(count)
    for mine, theirs in zip(rows.hashes, known, strict=True):
        if not len(theirs.hashes):
            continue
        place = np.minimum(np.searchsorted(theirs.hashes, mine), len(theirs.hashes) - 1)
        older = theirs.first[place] < PARTS - 1 - NEIGHBOUR
        new = (theirs.hashes[place] == mine) & older & ~matched
        rate[new] = theirs.positives[place[new]]
        matched |= new
    disagreeing = np.abs(rate - rows.labels)[matched].sum()
    return Repeats(count, int(matched.sum()), float(disagreeing))


def are_fine(both: tuple[Views, Views]) -> bool:
    """True if, copies set aside, hardly two rows are equal in a few columns: then no copy is an accident."""
    whole = np.concatenate([views.hashes[0] for views in both])
    coarse = np.concatenate([views.coarse for views in both])
    _, inverse, counts = np.unique(whole, return_inverse=True, return_counts=True)
    once = coarse[counts[inverse] == 1]
    return len(once) >= MINIMUM_SINGLE_ROWS and len(np.unique(once)) >= FINE_SHARE * len(once)


def joined(views: Sequence[Views]) -> Views:
    """The rows of several splits as those of one."""
    hashes = np.concatenate([view.hashes for view in views], axis=1)
    labels, part, coarse = (
        np.concatenate(some) for some in zip(*((view.labels, view.part, view.coarse) for view in views), strict=True)
    )
    return Views(hashes, labels, part, coarse)
