import contextlib
import operator
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from datetime import time as clock
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.refusals import refused
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.predicate import column_text, parse

ROWS = pd.DataFrame(
    {
        "wind": [10.0, 25.0, np.nan, 21.0],
        "origin": ["EWR", "JFK", "EWR", None],
        "busy": [True, False, None, True],
        "rain": [True, False, False, True],
        "day": [date(2013, 1, 31), date(2013, 2, 1), None, date(2013, 3, 1)],
        "at": pd.DatetimeIndex(
            ["2013-01-01 23:30", "2013-01-02 00:00", pd.NaT, "2014-01-01 00:00"], tz="America/New_York"
        ),
        "left": [clock(6, 30), clock(23), None, clock(0)],
        "code": pd.Categorical(["a", None, "b", "a"]),
        "stops": pd.array([1, None, 300, 2**60 + 1], dtype="Int64"),
        "dep time": [5, 6, 7, 8],
        "class": [1, 1, 2, 2],
        "größe": [1, 2, 3, 4],
        "nothing": [np.nan] * 4,
    }
)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('origin == "EWR" and wind > 5', [0]),
        ("wind > 20", [1, 3]),
        ("not wind > 20", [0]),
        ("not (wind > 20 or origin == 'EWR')", []),
        ("wind > 20 or origin == 'EWR'", [0, 1, 2, 3]),
        ("20 < wind <= 25", [1, 3]),
        ("25 >= wind", [0, 1, 3]),
        ('origin in ["EWR", "LGA"]', [0, 2]),
        ('origin not in ("EWR", "LGA")', [1]),
        ('origin > "F"', [1]),
        ("wind is None", [2]),
        ("wind is not None and not busy", [1]),
        ("busy", [0, 3]),
        ("busy == rain", [0, 1, 3]),
        ("not rain", [1, 2]),
        ("rain == False", [1, 2]),
        ('day >= "2013-02-01"', [1, 3]),
        ('"2013-01-01" < day < "2013-02-01T00:00"', [0]),
        ('day in ["2013-02-01", "2013-03-01"]', [1, 3]),
        ('at >= "2013-01-02"', [1, 3]),
        ('at >= "2013-01-02T04:30+00:00"', [0, 1, 3]),
        ('left >= "06:30"', [0, 1]),
        ('code == "a"', [0, 3]),
        ('code not in ["a"]', [2]),
        ("stops == 300", [2]),
        (f"stops == {2**60}", []),
        ("stops > -1.5", [0, 2, 3]),
        ("`dep time` > 6 and `class` == 2", [2, 3]),
        ("größe >= +3", [2, 3]),
        ("`größe` == 1\n  and wind\n  > 1", [0]),
        ("nothing > 3 or nothing == 'text' or not nothing or nothing in [1]", []),
        ("nothing is None", [0, 1, 2, 3]),
        ('origin != "#`"', [0, 1, 2]),
        ("wind == wind", [0, 1, 3]),
        ("`dep time` >= wind", []),
        ("wind < 1e999", [0, 1, 3]),
    ],
)
def test_rows_of_a_predicate(text: str, inside: list[int]):
    mask = parse(text).mask(ROWS)
    assert mask.dtype == bool
    assert np.flatnonzero(mask).tolist() == inside


