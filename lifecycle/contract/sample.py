"""Rows made from the contract alone: what may come, without any data.

Types, ranges, lengths, patterns and valid values are kept, nulls come wherever they may, and texts come that the first
rows do not have. Of rules across columns, references, joint nulls and unrepeated values are kept.

Texts that follow a regular expression, for the common ones; another text where that fails.
"""

from __future__ import annotations

import math
import re
import string
from typing import Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import Rule

FIT_ROWS, ROWS = 48, 64
NULL_SHARE = 0.15
MOST_TEXTS = 6
# Draws for values that are all different: of as many values as rows, about ln(rows) a row find the last one.
TRIES_A_ROW = 20


def sample_rows(
    contract: Contract, columns: tuple[str, ...], rows: int = ROWS, fit_rows: int = FIT_ROWS
) -> pd.DataFrame:
    """Rows of these columns. The last one is null wherever it may be; one text a column comes after `fit_rows` only."""
    generator = np.random.default_rng(0)
    nulls = {name: _nulls(_parameters(contract, name), rows, generator) for name in columns}
    for rule in contract.rules:
        group = [name for name in rule.columns if name in nulls] if rule.kind == "null_together" else []
        shared = all(nulls[name][-1] for name in group)
        nulls |= {name: nulls[group[0]] & shared for name in group}
    made = {name: _column(contract, contract.column(name), fit_rows, nulls[name], generator) for name in columns}
    tied = _tied(contract, pd.DataFrame(made), fit_rows, generator)
    return _without_repeats(contract, tied, generator)


