"""What a predicate is made of, and which rows make each part true.

As in SQL a comparison with a missing value is neither true nor false: the row is not in the slice, under `not` neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.column_values import (
    HOLDS,
    ColumnValues,
    column_values,
    kind_of_literal,
    literal_for,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Literal = bool | int | float | str
EXAMPLE = 'such as: origin == "EWR" and wind_speed > 20'
_ORDERED = ("<", "<=", ">", ">=")


class Rows:
    """The rows' columns, each read once."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self._read: dict[str, ColumnValues] = {}

    def __getitem__(self, name: str) -> ColumnValues:
        if name not in self._read:
            self._read[name] = column_values(self.rows[name])
        return self._read[name]


class Node:
    """Part of a predicate: which rows make it true, and which make it false; of the others it is unknown."""

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        """Columns with the values of which each is asked to be one."""
        yield from ()


@dataclass(frozen=True)
class Joined(Node):
    """Parts joined by `and`, if `every`, or by `or`."""

    every: bool
    parts: tuple[Node, ...]

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        true, false = self.parts[0].sides(rows)
        for part in self.parts[1:]:
            more_true, more_false = part.sides(rows)
            if self.every:
                true, false = true & more_true, false | more_false
            else:
                true, false = true | more_true, false & more_false
        return true, false

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        for part in self.parts:
            yield from part.equals()


def _all_of(node: Node) -> Iterator[Node]:
    """The parts that must all be true, through `and` within `and`."""
    if isinstance(node, Joined) and node.every:
        for part in node.parts:
            yield from _all_of(part)
    else:
        yield node


def empty_ranges(node: Node) -> Iterator[tuple[str, str]]:
    """Columns that are asked to be a number that there is not, each with what is asked."""
    together: dict[str, list[Compared]] = {}
    for part in _all_of(node):
        if isinstance(part, Compared) and kind_of_literal(part.value) == "number":
            together.setdefault(part.column, []).append(part)
        elif isinstance(part, Joined):
            for member in part.parts:
                yield from empty_ranges(member)
    for column, comparisons in together.items():
        if _is_empty(comparisons):
            yield column, " and ".join(f"{comparison.sign} {comparison.value}" for comparison in comparisons)


def _is_empty(comparisons: Sequence[Compared]) -> bool:
    """True if no number satisfies all comparisons: a lower bound above an upper one, or at it where one is open."""
    lows = [(comparison.value, comparison.sign) for comparison in comparisons if comparison.sign in (">", ">=", "==")]
    highs = [(comparison.value, comparison.sign) for comparison in comparisons if comparison.sign in ("<", "<=", "==")]
    return any(
        low > high or (low == high and (sign == ">" or other == "<"))  # pyright: ignore[reportOperatorIssue]
        for low, sign in lows
        for high, other in highs
    )


@dataclass(frozen=True)
class Not(Node):
    """What is not the part."""

    part: Node

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        true, false = self.part.sides(rows)
        return false, true


@dataclass(frozen=True)
class Missing(Node):
    """A column without a value."""

    column: str

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        known = rows[self.column].known
        return ~known, known


@dataclass(frozen=True)
class Yes(Node):
    """A column of booleans by itself."""

    column: str

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        held = rows[self.column]
        if held.kind not in ("boolean", "empty"):
            raise EvaluationError(
                f"{self.column} stands alone and holds {HOLDS[held.kind]}, which are neither true nor false",
                value=self.column, fix=f"compare it with a value, {EXAMPLE}", code="predicate.alone",
            )  # fmt: skip
        values = held.values.astype(bool)
        return held.known & values, held.known & ~values


@dataclass(frozen=True)
class OneOf(Node):
    """A column whose value is one of a list."""

    column: str
    values: tuple[Literal, ...]

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        held = rows[self.column]
        literals = [_comparable_literal(held, self.column, "==", value) for value in self.values]
        if held.kind == "empty":
            matches = np.zeros(len(held.known), dtype=bool)
        elif held.kind == "text":
            matches = held.values.isin(literals).to_numpy()
        else:
            matches = np.logical_or.reduce([held.values == value for value in literals])
        return held.known & matches, held.known & ~matches

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        yield self.column, self.values


