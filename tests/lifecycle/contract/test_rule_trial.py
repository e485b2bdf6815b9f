"""Trying rules: each healthy rule is broken by some fault, and each that can never fail is found."""

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.mutation_test import fix_of, try_rules
from trainworthy.lifecycle.contract.polars_engine import validate_frame as judge
from trainworthy.lifecycle.contract.rule import make_rule

ROWS = 200
TYPES = {"id": "integer", "low": "number", "high": "number", "shop": "string", "flag": "boolean", "at": "timestamp",
         "day": "date", "hour": "integer", "empty": "number", "note": "string"}  # fmt: skip
HALF = {"operator": "mustBeLessOrEqualTo", "value": 50, "unit": "percent"}


def frame():
    generator = np.random.default_rng(0)
    at = pd.Series(pd.date_range("2024-03-01", periods=ROWS, freq="h", tz="UTC"))
    low = generator.uniform(0, 10, ROWS)
    return pd.DataFrame(
        {
            "id": range(ROWS),
            "low": np.where(np.arange(ROWS) % 10 == 0, np.nan, low),
            "high": low + 1,
            "shop": np.resize(["north", "south", "west"], ROWS),
            "flag": generator.random(ROWS) < 0.5,
            "at": at,
            "day": at.dt.tz_localize(None).dt.normalize(),
            "hour": at.dt.tz_convert("Europe/Berlin").dt.hour.astype("int64"),
            "empty": np.nan,
            "note": np.where(np.arange(ROWS) % 10 == 0, None, "x"),
        }
    )


def bound(operator="mustBe", value=0, unit="rows"):
    return {"operator": operator, "value": value, "unit": unit}


def tried(*rules, total=ROWS, rows=None):
    columns = tuple(Column(name=name, logical_type=kind, role="feature") for name, kind in TYPES.items())
    label = Label(name="late", version=1, column="low", greater_than=1.0)
    contract = Contract(name="t", version="1", columns=columns, rules=tuple(rules), label=label, primary_key=("id",))
    return try_rules(frame() if rows is None else rows, total, contract, judge)


def rule(kind, *columns, number=0, **parameters):
    parameters.setdefault("bound", bound())
    return make_rule(f"{kind}.{'+'.join(columns)}.{number}", kind, columns, **parameters)


