"""What the target is, two values, classes, several labels, numbers or texts, by what it holds or as asked; its labels.

A text is a class, or names several labels with a separator between them (several.py), or is one whose next bytes are
predicted, where it is long and nearly each row has its own; a number is one, unless it is whole, one of few, and
frequent. That is a guess in a line that is printed, and `--kind` overrides it. What is none of
these is one error: texts of which nearly each row has its own, a number that names the row, a class of too few rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.spec.task import LABEL_TYPES, ClassValue, KindName, TaskSpec
from trainworthy.pipeline.scaffold.pieces import piece_bytes
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.roles import ID_NAME, NEARLY, numbers_among
from trainworthy.pipeline.scaffold.several import SEPARATORS, Several, combine, separated
from trainworthy.pipeline.scaffold.source import DECIMAL_COMMA, Kind

if TYPE_CHECKING:
    import pandas as pd

# Of these pairs nobody has to say which one is meant.
OBVIOUS = {"1", "1.0", "true", "t", "yes", "y", "positive", "pos"}
# Of fewer rows the smallest split, a tenth, holds none that could be counted on.
LEAST_CLASS_ROWS = 10
# Texts are classes while they are so few, with so many rows each on average; of more, somebody has to say so.
MOST_TEXTS, ROWS_A_TEXT = 100, 20
# Digits, grades and stars are ten at most; more whole numbers count or measure something.
FEW = 10
# Texts are to be gone on with, and no names, from so many bytes on (the median), where nearly each row has its own.
LONG_BYTES, NEARLY_ALL = 80, 0.8
# Texts by which that is told.
_LOOKED_AT = 1000
_SHOWN, _MOST_SIGNS = 4, 40


_ADDED = {"mask": "_classes", "text": "_bytes"}


@dataclass(frozen=True)
class FoundTarget:
    """The column and its task, in a line why, and as what dataset.py reads it.

    `table` has the label of each value of a binary target, `positive` the text of the positive one.
    """

    column: str
    task: TaskSpec
    why: str
    read_as: Kind
    positive: str = ""
    table: dict[Any, int] = field(default_factory=dict)
    classes: tuple[ClassValue, ...] = ()
    separator: str | None = None

    @property
    def label(self) -> Label:
        """As the contract defines it."""
        kind = LABEL_TYPES[self.task.kind]
        # The column of masks keeps their paths, and that of texts the texts: the label has another name.
        name = self.column + _ADDED.get(kind, "")
        return Label(
            name=name, version=1, column=self.column, type=kind, classes=self.classes, separator=self.separator
        )

    @property
    def remark(self) -> str:
        """For whoever reads the column in the contract."""
        if self.task.kind == "binary":
            return f"1 where the file says {self.positive!r}, else 0"
        if self.separator is not None:
            return f"any of {len(self.classes)} labels, {self.separator!r} between their names"
        if self.task.kind == "segmentation":
            return "a picture whose pixels are the places of their classes, from 0 on"
        if self.task.kind == "language_model":
            return "each of its bytes is predicted by those before it"
        return f"one of {len(self.classes)} classes" if self.classes else "the number that is predicted"


@dataclass(frozen=True)
class Held:
    """What a column holds: how often each value occurs, typed as dataset.py types it, the most frequent first."""

    name: str
    read_as: Kind
    counts: pd.Series
    rows: int

    @property
    def different(self) -> int:
        return len(self.counts)

    @property
    def labelled(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def is_number(self) -> bool:
        return self.read_as in ("integer", "number")

    @cached_property
    def is_whole(self) -> bool:
        return self.is_number and all(float(value).is_integer() for value in self.counts.index)

    @cached_property
    def several(self) -> Several | None:
        """The names that texts hold with a separator between them; None where no text has one."""
        return separated(self.counts.to_dict()) if self.read_as == "text" else None

    @cached_property
    def bytes(self) -> list[int]:
        """Of each different text, rising."""
        return sorted(len(text.encode()) for text in self.counts.index)

    @property
    def values(self) -> str:
        """What the values are called."""
        return "whole numbers" if self.is_whole else "numbers" if self.is_number else "texts"

    @property
    def shown(self) -> str:
        """The most frequent values with their rows."""
        return _with_rows(self.counts.head(_SHOWN).items())

    @property
    def rare(self) -> list[tuple[Any, int]]:
        """Values of too few rows for a class, the rarest first."""
        return [*self.counts[self.counts < LEAST_CLASS_ROWS].items()][::-1]


def find_target(
    request: Request, raw: pd.DataFrame, kinds: dict[str, Kind]
) -> tuple[FoundTarget | None, list[Problem]]:
    """The target; None and what is wrong with it, with what was asked of it, or with the column that it names."""
    name = request.target
    if name is None:
        return None, []
    if name not in raw.columns:
        return None, [Problem("--target", "is no column of the file", did_you_mean(name, map(str, raw.columns)), name)]
    if name not in kinds:
        return None, []
    quantiles, problems = _quantiles(request.quantiles)
    held = Held(name, kinds[name], _counts(raw[name], kinds[name]), len(raw))
    # Who names a positive value speaks of two, and who names quantiles speaks of numbers.
    requested = request.kind or ("binary" if request.positive else "regression" if quantiles else None)
    kind, why, problem = _kind_as_requested(held, requested) if requested else _kind_by_values(held)
    if kind != "regression" and request.quantiles is not None and kind is not None:
        problems.append(Problem("--quantiles", f"belong to numbers, and {why}", "leave them out", request.quantiles))
    if kind != "binary" and request.positive is not None and kind is not None:
        problems.append(
            Problem("--positive", f"belongs to a target of two values, and {why}", "leave it out", request.positive)
        )
    problems += [] if problem is None else [problem]
    if problems or kind is None:
        return None, problems
    if kind == "binary":
        return _binary(held, why, request.positive)
    if kind == "language_model":
        length = piece_bytes(held.bytes[-1])
        return FoundTarget(name, TaskSpec(kind=kind, length=length), why, "text"), []
    task = TaskSpec(kind=kind, quantiles=quantiles)
    if kind == "regression":
        # Never as integers: those can't be empty, and newer rows may wait for their label.
        return FoundTarget(name, task, why, "number"), []
    if kind == "multilabel":
        assert held.several is not None
        names = tuple(sorted(held.several.rows))
        return FoundTarget(name, task, why, "text", classes=names, separator=held.several.separator), []
    read: Any = int if held.is_number else str
    classes = tuple(sorted(read(value) for value in held.counts.index))
    return FoundTarget(name, task, why, "number" if held.is_number else "text", classes=classes), []


def _counts(values: pd.Series, kind: Kind) -> pd.Series:
    import pandas as pd

    known = values.dropna()
    if kind in ("integer", "number"):
        typed = pd.to_numeric(known).astype("int64" if kind == "integer" else "float64")
    elif kind == "boolean":
        typed = known.astype("str").str.lower() == "true"
    else:
        typed = known.astype("str")
    return typed.value_counts()


def _quantiles(text: str | None) -> tuple[tuple[float, ...], list[Problem]]:
    if text is None:
        return (), []
    try:
        return TaskSpec(kind="regression", quantiles=tuple(float(part) for part in text.split(","))).quantiles, []
    except (ValueError, ValidationError):
        fix = "write rising numbers between 0 and 1, such as 0.1,0.5,0.9"
        return (), [Problem("--quantiles", "are no quantiles", fix, text)]


Judged = tuple[KindName | None, str, Problem | None]


def _kind_by_values(held: Held) -> Judged:
    """The kind by what the column holds, and why; or what it can't be."""
    name = repr(held.name)
    if 0 < held.different <= 2 and _is_long(held):
        return _judged_as_text(held)
    if problem := _unusable(held):
        return None, "", problem
    if held.different == 2:
        return "binary", f"{name} holds two values: kind binary", None
    description = f"{name} holds {held.different:,} different {held.values}"
    if held.is_number:
        if problem := _names_rows(held):
            return None, "", problem
        if held.is_whole and held.different <= FEW and not held.rare:
            why = f"{description}, each in {int(held.counts.min()):,} rows or more: kind multiclass"
            return "multiclass", f"{why} (--kind regression if they count or measure something)", None
        rare = f", {_with_rows(held.rare[:1])}, too few for a class" if held.is_whole and held.different <= FEW else ""
        return "regression", f"{description}{rare}: kind regression", None
    several, numbers = held.several, _nearly_numbers(held)
    if several is not None and numbers is None and combine(several, held.counts.to_dict()):
        problem = _written_twice(held, list(several.rows)) or _rare_labels(held, several)
        return (None, "", problem) if problem is not None else ("multilabel", _multilabel_text(held, several), None)
    if numbers is None and _is_long(held):
        return _judged_as_text(held)
    problem = numbers or _nameless(held) or _spelt_twice(held) or _free_text(held) or _too_rare(held)
    if problem is not None:
        return None, "", problem
    return "multiclass", f"{description}: kind multiclass", None


