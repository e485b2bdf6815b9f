"""What keeps a column from being the target, or one of a kind, in words: problems with their fixes."""

from __future__ import annotations

from typing import Any

import pandas as pd

from trainworthy.lifecycle.errors import Problem
from trainworthy.pipeline.scaffold.held import (
    LEAST_CLASS_ROWS,
    SEPARATORS,
    SHOWN,
    Held,
    Several,
    with_rows,
)
from trainworthy.pipeline.scaffold.roles import ID_NAME, NEARLY, numbers_among
from trainworthy.pipeline.scaffold.source import DECIMAL_COMMA, Kind

# Texts are classes while they are so few, with so many rows each on average; of more, somebody has to say so.
MOST_TEXTS, ROWS_A_TEXT = 100, 20
# Digits, grades and stars are ten at most; more whole numbers count or measure something.
FEW = 10


def no_texts(held: Held) -> Problem | None:
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


def unusable(held: Held) -> Problem | None:
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


def names_rows(held: Held) -> Problem | None:
    """A number that is the row's name: by the column's name, or since each row has the next one."""
    name, numbers = repr(held.name), held.counts.index
    counted = held.different == held.labelled and held.is_whole and numbers.max() - numbers.min() == held.different - 1
    if not counted and not (held.is_whole and ID_NAME.search(held.name)):
        return None
    why = "one for each row, without a gap" if counted else "and its name says that it is an identifier"
    problem = f"{name} names rows and is nothing to predict: {held.different:,} different values, {why}"
    return Problem("--target", problem, "name another column, or write --kind if it is no name")


def nearly_numbers(held: Held) -> Problem | None:
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
    return Problem("--target", f"{problem}: {with_rows(non_numbers.head(SHOWN).items())}", fix)


def no_labels(held: Held) -> Problem | None:
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
            "--target", f"{problem}{with_rows([*held.several.twice.items()][:SHOWN])}", "correct these texts"
        )
    return None


def rare_labels(held: Held, several: Several) -> Problem | None:
    """Labels that too few rows have, or have not."""
    rare = [(name, rows) for name, rows in several.rows.items() if rows < LEAST_CLASS_ROWS][::-1]
    if rare:
        more = f" and {len(rare) - SHOWN} more labels" if len(rare) > SHOWN else ""
        problem = f"a label needs {LEAST_CLASS_ROWS} rows, so that each split has some; {held.name!r} has"
        fix = "take these names out of the texts, or give more rows of them; or --kind multiclass if a text is one name"
        return Problem("--target", f"{problem} {with_rows(rare[:SHOWN])}{more}", fix)
    common = [(name, rows) for name, rows in several.rows.items() if held.labelled - rows < LEAST_CLASS_ROWS]
    if common:
        problem = f"a label needs {LEAST_CLASS_ROWS} rows without it; of {held.labelled:,} rows {held.name!r} has"
        return Problem("--target", f"{problem} {with_rows(common[:SHOWN])}", "take these names out of the texts")
    return None


def spelt_twice(held: Held) -> Problem | None:
    return written_twice(held, list(held.counts.index)) if held.read_as == "text" else None


def written_twice(held: Held, names: list[Any]) -> Problem | None:
    """Classes or labels that differ by case or a blank alone."""
    plain = pd.Series(names, index=names, dtype="str").str.strip().str.lower()
    twice = plain[plain.duplicated(keep=False)].sort_values(kind="stable")
    if twice.empty:
        return None
    problem = f"{held.name!r} has {len(names):,} different values, and some differ by case or by a blank alone"
    shown = ", ".join(repr(value) for value in twice.index[:SHOWN])
    fix = "write each class in one way; or --kind multiclass if they are different classes"
    return Problem("--target", f"{problem}: {shown}", fix)


def free_text(held: Held) -> Problem | None:
    few = held.different <= MOST_TEXTS and held.labelled >= ROWS_A_TEXT * held.different
    if few or held.different <= FEW:
        return None
    problem = f"{held.name!r} holds {held.different:,} different texts in {held.labelled:,} rows: they look like names"
    fix = (
        "name another column, or make classes of it first; or --kind multiclass if each is a class, --kind "
        "language_model if the next byte of each text is to be predicted"
    )
    return Problem("--target", f"{problem}, such as {held.shown}", fix)


def too_rare(held: Held) -> Problem | None:
    if not held.rare:
        return None
    more = f" and {len(held.rare) - SHOWN} more classes" if len(held.rare) > SHOWN else ""
    problem = f"a class needs {LEAST_CLASS_ROWS} rows, so that each split has some; {held.name!r} has"
    fix = "give more rows of them, join them into one class, or leave their label empty"
    return Problem("--target", f"{problem} {with_rows(held.rare[:SHOWN])}{more}", fix)


def no_numbers(held: Held) -> Problem:
    values = "true and false" if held.read_as == "boolean" else "texts"
    problem = f"regression needs numbers, and {held.name!r} holds {values}: {held.shown}"
    return Problem("--kind", problem, "write numbers, without a unit and with a decimal point; or leave --kind out")


def no_classes(held: Held) -> Problem | None:
    name = repr(held.name)
    if held.is_number and not held.is_whole:
        fractions = next(value for value in held.counts.index if not float(value).is_integer())
        fix = "leave --kind out, or write classes as texts or whole numbers"
        return Problem("--kind", f"classes are texts or whole numbers, and {name} holds {fractions:g}", fix)
    if held.read_as == "boolean":
        return Problem("--kind", f"{name} holds true and false", "leave --kind out: it is binary", "multiclass")
    return nameless(held)


def nameless(held: Held) -> Problem | None:
    """An empty text, which a Parquet file may hold beside nulls."""
    if held.read_as != "text" or "" not in held.counts.index:
        return None
    problem = f"{held.name!r} holds an empty text in {int(held.counts.loc['']):,} rows, which names no class"
    return Problem("--target", problem, "make it null where there is no label, or give the class a name")


def not_binary(held: Held) -> Problem:
    """The column, its values with their rows, and what to do about them."""
    problem = f"{held.name!r} has {held.different:,} different values and is not binary: {held.shown}"
    if held.read_as == "text" and held.counts.index.str.strip().str.lower().nunique() == 2:
        return Problem("--target", problem, "write each class in one way: they differ by case or by a blank")
    fix = f"leave --kind and --positive out, or make a column of two values first, such as whether {held.name} is "
    return Problem("--target", problem, f"{fix}{held.counts.index[0]}")
