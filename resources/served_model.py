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
        """predict takes a DataFrame with the feature columns and gives calibrated probabilities `(N,)`."""

        def load_context(self, context: Any) -> None:
            from lifecycle.artifact import artifact_sha256, load_artifact

            folder = Path(context.artifacts["artifact"])
            self._score = load_artifact(folder, artifact_sha256(folder))

        # Without type hints: MLflow would take them for a schema.
        def predict(self, context, model_input, params=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            return self._score(model_input)


set_model(ServedModel())
