"""A small language that says which rows belong to a slice: `origin == "EWR" and wind_speed > 20`.

Columns are compared with numbers, texts, True and False, or with another column, by `== != < <= > >=`, `in [...]` and
`is None`; `and`, `or`, `not` and parentheses join comparisons, and `10 < x <= 20` is both. A name that is no plain word
stands in backticks. Dates and times are written as ISO text.

It has Python's grammar and is read by Python's parser, of which a few kinds of node are accepted; nothing is run. As in
SQL a comparison with a missing value is neither true nor false: the row is not in the slice, under `not` neither.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from trainworthy.lifecycle.errors import EvaluationError, nearest
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
_EXAMPLE = 'such as: origin == "EWR" and wind_speed > 20'
_COMPARED: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
_ORDERED = ("<", "<=", ">", ">=")
# Parentheses within parentheses; what Python's stack holds is some twenty times as deep.
_DEEPEST = 50
# Texts, names in backticks, and what is neither.
_TOKEN = re.compile(r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<name>`[^`]*`)|(?P<other>.)""", re.DOTALL)
# What other languages write, and what is written here.
_ELSEWHERE = {"null": "x is None", "none": "x is None", "nan": "x is None", "true": "True", "false": "False"}


@dataclass(frozen=True)
class Predicate:
    """Which rows belong to a slice; `columns` are those that decide it, in the order in which they first occur."""

    text: str
    columns: tuple[str, ...]
    _tree: _Node = field(repr=False, compare=False)

    @property
    def equals(self) -> tuple[tuple[str, tuple[Literal, ...]], ...]:
        """The columns of which it asks for one of some values, each with these."""
        return tuple(self._tree.equals())

    @property
    def empty_ranges(self) -> tuple[tuple[str, str], ...]:
        """The columns of which it asks for a number that there is not, each with what is asked: `> 50 and < 20`."""
        return tuple(_empty_ranges(self._tree))

    def mask(self, rows: pd.DataFrame) -> np.ndarray:
        """Which of the rows are in the slice, bool `(N,)`.

        Raises EvaluationError for a column that the rows lack, and for values that cannot be compared.
        """
        for name in self.columns:
            if name not in rows.columns:
                raise _unknown(name, [str(column) for column in rows.columns])
        return self._tree.sides(_Rows(rows))[0]


def parse(text: str) -> Predicate:
    """A predicate from its text. Raises EvaluationError for one that cannot be read, saying where and what to write."""
    stripped = text.strip()
    if not stripped:
        raise EvaluationError(
            "the predicate is empty", value=text, fix=f"write a comparison, {_EXAMPLE}", code="predicate.empty"
        )
    plain = _without_backticks(stripped)
    try:
        with warnings.catch_warnings():
            # Of a backslash in a text that means nothing, of which Python only warns.
            warnings.simplefilter("error")
            body = ast.parse(plain, mode="eval").body
    except SyntaxError as error:
        at = error.offset - 1 if error.offset else len(stripped)
        raise _unreadable(stripped, min(at, len(stripped)), "the predicate cannot be read") from None
    except (ValueError, RecursionError, MemoryError):
        raise _unreadable(stripped, 0, "the predicate cannot be read") from None
    reader = _Reader(stripped, plain)
    tree = reader.node(body)
    return Predicate(text=stripped, columns=tuple(dict.fromkeys(reader.columns)), _tree=tree)


def column_text(name: str) -> str:
    """A column's name as a predicate writes it: in backticks where it is no plain word."""
    import keyword

    return name if name.isidentifier() and name.isascii() and not keyword.iskeyword(name) else f"`{name}`"


# ---- what a predicate is made of -------------------------------------------------------------------------------------


