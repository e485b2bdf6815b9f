"""What a job's rows hold of labels, by their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.kind import Kind

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


def kind_of_rows(rows: Rows) -> Kind:
    """What is predicted of them."""
    return kind_of(rows.target)


def labels_of(rows: Rows, frame: pd.DataFrame) -> np.ndarray:
    """The labels of a frame that holds the label's column, (N, ...) as the kind has them. Raises EvaluationError."""
    return kind_of_rows(rows).checked_labels(frame[rows.label].to_numpy())


def truth_of(rows: Rows, frame: pd.DataFrame) -> np.ndarray:
    """All that is known of their labels, (N, ...), of their files where they have some. Raises EvaluationError."""
    return kind_of_rows(rows).truth(frame[rows.label_file or rows.label].to_numpy())