def _kind_as_requested(held: Held, kind: KindName) -> Judged:
    """The kind as asked, if the values allow it."""
    description = f"{held.name!r} holds {held.different:,} different {held.values}: kind {kind}, as asked"
    if kind == "language_model":
        problem = _no_texts(held)
        description = f"{description}, each byte by those before it"
        return (kind, description, None) if problem is None else (None, "", problem)
    problem = _unusable(held)
    if problem is None and kind == "segmentation":
        fix = "name a folder of pictures and masks (--data FOLDER), or leave --kind out"
        problem = Problem("--kind", "segmentation needs masks, and a table holds none", fix, kind)
    if problem is None and kind == "binary" and held.different != 2:
        problem = _not_binary(held)
    if problem is None and kind == "regression" and not held.is_number:
        problem = _nearly_numbers(held) or _no_numbers(held)
    if problem is None and kind == "multiclass":
        problem = _no_classes(held) or _too_rare(held)
    if problem is None and kind == "multilabel":
        problem = _no_labels(held)
        if problem is None and held.several is not None:
            problem = _rare_labels(held, held.several)
            description = f"{_multilabel_text(held, held.several)}, as asked"
    return (kind, description, None) if problem is None else (None, "", problem)


def _is_long(held: Held) -> bool:
    """Whether texts are to be gone on with: long ones of words, of which nearly each row has its own.

    A hash, an identifier or an address of the web is long too, and has no blank; nor has a text in Chinese, which is
    not ASCII.
    """
    if held.read_as != "text" or held.different < NEARLY_ALL * held.labelled:
        return False
    texts = held.counts.index[:_LOOKED_AT].astype("str")
    is_of_words = texts.str.contains(r"\S\s+\S|[^\x00-\x7f]", regex=True)
    return held.bytes[len(held.bytes) // 2] >= LONG_BYTES and bool(is_of_words.mean() >= NEARLY)


def _judged_as_text(held: Held) -> Judged:
    middle = f"{held.bytes[len(held.bytes) // 2]:,} bytes or more"
    description = (
        f"{held.name!r} holds {held.different:,} different texts, half of them of {middle}: kind language_model"
    )
    return (
        "language_model",
        f"{description}, each byte by those before it (--kind multiclass if they are classes)",
        None,
    )


def _no_texts(held: Held) -> Problem | None:
    """What has no next byte to predict."""
    name = repr(held.name)
    if held.different == 0:
        return Problem("--target", f"{name} is empty in all {held.rows:,} rows", "name another column")
    if held.read_as != "text":
        problem = f"a language_model needs texts, and {name} holds {_NO_TEXTS[held.read_as]}: {held.shown}"
        return Problem("--kind", problem, "name a column of texts as --target, or leave --kind out", "language_model")
    if held.bytes[-1] < 2:
        problem = f"no text of {name} is longer than one byte, so that none goes on: {held.shown}"
        return Problem("--target", problem, "name a column of longer texts, or leave --kind out")
    return None


_NO_TEXTS: dict[Kind, str] = {
    "integer": "numbers", "number": "numbers", "boolean": "true and false", "time": "times", "instant": "times",
}  # fmt: skip


def _unusable(held: Held) -> Problem | None:
    """What no kind can take."""
    name = repr(held.name)
    if held.different == 0:
        return Problem("--target", f"{name} is empty in all {held.rows:,} rows", "name another column")
    if held.different == 1:
        fix = "give rows with other values too, or name another column"
        return Problem("--target", f"{name} has one value only, {held.shown}", fix)
    if held.read_as in ("time", "instant"):
        fix = "make a number of it first, such as the days until then, and name that"
        return Problem("--target", f"{name} holds times, which no kind of task predicts", fix)
    return None


def _names_rows(held: Held) -> Problem | None:
    """A number that is the row's name: by the column's name, or since each row has the next one."""
    name, numbers = repr(held.name), held.counts.index
    counted = held.different == held.labelled and held.is_whole and numbers.max() - numbers.min() == held.different - 1
    if not counted and not (held.is_whole and ID_NAME.search(held.name)):
        return None
    why = "one for each row, without a gap" if counted else "and its name says that it is an identifier"
    problem = f"{name} names rows and is nothing to predict: {held.different:,} different values, {why}"
    return Problem("--target", problem, "name another column, or write --kind if it is no name")


def _nearly_numbers(held: Held) -> Problem | None:
    """Texts that should be numbers: a decimal comma, or a few slips among them."""
    if held.read_as != "text":
        return None
    texts, rows = held.counts.index.astype("str").str.strip(), held.labelled
    commas = texts.str.fullmatch(DECIMAL_COMMA)
    if int(held.counts[commas].sum()) >= NEARLY * rows:
        problem = f"{held.name!r} holds texts, since its numbers have a decimal comma, such as {texts[commas][0]!r}"
        fix = "write them with a decimal point and no other sign; or --kind multiclass if each is the name of a class"
        return Problem("--target", problem, fix)
    numbers, non_numbers = numbers_among(held.counts.index.to_series().repeat(held.counts.to_numpy()))
    if not len(non_numbers) or numbers < NEARLY * rows:
        return None
    problem = f"{held.name!r} holds texts, since of {rows:,} values {int(non_numbers.sum()):,} are no numbers"
    fix = "leave these empty or write numbers; or --kind multiclass if each is the name of a class"
    return Problem("--target", f"{problem}: {_with_rows(non_numbers.head(_SHOWN).items())}", fix)


def _multilabel_text(held: Held, several: Several) -> str:
    """Why the texts are labels of which a row has any number."""
    description = (
        f"{held.name!r} holds {held.different:,} different texts, made of {len(several.rows)} names with "
        f"{several.separator!r} between them: kind multilabel"
    )
    empty = held.rows - held.labelled
    if not empty:
        return description
    return (
        f"{description}; {empty:,} rows are empty and train nothing: if these have none of the labels, say so: write "
        "empty texts into a Parquet file and start again, or fill them in dataset.py and publish the next version"
    )


def _no_labels(held: Held) -> Problem | None:
    """What keeps a column from holding several labels, though it was said to."""
    if held.read_as != "text":
        return Problem("--kind", f"labels are texts, and {held.name!r} holds {held.values}", "leave --kind out")
    if held.several is None:
        problem = (
            f"no text of {held.name!r} holds one of the separators {', '.join(map(repr, SEPARATORS))}: {held.shown}"
        )
        return Problem("--kind", problem, "write the names of a row's labels as a|b, or leave --kind out")
    if held.several.twice:
        problem = f"texts of {held.name!r} hold a name twice, or an empty one between {held.several.separator!r}: "
        return Problem(
            "--target", f"{problem}{_with_rows([*held.several.twice.items()][:_SHOWN])}", "correct these texts"
        )
    return None


def _rare_labels(held: Held, several: Several) -> Problem | None:
    """Labels that too few rows have, or have not."""
    rare = [(name, rows) for name, rows in several.rows.items() if rows < LEAST_CLASS_ROWS][::-1]
    if rare:
        more = f" and {len(rare) - _SHOWN} more labels" if len(rare) > _SHOWN else ""
        problem = f"a label needs {LEAST_CLASS_ROWS} rows, so that each split has some; {held.name!r} has"
        fix = "take these names out of the texts, or give more rows of them; or --kind multiclass if a text is one name"
        return Problem("--target", f"{problem} {_with_rows(rare[:_SHOWN])}{more}", fix)
    common = [(name, rows) for name, rows in several.rows.items() if held.labelled - rows < LEAST_CLASS_ROWS]
    if common:
        problem = f"a label needs {LEAST_CLASS_ROWS} rows without it; of {held.labelled:,} rows {held.name!r} has"
        return Problem("--target", f"{problem} {_with_rows(common[:_SHOWN])}", "take these names out of the texts")
    return None


def _spelt_twice(held: Held) -> Problem | None:
    return _written_twice(held, list(held.counts.index)) if held.read_as == "text" else None


def _written_twice(held: Held, names: list[Any]) -> Problem | None:
    """Classes or labels that differ by case or a blank alone."""
    import pandas as pd

    plain = pd.Series(names, index=names, dtype="str").str.strip().str.lower()
    twice = plain[plain.duplicated(keep=False)].sort_values(kind="stable")
    if twice.empty:
        return None
    problem = f"{held.name!r} has {len(names):,} different values, and some differ by case or by a blank alone"
    shown = ", ".join(repr(value) for value in twice.index[:_SHOWN])
    fix = "write each class in one way; or --kind multiclass if they are different classes"
    return Problem("--target", f"{problem}: {shown}", fix)


def _free_text(held: Held) -> Problem | None:
    few = held.different <= MOST_TEXTS and held.labelled >= ROWS_A_TEXT * held.different
    if few or held.different <= FEW:
        return None
    problem = f"{held.name!r} holds {held.different:,} different texts in {held.labelled:,} rows: they look like names"
    fix = (
        "name another column, or make classes of it first; or --kind multiclass if each is a class, --kind "
        "language_model if the next byte of each text is to be predicted"
    )
    return Problem("--target", f"{problem}, such as {held.shown}", fix)


def _too_rare(held: Held) -> Problem | None:
    if not held.rare:
        return None
    more = f" and {len(held.rare) - _SHOWN} more classes" if len(held.rare) > _SHOWN else ""
    problem = f"a class needs {LEAST_CLASS_ROWS} rows, so that each split has some; {held.name!r} has"
    fix = "give more rows of them, join them into one class, or leave their label empty"
    return Problem("--target", f"{problem} {_with_rows(held.rare[:_SHOWN])}{more}", fix)


def _no_numbers(held: Held) -> Problem:
    values = "true and false" if held.read_as == "boolean" else "texts"
    problem = f"regression needs numbers, and {held.name!r} holds {values}: {held.shown}"
    return Problem("--kind", problem, "write numbers, without a unit and with a decimal point; or leave --kind out")


def _no_classes(held: Held) -> Problem | None:
    name = repr(held.name)
    if held.is_number and not held.is_whole:
        fractions = next(value for value in held.counts.index if not float(value).is_integer())
        fix = "leave --kind out, or write classes as texts or whole numbers"
        return Problem("--kind", f"classes are texts or whole numbers, and {name} holds {fractions:g}", fix)
    if held.read_as == "boolean":
        return Problem("--kind", f"{name} holds true and false", "leave --kind out: it is binary", "multiclass")
    return _nameless(held)


def _nameless(held: Held) -> Problem | None:
    """An empty text, which a Parquet file may hold beside nulls."""
    if held.read_as != "text" or "" not in held.counts.index:
        return None
    problem = f"{held.name!r} holds an empty text in {int(held.counts.loc['']):,} rows, which names no class"
    return Problem("--target", problem, "make it null where there is no label, or give the class a name")


def _binary(held: Held, why: str, requested: str | None) -> tuple[FoundTarget | None, list[Problem]]:
    texts = {str(value): value for value in sorted(held.counts.index.tolist())}
    positive = _positive(requested, texts)
    if positive is not None:
        table = {value: int(text == positive) for text, value in texts.items()}
        return FoundTarget(held.name, TaskSpec(kind="binary"), why, held.read_as, positive, table), []
    if requested is not None:
        problem, fix = f"is no value of the target {held.name!r}", did_you_mean(requested, texts)
    else:
        problem = f"neither value of {held.name!r} is obviously the positive one"
        fix = f"write --positive {' or --positive '.join(texts)}"
    return None, [Problem("--positive", problem, fix, requested or list(texts))]


def _not_binary(held: Held) -> Problem:
    """The column, its values with their rows, and what to do about them."""
    problem = f"{held.name!r} has {held.different:,} different values and is not binary: {held.shown}"
    if held.read_as == "text" and held.counts.index.str.strip().str.lower().nunique() == 2:
        return Problem("--target", problem, "write each class in one way: they differ by case or by a blank")
    fix = f"leave --kind and --positive out, or make a column of two values first, such as whether {held.name} is "
    return Problem("--target", problem, f"{fix}{held.counts.index[0]}")


def _positive(requested: str | None, texts: dict[str, Any]) -> str | None:
    """The text of the positive value: as asked, whatever the case and the form of a number; else the obvious one."""
    if requested is not None:
        same = [text for text in texts if _plain(text) == _plain(requested)]
        return requested if requested in texts else same[0] if len(same) == 1 else None
    obvious = [text for text in texts if text.lower() in OBVIOUS]
    return obvious[0] if len(obvious) == 1 else None


def _plain(text: str) -> str:
    return re.sub(r"\.0$", "", text.lower())


def _with_rows(counts: Iterable[tuple[Any, int]]) -> str:
    """Values as the file writes them, each with its rows."""
    return ", ".join(f"{_short(value)} in {rows:,} {'row' if rows == 1 else 'rows'}" for value, rows in counts)


def _short(value: Any) -> str:
    """As the file writes it; of a long text the beginning."""
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value if not isinstance(value, str) or len(value) <= _MOST_SIGNS else f"{value[:_MOST_SIGNS]}…")
