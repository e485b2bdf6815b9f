"""Which two values the target has, and which of them is the positive label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lifecycle.errors import Problem, did_you_mean
from pipeline.scaffold.request import Request
from pipeline.scaffold.source import Kind

if TYPE_CHECKING:
    import pandas as pd

# Of these pairs nobody has to say which one is meant.
OBVIOUS = {"1", "1.0", "true", "t", "yes", "y", "positive", "pos"}


@dataclass(frozen=True)
class TargetLabels:
    """The column, its positive value as the file writes it, and the label of each typed value."""

    column: str
    positive: str
    table: dict[Any, int]


def target_labels(
    request: Request, raw: pd.DataFrame, kinds: dict[str, Kind]
) -> tuple[TargetLabels | None, list[Problem]]:
    """The labels; None and the reason if the target is not of two values, or if it can't be told which is positive."""
    name = request.target
    if name is None:
        return None, []
    if name not in raw.columns:
        return None, [Problem("--target", "is no column of the file", did_you_mean(name, map(str, raw.columns)), name)]
    if name not in kinds:
        return None, []
    values = _typed(raw[name], kinds[name])
    if len(values) != 2:
        return None, [_not_binary(raw[name], len(values))]
    texts = {str(value): value for value in values}
    positive = _positive(request.positive, texts)
    if positive is None:
        told = (
            f"neither value of {name!r} is obviously the positive one"
            if request.positive is None
            else f"is no value of the target {name!r}"
        )
        fix = f"write --positive {' or --positive '.join(texts)}"
        if request.positive is not None:
            fix = did_you_mean(request.positive, texts)
        return None, [Problem("--positive", told, fix, request.positive or list(texts))]
    return TargetLabels(name, positive, {value: int(text == positive) for text, value in texts.items()}), []


def _not_binary(values: pd.Series, different: int) -> Problem:
    """The column, its values with their rows, and what to do about them."""
    counts = values.dropna().astype("str").value_counts()
    shown = ", ".join(f"{value!r} in {rows:,} rows" for value, rows in counts.head(4).items())
    told, name = f"{values.name!r} has {different:,} different values and is not binary: {shown}", repr(values.name)
    if different == 0:
        return Problem(
            "--target", f"{name} is not binary: it is empty in all {len(values):,} rows", "name another column"
        )
    if different == 1:
        fix = "give rows of the other class too, or name another column"
        return Problem("--target", f"{name} is not binary: it has one value, {shown}", fix)
    spelt = counts.index.str.strip().str.lower()
    if spelt.nunique() == 2:
        return Problem("--target", told, "write each class in one way: they differ by case or by a blank")
    fix = f"make a column of two values first, for example whether {values.name} is {counts.index[0]}, and name that"
    return Problem("--target", told, fix)


def _positive(asked: str | None, texts: dict[str, Any]) -> str | None:
    """The text of the positive value: as asked, whatever the case and the form of a number; else the obvious one."""
    if asked is not None:
        same = [text for text in texts if _plain(text) == _plain(asked)]
        return asked if asked in texts else same[0] if len(same) == 1 else None
    obvious = [text for text in texts if text.lower() in OBVIOUS]
    return obvious[0] if len(obvious) == 1 else None


def _plain(text: str) -> str:
    return text.lower().removesuffix(".0")


def _typed(values: pd.Series, kind: Kind) -> list[Any]:
    """The different values, typed as dataset.py types them, at most a few."""
    import pandas as pd

    known = values.dropna().unique()
    if kind in ("integer", "number"):
        found = sorted({(int if kind == "integer" else float)(value) for value in pd.to_numeric(known)})
        return found
    if kind == "boolean":
        return sorted({str(value).lower() == "true" for value in known})
    return sorted({str(value) for value in known})
