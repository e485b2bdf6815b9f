"""Some of many rows: evenly spaced or spread, the same ones each time."""

from __future__ import annotations

import numpy as np
import pytest

from trainworthy.lifecycle.sampling import evenly_spaced, evenly_spread


@pytest.mark.parametrize(("count", "most"), [(0, 10), (7, 10), (10, 10), (11, 10), (1_000_003, 4_000)])
def test_evenly_spread_rows_are_different_ones_of_equal_stretches(count, most):
    rows = evenly_spread(count, most)
    assert len(rows) == min(count, most)
    assert (np.diff(rows) > 0).all()
    assert (rows == evenly_spread(count, most)).all()
    if count > most:
        assert np.diff(rows).max() < 2 * count / most + 2
        # A period in the rows stays unseen: each hour of the day comes about as often.
        assert count < 1_000 or np.bincount(rows % 250).min() > 0


# In single precision the last one of so many rows was one beyond them.
@pytest.mark.parametrize(("count", "most"), [(1, 4), (10, 10), (27_004, 2048), (16_777_220, 64)])
def test_evenly_spaced_rows_are_different_ones_from_the_first_to_the_last(count, most):
    rows = evenly_spaced(count, most)
    assert (rows[0], rows[-1], len(rows)) == (0, count - 1, min(count, most))
    gaps = np.diff(rows)
    assert len(gaps) == 0 or (gaps.min() >= 1 and gaps.max() - gaps.min() <= 1)