@dataclass(frozen=True)
class Compared(Node):
    """A column compared with a literal."""

    column: str
    sign: str
    compare: Callable[[Any, Any], Any]
    value: Literal

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        held = rows[self.column]
        literal = _comparable_literal(held, self.column, self.sign, self.value)
        if held.kind == "empty":
            return held.known, held.known
        return _compared(held.known, held, self.compare, literal)

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        if self.sign == "==":
            yield self.column, (self.value,)


@dataclass(frozen=True)
class TwoColumns(Node):
    """Two columns compared row by row."""

    left: str
    sign: str
    compare: Callable[[Any, Any], Any]
    right: str

    def sides(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        left, right = rows[self.left], rows[self.right]
        known = left.known & right.known
        if "empty" in (left.kind, right.kind):
            return known, known
        one_zone = (left.zone is None) == (right.zone is None)
        if left.kind != right.kind or not one_zone or (left.kind == "boolean" and self.sign in _ORDERED):
            raise EvaluationError(
                f"{self.left} holds {HOLDS[left.kind]} and {self.right} {HOLDS[right.kind]}: "
                f"{self.sign} does not compare them", value=f"{self.left} {self.sign} {self.right}",
                fix="compare columns of one kind, of times both with or both without a zone", code="predicate.columns",
            )  # fmt: skip
        return _compared(known, left, self.compare, right.values)


def _compared(
    known: np.ndarray, left: ColumnValues, compare: Callable[[Any, Any], Any], right: Any
) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np
    import pandas as pd

    if isinstance(left.values, pd.Series):
        # Only known texts are compared, since a missing one cannot be held against another.
        matches = np.zeros(len(known), dtype=bool)
        other = right[known].astype("str") if isinstance(right, pd.Series) else right
        matches[known] = compare(left.values[known].astype("str"), other).to_numpy(dtype=bool)
    else:
        matches = np.asarray(compare(left.values, right), dtype=bool)
    return known & matches, known & ~matches


def _check_size(held: ColumnValues, name: str, value: Literal) -> None:
    """Raises EvaluationError for a whole number that no number of a column of decimals can be held against."""
    if held.kind != "number" or held.values.dtype.kind != "f":
        return
    try:
        float(value)
    except OverflowError:
        raise EvaluationError(
            f"no value of {name} is as far from 0 as this number, of {len(str(abs(int(value))))} digits",
            value=f"{str(value)[:20]}…", fix="write a number that the column may hold", code="predicate.number",
        ) from None  # fmt: skip


def _comparable_literal(held: ColumnValues, name: str, sign: str, value: Literal) -> Any:
    """A literal as it is compared with a column. Raises EvaluationError where the two cannot be compared."""
    kind = kind_of_literal(value)
    if held.kind == "empty":
        return value
    fits = kind == held.kind or (isinstance(value, str) and held.kind in ("time", "clock"))
    if fits and not (kind == "boolean" and sign in _ORDERED):
        if isinstance(value, str):
            return literal_for(value, held, name)
        _check_size(held, name, value)
        return value
    if fits:
        fix = f"write {name} or not {name}"
    elif held.kind == "text":
        fix = f'put it in quotes: "{value}"' + (", if texts are to be sorted" if sign in _ORDERED else "")
    elif held.kind == "boolean":
        fix = f"write {name} == True or {name} == False"
    elif held.kind == "number":
        fix = f"write a number{f': {int(value)}' if isinstance(value, bool) else ''}"
    else:
        fix = "write an ISO time in quotes"
    raise EvaluationError(
        f"{name} holds {HOLDS[held.kind]}, and {_shown(value)} is {_WITH_ARTICLE[kind]}",
        value=f"{name} {sign} {_shown(value)}", fix=fix, code="predicate.types",
    )  # fmt: skip


_WITH_ARTICLE = {"number": "a number", "text": "a text", "boolean": "a boolean"}


def _shown(value: Literal) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