def _without_repeats(contract: Contract, made: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """The rows with keys that don't repeat: one column of each has other values in every row, if there are so many."""
    tied = {name for rule in contract.rules if rule.kind == "references" for name in rule.columns}
    for rule in contract.rules:
        if rule.kind != "unique" or not set(rule.columns) <= set(made) or not _repeats(made, rule.columns):
            continue
        for name in (name for name in rule.columns if name not in tied):
            distinct = _distinct(contract, contract.column(name), len(made), generator)
            if distinct is not None:
                made[name] = distinct.astype(made[name].dtype).where(made[name].notna())
                break
    return made


def _repeats(made: pd.DataFrame, columns: tuple[str, ...]) -> bool:
    known = made[[*columns]].dropna() if len(columns) == 1 else made[[*columns]]
    return bool(known.duplicated().any())


def _distinct(contract: Contract, column: Column, rows: int, generator: np.random.Generator) -> pd.Series | None:
    """Values of the column that are all different; None if too few of them are found."""
    parameters, tries = _parameters(contract, column.name), rows * TRIES_A_ROW
    if column.logical_type != "string":
        drawn = _column(contract, column, 0, np.zeros(tries, dtype=bool), generator)
    elif "values" in parameters:
        drawn = pd.Series([str(value) for value in parameters["values"]], dtype="str")
    else:
        drawn = pd.Series(_different_texts(parameters, rows, tries, generator), dtype="str")
    distinct = drawn.drop_duplicates().head(rows).reset_index(drop=True)
    return distinct if len(distinct) == rows else None


def _different_texts(parameters: dict[str, Any], rows: int, tries: int, generator: np.random.Generator) -> list[str]:
    """Up to `rows` texts that follow the pattern."""
    texts: dict[str, None] = {}
    for _ in range(tries):
        texts[_fitted(text_like(parameters.get("pattern", ""), generator), parameters)] = None
        if len(texts) == rows:
            break
    return [*texts]


def _tied(contract: Contract, made: pd.DataFrame, fit_rows: int, generator: np.random.Generator) -> pd.DataFrame:
    """The rows with whole keys of other tables, where a key has several columns."""
    for rule in contract.rules:
        names = [name for name in rule.columns if name in made]
        if rule.kind == "references" and len(names) > 1:
            keys = rule.parameters["keys"][:MOST_TEXTS]
            places = _places(len(keys), len(made), fit_rows, generator)
            for name in names:
                chosen = [keys[place][rule.columns.index(name)] for place in places]
                made[name] = type(made[name])(chosen, dtype=made[name].dtype).where(made[name].notna())
    return made


def _column(
    contract: Contract, column: Column, fit_rows: int, null: np.ndarray, generator: np.random.Generator
) -> pd.Series:
    parameters, rows = _parameters(contract, column.name), len(null)
    match column.logical_type:
        case "string":
            values = pd.Series(_texts(parameters, rows, fit_rows, generator), dtype="str")
        case "boolean":
            values = pd.Series(generator.random(rows) < 0.5, dtype="boolean" if null.any() else "bool")
        case "integer" | "number":
            values = _numbers(parameters, column.logical_type == "integer", rows, bool(null.any()), generator)
        case "date" | "timestamp":
            values = _instants(parameters, column.logical_type == "date", rows, generator)
    return values.mask(null) if null.any() else values


def _parameters(contract: Contract, name: str) -> dict[str, Any]:
    """What the contract says of one column: limits by name, `values`, `pattern`, and whether nulls may come."""
    parameters: dict[str, Any] = {"nulls": True}
    for rule in contract.rules:
        if rule.columns != (name,):
            continue
        if rule.kind == "nulls" and _allows_none(rule):
            parameters["nulls"] = False
        elif rule.kind == "allowed":
            parameters["values"] = rule.parameters["values"]
        elif rule.kind == "references":
            parameters["values"] = [key for (key,) in rule.parameters["keys"][:MOST_TEXTS]]
        elif rule.kind == "pattern":
            parameters["pattern"] = rule.parameters["pattern"]
        elif rule.kind == "range":
            parameters |= {key: value for key, value in rule.parameters.items() if key != "bound"}
        elif rule.kind == "length":
            parameters["least"], parameters["most"] = rule.parameters.get("minimum", 0), rule.parameters.get("maximum")
    return parameters


def _allows_none(rule: Rule) -> bool:
    """True if a null stops a run."""
    bound = rule.parameters["bound"]
    return rule.severity == "error" and bound["value"] == 0 and bound["operator"] in ("mustBe", "mustBeLessOrEqualTo")


def _nulls(parameters: dict[str, Any], rows: int, generator: np.random.Generator) -> np.ndarray:
    null = (generator.random(rows) < NULL_SHARE) & parameters["nulls"]
    null[-1] = parameters["nulls"]
    return np.asarray(null, dtype=bool)


def _texts(parameters: dict[str, Any], rows: int, fit_rows: int, generator: np.random.Generator) -> list[str]:
    """Valid values, else texts that follow the pattern; the last of them comes after `fit_rows` only."""
    values = [str(value) for value in parameters.get("values", ())][:MOST_TEXTS]
    if not values:
        made = (text_like(parameters.get("pattern", ""), generator) for _ in range(MOST_TEXTS))
        values = [_fitted(text, parameters) for text in made]
    return [values[place] for place in _places(len(values), rows, fit_rows, generator)]


def _places(count: int, rows: int, fit_rows: int, generator: np.random.Generator) -> list[int]:
    """A place in a list of `count` for each row; the last place comes after `fit_rows` only."""
    early = generator.integers(0, max(1, count - 1), fit_rows).tolist()
    return [*early, *(count - 1 - place % 2 if count > 1 else 0 for place in range(rows - fit_rows))]


def _fitted(text: str, parameters: dict[str, Any]) -> str:
    """The text in the declared length; a pattern has its own."""
    return text if "pattern" in parameters else text.ljust(parameters.get("least", 0), "x")[: parameters.get("most")]


def _numbers(
    parameters: dict[str, Any], whole: bool, rows: int, nullable: bool, generator: np.random.Generator
) -> pd.Series:
    low = parameters.get("minimum", parameters.get("exclusive_minimum"))
    high = parameters.get("maximum", parameters.get("exclusive_maximum"))
    low = low if low is not None else min(0.0, high - 100 if high is not None else 0.0)
    high = high if high is not None else low + 100
    if "values" in parameters:
        drawn = generator.choice([float(value) for value in parameters["values"]], rows)
    elif whole:
        drawn = generator.integers(*_whole_limits(parameters, low, high), rows, endpoint=True)
    else:
        # Inside the limits, so that an exclusive one holds too.
        drawn = low + (high - low) * generator.uniform(0.02, 0.98, rows)
    if not whole:
        return pd.Series(drawn)
    return pd.Series(drawn.round().astype("int64"), dtype="Int64" if nullable else "int64")


def _whole_limits(parameters: dict[str, Any], low: float, high: float) -> tuple[int, int]:
    """The least and the most whole number inside the limits; twice the same where there is none."""
    least = math.floor(low) + 1 if "exclusive_minimum" in parameters else math.ceil(low)
    most = math.ceil(high) - 1 if "exclusive_maximum" in parameters else math.floor(high)
    least, most = (min(max(limit, -(2**63)), 2**63 - 1) for limit in (least, most))
    return least, max(least, most)


def _instants(parameters: dict[str, Any], days: bool, rows: int, generator: np.random.Generator) -> pd.Series:
    """Instants inside the limits, with a time zone if they have one; without any limit in UTC."""
    limits = {key: pd.Timestamp(value) for key, value in parameters.items() if key in _LIMITS}
    first = next((limits[key] for key in ("minimum", "exclusive_minimum") if key in limits), None)
    last = next((limits[key] for key in ("maximum", "exclusive_maximum") if key in limits), None)
    if first is None:
        first = last - pd.Timedelta(days=MOST_DAYS) if last is not None else pd.Timestamp("2024-01-01", tz="UTC")
    span = min((last - first).days, MOST_DAYS) if last is not None else MOST_DAYS
    minutes = generator.integers(1, max(2, span * 1440), rows)
    values = pd.Series(first + pd.to_timedelta(minutes, unit="min"))
    return values.dt.tz_localize(None).dt.normalize() if days else values


_LIMITS = ("minimum", "maximum", "exclusive_minimum", "exclusive_maximum")
MOST_DAYS = 400


# How often a repetition without an upper bound is repeated at most beyond its lower one.
MOST_REPEATS = 3
_CLASSES = {"CATEGORY_DIGIT": string.digits, "CATEGORY_SPACE": " ", "CATEGORY_WORD": string.ascii_letters + "_"}
_PRINTED = string.ascii_letters + string.digits


def text_like(pattern: str, generator: np.random.Generator) -> str:
    """A text in which `pattern` is found; without one, or if it can't be followed, any short text."""
    anything = "".join(generator.choice(list(string.ascii_lowercase), 6))
    if not pattern:
        return anything
    # The parser is private to Python; what it gives is verified, so that a change of it costs a text at most.
    try:
        text = _drawn(re._parser.parse(pattern), generator)  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, KeyError, LookupError, TypeError, ValueError):
        return anything
    return text if re.search(pattern, text) else anything


