"""Faults for a rule: rows of its columns, changed as real data go wrong, that should break the rule.

A fault gives whole frames in which every row is broken, the likeliest first; mutation_test.py decides how many
rows of a frame are taken. Columns keep their type, unless the fault is about the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.frame import logical_type
from trainworthy.lifecycle.contract.rule import Rule

Fault = tuple[str, "pd.DataFrame"]
# What stands in data where a value is unknown; a limit above the larger of these, and of a million times what the
# rows hold (a unit taken for another), is none that a plausible fault passes.
SENTINEL = 2**31 - 1
MOST_TIMES = 1e6
TEXTS = ("", "?", " ", "0", "a", "A", "é", "-1", "~" * 300)


def faults_of(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    """What was changed, in words, and the changed rows: those that fit the kind, then those that fit any kind.

    `rows` has the rule's columns, none of them all null; a column that the rule names twice is there once.
    """
    yield from _FITTING.get(rule.kind, lambda rule, rows: iter(()))(rule, rows)
    if rule.kind != "type":
        yield from _generic(rows)


def nulled(values: pd.Series) -> pd.Series:
    """The column with nulls only, of its own type where that can hold them."""
    kind = {"integer": "Int64", "boolean": "boolean"}.get(logical_type(values), values.dtype)
    return pd.Series([None] * len(values), index=values.index, dtype=kind)


def _generic(rows: pd.DataFrame) -> Iterator[Fault]:
    yield "all null", rows.apply(nulled)
    yield "one row again and again", rows.iloc[[0] * len(rows)].set_axis(rows.index)
    shuffled = rows.copy()
    for place, name in enumerate(rows.columns):
        shuffled[name] = rows[name].sample(frac=1, random_state=place).to_numpy()
    yield "values of other rows", shuffled.astype(rows.dtypes)
    for times in (-1, 1000):
        yield (
            f"numbers times {times}",
            rows.apply(lambda values, times=times: values * times if _is_number(values) else values),
        )


def _put(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
    """The rows with one value in a column, of the column's type."""
    kind = rows[name].dtype
    if logical_type(rows[name]) in ("date", "timestamp"):
        kind = None
    return with_columns(rows, {name: pd.Series([value] * len(rows), index=rows.index, dtype=kind)})


def _holds(values: pd.Series, value: Any) -> bool:
    """True if the column's type can hold the value."""
    python_type = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}.get(logical_type(values))
    if python_type is None or (isinstance(value, bool) and python_type is not bool):
        return False
    return isinstance(value, python_type) or (python_type is int and isinstance(value, float) and value.is_integer())


def _is_number(values: pd.Series) -> bool:
    return logical_type(values) in ("integer", "number")


def _unlisted(values: pd.Series, listed: list[Any]) -> Iterator[Any]:
    """Values of the column's type that are not listed."""
    kind = logical_type(values)
    if kind == "string":
        texts = (*TEXTS, *(f"{text}~" for text in listed[:3]), *(str(text).swapcase() for text in listed[:3]))
        yield from (text for text in texts if text not in listed)
    elif kind == "boolean":
        yield from (value for value in (True, False) if value not in listed)
    elif kind in ("integer", "number"):
        highest = max((value for value in listed if isinstance(value, int | float)), default=0)
        yield from (value for value in (int(highest) + 1, -1, 0, SENTINEL) if value not in listed)


