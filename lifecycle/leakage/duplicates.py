"""L1.4: rows of training that come again in a held-out split under another key, as they were or a little changed.

Equal rows alone prove nothing: tables of few categories repeat themselves, and so does a customer who comes again. So
the newest training rows are looked up among the older ones too: what recurs by nature recurs there just as often.
Rows that were copied everywhere, before a random split for example, recur everywhere. They are told from nature by
two things together: their values are too fine to meet by chance, and their labels came along. For that alone the
benchmark's labels are read too: copies may lie in no other split, and customers who come again look like them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lifecycle.data.days import day_of, days_of
from lifecycle.data.files import BATCH_ROWS, SplitFiles
from lifecycle.leakage.cells import HELD_SPLITS, NUMERIC_BINS, Cells, LabelledRows
from lifecycle.leakage.finding import Leak

if TYPE_CHECKING:
    import numpy as np

# The columns that tell rows apart best; two rows that are equal in all of them are equal enough.
COMPARED_COLUMNS, COARSE_COLUMNS, NEWEST_SHARE = 12, 4, 0.2
# Where less than this share of a split comes again, it changes no figure.
MINIMUM_SHARE, MINIMUM_ROWS, SIGMAS = 0.01, 20, 5.0
# Labels of copies agree; those of rows that recur by nature differ as often as chance has it.
CAME_ALONG, FINE_SHARE, MINIMUM_SINGLE_ROWS = 0.25, 0.99, 100
# Near: equal bins of a sixteenth of the rows, in all but one of four groups of columns.
NEAR_GROUPS, BINS_AT_ONCE = 4, NUMERIC_BINS // 16
_FIX = "remove the copies before the rows are split, or split so that all copies of a row lie on one side"


@dataclass(frozen=True)
class Views:
    """Rows as hashes, one for each way of looking at them, shape (views, rows), their labels, and when they came.

    `coarse` is the hash of a few columns only, shape (rows,).
    """

    hashes: np.ndarray
    labels: np.ndarray
    order: np.ndarray
    coarse: np.ndarray


@dataclass(frozen=True)
class Repeats:
    """How many of some rows come among older training rows, and how many of those under another label."""

    rows: int
    matched: int
    disagreeing: float

    @property
    def share(self) -> float:
        return self.matched / max(self.rows, 1)


def duplicates(
    written: SplitFiles, cells: Mapping[str, Cells], label: str, order: str | None, *, by_time: bool
) -> list[Leak]:
    """One finding for each held-out split that holds rows of training again; reads all rows, in batches.

    `order` is the column that says which training rows are the newest; None: the last ones written.
    """
    columns = sorted(cells, key=lambda name: -cells[name].distinct)[:COMPARED_COLUMNS]
    views = {name: _exact(written, name, columns, label, order) for name in ("training", *HELD_SPLITS)}
    return _findings("duplicates", views, by_time=by_time)


def near_duplicates(rows: LabelledRows, cells: Mapping[str, Cells], order: str | None, *, by_time: bool) -> list[Leak]:
    """The same for rows that are equal but for a few columns, or for small changes, on the sampled rows."""
    import numpy as np

    varying = sorted((name for name, one in cells.items() if one.distinct > 1), key=lambda name: -cells[name].distinct)
    if len(varying) < NEAR_GROUPS * 2:
        told = f"fewer than {NEAR_GROUPS * 2} features that vary"
        return [Leak(taxon="L1.4", family="near_duplicates", status="not_applicable", evidence=told)]
    training = _near([_coarse(cells[name], cells[name].training) for name in varying])
    held = _near([_coarse(cells[name], cells[name].held) for name in varying])
    when = np.arange(len(rows.training)) if order is None else day_of(rows.training, order).to_numpy()
    # How often labels agree by chance follows from their shares.
    views = {"training": _part(Views(training, rows.training_labels, when, training[0]), rows.training_even)}
    for name in HELD_SPLITS:
        here = (rows.held_split == name) & rows.held_even
        views[name] = Views(held[:, here], rows.held_labels[here], when[:0], held[0, here])
    return _findings("near_duplicates", views, by_time=by_time, seen=rows.training_share)


def _exact(written: SplitFiles, split: str, columns: list[str], label: str, order: str | None) -> Views:
    """The rows of a split, each column's value taken as it is; 24 bytes of memory a row."""
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    file, parts = pq.ParquetFile(written.path(split)), []
    wanted = list(dict.fromkeys([*columns, label, *([order] if order else [])]))
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
        frame = pl.DataFrame(batch)
        day = days_of(batch.column(order)) if order else np.zeros(len(frame), dtype=np.int32)
        hashes = [frame.select(some).hash_rows().to_numpy() for some in (columns, columns[:COARSE_COLUMNS])]
        parts.append((*hashes, frame[label].to_numpy(), day))
    hashes, coarse, labels, when = (np.concatenate(some) for some in zip(*parts, strict=True))
    return Views(hashes[None], labels, when if order else np.arange(len(labels)), coarse)


def _coarse(cells: Cells, codes: np.ndarray) -> np.ndarray:
    """Bins of a sixteenth of the rows for a column of many values; other columns as they are."""
    return codes // BINS_AT_ONCE if cells.ordered and cells.distinct > NUMERIC_BINS else codes


