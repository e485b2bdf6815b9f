"""The MLflow pyfunc: a shell over lifecycle's artifact loader. MLflow runs this file when it loads the model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

# MLflow asks for type hints of `predict`, past all filters, and would take them for a schema.
with warnings.catch_warnings(record=True):

    class ServedModel(PythonModel):
        """predict takes a DataFrame with the feature columns and gives the calibrated answers of the model's kind.

        One number a row is an array `(N,)`: the probability of label 1, or the number that is predicted. Several are a
        DataFrame with the rows' index and a column each: a class, or a quantile such as `0.9`. Of masks the columns are
        `mask`, places of classes pixel by pixel, and `probability`.
        """

        def load_context(self, context: Any) -> None:
            from lifecycle.artifact import artifact_kind, artifact_sha256, load_artifact

            folder = Path(context.artifacts["artifact"])
            self._score = load_artifact(folder, artifact_sha256(folder))
            self._kind = artifact_kind(folder)

        # Without type hints: MLflow would take them for a schema.
        def predict(self, context, model_input, params=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            import pandas as pd

            answers = self._score.whole(model_input)
            if answers.ndim == 1:
                return answers
            return pd.DataFrame(self._kind.served(answers), index=model_input.index)


set_model(ServedModel())
