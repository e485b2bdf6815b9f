"""Pairs of columns in order are looked for in every table, and looked at row by row only where few rows allow it."""

import numpy as np
import pandas as pd

from trainworthy.lifecycle.contract import profile


def test_pairs_of_a_wide_table_are_sorted_out_by_a_few_rows(monkeypatch):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(3000, 60)), columns=[f"pixel_{number}" for number in range(60)])
    frame["pixel_top"] = frame["pixel_7"] + 1.0 * generator.random(3000)
    frame["pixel_gap"] = frame["pixel_top"].mask(generator.random(3000) < 0.3)
    looked_at, look = [], profile._is_ordered
    monkeypatch.setattr(profile, "_is_ordered", lambda pair: looked_at.append(tuple(pair.columns)) or look(pair))
    # Equal values are in order both ways, so they say nothing; rows in which one is null do not count.
    top, gap = "pixel_top", "pixel_gap"
    assert profile.ordered_pairs(frame) == [("pixel_7", top), ("pixel_7", gap)]
    assert looked_at == [("pixel_7", top), ("pixel_7", gap), (top, gap), (gap, top)]


def test_dates_and_the_days_made_of_them_are_no_pair_and_a_later_date_is_one():
    generator = np.random.default_rng(0)
    seen_at = pd.Timestamp("2024-01-01") + pd.to_timedelta(generator.integers(0, 100, 1200), unit="D")
    ended = seen_at + pd.to_timedelta(generator.integers(0, 9, 1200), unit="D")
    frame = pd.DataFrame({"seen_at": seen_at, "day": seen_at, "ended": ended})
    assert profile.ordered_pairs(frame) == [("seen_at", "ended"), ("day", "ended")]
