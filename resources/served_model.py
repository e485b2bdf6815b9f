"""The MLflow pyfunc: a shell over lifecycle's artifact loader. MLflow runs this file when it loads the model."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

if TYPE_CHECKING:
    from trainworthy.lifecycle.protocol.operating_point import OperatingPoint

# Names the folder whose files a request may name by path; without it a request holds the content of its files.
SERVED_FILES = "TRAINWORTHY_SERVED_FILES"


def align(rows: pd.DataFrame, trained: pd.DataFrame) -> pd.DataFrame:
    """The rows with every column of `trained`, null where a request lacks one; dates and zones of times as there.

    MLflow hands on every date and time as a naive timestamp.
    """
    from trainworthy.lifecycle.columns import with_columns

    rows = with_columns(rows, {str(name): None for name in trained if name not in rows})
    for name in trained:
        dtype, column = trained[name].dtype, rows[name]
        if column.dtype.kind != "M" or column.dtype == dtype:
            continue
        if dtype.kind == "O":
            rows[name] = column.dt.date
        elif getattr(dtype, "tz", None) is not None and column.dt.tz is None:
            rows[name] = column.dt.tz_localize("UTC").dt.tz_convert(trained[name].dt.tz)
    return rows


# MLflow asks for type hints of `predict`, past all filters, and would take them for a schema.
with warnings.catch_warnings(record=True):

    class ServedModel(PythonModel):
        """predict takes a DataFrame with the feature columns and gives the calibrated answers of the model's kind.

        One number a row is an array `(N,)`: the probability of label 1, or the number that is predicted. Several are a
        DataFrame with the rows' index and a column each: a class, or a quantile such as `0.9`. Of masks the columns are
        `mask`, places of classes pixel by pixel, and `probability`.

        Where a decision is frozen with the model, it decides as well: `probability` and `decision`, 1 or 0, or beside
        the classes' columns `decision`, the class that is answered.

        What a request lacks, and what the model cannot answer, is told in words; `align` brings columns into the form
        that the model was trained with.

        A column of files holds `data:` URIs, and paths below the folder that TRAINWORTHY_SERVED_FILES names.
        """

        _point: OperatingPoint | None = None

        def load_context(self, context: Any) -> None:
            from trainworthy.lifecycle.artifact import artifact_kind, artifact_sha256, load_artifact
            from trainworthy.lifecycle.errors import ChampionError
            from trainworthy.lifecycle.evaluation.operating_point import read_point
            from trainworthy.lifecycle.golden import file_columns, read_golden

            folder = Path(context.artifacts["artifact"])
            self._score = load_artifact(folder, artifact_sha256(folder))
            self._kind, self._files = artifact_kind(folder), file_columns(folder)
            self._golden = read_golden(folder, self._kind)
            if "decision" in context.artifacts:
                self._point = read_point(Path(context.artifacts["decision"]))
                if self._point is None:
                    # Else it would answer as a model that was registered without one.
                    fix = "restore this file as it was registered"
                    raise ChampionError("the registered decision is gone", value=context.artifacts["decision"], fix=fix)

        # Without type hints: MLflow would take them for a schema.
        def predict(self, context, model_input, params=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            from mlflow.exceptions import MlflowException

            from trainworthy.lifecycle.errors import TrainworthyError
            from trainworthy.lifecycle.evaluation.operating_point import served as served_answers
            from trainworthy.lifecycle.files.values import of_strangers

            served = os.environ.get(SERVED_FILES)
            try:
                rows = of_strangers(model_input, self._files, Path(served) if served else None)
                if self._golden is not None:
                    rows = align(rows, self._golden.requests)
                answers = self._score.whole(rows)
            except TrainworthyError as error:
                # Of any other error MLflow's server answers with a stack trace.
                raise MlflowException.invalid_parameter_value(str(error)) from error
            if answers.ndim == 1 and self._point is None:
                return answers
            return pd.DataFrame(served_answers(self._kind, answers, self._point), index=model_input.index)


set_model(ServedModel())
