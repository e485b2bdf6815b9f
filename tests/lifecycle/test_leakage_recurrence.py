"""What recurs by nature, with a season, a state of a machine or customers who return, is told from copies."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.leakage.duplicates import GROWTH, PARTS, Views, by_nature, known_rows, parts_of
from trainworthy.lifecycle.protocol.leak import Leak

ROWS, FIRST_HELD = 12_000, 8_400
FAMILIES = ("duplicates", "near_duplicates")


def fails(rows: pd.DataFrame) -> list[Leak]:
    return [one for one in tables.alarms(rows, FAMILIES) if one.status == "fail"]


def of_seasons(seed: int = 0) -> pd.DataFrame:
    """Readings are coarse and positives rare in calm seasons: two in training's older half, one in what is held out."""
    generator = np.random.default_rng(seed)
    place = np.arange(ROWS) / FIRST_HELD
    calm = ((place > 0.1) & (place < 0.25)) | ((place > 0.4) & (place < 0.55)) | (place >= 1)
    readings = {
        f"reading_{number}": np.where(calm, generator.integers(0, 9, ROWS), generator.normal(0, 20, ROWS).round(2))
        for number in range(8)
    }
    return table(readings, generator.random(ROWS) < np.where(calm, 0.01, 0.1))


def of_more_and_more_customers(seed: int = 0) -> pd.DataFrame:
    """The share of rows that are an earlier customer's rises from a tenth to eight tenths; the outcome is theirs."""
    generator = np.random.default_rng(seed)
    who = np.arange(ROWS)
    for row in np.flatnonzero(generator.random(ROWS) < 0.1 + 0.7 * np.arange(ROWS) / ROWS):
        who[row] = who[generator.integers(0, max(row, 1))]
    return table({f"x{n}": generator.normal(size=ROWS)[who] for n in range(9)}, (generator.random(ROWS) < 0.2)[who])


def table(features: dict[str, np.ndarray], label: np.ndarray) -> pd.DataFrame:
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS) // 40, unit="D")
    return pd.DataFrame({"row_id": np.arange(ROWS), "day": day} | features | {"label": label.astype("int8")})


def with_copies(rows: pd.DataFrame, changed: int, share: float = 0.1) -> pd.DataFrame:
    """A share of the held-out rows are training rows, but for `changed` features."""
    generator = np.random.default_rng(1)
    places = generator.choice(np.arange(FIRST_HELD, ROWS), int(share * (ROWS - FIRST_HELD)), replace=False)
    source, made = generator.choice(FIRST_HELD, len(places)), rows.copy()
    for name in rows.columns.drop(["row_id", "day"])[changed:]:
        made.loc[places, name] = rows[name].to_numpy()[source]
    return made


@pytest.mark.parametrize("healthy", [of_seasons, of_more_and_more_customers])
@pytest.mark.parametrize("seed", [0, 1])
def test_duplicates_that_a_season_or_more_customers_bring_raise_no_alarm(healthy: Callable, seed):
    assert fails(healthy(seed)) == []


@pytest.mark.parametrize(("changed", "family"), [(0, "duplicates"), (1, "near_duplicates")])
def test_duplicates_that_were_copied_into_the_same_season_fail(changed, family):
    assert family in {one.family for one in fails(with_copies(of_seasons(), changed))}


def known(hashes: np.ndarray, part: np.ndarray):
    return known_rows(hashes, Views(hashes[None], np.zeros(len(part)), part, hashes))


def test_nature_counts_rows_of_other_times_and_not_of_the_part_beside():
    part = np.repeat(np.arange(PARTS), 100)
    row = np.arange(len(part))
    beside = np.where(part == 5, row - 100, row)
    assert by_nature(part, [known(beside, part)]) == 0
    away = np.where(part == 5, row - 300, row)
    assert by_nature(part, [known(away, part)]) == 1


def test_nature_of_equal_parts_is_their_share_and_growth_and_of_a_season_more():
    generator = np.random.default_rng(0)
    part = parts_of(np.arange(40_000), 40_000)
    even = np.where(generator.random(len(part)) < 0.1, 0, np.arange(len(part)) + 1)
    assert by_nature(part, [known(even, part)]) == pytest.approx(GROWTH * 0.1, rel=0.15)
    season = np.where(generator.random(len(part)) < 0.02 * part, 0, np.arange(len(part)) + 1)
    assert by_nature(part, [known(season, part)]) > GROWTH * 0.38


@pytest.mark.parametrize("when", [None, np.zeros(400, dtype=int), np.repeat([1, 2, 3], 200)[:400], np.arange(400) // 9])
def test_parts_of_any_time_hold_about_as_many_rows_each(when):
    assert np.bincount(parts_of(when, 400), minlength=PARTS).max() <= 27
