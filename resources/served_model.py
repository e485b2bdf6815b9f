"""The MLflow pyfunc: a shell over lifecycle's artifact loader. MLflow runs this file when it loads the model."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

# Names the folder whose files a request may name by path; without it a request holds the content of its files.
SERVED_FILES = "TRAINWORTHY_SERVED_FILES"

# MLflow asks for type hints of `predict`, past all filters, and would take them for a schema.
with warnings.catch_warnings(record=True):

    class ServedModel(PythonModel):
        """predict takes a DataFrame with the feature columns and gives the calibrated answers of the model's kind.

        One number a row is an array `(N,)`: the probability of label 1, or the number that is predicted. Several are a
        DataFrame with the rows' index and a column each: a class, or a quantile such as `0.9`. Of masks the columns are
        `mask`, places of classes pixel by pixel, and `probability`.

        A column of files holds `data:` URIs, and paths below the folder that TRAINWORTHY_SERVED_FILES names.
        """

        def load_context(self, context: Any) -> None:
            from trainworthy.lifecycle.artifact import artifact_kind, artifact_sha256, load_artifact
            from trainworthy.lifecycle.golden import file_columns

            folder = Path(context.artifacts["artifact"])
            self._score = load_artifact(folder, artifact_sha256(folder))
            self._kind, self._files = artifact_kind(folder), file_columns(folder)

        # Without type hints: MLflow would take them for a schema.
        def predict(self, context, model_input, params=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            import pandas as pd

            from trainworthy.lifecycle.files.values import of_strangers

            served = os.environ.get(SERVED_FILES)
            rows = of_strangers(model_input, self._files, Path(served) if served else None)
            answers = self._score.whole(rows)
            if answers.ndim == 1:
                return answers
            return pd.DataFrame(self._kind.served(answers), index=model_input.index)


set_model(ServedModel())
