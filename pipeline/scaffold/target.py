"""What the target is, two values, classes, several labels, numbers or texts, by what it holds or as asked; its labels.

A text is a class, or names several labels with a separator between them (held.py), or is one whose next bytes are
predicted, where it is long and nearly each row has its own; a number is one, unless it is whole, one of few, and
frequent. That is a guess in a line that is printed, and `--kind` overrides it. What is none of these is one error
(unfit.py): texts of which nearly each row has its own, a number that names the row, a class of too few rows.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pydantic import ValidationError

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.spec.task import LABEL_TYPES, ClassValue, KindName, TaskSpec
from trainworthy.pipeline.scaffold.held import (
    Held,
    Several,
    combine,
    counts_of,
    with_rows,
)
from trainworthy.pipeline.scaffold.pieces import piece_bytes
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.roles import NEARLY
from trainworthy.pipeline.scaffold.source import Kind
from trainworthy.pipeline.scaffold.unfit import (
    FEW,
    free_text,
    nameless,
    names_rows,
    nearly_numbers,
    no_classes,
    no_labels,
    no_numbers,
    no_texts,
    not_binary,
    rare_labels,
    spelt_twice,
    too_rare,
    unusable,
    written_twice,
)

# Of these pairs nobody has to say which one is meant.
OBVIOUS = {"1", "1.0", "true", "t", "yes", "y", "positive", "pos"}
# Texts are to be gone on with, and no names, from so many bytes on (the median), where nearly each row has its own.
LONG_BYTES, NEARLY_ALL = 80, 0.8
# Texts by which that is told.
_LOOKED_AT = 1000
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
    held = Held(name, kinds[name], counts_of(raw[name], kinds[name]), len(raw))
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
    if problem := unusable(held):
        return None, "", problem
    if held.different == 2:
        return "binary", f"{name} holds two values: kind binary", None
    description = f"{name} holds {held.different:,} different {held.values}"
    if held.is_number:
        if problem := names_rows(held):
            return None, "", problem
        if held.is_whole and held.different <= FEW and not held.rare:
            why = f"{description}, each in {int(held.counts.min()):,} rows or more: kind multiclass"
            return "multiclass", f"{why} (--kind regression if they count or measure something)", None
        rare = f", {with_rows(held.rare[:1])}, too few for a class" if held.is_whole and held.different <= FEW else ""
        return "regression", f"{description}{rare}: kind regression", None
    several, numbers = held.several, nearly_numbers(held)
    if several is not None and numbers is None and combine(several, held.counts.to_dict()):
        problem = written_twice(held, list(several.rows)) or rare_labels(held, several)
        return (None, "", problem) if problem is not None else ("multilabel", _multilabel_text(held, several), None)
    if numbers is None and _is_long(held):
        return _judged_as_text(held)
    problem = numbers or nameless(held) or spelt_twice(held) or free_text(held) or too_rare(held)
    if problem is not None:
        return None, "", problem
    return "multiclass", f"{description}: kind multiclass", None


def _kind_as_requested(held: Held, kind: KindName) -> Judged:
    """The kind as asked, if the values allow it."""
    description = f"{held.name!r} holds {held.different:,} different {held.values}: kind {kind}, as asked"
    if kind == "language_model":
        problem = no_texts(held)
        description = f"{description}, each byte by those before it"
        return (kind, description, None) if problem is None else (None, "", problem)
    problem = unusable(held)
    if problem is None and kind == "segmentation":
        fix = "name a folder of pictures and masks (--data FOLDER), or leave --kind out"
        problem = Problem("--kind", "segmentation needs masks, and a table holds none", fix, kind)
    if problem is None and kind == "binary" and held.different != 2:
        problem = not_binary(held)
    if problem is None and kind == "regression" and not held.is_number:
        problem = nearly_numbers(held) or no_numbers(held)
    if problem is None and kind == "multiclass":
        problem = no_classes(held) or too_rare(held)
    if problem is None and kind == "multilabel":
        problem = no_labels(held)
        if problem is None and held.several is not None:
            problem = rare_labels(held, held.several)
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
        fix = f"write {' or '.join(f'--positive {shlex.quote(text)}' for text in texts)}"
    return None, [Problem("--positive", problem, fix, requested or list(texts))]


def _positive(requested: str | None, texts: dict[str, Any]) -> str | None:
    """The text of the positive value: as asked, whatever the case and the form of a number; else the obvious one."""
    if requested is not None:
        same = [text for text in texts if _plain(text) == _plain(requested)]
        return requested if requested in texts else same[0] if len(same) == 1 else None
    obvious = [text for text in texts if text.lower() in OBVIOUS]
    return obvious[0] if len(obvious) == 1 else None


def _plain(text: str) -> str:
    return re.sub(r"\.0$", "", text.lower())
