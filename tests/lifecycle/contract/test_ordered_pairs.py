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
    # Equal values are in order both ways; rows in which one is null do not count.
    top, gap = "pixel_top", "pixel_gap"
    assert profile.ordered_pairs(frame) == [("pixel_7", top), ("pixel_7", gap), (top, gap), (gap, top)]
    assert len(looked_at) == 4