def _drawn(parsed: Any, generator: np.random.Generator) -> str:
    return "".join(_item(str(kind), argument, generator) for kind, argument in parsed)


def _item(kind: str, argument: Any, generator: np.random.Generator) -> str:
    match kind:
        case "LITERAL":
            return chr(argument)
        case "ANY" | "NOT_LITERAL":
            return str(generator.choice([sign for sign in _PRINTED if ord(sign) != argument]))
        case "IN":
            return str(generator.choice(_signs(argument)))
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return ""
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = argument
            times = int(generator.integers(least, min(int(most), least + MOST_REPEATS) + 1))
            return "".join(_drawn(inner, generator) for _ in range(times))
        case "SUBPATTERN":
            return _drawn(argument[-1], generator)
        case "BRANCH":
            return _drawn(argument[1][int(generator.integers(len(argument[1])))], generator)
    raise ValueError(kind)


def _signs(items: Any) -> list[str]:
    """The characters of a set such as [A-Z_]; of a negated one those that are left."""
    characters: set[str] = set()
    for kind, argument in items:
        match str(kind):
            case "LITERAL":
                characters.add(chr(argument))
            case "RANGE":
                characters |= {chr(code) for code in range(argument[0], min(argument[1], argument[0] + 255) + 1)}
            case "CATEGORY":
                characters |= set(_CLASSES[str(argument)])
    if str(items[0][0]) == "NEGATE":
        return sorted(set(_PRINTED) - characters)
    return sorted(characters)
