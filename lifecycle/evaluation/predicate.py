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
from trainworthy.lifecycle.evaluation.predicate_nodes import (
    EXAMPLE,
    Compared,
    Joined,
    Literal,
    Missing,
    Node,
    Not,
    OneOf,
    Rows,
    TwoColumns,
    Yes,
    empty_ranges,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_COMPARED: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
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
    _tree: Node = field(repr=False, compare=False)

    @property
    def equals(self) -> tuple[tuple[str, tuple[Literal, ...]], ...]:
        """The columns of which it asks for one of some values, each with these."""
        return tuple(self._tree.equals())

    @property
    def empty_ranges(self) -> tuple[tuple[str, str], ...]:
        """The columns of which it asks for a number that there is not, each with what is asked: `> 50 and < 20`."""
        return tuple(empty_ranges(self._tree))

    def mask(self, rows: pd.DataFrame) -> np.ndarray:
        """Which of the rows are in the slice, bool `(N,)`.

        Raises EvaluationError for a column that the rows lack, and for values that cannot be compared.
        """
        for name in self.columns:
            if name not in rows.columns:
                raise _unknown(name, [str(column) for column in rows.columns])
        return self._tree.sides(Rows(rows))[0]


def parse(text: str) -> Predicate:
    """A predicate from its text. Raises EvaluationError for one that cannot be read, saying where and what to write."""
    stripped = text.strip()
    if not stripped:
        raise EvaluationError(
            "the predicate is empty", value=text, fix=f"write a comparison, {EXAMPLE}", code="predicate.empty"
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


class _Reader:
    """Makes a predicate of Python's syntax tree, and notes the columns that it comes across."""

    def __init__(self, text: str, plain: str) -> None:
        self._text, self._encoded = text, plain.encode()
        self.columns: list[str] = []

    def node(self, node: ast.expr, depth: int = 0) -> Node:
        if depth > _DEEPEST:
            self._refuse(node, "the predicate has too many parts within parts", "split it into several predicates")
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = tuple(self.node(value, depth + 1) for value in values)
                return Joined(isinstance(op, ast.And), parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.node(operand, depth + 1))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                sides = [left, *rights]
                parts = tuple(self._comparison(sides[at], op, sides[at + 1]) for at, op in enumerate(ops))
                return parts[0] if len(parts) == 1 else Joined(True, parts)
            case ast.Name():
                return Yes(self._column(node))
            case ast.Constant():
                self._refuse(node, "a value stands alone", f"compare a column with it, {EXAMPLE}")
            case _:
                self._foreign(node)

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Node:
        if isinstance(op, ast.Is | ast.IsNot):
            if not isinstance(left, ast.Name) or not (isinstance(right, ast.Constant) and right.value is None):
                self._refuse(right, "only None follows `is`", "write x is None or x is not None, and == for values")
            missing = Missing(self._column(left))
            return missing if isinstance(op, ast.Is) else Not(missing)
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple | ast.Set) or not right.elts:
                self._refuse(right, "a list of values follows `in`", 'write carrier in ["AA", "UA"]')
            one_of = OneOf(self._column(left), tuple(self._literal(value) for value in right.elts))
            return one_of if isinstance(op, ast.In) else Not(one_of)
        sign, compare = _COMPARED[type(op)]
        if isinstance(left, ast.Name) and isinstance(right, ast.Name):
            return TwoColumns(self._column(left), sign, compare, self._column(right))
        if isinstance(left, ast.Name):
            return Compared(self._column(left), sign, compare, self._literal(right))
        value = self._literal(left)
        if not isinstance(right, ast.Name):
            self._literal(right)
            self._refuse(left, "two values are compared, and no column", f"compare a column with a value, {EXAMPLE}")
        turned, compare = _TURNED[sign]
        return Compared(self._column(right), turned, compare, value)

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
        fix = f"write comparisons joined by and, or, not, {EXAMPLE}; a name that is no plain word stands in backticks"
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