class _Rows:
    """The rows' columns, each read once."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self._read: dict[str, ColumnValues] = {}

    def __getitem__(self, name: str) -> ColumnValues:
        if name not in self._read:
            self._read[name] = column_values(self.rows[name])
        return self._read[name]


class _Node:
    """Part of a predicate: which rows make it true, and which make it false; of the others it is unknown."""

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        """Columns with the values of which each is asked to be one."""
        yield from ()


@dataclass(frozen=True)
class _Joined(_Node):
    every: bool
    parts: tuple[_Node, ...]

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
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


def _all_of(node: _Node) -> Iterator[_Node]:
    """The parts that must all be true, through `and` within `and`."""
    if isinstance(node, _Joined) and node.every:
        for part in node.parts:
            yield from _all_of(part)
    else:
        yield node


def _empty_ranges(node: _Node) -> Iterator[tuple[str, str]]:
    together: dict[str, list[_Compared]] = {}
    for part in _all_of(node):
        if isinstance(part, _Compared) and kind_of_literal(part.value) == "number":
            together.setdefault(part.column, []).append(part)
        elif isinstance(part, _Joined):
            for member in part.parts:
                yield from _empty_ranges(member)
    for column, comparisons in together.items():
        if _is_empty(comparisons):
            yield column, " and ".join(f"{comparison.sign} {comparison.value}" for comparison in comparisons)


def _is_empty(comparisons: Sequence[_Compared]) -> bool:
    """True if no number satisfies all comparisons: a lower bound above an upper one, or at it where one is open."""
    lows = [(comparison.value, comparison.sign) for comparison in comparisons if comparison.sign in (">", ">=", "==")]
    highs = [(comparison.value, comparison.sign) for comparison in comparisons if comparison.sign in ("<", "<=", "==")]
    return any(
        low > high or (low == high and (sign == ">" or other == "<"))  # pyright: ignore[reportOperatorIssue]
        for low, sign in lows
        for high, other in highs
    )


@dataclass(frozen=True)
class _Not(_Node):
    part: _Node

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        true, false = self.part.sides(rows)
        return false, true


@dataclass(frozen=True)
class _Missing(_Node):
    column: str

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        known = rows[self.column].known
        return ~known, known


@dataclass(frozen=True)
class _Yes(_Node):
    """A column of booleans by itself."""

    column: str

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        held = rows[self.column]
        if held.kind not in ("boolean", "empty"):
            raise EvaluationError(
                f"{self.column} stands alone and holds {HOLDS[held.kind]}, which are neither true nor false",
                value=self.column, fix=f"compare it with a value, {_EXAMPLE}", code="predicate.alone",
            )  # fmt: skip
        values = held.values.astype(bool)
        return held.known & values, held.known & ~values


@dataclass(frozen=True)
class _OneOf(_Node):
    column: str
    values: tuple[Literal, ...]

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
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
class _Compared(_Node):
    """A column compared with a literal."""

    column: str
    sign: str
    compare: Callable[[Any, Any], Any]
    value: Literal

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        held = rows[self.column]
        literal = _comparable_literal(held, self.column, self.sign, self.value)
        if held.kind == "empty":
            return held.known, held.known
        return _compared(held.known, held, self.compare, literal)

    def equals(self) -> Iterator[tuple[str, tuple[Literal, ...]]]:
        if self.sign == "==":
            yield self.column, (self.value,)


@dataclass(frozen=True)
class _TwoColumns(_Node):
    """Two columns compared row by row."""

    left: str
    sign: str
    compare: Callable[[Any, Any], Any]
    right: str

    def sides(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
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


# ---- reading ---------------------------------------------------------------------------------------------------------


class _Reader:
    """Makes a predicate of Python's syntax tree, and notes the columns that it comes across."""

    def __init__(self, text: str, plain: str) -> None:
        self._text, self._encoded = text, plain.encode()
        self.columns: list[str] = []

    def node(self, node: ast.expr, depth: int = 0) -> _Node:
        if depth > _DEEPEST:
            self._refuse(node, "the predicate has too many parts within parts", "split it into several predicates")
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = tuple(self.node(value, depth + 1) for value in values)
                return _Joined(isinstance(op, ast.And), parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _Not(self.node(operand, depth + 1))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                sides = [left, *rights]
                parts = tuple(self._comparison(sides[at], op, sides[at + 1]) for at, op in enumerate(ops))
                return parts[0] if len(parts) == 1 else _Joined(True, parts)
            case ast.Name():
                return _Yes(self._column(node))
            case ast.Constant():
                self._refuse(node, "a value stands alone", f"compare a column with it, {_EXAMPLE}")
            case _:
                self._foreign(node)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> _Node:
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(left, ast.Name) or not (isinstance(right, ast.Constant) and right.value is None):
                self._refuse(right, "only None follows `is`", "write x is None or x is not None, and == for values")
            missing = _Missing(self._column(left))
            return missing if isinstance(op, ast.Is) else _Not(missing)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                self._refuse(right, "a list of values follows `in`", 'write carrier in ["AA", "UA"]')
            one_of = _OneOf(self._column(left), tuple(self._literal(value) for value in right.elts))
            return one_of if isinstance(op, ast.In) else _Not(one_of)
        sign, compare = _COMPARED[type(op)]
        if isinstance(left, ast.Name) and isinstance(right, ast.Name):
            return _TwoColumns(self._column(left), sign, compare, self._column(right))
        if isinstance(left, ast.Name):
            return _Compared(self._column(left), sign, compare, self._literal(right))
        value = self._literal(left)
        if not isinstance(right, ast.Name):
            self._literal(right)
            self._refuse(left, "two values are compared, and no column", f"compare a column with a value, {_EXAMPLE}")
        turned, compare = _TURNED[sign]
        return _Compared(self._column(right), turned, compare, value)

    def _column(self, node: ast.expr) -> str:
        """A name as it is written: Python would take some letters of a word for others."""
        if not isinstance(node, ast.Name):
            self._foreign(node)
        name = self._text[self._at(node) : self._at(node, end=True)].strip("`")
        self.columns.append(name)
        return name

    def _literal(self, node: ast.expr) -> Literal:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
                if not isinstance(value, bool):
                    return -value if isinstance(sign, ast.USub) else value
                self._foreign(node)
            case ast.Constant(value=None):
                self._refuse(node, "nothing compares with None", "write x is None or x is not None")
            case _:
                self._foreign(node)

    def _foreign(self, node: ast.expr) -> NoReturn:
        if isinstance(node, ast.BinOp | ast.UnaryOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Invert):
            self._refuse(node, "&, | and ~ are not part of a predicate", "write and, or, not")
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            self._refuse(node, "a list stands where a value is needed", 'write carrier in ["AA", "UA"]')
        construct = {
            ast.Call: "a call", ast.Attribute: "a name with a dot", ast.Subscript: "a part of a value",
            ast.BinOp: "arithmetic", ast.UnaryOp: "arithmetic", ast.JoinedStr: "a text with placeholders",
            ast.Compare: "a comparison of a comparison", ast.BoolOp: "a comparison of a comparison",
        }.get(type(node), "this")  # fmt: skip
        fix = "compare columns with values; what is computed belongs into a column, and a name with a dot in backticks"
        self._refuse(node, f"{construct} is not part of a predicate", fix)

    def _refuse(self, node: ast.expr, problem: str, fix: str) -> NoReturn:
        raise _at_place(self._text, self._at(node), problem, fix, "predicate.refused")

    def _at(self, node: ast.expr, *, end: bool = False) -> int:
        """Where a node begins or ends, in characters: Python counts bytes."""
        offset = (node.end_col_offset or 0) if end else node.col_offset
        return len(self._encoded[:offset].decode())


_TURNED = {
    "==": ("==", operator.eq), "!=": ("!=", operator.ne), "<": (">", operator.gt), "<=": (">=", operator.ge),
    ">": ("<", operator.lt), ">=": ("<=", operator.le),
}  # fmt: skip


def _without_backticks(text: str) -> str:
    """The text with a plain word of equal length for every name in backticks, and in one line."""
    return "".join(_plain_tokens(text))


def _plain_tokens(text: str) -> Iterator[str]:
    after_text = False
    for token in _TOKEN.finditer(text):
        piece, at = token.group(), token.start()
        if token["text"]:
            if after_text:
                raise _at_place(
                    text, at, "two texts follow each other", 'put a comma between them: ["AA", "UA"]', "predicate.comma"
                )
            after_text = True
            yield piece
        elif token["name"]:
            if not piece.strip("`").strip():
                raise _unreadable(text, at, "a name in backticks is empty")
            after_text = False
            yield "_" * len(piece)
        elif piece.isspace():
            yield " "
        else:
            if piece == "#":
                raise _unreadable(text, at, "a remark is not part of a predicate")
            after_text = False
            yield piece


def _unreadable(text: str, at: int, problem: str) -> EvaluationError:
    bare = _TOKEN.sub(lambda token: token["other"] or " ", text)
    if re.search(r"(?<![=!<>])=(?!=)", bare):
        fix = "write == to compare"
    elif re.search(r"&|\||!(?!=)", bare):
        fix = "write and, or, not"
    elif "\\" in text:
        fix = "write two backslashes for one in a text"
    elif text.count("`") % 2:
        fix = "close the backtick"
    else:
        fix = f"write comparisons joined by and, or, not, {_EXAMPLE}; a name that is no plain word stands in backticks"
    return _at_place(text, at, problem, fix, "predicate.unreadable")


def _at_place(text: str, at: int, problem: str, fix: str, code: str) -> EvaluationError:
    rest = text[at : at + 20]
    more = f", at {rest!r}" if rest else ""
    return EvaluationError(f"{problem} (character {at + 1}{more})", value=text, fix=fix, code=code)


def _unknown(name: str, known: Sequence[str]) -> EvaluationError:
    near = nearest(name, known)
    if name.lower() in _ELSEWHERE:
        fix = f"write {_ELSEWHERE[name.lower()]}"
    elif near:
        fix = f'did you mean {near!r}? A text stands in quotes: "{name}"'
    else:
        fix = f'known: {", ".join(sorted(known)) or "none"}. A text stands in quotes: "{name}"'
    return EvaluationError(
        "the predicate names a column that the rows lack", value=name, fix=fix, code="predicate.unknown"
    )


def _shown(value: Literal) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
