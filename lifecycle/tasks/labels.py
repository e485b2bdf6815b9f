"""What a job's rows hold of labels, by their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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


def by_place(places: pd.Series, values: Sequence[Any]) -> pd.Series:
    """The value that each place stands for."""
    import pandas as pd

    return pd.Series(pd.Index(values).take(places.to_numpy()), index=places.index, name=places.name)


def named_column(rows: Rows, frame: pd.DataFrame, name: str) -> pd.Series:
    """A column of the frame by the values that people know: one that holds places of classes by their names."""
    of_class = name == rows.label and rows.target.kind == "multiclass"
    return by_place(frame[name], rows.target.classes) if of_class else frame[name]