def test_columns_are_those_that_decide_in_their_order():
    found = parse("  `dep time` > 6 and (origin is None or `dep time` < 9)\n")
    assert found.columns == ("dep time", "origin")
    assert found.text == "`dep time` > 6 and (origin is None or `dep time` < 9)"
    assert found == parse(found.text)
    assert hash(found) == hash(parse(found.text))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"), (" \n", "empty"), ("wind >", "unreadable"), ("wind = 3", "unreadable"),
        ("wind > 3 && rain", "unreadable"), ("wind > 3 # fast", "unreadable"), ("`wind > 3", "unreadable"),
        ("`` > 3", "unreadable"), ('origin == "C:\\d"', "unreadable"), ("(" * 3000 + "rain", "unreadable"),
        ("rain; rain", "unreadable"), ("wind > 3\0", "unreadable"), ("lambda: 1", "refused"),
        ('origin in ["EWR" "JFK"]', "comma"), ("(wind > 3) & rain", "refused"), ("~rain", "refused"),
        ("abs(wind) > 3", "refused"), ("__import__('os').system('true')", "refused"), ("origin.size > 3", "refused"),
        ("wind[0] > 3", "refused"), ("wind + 1 > 3", "refused"), ("-wind > 3", "refused"), ("wind > -True", "refused"),
        ("1 < 2", "refused"), ("True", "refused"), ("wind == None", "refused"), ("wind is 3", "refused"),
        ("wind in []", "refused"), ("wind in [None]", "refused"), ("wind in rain", "refused"), ("3 in [3]", "refused"),
        ("origin == f'{wind}'", "refused"), ("(wind > 3) == True", "refused"), ("(x := 3) > 2", "refused"),
        ("wind > 3j", "refused"), ("origin == b'EWR'", "refused"), ("rain if rain else rain", "refused"),
        ("not " * 60 + "rain", "refused"), ("[x for x in wind]", "refused"), ("wind == [1, 2]", "refused"),
    ],
)  # fmt: skip
def test_what_is_no_predicate_is_refused(text: str, code: str):
    with refused(EvaluationError, f"predicate.{code}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("winds > 3", "unknown"), ("origin == EWR", "unknown"), ("wind == null", "unknown"),
        ("origin < 3", "types"), ("origin == 3", "types"), ("wind == 'high'", "types"), ("wind == True", "types"),
        ("rain == 1", "types"), ("rain < True", "types"), ("day > 2013", "types"), ("day > 'spring'", "time"),
        ("left > '25:00'", "time"), ("day > '2013-01-01T00:00Z'", "zone"), ("origin", "alone"),
        ("wind == origin", "columns"), ("rain < busy", "columns"), ("day < at", "columns"),
        ("at > '2013-03-10T02:30'", "time"), ("at == '2013-11-03T01:30'", "time"), ("left > '02:00+01:00'", "zone"),
        ("left == '02:00+01:00'", "zone"), (f"wind > {'9' * 400}", "number"), (f"wind in [-{'9' * 400}]", "number"),
    ],
)  # fmt: skip
def test_what_these_rows_cannot_answer_is_refused(text: str, code: str):
    found = parse(text)
    with refused(EvaluationError, f"predicate.{code}"):
        found.mask(ROWS)


def test_an_hour_that_is_there_twice_is_told_apart_by_its_offset():
    rows = pd.DataFrame({"at": pd.date_range("2013-11-03 04:30", periods=4, freq="h", tz="UTC")})
    rows["at"] = rows["at"].dt.tz_convert("America/New_York")
    assert parse("at >= '2013-11-03T01:30-05:00'").mask(rows).tolist() == [False, False, True, True]
    with pytest.raises(EvaluationError) as error:
        parse("at >= '2013-11-03T01:30'").mask(rows)
    assert all(f"2013-11-03T01:30:00{offset}" in error.value.fix for offset in ("-04:00", "-05:00"))


def test_a_whole_number_beyond_all_decimals_is_compared_with_whole_numbers():
    assert parse(f"`dep time` < {'9' * 400}").mask(ROWS).all()


def test_an_error_says_where():
    with pytest.raises(EvaluationError) as error:
        parse('`größe` > 3 and len(origin) == 3 and "ü" in origin')
    assert "character 17" in error.value.problem


def test_columns_that_hold_nothing_comparable_are_refused():
    with refused(EvaluationError, "predicate.kind"):
        parse("x == 1").mask(pd.DataFrame({"x": [[1], [2]]}))
    with refused(EvaluationError, "predicate.kind"):
        parse("x > '02:00'").mask(pd.DataFrame({"x": [clock(1, tzinfo=UTC), None]}))


@pytest.mark.parametrize("name", ["wind", "dep time", "class", "größe", "a.b", "1st", 'q"'])
def test_a_name_as_it_is_written_reads_back(name: str):
    assert parse(f"{column_text(name)} is None").columns == (name,)


def test_no_rows_have_an_empty_mask():
    assert parse('wind > 3 and origin == "EWR"').mask(ROWS.iloc[:0]).shape == (0,)


