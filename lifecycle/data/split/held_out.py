"""Rows of a stage that a training script holds out for itself, by the rule by which the use case splits.

Of a split by time the latest rows; of a split by groups whole groups, drawn by the seed; of both, rows of groups that
begin late; of any other, rows drawn by the seed. A time, and a group, is never cut.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

from trainworthy.lifecycle.data.split.by_time import ticks_of
from trainworthy.lifecycle.data.split.overlap import disjoint_columns
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.spec.split import SplitSpec, TimeAndGroupSplit, TimeSplit, Windows

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Beside the seed, so that no script's own draws by the seed alone are these.
_DRAWS = 0x5B117
_MORE_ROWS = "give the stage more rows (stages in use_case.yaml), or train without early stopping"


def held_out_columns(spec: SplitSpec) -> tuple[str, ...]:
    """The columns by which hold_out goes; none where rows are drawn one by one."""
    time = () if spec.time_column is None else (spec.time_column,)
    return tuple(dict.fromkeys((*time, *disjoint_columns(spec, ()))))


def hold_out(rows: pd.DataFrame, spec: SplitSpec, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows to train on and of those held out, ascending int64, about `share` of the rows.

    `rows` have held_out_columns, without nulls. Raises TrainingError for a share that is not between 0 and 1, and where
    no rows, or less than two times or groups, are left for a side.
    """
    import numpy as np

    _refuse(len(rows), share)
    if isinstance(spec, TimeAndGroupSplit):
        training, held = _late_groups(rows, spec, share)
    else:
        held = _first(_turns(rows, spec, seed), share, spec)
        training = ~held
    return np.flatnonzero(training), np.flatnonzero(held)


def _refuse(rows: int, share: float) -> None:
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share < 1:
        raise TrainingError(
            "session.split was given a share that is not between 0 and 1", value=share,
            fix="give the part of the rows that is held out, for example 0.1",
        )  # fmt: skip
    if not 0 < round(share * rows) < rows:
        value = f"{share} of {rows} rows"
        raise TrainingError("the stage has too few rows to hold out this share of them", value=value, fix=_MORE_ROWS)


def _turns(rows: pd.DataFrame, spec: SplitSpec, seed: int) -> np.ndarray:
    """The turn at which each row is held out, from 0 on; equal for rows that stay together."""
    import numpy as np

    if isinstance(spec, TimeSplit):
        return _latest_first(ticks_of(rows, spec).values)
    draw, columns = np.random.default_rng([_DRAWS, seed]), held_out_columns(spec)
    if not columns:
        return draw.permutation(len(rows))
    # Numbered as they come: a group's name may be a file's path, which another machine has elsewhere.
    groups = rows.groupby(list(columns), sort=False, observed=True, dropna=False).ngroup().to_numpy()
    return draw.permutation(groups.max() + 1)[groups]


def _latest_first(times: pd.Series) -> np.ndarray:
    import numpy as np

    return np.unique(-times.to_numpy(), return_inverse=True)[1]


def _first(turns: np.ndarray, share: float, spec: SplitSpec) -> np.ndarray:
    """True of the rows whose turn comes first: as many whole turns as come nearest to the share, and at least one."""
    import numpy as np

    reached = np.cumsum(np.bincount(turns))[:-1]
    if not len(reached):
        raise TrainingError(
            f"the stage's rows have fewer than two {_units(spec)}, and none is ever cut",
            value=f"{len(turns)} rows", fix=_MORE_ROWS,
        )  # fmt: skip
    return turns <= np.abs(reached - share * len(turns)).argmin()


def _units(spec: SplitSpec) -> str:
    if isinstance(spec, Windows):
        return f"{'days' if spec.whole_days else 'times'} in {spec.column}"
    return f"groups of {', '.join(held_out_columns(spec))}"


def _late_groups(rows: pd.DataFrame, spec: TimeAndGroupSplit, share: float) -> tuple[np.ndarray, np.ndarray]:
    """As the use case's own windows: late rows of groups that have earlier ones are in neither."""
    late = _first(_latest_first(ticks_of(rows, spec).values), share, spec)
    held = late & ~rows[spec.group].isin(rows[spec.group][~late].unique()).to_numpy()
    if not held.any():
        raise TrainingError(
            f"no group of {spec.group} begins in the last rows of the stage, so that none can be held out",
            value=f"{int(late.sum())} of {len(rows)} rows, split by time and group",
            fix="give session.split a larger share, or the stage more rows (stages in use_case.yaml)",
        )
    return ~late, held