MOST = 2**63 - 1
HEALTHY = [
    rule("type", "shop", logical_type="string"),
    rule("type", "low", logical_type="number"),
    rule("nulls", "shop"),
    rule("nulls", "low", bound=HALF),
    rule("nulls", "empty", bound=bound("mustBeGreaterThan", 90, "percent")),
    rule("nulls", "low", number=1, bound=bound("mustNotBe", 3)),
    rule("nulls", "low", number=2, bound=bound("mustNotBeBetween", [30, 40])),
    rule("nulls", "low", number=3, bound=bound("mustBe", 20)),
    rule("missing", "shop", values=["", "n/a"]),
    rule("missing", "low", values=[None, -999], bound=HALF),
    rule("range", "low", minimum=0, maximum=100),
    rule("range", "high", exclusive_minimum=0),
    rule("range", "hour", minimum=0, maximum=23),
    rule("range", "empty", minimum=0),
    rule("range", "at", minimum="2024-01-01T00:00:00+00:00", exclusive_maximum="2025-01-01T00:00:00+00:00"),
    rule("range", "day", minimum="1900-01-01"),
    rule("length", "shop", minimum=1, maximum=9),
    rule("pattern", "shop", pattern="^[a-z]+$"),
    rule("pattern", "shop", number=1, pattern="."),
    rule("pattern", "note", pattern="^(|x|[?]|.)$"),
    rule("allowed", "shop", values=["north", "south", "west"]),
    rule("allowed", "shop", number=1, values=["north", "south"], bound=HALF),
    rule("allowed", "hour", values=list(range(24))),
    rule("allowed", "flag", values=[True], bound=bound("mustBeLessThan", 80, "percent")),
    rule("allowed", "shop", number=2, values=["east"], bound=bound("mustBeGreaterThan", 10, "percent")),
    rule("unique", "id"),
    rule("unique", "id", "shop"),
    rule("row_count", bound=bound("mustBeGreaterOrEqualTo", 1)),
    rule("row_count", number=1, bound=bound("mustBeBetween", [100, 1000])),
    rule("row_count", number=2, bound=bound("mustBeLessThan", 10_000)),
    rule("less_or_equal", "low", "high"),
    rule("less_or_equal", "empty", "high"),
    rule("less_or_equal", "low", "hour", bound=HALF),
    rule("equal", "empty", "high"),
    rule("equal", "shop", "note", bound=bound("mustBeGreaterThan", 1)),
    rule("hour_in_zone", "at", "hour", zone="Europe/Berlin"),
    rule("null_together", "low", "note"),
    rule("null_together", "shop", "flag", "hour"),
    rule("references", "shop", keys=[("north",), ("south",), ("west",)]),
    rule("references", "hour", "flag", keys=[(hour, flag) for hour in range(24) for flag in (True, False)]),
    rule("distribution", "high", edges=[3.0, 5.0, 7.0], counts=[50, 50, 50, 50, 0], bound=HALF),
    rule("distribution", "shop", values=["north", "south", "west"], counts=[10, 10, 10, 0, 0], bound=HALF),
    rule("distribution", "day", edges=["2024-03-04T00:00:00"], counts=[1, 1, 0],
         bound=bound("mustBeLessOrEqualTo", 90, "percent")),
]  # fmt: skip
ANY = {"operator": "mustBeLessOrEqualTo", "value": 100, "unit": "percent"}
NEVER = [
    (rule("nulls", "shop", bound=ANY), "tighten its bound"),
    (rule("nulls", "shop", bound=bound("mustBeGreaterOrEqualTo", 0)), "tighten its bound"),
    (rule("missing", "low", values=["n/a"]), "list values"),
    (rule("range", "hour", minimum=-MOST - 1), "write a minimum"),
    (rule("range", "hour", maximum=1e30), "write a maximum"),
    (rule("range", "low", maximum=1.7e308), "write a maximum"),
    (rule("range", "low", minimum=0, maximum=1e300), "write a maximum"),
    (rule("range", "low", minimum=0, maximum=10, bound=ANY), "tighten its bound"),
    (rule("range", "day", maximum="9999-12-31"), "write a maximum"),
    (rule("range", "at", minimum="0001-01-01T00:00:00+00:00"), "write a minimum"),
    (rule("length", "shop", minimum=0), "write a minimum"),
    (rule("length", "shop", minimum=0, maximum=10), "write a minimum"),
    (rule("pattern", "shop", pattern=".*"), "write a pattern"),
    (rule("pattern", "shop", pattern="^"), "write a pattern"),
    (rule("pattern", "shop", pattern="^[a-z]+$", bound=ANY), "tighten its bound"),
    (rule("allowed", "flag", values=[True, False]), "leave out"),
    (rule("references", "flag", keys=[(True,), (False,)]), "leave out"),
    (rule("less_or_equal", "low", "low"), "name different columns"),
    (rule("equal", "shop", "shop"), "name different columns"),
    (rule("null_together", "low", "low"), "name different columns"),
    (rule("row_count", bound=bound("mustBeGreaterOrEqualTo", 0)), "write a bound"),
    (rule("row_count", bound=bound("mustBeLessThan", 10**9)), "write a bound"),
    (rule("distribution", "high", edges=[3.0], counts=[1, 1, 0], bound=ANY), "tighten its bound"),
    (rule("unique", "id", bound=ANY), "tighten its bound"),
]  # fmt: skip


def test_healthy_rules_are_all_broken_by_some_fault():
    trial = tried(*HEALTHY)
    assert [result.rule.id for result in trial.already] == []
    assert [(claim.rule.id, claim.side, claim.tried) for claim in trial.never] == []


@pytest.mark.parametrize(("dead", "fix"), NEVER, ids=[f"{dead.id}-{number}" for number, (dead, _) in enumerate(NEVER)])
def test_rule_that_can_never_fail_is_found_with_what_was_tried_and_a_fix(dead, fix):
    trial = tried(rule("nulls", "id"), dead)
    assert [claim.rule.id for claim in trial.never] == [dead.id]
    (claim,) = trial.never
    assert claim.tried
    assert fix_of(claim, trial.rows_tried).startswith(fix)


def test_both_sides_of_a_range_are_tried_on_their_own():
    assert [claim.side for claim in tried(rule("range", "low", minimum=-1e300, maximum=1e300)).never] == [
        "minimum",
        "maximum",
    ]


def test_rule_that_fails_on_the_rows_as_they_are_is_said_apart():
    trial = tried(rule("nulls", "low"), rule("nulls", "gone"), rule("nulls", "id"), rows=frame())
    assert [(result.rule.id, result.status) for result in trial.already] == [
        ("nulls.low.0", "fail"),
        ("nulls.gone.0", "error"),
    ]
    assert (trial.claims, trial.never) == (1, ())


def test_bound_in_rows_is_scaled_from_the_dataset_to_the_sample():
    million = ROWS * 5000
    trial = tried(rule("nulls", "low", bound=bound("mustBeLessOrEqualTo", million // 2)), total=million)
    assert (trial.never, trial.already) == ((), ())
    trial = tried(rule("nulls", "low", bound=bound("mustBeLessOrEqualTo", million)), total=million)
    assert len(trial.never) == 1


def test_rows_without_any_value_and_few_rows_can_be_tried_too():
    assert (
        tried(*(item for item in HEALTHY if item.kind in ("nulls", "type", "unique")), rows=frame().head(3)).rows_tried
        == 3
    )