def _near(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Hashes of the rows without one group of columns each, shape (NEAR_GROUPS, rows)."""
    import numpy as np

    groups = [_mixed(columns[start::NEAR_GROUPS]) for start in range(NEAR_GROUPS)]
    return np.stack([_mixed(groups[:left] + groups[left + 1 :]) for left in range(NEAR_GROUPS)])


def _mixed(columns: Sequence[np.ndarray]) -> np.ndarray:
    """One 64-bit number for the values of a row."""
    import numpy as np

    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _findings(
    family: Literal["duplicates", "near_duplicates"], views: Mapping[str, Views], *, by_time: bool, seen: float = 1.0
) -> list[Leak]:
    """`seen` is the share of the training rows that were looked at: copies of the others stay unseen."""
    import numpy as np

    training = views["training"]
    cut = np.quantile(training.order, 1 - NEWEST_SHARE) if len(training.order) else 0
    newest = training.order > cut if (training.order > cut).any() else training.order >= cut
    older = _part(training, ~newest)
    nature = _repeats(_part(training, newest), older)

    def judged(name: str, rows: Views) -> tuple[Repeats, Leak | None]:
        repeats = _repeats(rows, older)
        return repeats, _judged(family, name, repeats, nature, (training, rows), by_time=by_time, seen=seen)

    each = {name: judged(name, views[name]) for name in HELD_SPLITS}
    found = [finding for _, finding in each.values() if finding]
    if not found:
        # Together they may hold enough rows to tell.
        _, finding = judged("the held-out splits together", _joined([views[name] for name in HELD_SPLITS]))
        found = [finding] if finding else []
    if found:
        return found
    told = [f"{name} {repeats.share:.2%}" for name, (repeats, _) in each.items()]
    evidence = f"rows that equal an older training row: {', '.join(told)}; newest training rows {nature.share:.2%}"
    return [Leak(taxon="L1.4", family=family, status="pass", threshold=MINIMUM_SHARE, evidence=evidence)]


def _judged(
    family: str, split: str, repeats: Repeats, nature: Repeats, both: tuple[Views, Views], *,
    by_time: bool, seen: float,
) -> Leak | None:  # fmt: skip
    if repeats.matched < MINIMUM_ROWS or repeats.share < MINIMUM_SHARE * seen:
        return None
    base = float(both[0].labels.mean())
    by_chance = 2 * base * (1 - base) * repeats.matched
    measurable = by_chance >= 5
    error = (max(nature.share, 1 / max(nature.rows, 1)) * (1 / max(nature.rows, 1) + 1 / max(repeats.rows, 1))) ** 0.5
    excess = repeats.share - nature.share
    more = excess >= max(MINIMUM_SHARE * seen, SIGMAS * error)
    came_along = repeats.disagreeing <= CAME_ALONG * by_chance
    if more and (came_along or not measurable):
        status, why = "fail", f"of the newest training rows only {nature.share:.2%} do"
    elif family == "duplicates" and measurable and came_along and _fine(both):
        # Under a split by time an entity that comes again unchanged is what the model will meet.
        status = "warning" if by_time else "fail"
        why = (
            f"their values are too fine to meet by chance, and {repeats.disagreeing:.0f} have another label where "
            f"chance would give {by_chance:.0f}"
        )
    else:
        return None
    equal = "equal" if family == "duplicates" else "nearly equal"
    evidence = f"{repeats.matched:,} rows of {split} ({repeats.share:.2%}) {equal} an older training row; {why}"
    return Leak(
        taxon="L1.4", family=family, status=status, observed=repeats.share, threshold=MINIMUM_SHARE, evidence=evidence,
        fix=_FIX,
    )  # fmt: skip


def _repeats(rows: Views, older: Views) -> Repeats:
    """Rows that are found among the older ones, in any view, and the share of those of the other label."""
    import numpy as np

    count = rows.hashes.shape[1]
    matched, rate = np.zeros(count, dtype=bool), np.zeros(count)
    for mine, theirs in zip(rows.hashes, older.hashes, strict=True):
        values, inverse, counts = np.unique(theirs, return_inverse=True, return_counts=True)
        if not len(values):
            continue
        positives = np.bincount(inverse, weights=older.labels, minlength=len(values)) / counts
        place = np.minimum(np.searchsorted(values, mine), len(values) - 1)
        new = (values[place] == mine) & ~matched
        rate[new] = positives[place[new]]
        matched |= new
    disagreeing = np.abs(rate - rows.labels)[matched].sum()
    return Repeats(count, int(matched.sum()), float(disagreeing))


def _fine(both: tuple[Views, Views]) -> bool:
    """True if, copies set aside, hardly two rows are equal in a few columns: then no copy is an accident."""
    import numpy as np

    whole = np.concatenate([views.hashes[0] for views in both])
    coarse = np.concatenate([views.coarse for views in both])
    _, inverse, counts = np.unique(whole, return_inverse=True, return_counts=True)
    once = coarse[counts[inverse] == 1]
    return len(once) >= MINIMUM_SINGLE_ROWS and len(np.unique(once)) >= FINE_SHARE * len(once)


def _joined(views: Sequence[Views]) -> Views:
    import numpy as np

    hashes = np.concatenate([view.hashes for view in views], axis=1)
    labels, order, coarse = (
        np.concatenate(some) for some in zip(*((view.labels, view.order, view.coarse) for view in views), strict=True)
    )
    return Views(hashes, labels, order, coarse)


def _part(views: Views, chosen: np.ndarray) -> Views:
    return Views(views.hashes[:, chosen], views.labels[chosen], views.order[chosen], views.coarse[chosen])
