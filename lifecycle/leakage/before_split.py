"""Whether a column decides the label, asked of a table that is not split yet: every second row is held out.

By the gate's own measure, so that no input is drafted that the first run would stop at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from trainworthy.lifecycle.leakage.binning import HELD_ROWS, TRAINING_ROWS, EventLabels, LabelledRows, cells_of
from trainworthy.lifecycle.leakage.separability import Power, shortage
from trainworthy.lifecycle.leakage.single_feature import feature_power
from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.kind import Copy


def power_before_split(
    values: pd.Series, events: Sequence[pd.Series], copy: Copy, groups: pd.Series | None = None
) -> Power | None:
    """The power of a column alone over the label's events, 0 and 1 each; None of too few rows of one of both.

    `values` and `events` are of the same rows with a label, the main event first. With `groups`, by which the rows will
    be split, every second group is held out: a patient's height tells what is true of the patient.
    """
    rows = evenly_spread(len(values), TRAINING_ROWS + HELD_ROWS)
    is_half = np.arange(len(rows)) % 2 == 0 if groups is None else pd.factorize(groups.iloc[rows])[0] % 2 == 0
    half, other = rows[is_half], rows[~is_half]
    labels = [event.to_numpy(dtype=np.int64) for event in events]
    if shortage(np.bincount(labels[0][half], minlength=2), np.bincount(labels[0][other], minlength=2)):
        return None
    name = str(values.name)
    training, held = (values.iloc[part].reset_index(drop=True) for part in (half, other))
    labelled = LabelledRows(
        training=training.to_frame(name),
        held=held.to_frame(name),
        training_labels=labels[0][half],
        held_labels=labels[0][other],
        held_split=np.repeat("validation", len(other)),
        scored=np.ones(len(other), dtype=bool),
        training_even=np.ones(len(half), dtype=bool),
        held_even=np.ones(len(other), dtype=bool),
        training_counts=np.bincount(labels[0][half], minlength=2),
        scored_counts=np.bincount(labels[0][other], minlength=2),
        training_share=len(half) / len(values),
        events=tuple(
            EventLabels(str(event.name), of[half], of[other]) for event, of in zip(events, labels, strict=True)
        ),
        copy=copy,
    )
    cells = cells_of(training, held)
    main = feature_power(replace(labelled, events=labelled.events[:1]), name, cells)
    # A copy decides all events, and most columns decide not even the main one.
    return main if not (main.decides or copy.of_one_event) else feature_power(labelled, name, cells)
