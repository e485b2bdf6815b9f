"""Of all predicates of up to two columns, those with the highest mean score: one after the other, each without the
rows of those before.

Every pair of columns is a table of cells, which one bincount fills; a predicate is a rectangle of it, which sums of
sums give. A first bound takes rows as independent. The standard error that decides takes whole groups as the units, and
is never below that of rows, so the first bound is above the second, and only predicates whose first bound is above the
best second one are looked at by group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trainworthy.lifecycle.evaluation.slice_levels import Levels

if TYPE_CHECKING:
    import numpy as np

# Predicates whose error by group is computed first, and before a search ends with the best of them.
_AT_FIRST, _MOST_LOOKED_AT = 16, 4_000
# Of predicates that are equally good to this share, which those of the same rows are, the simplest is taken.
_EQUAL = 1e-9
# A predicate that shares so many of its rows with another one says the same in more words.
SAME_ROWS = 0.9
# Of a part and the rest the part is the smaller.
_WIDEST = 0.5
# A slice that has more than this share of its rows in those before it is no new one.
_MOST_KNOWN = 0.5


class Rule(NamedTuple):
    """A predicate as runs of codes of one or two columns: place of the column, first and last code."""

    parts: tuple[tuple[int, int, int], ...]


class Difference(NamedTuple):
    """By how much the mean inside is above the mean outside, its standard error by group, and who carries it.

    `groups` have rows inside; `carriers` is how many of equal size would hold these rows as evenly.
    """

    value: float
    standard_error: float
    groups: int
    carriers: float


@dataclass(frozen=True)
class Rows:
    """Rows to search: scores, weights and group codes `(N,)`; a column's codes are in `columns`."""

    columns: Sequence[np.ndarray]
    scores: np.ndarray
    weights: np.ndarray
    groups: np.ndarray


class Limits(NamedTuple):
    """What a slice has at least: rows, groups, and excess of the mean score; and how many slices are taken at most."""

    rows: int
    groups: int
    least: float
    slices: int


def search_rules(rows: Rows, levels: Sequence[Levels], pairs: Sequence[tuple[int, int]], limits: Limits) -> list[Rule]:
    """Rules of single columns and of pairs of them, one after the other, over the rows that are in none before.

    Each has the highest merit: what the lower bound of its excess is above the least that matters, times the root of
    its rows. The bound lies so many standard errors below, by the normal distribution, that where nothing is no more of
    all predicates are expected above 0 than are taken: each of them is yet to be confirmed, and is one of few then.
    """
    search = _Search(rows, levels, [*((at,) for at in range(len(levels))), *pairs], limits)
    rules: list[Rule] = []
    while len(rules) < limits.slices and (rule := search.best()) is not None:
        rules.append(rule)
        search.leave_out(rule)
    return rules