def _nulls(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    yield "all null", rows.apply(nulled)
    yield "no null", rows


def _missing(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    (name,) = rows.columns
    for value in rule.parameters["values"]:
        if value is None:
            yield "all null", rows.apply(nulled)
        elif _holds(rows[name], value):
            yield f"all {value!r}", _put(rows, name, value)


def _allowed(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    (name,) = rows.columns
    for value in _unlisted(rows[name], rule.parameters["values"]):
        yield f"all {_short(value)}", _put(rows, name, value)
    for value in filter(lambda value: _holds(rows[name], value), rule.parameters["values"][:1]):
        yield "valid values only", _put(rows, name, value)


def _pattern(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    (name,) = rows.columns
    for text in TEXTS:
        yield f"all {_short(text)}", _put(rows, name, text)
    texts = rows[name].astype("str")
    changes: dict[str, Callable[[pd.Series], pd.Series]] = {
        "a sign more": lambda texts: texts + "~",
        "a sign before": lambda texts: "~" + texts,
        "a sign less": lambda texts: texts.str[:-1],
        "upper case for lower case": lambda texts: texts.str.swapcase(),
        "read backwards": lambda texts: texts.str[::-1],
    }
    for fault, change in changes.items():
        yield fault, with_columns(rows, {name: pd.Series(change(texts), dtype=rows[name].dtype)})


def _length(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    (name,) = rows.columns
    if "minimum" in rule.parameters:
        yield "empty texts", _put(rows, name, "")
    if "maximum" in rule.parameters:
        most = max(int(rows[name].dropna().astype("str").str.len().max()), 1)
        yield "texts a thousand times as long", _put(rows, name, "x" * min(1000 * most, rule.parameters["maximum"] + 1))


def _range(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    """Values beyond each limit, as far as a plausible fault goes."""
    (name,) = rows.columns
    limits = {key: value for key, value in rule.parameters.items() if key != "bound"}
    for key, limit in limits.items():
        up = key.endswith("maximum")
        if isinstance(limit, str):
            try:
                beyond = pd.Timestamp(limit) + pd.Timedelta(days=1 if up else -1)
            except (OverflowError, ValueError):
                continue
            # The calendar's own ends are no limits: nothing can lie beyond them.
            if 1 < beyond.year < 9999:
                yield f"all {beyond:%Y-%m-%d}", _put(rows, name, beyond)
            continue
        most = max(float(rows[name].abs().max()) * MOST_TIMES, SENTINEL)
        step = max(1.0, abs(limit) / 100)
        beyond = (limit + step) if up else (limit - step)
        beyond = min(beyond, most) if up else max(beyond, -most)
        yield f"all {beyond:.6g}", _put(rows, name, int(beyond) if logical_type(rows[name]) == "integer" else beyond)


def _unique(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    known = rows.dropna()
    yield "one row again and again", (known if len(known) else rows).iloc[[0] * len(rows)].set_axis(rows.index)


def _type(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    (name,) = rows.columns
    yield "without the column", rows.drop(columns=name)
    yield (
        "another type",
        with_columns(rows, {name: range(len(rows)) if logical_type(rows[name]) == "string" else "text"}),
    )


def _raised(values: pd.Series) -> pd.Series | None:
    """Each value one higher: a number by one and a hundredth, a day, a longer text, the other boolean."""
    match logical_type(values):
        case "integer":
            return values + 1
        case "number":
            return values + values.abs() / 100 + 1
        case "date" | "timestamp":
            return values + pd.Timedelta(days=1)
        case "string":
            return values.astype("str") + "~"
        case "boolean":
            return ~values.astype("bool")
    return None


def _compared(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    """The first column above the second in every row, and the two of them swapped."""
    first, second = rule.columns
    whole = rows.ffill().bfill()
    raised = _raised(whole[second])
    if raised is not None:
        yield f"{first} above {second}", with_columns(whole, {first: raised})
    if first != second:
        swapped = {first: whole[second].to_numpy(), second: whole[first].to_numpy()}
        yield f"{first} and {second} swapped", with_columns(whole, swapped)


def _hour(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    instant, _ = rule.columns
    whole = rows.ffill().bfill()
    for hours in (1, -1, 5):
        yield (
            f"{instant} shifted by {hours} h",
            with_columns(whole, {instant: whole[instant] + pd.Timedelta(hours=hours)}),
        )


def _together(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    whole = rows.ffill().bfill()
    for name in rows.columns:
        yield f"only {name} null", with_columns(whole, {name: nulled(rows[name])})


def _references(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    whole = rows.ffill().bfill()
    for place, name in enumerate(rule.columns):
        for value in _unlisted(rows[name], sorted({key[place] for key in rule.parameters["keys"]})):
            yield f"{name} {_short(value)}", _put(whole, name, value)


def _distribution(rule: Rule, rows: pd.DataFrame) -> Iterator[Fault]:
    """All rows in one bin, the one with the fewest rows of the reference first."""
    (name,), counts = rows.columns, rule.parameters["counts"]
    if "values" in rule.parameters:
        unlisted = [*_unlisted(rows[name], rule.parameters["values"]), None]
        inside = [*rule.parameters["values"], unlisted[0], None]
    else:
        instants = logical_type(rows[name]) in ("date", "timestamp")
        edges: list[Any] = [pd.Timestamp(edge) if instants else edge for edge in rule.parameters["edges"]]
        step: Any = pd.Timedelta(days=1) if instants else 1
        inside = [edges[0] - step if edges else rows[name].dropna().iloc[0], *edges, None]
    for count, place in sorted(zip(counts, range(len(counts)), strict=True)):
        value = inside[place]
        moved = rows.apply(nulled) if value is None else _put(rows, name, value)
        yield f"all in the bin of {count} rows", moved


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 20 else f"{len(value)} signs"


_FITTING: dict[str, Callable[[Rule, pd.DataFrame], Iterator[Fault]]] = {
    "nulls": _nulls, "missing": _missing, "allowed": _allowed, "pattern": _pattern, "length": _length,
    "range": _range, "unique": _unique, "type": _type, "less_or_equal": _compared, "equal": _compared,
    "hour_in_zone": _hour, "null_together": _together, "references": _references, "distribution": _distribution,
}  # fmt: skip