# ---- against an oracle that goes row by row, with unknown as None ----------------------------------------------------

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
Drawn = tuple[str, Callable[[dict[str, Any]], bool | None]]
VALUES: dict[str, list[Any]] = {
    "n": [-2, 0, 1, 2.5, 7], "i": [-2, 0, 1, 3], "t": ["", "a", "b", "it's", 'q"'],
    "d": [datetime(2013, 1, 1), datetime(2013, 1, 1, 6), datetime(2014, 5, 6)],
}  # fmt: skip


def _text(value: Any) -> str:
    return repr(value.isoformat() if isinstance(value, datetime) else value)


def _drawn(chance: random.Random, depth: int) -> Drawn:
    kind = chance.choice(["not", "and", "or"]) if depth and chance.random() < 0.6 else "comparison"
    if kind == "not":
        text, answer = _drawn(chance, depth - 1)
        return f"not ({text})", lambda row: None if answer(row) is None else not answer(row)
    if kind in ("and", "or"):
        parts = [_drawn(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        stops = kind == "or"

        def joined(row: dict[str, Any]) -> bool | None:
            found = [answer(row) for _, answer in parts]
            return stops if stops in found else None if None in found else not stops

        return f" {kind} ".join(f"({text})" for text, _ in parts), joined
    return _comparison(chance)


def _comparison(chance: random.Random) -> Drawn:
    name = chance.choice(["n", "i", "t", "d", "b"])
    form = chance.choice(["compared", "turned", "in", "is", "chain"])
    if form == "is":
        return f"{name} is None", lambda row: row[name] is None
    if name == "b":
        return "b", lambda row: row["b"]
    one, other = chance.choice(VALUES[name]), chance.choice(VALUES[name])
    sign, second = chance.choice(list(SIGNS)), chance.choice(list(SIGNS))

    def known(found: Callable[[Any], bool]) -> Callable[[dict[str, Any]], bool | None]:
        return lambda row: None if row[name] is None else found(row[name])

    if form == "in":
        return f"{name} in [{_text(one)}, {_text(other)}]", known(lambda value: value in (one, other))
    if form == "turned":
        return f"{_text(one)} {sign} {name}", known(lambda value: SIGNS[sign](one, value))
    if form == "chain":
        text = f"{_text(one)} {sign} {name} {second} {_text(other)}"
        return text, known(lambda value: SIGNS[sign](one, value) and SIGNS[second](value, other))
    return f"{name} {sign} {_text(one)}", known(lambda value: SIGNS[sign](value, one))


def _tables(chance: random.Random) -> Iterator[tuple[pd.DataFrame, list[dict[str, Any]]]]:
    """Equal rows in the types that pandas has for them."""
    drawn = VALUES | {"b": [True, False]}
    rows = [{name: chance.choice([None, *values]) for name, values in drawn.items()} for _ in range(60)]
    plain = pd.DataFrame(rows).astype({"n": "float64", "d": "datetime64[ns]", "t": "object", "b": "object"})
    yield plain, rows
    nullable = {"n": "Float64", "i": "Int64", "t": "string", "b": "boolean", "d": "datetime64[us]"}
    yield pd.DataFrame(rows).astype(nullable), rows
    yield pd.DataFrame(rows).astype({"n": "category", "i": "category", "t": "category", "b": "category"}), rows


@pytest.mark.parametrize("seed", range(5))
def test_drawn_predicates_agree_with_a_reading_row_by_row(seed: int):
    chance = random.Random(seed)
    for table, rows in _tables(chance):
        for _ in range(60):
            text, answer = _drawn(chance, 3)
            assert parse(text).mask(table).tolist() == [answer(row) is True for row in rows], text


def test_drawn_characters_are_read_or_refused():
    chance = random.Random(0)
    words = ["wind", "origin", "and ", "or ", "not ", "in ", "is ", "None", "lambda ", "==", "'a'"]
    pieces = [*words, *' ()[]<3"`\\=#é,.:\n*-\0{}\ud800']
    for _ in range(3000):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 12)))
        with contextlib.suppress(EvaluationError):
            parse(text).mask(ROWS)