def inside(rule: Rule, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Which rows a rule has, bool `(N,)`."""
    import numpy as np

    matches = np.ones(len(columns[0]), dtype=bool)
    for column, first, last in rule.parts:
        codes = columns[column]
        matches &= (codes == first) if first == last else (codes >= first) & (codes <= last)
    return matches


def difference(mask: np.ndarray, rows: Rows, among: np.ndarray | None = None) -> Difference | None:
    """Mean score inside less outside, among some of the rows; None if a side has nothing.

    By the linearised difference of two ratios, groups as the units (as tasks/interval.py), and no less than by rows.
    """
    import numpy as np

    within = np.flatnonzero(mask if among is None else mask & among)
    totals = _Totals.of(rows, among)
    return _difference(within, rows, totals)


class _Totals(NamedTuple):
    """Sums of all rows there are: by group weight and weighted score; of squares over all."""

    weight: np.ndarray
    score: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, rows: Rows, among: np.ndarray | None, squares: np.ndarray | None = None) -> _Totals:
        """Of some rows; `squares` where they are known."""
        import numpy as np

        weights = rows.weights if among is None else rows.weights * among
        count = int(rows.groups.max()) + 1
        weight = np.bincount(rows.groups, weights, minlength=count)
        score = np.bincount(rows.groups, weights * rows.scores, minlength=count)
        return cls(weight, score, _squares(weights, rows.scores) if squares is None else squares)


def _squares(weights: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """What the squared deviations from any mean are made of: sums of w², w²s and w²s²."""
    import numpy as np

    square = weights * weights
    return np.array([square.sum(), square @ scores, square @ (scores * scores)])


def _deviations(sums: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Sum of w²(s - mean)² from sums of w², w²s and w²s²; rounding leaves no negative one."""
    import numpy as np

    return np.maximum(sums[2] - 2 * mean * sums[1] + mean * mean * sums[0], 0.0)


def _difference(within: np.ndarray, rows: Rows, totals: _Totals) -> Difference | None:
    import numpy as np

    count = len(totals.weight)
    weights, scores, groups = rows.weights[within], rows.scores[within], rows.groups[within]
    weight_in = np.bincount(groups, weights, minlength=count)
    score_in = np.bincount(groups, weights * scores, minlength=count)
    weight_out, score_out = totals.weight - weight_in, totals.score - score_in
    inner, outer = float(weight_in.sum()), float(weight_out.sum())
    present = int(np.count_nonzero(np.bincount(groups, minlength=count)))
    if inner <= 0 or outer <= 0 or count < 2 or present == 0:
        return None
    mean_in, mean_out = float(score_in.sum()) / inner, float(score_out.sum()) / outer
    residuals = (score_in - mean_in * weight_in) / inner - (score_out - mean_out * weight_out) / outer
    by_group = count / (count - 1) * float(residuals @ residuals)
    squares = _squares(weights, scores)
    of_rows = float(
        _deviations(squares, mean_in) / inner**2 + _deviations(totals.squares - squares, mean_out) / outer**2
    )
    carriers = inner**2 / float(weight_in @ weight_in)
    return Difference(mean_in - mean_out, math.sqrt(max(by_group, of_rows)), present, carriers)


class _Search:
    """The tables of cells of the rows that are left."""

    def __init__(self, rows: Rows, levels: Sequence[Levels], tables: Sequence[tuple[int, ...]], limits: Limits) -> None:
        import numpy as np
        from scipy.special import ndtri

        self._rows, self._levels, self._tables, self._limits = rows, levels, tables, limits
        self._left = np.ones(len(rows.scores), dtype=bool)
        self._values = _summed_values(rows)
        self._cells = [self._sums(table, None) for table in tables]
        self._by_group: dict[int, list[np.ndarray]] = {}
        sizes = [[len(levels[at].firsts) for at in table] for table in tables]
        self._starts = np.cumsum([0, *(math.prod(size) for size in sizes)])
        self._rows_before = np.concatenate([self._searched(at)[0] for at in range(len(tables))])
        tried = (self._rows_before >= limits.rows) & (self._rows_before <= _WIDEST * len(rows.scores))
        self._reach = float(ndtri(1 - min(limits.slices / max(int(np.count_nonzero(tried)), 1), 0.05)))

    def best(self) -> Rule | None:
        """The rule with the most that is above the least that matters, if there is one."""
        import numpy as np

        totals = _Totals.of(self._rows, self._left, self._cells[0].sum(axis=1)[-3:])
        self._by_group.clear()
        merits = np.concatenate([self._merits(at, totals) for at in range(len(self._tables))])
        promising = np.flatnonzero(merits > 0)
        order = promising[np.lexsort((promising, -merits[promising]))][:_MOST_LOOKED_AT]
        candidates, exact_merits = np.array([], dtype=np.intp), np.array([])
        while len(candidates) < len(order):
            some = order[len(candidates) : 2 * len(candidates) + _AT_FIRST]
            if len(exact_merits) and merits[some[0]] < exact_merits.max():
                break
            candidates, exact_merits = (
                np.append(candidates, some),
                np.append(exact_merits, self._by_groups(some, totals)),
            )
        if not len(exact_merits) or exact_merits.max() <= 0:
            return None
        best = int(candidates[exact_merits >= exact_merits.max() * (1 - _EQUAL)].min())
        return self._simplest(self._fitted(best, totals), totals)

    def leave_out(self, rule: Rule) -> None:
        """Take the rule's rows out of all that is counted."""
        import numpy as np

        gone = np.flatnonzero(inside(rule, self._rows.columns) & self._left)
        self._left[gone] = False
        for at, table in enumerate(self._tables):
            self._cells[at] = self._cells[at] - self._sums(table, gone)

    def _fitted(self, candidate: int, totals: _Totals) -> Rule:
        """The rule with its ends moved to finer cuts for as long as that is better."""
        import numpy as np

        at, runs = self._runs_of(candidate)
        table = self._tables[at]
        while True:
            near = [self._levels[column].near(*run) for column, run in zip(table, runs, strict=True)]
            tried = list(itertools.product(*near))
            columns = [np.array(ends) for ends in zip(*tried, strict=True)]
            merits = self._merits_by_group(at, columns, totals)
            best = tried[int(np.flatnonzero(merits >= merits.max() * (1 - _EQUAL))[0])]
            if best == runs or merits.max() <= merits[tried.index(runs)] * (1 + _EQUAL):
                return Rule(tuple((column, *run) for column, run in zip(table, runs, strict=True)))
            runs = best

    def _simplest(self, rule: Rule, totals: _Totals) -> Rule:
        """The rule, or one of its two parts where that has nearly the same rows."""
        import numpy as np

        both = np.count_nonzero(inside(rule, self._rows.columns) & self._left)
        for part in rule.parts if len(rule.parts) > 1 else ():
            alone = Rule((part,))
            same = both >= SAME_ROWS * np.count_nonzero(inside(alone, self._rows.columns) & self._left)
            # The first tables are those of single columns, in their order.
            if same and self._merits_by_group(part[0], [np.array([part[1:]])], totals)[0] > 0:
                return alone
        return rule

    def _runs_of(self, candidate: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The table of a searched predicate, and its run of codes in each column."""
        import numpy as np

        at = int(np.searchsorted(self._starts, candidate, side="right")) - 1
        of = [self._levels[column] for column in self._tables[at]]
        places = np.unravel_index(candidate - int(self._starts[at]), [len(levels.firsts) for levels in of])
        runs = zip(of, places, strict=True)
        return at, tuple((int(levels.firsts[place]), int(levels.lasts[place])) for levels, place in runs)

    def _by_groups(self, candidates: np.ndarray, totals: _Totals) -> np.ndarray:
        """_merits_by_group of searched predicates."""
        import numpy as np

        tables = np.searchsorted(self._starts, candidates, side="right") - 1
        merits = np.empty(len(candidates))
        for at in np.unique(tables).tolist():
            mine = tables == at
            of = [self._levels[column] for column in self._tables[at]]
            places = np.unravel_index(candidates[mine] - self._starts[at], [len(levels.firsts) for levels in of])
            runs = [
                np.stack([column_levels.firsts[place], column_levels.lasts[place]], axis=1)
                for column_levels, place in zip(of, places, strict=True)
            ]
            merits[mine] = self._merits_by_group(at, runs, totals)
        return merits

    def _merits_by_group(self, at: int, runs: Sequence[np.ndarray], totals: _Totals) -> np.ndarray:
        """Merits of predicates of a table, the error by group; each column's runs are `(predicates, 2)`."""
        import numpy as np

        if at not in self._by_group:
            self._by_group[at] = self._summed_by_group(at)
        weight, score = (_of_runs(sums, runs) for sums in self._by_group[at])
        sums = _of_runs(np.moveaxis(_summed(self._cells[at], first_axis=1), 0, -1), runs).T
        inner = np.maximum(weight.sum(axis=1), _EQUAL)
        outer = np.maximum(totals.weight.sum() - inner, _EQUAL)
        mean_in, mean_out = score.sum(axis=1) / inner, (totals.score.sum() - score.sum(axis=1)) / outer
        residuals = (score - mean_in[:, None] * weight) / inner[:, None]
        residuals -= (totals.score - score - mean_out[:, None] * (totals.weight - weight)) / outer[:, None]
        count = len(totals.weight)
        by_group = count / (count - 1) * np.einsum("ij,ij->i", residuals, residuals)
        groups = np.count_nonzero(weight > _EQUAL, axis=1)
        by_rows = _variance_by_rows(sums, mean_in, mean_out, inner, outer, totals)
        bounds = mean_in - mean_out - self._reach * np.sqrt(np.maximum(by_group, by_rows))
        enough = (groups >= self._limits.groups) & (sums[0] > self._limits.rows - 0.5)
        enough &= sums[0] <= _WIDEST * len(self._left)
        return np.where(enough, (bounds - self._limits.least) * np.sqrt(sums[0]), -np.inf)

    def _merits(self, at: int, totals: _Totals) -> np.ndarray:
        """Merits of the table's searched predicates, the error by rows; minus infinity where too few rows are left."""
        import numpy as np

        sums, before = self._searched(at), self._rows_before[self._starts[at] : self._starts[at + 1]]
        wide = (sums[0] > self._limits.rows - 0.5) & (sums[0] >= (1 - _MOST_KNOWN) * before)
        wide &= before <= _WIDEST * len(self._left)
        some = sums[:, wide]
        weight, score = (some[0], some[1]) if len(some) == 3 else (some[1], some[2])
        inner = np.maximum(weight, _EQUAL)
        outer = np.maximum(float(totals.weight.sum()) - weight, _EQUAL)
        mean_in, mean_out = score / inner, (float(totals.score.sum()) - score) / outer
        bounds = mean_in - mean_out
        bounds -= self._reach * np.sqrt(_variance_by_rows(some, mean_in, mean_out, inner, outer, totals))
        merits = np.full(sums.shape[1], -np.inf)
        merits[wide] = (bounds - self._limits.least) * np.sqrt(some[0])
        return merits

    def _searched(self, at: int) -> np.ndarray:
        """Sums of each value over each of the table's searched predicates, `(values, predicates)`."""
        sums = self._cells[at]
        for axis, column in enumerate(self._tables[at], start=1):
            sums = _over_runs(sums, axis, self._levels[column])
        return sums.reshape(len(sums), -1)

    def _sums(self, table: tuple[int, ...], chosen: np.ndarray | None) -> np.ndarray:
        """Sums of each value over the table's cells, `(values, ...)`."""
        import numpy as np

        shape = tuple(self._levels[at].codes_in_all for at in table)
        columns = [self._rows.columns[at] if chosen is None else self._rows.columns[at][chosen] for at in table]
        cells = np.ravel_multi_index(columns, shape)
        values = [value if value is None or chosen is None else value[chosen] for value in self._values]
        sums = [np.bincount(cells, value, minlength=math.prod(shape)) for value in values]
        return np.array(sums, dtype=np.float64).reshape(len(values), *shape)

    def _summed_by_group(self, at: int) -> list[np.ndarray]:
        """Weights and scores of what is left by group, `(..., groups)`, summed along each column's codes."""
        import numpy as np

        table, left = self._tables[at], np.flatnonzero(self._left)
        shape = (*(self._levels[column].codes_in_all for column in table), int(self._rows.groups.max()) + 1)
        columns = [*(self._rows.columns[column] for column in table), self._rows.groups]
        cells = np.ravel_multi_index([column[left] for column in columns], shape)
        weights = self._rows.weights[left]
        sums = [np.bincount(cells, value, math.prod(shape)) for value in (weights, weights * self._rows.scores[left])]
        return [_summed(values.reshape(shape), first_axis=0, last_axis=len(table)) for values in sums]


def _summed_values(rows: Rows) -> list[np.ndarray | None]:
    """What cells sum: rows, w, ws, w², w²s and w²s²; without weights these are three."""
    weights, scores = rows.weights, rows.scores
    if (weights == 1).all():
        return [None, scores, scores * scores]
    square = weights * weights
    return [None, weights, weights * scores, square, square * scores, square * scores * scores]


def _variance_by_rows(
    sums: np.ndarray, mean_in: np.ndarray, mean_out: np.ndarray, inner: np.ndarray, outer: np.ndarray, totals: _Totals
) -> np.ndarray:
    """Squared standard error of each difference were the rows independent, from sums whose last three are squares'."""
    squares = sums[-3:]
    outside = _deviations(totals.squares[:, None] - squares, mean_out)
    return _deviations(squares, mean_in) / inner**2 + outside / outer**2


def _summed(values: np.ndarray, first_axis: int, last_axis: int | None = None) -> np.ndarray:
    """Sums from the first code on along some axes, with a zero before the first."""
    import numpy as np

    axes = range(first_axis, values.ndim if last_axis is None else last_axis)
    for axis in axes:
        values = np.cumsum(values, axis=axis)
    return np.pad(values, [(1, 0) if axis in axes else (0, 0) for axis in range(values.ndim)])


def _of_runs(summed: np.ndarray, runs: Sequence[np.ndarray]) -> np.ndarray:
    """What lies in predicates `(predicates, ...)`, from sums along each column's codes, which are the first axes."""
    low, high = runs[0][:, 0], runs[0][:, 1] + 1
    if len(runs) == 1:
        return summed[high] - summed[low]
    left, right = runs[1][:, 0], runs[1][:, 1] + 1
    return summed[high, right] - summed[low, right] - summed[high, left] + summed[low, left]


def _over_runs(sums: np.ndarray, axis: int, levels: Levels) -> np.ndarray:
    """Sums over the searched runs of codes along an axis: of single ones as they are, else by sums of sums."""
    import numpy as np

    if (levels.firsts == levels.lasts).all():
        return np.take(sums, levels.firsts, axis=axis)
    summed = _summed(sums, axis, axis + 1)
    return np.take(summed, levels.lasts + 1, axis=axis) - np.take(summed, levels.firsts, axis=axis)


def telling_pairs(rows: Rows, levels: Sequence[Levels], most_columns: int) -> list[tuple[int, int]]:
    """All pairs of the columns that tell most of the score alone, where there are more than so many."""
    import numpy as np

    variations = [_score_variation(rows, at, of) for at, of in enumerate(levels)]
    chosen = sorted(np.argsort(-np.array(variations), kind="stable")[:most_columns].tolist())
    return list(itertools.combinations(chosen, 2))


def _score_variation(rows: Rows, at: int, levels: Levels) -> float:
    """How much the means of a column's codes vary, by degree of freedom."""
    import numpy as np

    weight = np.bincount(rows.columns[at], rows.weights, minlength=levels.codes_in_all)
    score = np.bincount(rows.columns[at], rows.weights * rows.scores, minlength=levels.codes_in_all)
    held = weight > 0
    between = weight[held] @ np.square(score[held] / weight[held] - score.sum() / weight.sum())
    return float(between) / max(int(held.sum()) - 1, 1)
