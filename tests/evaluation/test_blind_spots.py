import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control

from tests.refusals import refused
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.blind_spots import BlindSpots, SpotLimits, adjusted, blind_spots
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.slice_levels import CUTS_AT, levels_of, training_cuts

ROWS, GROUPS = 12_000, 60


def table(seed: int, rows: int = ROWS) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "shop": random.choice(
                np.array(["north", "south", "west", None], dtype=object), rows, p=[0.5, 0.3, 0.1, 0.1]
            ),
            "price": np.where(random.random(rows) < 0.1, np.nan, random.lognormal(3, 1, rows)),
            "hour": random.integers(0, 24, rows),
            "new one": random.random(rows) < 0.2,
            "level": random.normal(size=rows).astype(np.float32),
        }
    )


def errors(seed: int, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Losses with a level of each group, and the groups."""
    random = np.random.default_rng([seed, 1])
    groups = random.integers(0, GROUPS, rows)
    return random.exponential(0.4, rows) + 0.1 * random.random(GROUPS)[groups], groups


def searched(frame: pd.DataFrame, losses: np.ndarray, groups: np.ndarray | pd.Series, **more) -> BlindSpots:
    return blind_spots(frame, losses, groups, training_cuts(frame), **more)


def same(spots: BlindSpots, mask: np.ndarray, frame: pd.DataFrame) -> float:
    """The greatest share of rows in both of those in either, over confirmed spots."""
    found = [parse(spot.rule).mask(frame) for spot in spots.spots if spot.confirmed]
    return max((np.count_nonzero(mask & one) / np.count_nonzero(mask | one) for one in found), default=0.0)


@pytest.mark.parametrize(
    "rule",
    ['shop == "west"', "shop is None", "price > 60", "price is None", 'shop == "south" and 6 < hour <= 10',
     "`new one` and price <= 12", "not `new one` and level > 1.5", "hour == 7", "price is None and shop != 'north'"],
)  # fmt: skip
def test_a_planted_part_is_found_confirmed_and_selected_by_its_rule(rule: str):
    frame, (losses, groups) = table(0), errors(0)
    mask = parse(rule).mask(frame)
    found = searched(frame, losses + 0.6 * mask, groups)
    assert same(found, mask, frame) > 0.7
    best = found.spots[0]
    assert best.excess.low < 0.6 < best.excess.high
    inside = parse(best.rule).mask(frame)
    assert (best.rows, best.share) == (np.count_nonzero(inside), inside.mean())
    assert best.groups == len(np.unique(groups[inside]))
    assert inside[list(best.examples)].all()


def test_several_parts_are_told_apart():
    frame, (losses, groups) = table(1), errors(1)
    masks = [parse(rule).mask(frame) for rule in ('shop == "west"', "hour <= 1", "price > 90")]
    found = searched(frame, losses + 0.7 * np.logical_or.reduce(masks), groups)
    assert all(same(found, mask, frame) > 0.6 for mask in masks)
    assert len([spot for spot in found.spots if spot.confirmed]) < 8


def test_every_rule_selects_the_rows_that_were_counted():
    """Whatever is planted; the most is asked by losses that hang on every column."""
    frame, (losses, groups) = table(2), errors(2)
    by_column = frame["hour"] / 24 + frame["level"].abs() + frame["shop"].isna() + frame["new one"]
    found = searched(frame, losses * (1 + by_column.to_numpy(dtype=np.float64)), groups, limits=SpotLimits(excess=0.0))
    assert len(found.spots) > 4
    assert all(np.count_nonzero(parse(spot.rule).mask(frame)) == spot.rows for spot in found.spots)


def test_a_model_that_is_equally_good_everywhere_has_no_confirmed_spot():
    alarms = 0
    for seed in range(40):
        frame, (losses, groups) = table(seed, 3_000), errors(seed, 3_000)
        # A column that goes with the group, as weather does with the day.
        frame["weather"] = np.random.default_rng(seed).normal(size=GROUPS)[groups]
        found = searched(frame, losses, groups, limits=SpotLimits(excess=0.0))
        alarms += any(spot.confirmed for spot in found.spots)
    # Of 40 draws at 5 % at most five in 98.6 % of all such tests; the seeds are fixed.
    assert alarms <= 5


def test_what_is_hard_for_simple_models_too_is_no_blind_spot():
    frame, (losses, groups) = table(3), errors(3)
    hard, bad = (parse(rule).mask(frame) for rule in ("hour > 16", 'shop == "west"'))
    random = np.random.default_rng(3)
    own = losses + hard + 0.6 * bad
    simple = losses + hard + random.exponential(0.1, ROWS)
    over_mean, over_simple = searched(frame, own, groups), searched(frame, own, groups, references=[simple])
    assert same(over_mean, hard, frame) > 0.8
    assert same(over_simple, hard, frame) < 0.4
    assert same(over_simple, bad, frame) > 0.9
    assert over_simple.spots[0].expected == pytest.approx(0, abs=0.2)


def test_the_champion_on_the_same_rows_stands_beside():
    frame, (losses, groups) = table(4), errors(4)
    bad = parse('shop == "west"').mask(frame)
    for both in (False, True):
        (spot, *_) = searched(frame, losses + 0.6 * bad, groups, champion=losses + 0.6 * both * bad).spots
        assert spot.champion is not None
        assert (spot.champion.low > 0.3) is both


def test_rows_in_another_order_and_groups_under_other_codes_give_equal_spots():
    frame, (losses, groups) = table(5), errors(5)
    losses = losses + 0.7 * parse("hour <= 1 or price > 90").mask(frame)
    order = np.random.default_rng(5).permutation(ROWS)
    names = pd.Series(groups).map(lambda group: f"day {group}")
    one = searched(frame, losses, names)
    other = blind_spots(
        frame.iloc[order].reset_index(drop=True), losses[order], names.iloc[order], training_cuts(frame)
    )
    assert [spot.rule for spot in one.spots] == [spot.rule for spot in other.spots]
    assert [spot.p for spot in one.spots] == pytest.approx([spot.p for spot in other.spots])
    assert [order[list(spot.examples)].tolist() for spot in other.spots] == [list(spot.examples) for spot in one.spots]


def test_weights_count_as_rows_that_come_more_than_once_and_weight_zero_as_none():
    frame, (losses, groups) = table(6), errors(6)
    bad = parse('shop == "west"').mask(frame)
    weights = np.where(bad & (np.arange(ROWS) % 2 == 0), 0.0, 1.0)
    left = weights > 0
    weighed = searched(frame, losses + 0.6 * bad, groups, weights=weights).spots[0]
    fewer = blind_spots(frame[left], (losses + 0.6 * bad)[left], groups[left], training_cuts(frame)).spots[0]
    assert weighed.rule == fewer.rule == 'shop == "west"'
    assert weighed.excess.value == pytest.approx(fewer.excess.value)
    doubled = searched(frame, losses + 0.6 * bad, groups, weights=2 * np.ones(ROWS)).spots[0]
    alike = searched(frame, losses + 0.6 * bad, groups).spots[0]
    assert doubled.excess.value == pytest.approx(alike.excess.value)
    assert doubled.excess.standard_error == pytest.approx(alike.excess.standard_error)


def test_a_part_within_one_group_is_no_spot():
    frame, (losses, groups) = table(7), errors(7)
    frame["one"] = groups == 3
    assert all("one" not in spot.rule.split() for spot in searched(frame, losses + 2.0 * (groups == 3), groups).spots)


def test_without_enough_groups_or_columns_it_says_why():
    frame, (losses, groups) = table(8), errors(8)
    assert searched(frame, losses, groups % 12).insufficient
    assert searched(frame, losses, groups, weights=np.zeros(ROWS)).insufficient
    times = pd.DataFrame({"at": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS), unit="min")})
    found = searched(times, losses, groups)
    assert found.insufficient
    assert found.columns == ()


@pytest.mark.parametrize("losses", [np.full(ROWS, np.nan), np.ones(ROWS - 1), np.ones((ROWS, 2))])
def test_losses_that_are_no_number_a_row_are_refused(losses: np.ndarray):
    with refused(EvaluationError, "blind_spots.losses"):
        searched(table(0), losses, errors(0)[1])


def test_a_row_without_a_group_is_refused():
    with refused(EvaluationError, "blind_spots.groups"):
        searched(table(0), np.ones(ROWS), pd.Series(errors(0)[1]).where(lambda groups: groups > 0))


def test_a_constant_loss_has_no_spot():
    found = searched(table(0), np.ones(ROWS), errors(0)[1])
    assert found.spots == ()
    assert found.insufficient == ""


def test_adjusted_p_are_scipys():
    for seed in range(5):
        p = np.random.default_rng(seed).random(12) ** 3
        assert adjusted(p.tolist()) == pytest.approx(false_discovery_control(p))
    assert adjusted([]) == []


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1000) / 7, np.arange(1000), np.arange(1000) % 3, np.zeros(1000), np.full(1000, np.nan),
        np.r_[np.zeros(900), np.arange(100)], np.r_[[np.inf, -np.inf], np.arange(998.0)],
        (np.arange(1000) / 7).astype(np.float32), pd.array([*range(999), None], dtype="Int64"),
        1e15 + np.arange(1000), np.arange(1000) * 1e-12, np.arange(1000) * 1e-312,
        np.arange(1000, dtype=np.float32) * np.float32(1e-40), np.linspace(-1.7, 1.7, 1000) * 1e308,
        np.arange(256, dtype=np.uint8), pd.Categorical(np.arange(1000) % 30),
    ],
)  # fmt: skip
def test_levels_of_numbers_are_the_rows_of_their_rules(values):
    frame = pd.DataFrame({"x y": values})
    cuts = training_cuts(frame)
    assert all(len(some) <= len(CUTS_AT) for some in cuts.values())
    levels = levels_of(frame["x y"], cuts, 20)
    if levels is None:
        assert frame["x y"].nunique() < 2
        return
    for first, last in zip(levels.firsts, levels.lasts, strict=True):
        inside = (levels.codes >= first) & (levels.codes <= last)
        assert (parse(levels.rule(first, last)).mask(frame) == inside).all(), levels.rule(first, last)
        if first < levels.missing:
            near = levels.near(first, last)
            assert (first, last) in near
            assert all(0 <= at <= to < levels.missing for at, to in near)


def test_levels_of_texts_leave_rare_ones_out_and_hold_any_character():
    texts = ["a", 'q"', "it's", "back\\slash", "new\nline", "ü", "", "x`"]
    frame = pd.DataFrame({"t": [*texts * 50, *(f"rare {number}" for number in range(40)), *[None] * 30]})
    levels = levels_of(frame["t"], {}, 30)
    assert levels is not None
    assert len(levels.firsts) == len(texts) + 1
    for first, last in zip(levels.firsts, levels.lasts, strict=True):
        assert (parse(levels.rule(first, last)).mask(frame) == (levels.codes == first)).all()


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a"] * 100, name="tick`ed"), pd.Series(pd.to_timedelta(range(100), unit="s"), name="took"),
        pd.Series([[1]] * 100, name="lists"), pd.Series(range(100), name="not cut"),
    ],
)  # fmt: skip
def test_columns_of_which_no_rule_can_be_written_have_no_levels(column: pd.Series):
    assert levels_of(column, {}, 20) is None
