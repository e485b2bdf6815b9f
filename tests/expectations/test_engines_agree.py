"""Both engines give every rule the same status, count, words and failing rows, on tables that nobody chose."""

import tempfile
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from trainworthy.expectations import validate as great_expectations
from trainworthy.lifecycle.contract import polars_engine
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.rule import make_rule

BIG = 2**53
INTEGERS = st.sampled_from([0, 1, 2, 3, -1, 24, BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63)]) | st.integers(-5, 30)
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 1.0, 2.5, float(BIG), 1e300, float("inf"), float("-inf"), float("nan")])
TEXTS = st.sampled_from(
    ["", "a", "b", "A1", "a\n", "é", "e\u0301", "日本", "٣", " a", "ß", "A\x00", "aa", "12"]
) | st.text(max_size=3)
# Hours that the clocks of New York skip and repeat, midnights, and instants that microseconds don't hold.
INSTANTS = st.sampled_from(
    [
        datetime(2013, 3, 10, 6, 59), datetime(2013, 3, 10, 7), datetime(2013, 11, 3, 5, 30),
        datetime(2013, 11, 3, 6, 30),
        datetime(2013, 1, 1), datetime(2013, 1, 2), datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime(2013, 1, 1, 0, 0, 0, 1), datetime(2090, 7, 4, 12),
    ]
)  # fmt: skip
DAYS = st.dates(date(1950, 1, 1), date(2100, 1, 1)) | st.sampled_from([date(2013, 1, 1), date(1970, 1, 1)])
TYPES = {
    "integer": [pa.int64(), pa.int64(), pa.int8(), pa.uint64()],
    "number": [pa.float64(), pa.float64(), pa.float32()],
    "string": [pa.string(), pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "boolean": [pa.bool_()],
    "timestamp": [pa.timestamp("us", "UTC"), pa.timestamp("ns", "America/New_York"), pa.timestamp("ms", "UTC")],
    "wall_clock": [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms")],
    "date": [pa.date32(), pa.timestamp("us")],
    "nothing": [pa.null()],
    "other": [pa.binary(), pa.list_(pa.int64()), pa.decimal128(5, 2)],
}
LOGICAL = ["string", "integer", "number", "boolean", "date", "timestamp"]
BOUNDS = st.sampled_from(
    [
        {"operator": "mustBe", "value": 0, "unit": "rows"},
        {"operator": "mustBeLessThan", "value": 100, "unit": "percent"},
        {"operator": "mustBeLessOrEqualTo", "value": 25, "unit": "percent"},
        {"operator": "mustBeBetween", "value": [1, 3], "unit": "rows"},
        {"operator": "mustBe", "value": 77, "unit": "rows"},
    ]
)  # fmt: skip


def elements(family, kind):
    if family == "integer":
        low, high = {pa.int8(): (-128, 127), pa.uint64(): (0, 2**64 - 1)}.get(kind, (-(2**63), 2**63 - 1))
        extra = st.just(2**64 - 1) if kind == pa.uint64() else st.nothing()
        return INTEGERS.filter(lambda value: low <= value <= high) | extra
    if family in ("timestamp", "wall_clock"):
        return INSTANTS.map(lambda value: value.replace(microsecond=0) if kind.unit == "ms" else value)
    if family == "date":
        return DAYS.map(lambda day: datetime(day.year, day.month, day.day) if kind != pa.date32() else day)
    if family == "other":
        return {pa.binary(): st.just(b"x"), pa.decimal128(5, 2): st.integers(0, 9)}.get(kind, st.just([1]))
    return {"number": FLOATS, "string": TEXTS, "boolean": st.booleans(), "nothing": st.none()}[family]


@st.composite
def tables(draw):
    """A table of one or two files, and the family of each column: some columns alike, so that pairs fit."""
    families = draw(st.lists(st.sampled_from([*TYPES, *LOGICAL[:3]]), min_size=1, max_size=4))
    families += draw(st.lists(st.sampled_from(families), max_size=2))
    rows, columns = draw(st.integers(0, 12)), {}
    for place, family in enumerate(families):
        kind = draw(st.sampled_from(TYPES[family]))
        value = elements(family, kind)
        value = draw(st.sampled_from([value, value, value | st.none(), value | st.none(), st.none()]))
        values = draw(st.lists(value, min_size=rows, max_size=rows))
        if pa.types.is_dictionary(kind):
            columns[f"c{place}"] = pa.array(values, kind.value_type).dictionary_encode()
        elif pa.types.is_timestamp(kind):
            zoned = [item if item is None or kind.tz is None else item.replace(tzinfo=UTC) for item in values]
            columns[f"c{place}"] = pa.array(zoned, kind)
        else:
            columns[f"c{place}"] = pa.array(values, kind)
    cut = draw(st.integers(0, rows)) if draw(st.booleans()) else None
    return pa.table(columns), families, cut


def literals(family):
    """Values as a contract writes them; some of another type."""
    if family in ("timestamp", "wall_clock", "date"):
        zone = "+00:00" if family == "timestamp" else ""
        fitting = INSTANTS.map(lambda value: value.isoformat() + zone) | st.just(f"2013-01-01T00:00:00{zone}")
        return fitting if family != "date" else fitting | DAYS.map(str)
    odd = st.sampled_from([True, 1.0, 0.1, 2, "a", 2**53 + 1, 2**64, 2.5])
    own = {
        "integer": INTEGERS,
        "number": FLOATS.filter(lambda value: value == value) | INTEGERS,
        "string": TEXTS,
        "boolean": st.booleans(),
    }
    return own.get(family, odd) | own.get(family, odd) | odd


PATTERNS = st.sampled_from(
    ["^a$", "^[A-Z]", r"\d", r"\w", "", "(?i)A", "(?<=a)1|b", r"^\s", "e", r"\Aa\Z", "[^a]", "(?s)."]
)


@st.composite
def rules_of_one(draw, name, family):
    bound, kind = draw(BOUNDS), draw(st.sampled_from(
        ["type", "nulls", "missing", "allowed", "unique", "distribution",
         *(["length", "pattern"] * (family == "string")), *(["range"] * 3 * (family not in ("string", "boolean")))]
    ))  # fmt: skip
    listed = draw(st.lists(literals(family), min_size=1, max_size=4))
    parameters = {"bound": bound}
    if kind == "type":
        parameters["logical_type"] = draw(st.sampled_from(LOGICAL))
    elif kind == "missing":
        parameters["values"] = draw(st.sampled_from([listed, [*listed, None], [None]]))
    elif kind == "allowed":
        parameters["values"] = listed
    elif kind == "length":
        parameters |= draw(st.sampled_from([{"minimum": 1}, {"maximum": 2}, {"minimum": 1, "maximum": 1}]))
    elif kind == "pattern":
        parameters["pattern"] = draw(PATTERNS)
    elif kind == "range":
        numbers = [
            value
            for value in listed
            if family in ("timestamp", "wall_clock", "date") or not isinstance(value, (str, bool))
        ]
        ends = sorted(numbers or [0])
        low, high = (
            draw(st.sampled_from(["minimum", "exclusive_minimum"])),
            draw(st.sampled_from(["maximum", "exclusive_maximum"])),
        )
        both = {low: ends[0], high: ends[-1]}
        parameters |= draw(st.sampled_from([both, {low: ends[0]}, {high: ends[-1]}]))
    elif kind == "distribution":
        numeric = family in ("integer", "number", "timestamp", "wall_clock", "date")
        edges = numeric and draw(st.booleans())
        fitting = (
            sorted({value for value in listed if not isinstance(value, (str, bool))} or {0})
            if family in ("integer", "number")
            else sorted(set(map(str, listed)))
        )
        places = fitting if edges else list(dict.fromkeys(listed))
        counts = draw(st.lists(st.integers(0, 5), min_size=len(places) + 2, max_size=len(places) + 2))
        parameters |= {"edges" if edges else "values": places, "counts": [*counts[:-1], counts[-1] + 1]}
    return make_rule(f"{name}.{kind}", kind, (name,), **parameters)


@st.composite
def rules_of_more(draw, families):
    names = [f"c{place}" for place in range(len(families))]
    columns = tuple(draw(st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True)))
    bound = draw(BOUNDS)
    kind = draw(st.sampled_from(["unique", "null_together", "references", "less_or_equal", "equal", "hour_in_zone"]))
    if kind in ("less_or_equal", "equal", "hour_in_zone"):
        zone = (
            {"zone": draw(st.sampled_from(["America/New_York", "UTC", "Asia/Kolkata"]))}
            if kind == "hour_in_zone"
            else {}
        )
        return make_rule(kind, kind, columns[:2], bound=bound, **zone)
    if kind == "references":
        columns = columns[: draw(st.integers(1, len(columns)))]
        chosen = [families[names.index(name)] for name in columns]
        keys = draw(st.lists(st.tuples(*map(literals, chosen)), min_size=1, max_size=4))
        return make_rule(kind, kind, columns, bound=bound, keys=[list(key) for key in keys])
    return make_rule(kind, kind, columns, bound=bound)


@st.composite
def cases(draw):
    table, families, cut = draw(tables())
    rules = [make_rule("row_count", "row_count", (), bound=draw(BOUNDS))]
    for place, family in enumerate(families):
        rules += [draw(rules_of_one(f"c{place}", family)) for _ in range(3)]
    if len(families) > 1:
        rules += [draw(rules_of_more(families)) for _ in range(5)]
    rules.append(make_rule("absent", draw(st.sampled_from(["nulls", "unique"])), ("gone",), bound=draw(BOUNDS)))
    named = tuple(rule.model_copy(update={"id": f"{place}.{rule.id}"}) for place, rule in enumerate(rules))
    key = tuple(draw(st.lists(st.sampled_from(table.column_names), min_size=1, max_size=2, unique=True)))
    sensitive = draw(st.sampled_from([None, None, *table.column_names]))
    return table, cut, contract(named, key, sensitive)


def contract(rules, key, sensitive=None):
    columns = [
        Column(name=name, logical_type="string", role="other", sensitive=name == sensitive)
        for name in dict.fromkeys(name for rule in rules for name in rule.columns)
    ]
    label = Label(name="late", version=1, column="c0")
    return Contract(name="t", version="1", columns=tuple(columns), rules=rules, label=label, primary_key=key)


def written(table, cut, folder):
    if cut is None:
        pq.write_table(table, folder / "part-1.parquet", row_group_size=5)
    else:
        pq.write_table(table[:cut], folder / "part-1.parquet")
        pq.write_table(table[cut:], folder / "part-2.parquet")


def said(result):
    """All that a reader sees; the words of an error may differ."""
    failing = [{name: repr(value) for name, value in row.items()} for row in result.failing_rows]
    return result.status, result.count, result.observed, failing, result.withheld, result.rows


# Without the phase that makes a failing case smaller: at half a second a try it takes minutes.
PHASES = [Phase.explicit, Phase.generate]
ANY = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]


@pytest.mark.parametrize("examples", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_engines_any_table_and_rules_agree_rule_by_rule(examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=ANY, derandomize=True, phases=PHASES)
    @given(cases())
    def agree(case):
        table, cut, judged = case
        with tempfile.TemporaryDirectory() as name:
            written(table, cut, Path(name))
            reference = great_expectations.validate_files(Path(name), judged)
            found = polars_engine.validate_files(Path(name), judged)
        for ours, theirs in zip(found, reference, strict=True):
            assert said(ours) == said(theirs), (ours.rule, ours.error, theirs.error)
            assert (ours.error is None) == (theirs.error is None)

    agree()
