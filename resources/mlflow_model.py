"""The form of an artifact in MLflow: models from code, a signature made from the contract, and an example.

Golden rows alone would make a wrong signature: a column that may be null is optional by the contract, whether one of
fifty rows shows it or not.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import never_null
from trainworthy.lifecycle.evaluation.operating_point import DECISION, FILE, PROBABILITY, content_of
from trainworthy.lifecycle.golden import file_columns, read_golden
from trainworthy.lifecycle.identity import DECIDING_PACKAGES
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.resources.settings import IMPORTED_FROM, PRODUCT

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import Schema

# MLflow's name of a logical type.
TYPES = {
    "string": "string", "integer": "long", "number": "double", "boolean": "boolean", "date": "datetime",
    "timestamp": "datetime",
}  # fmt: skip
# Bytes of the files in an example; beyond it a model has none.
MOST_EXAMPLE = 200_000


def save_pyfunc(
    path: Path, artifact: Path, contract: Contract | None = None, point: OperatingPoint | None = None
) -> None:
    """The MLflow form: models from code (no pickle), the artifact's folder, and lifecycle as its loader.

    Without a contract it has no signature and no example. With an operating point, a file beside the artifact, the
    model decides.
    """
    from importlib import metadata

    import mlflow.pyfunc

    needed = (*DECIDING_PACKAGES, *(("pillow",) if file_columns(artifact) else ()), "mlflow")
    with tempfile.TemporaryDirectory() as folder:
        artifacts = {"artifact": str(artifact)}
        if point is not None:
            (Path(folder) / FILE).write_bytes(content_of(point))
            artifacts["decision"] = str(Path(folder) / FILE)
        mlflow.pyfunc.save_model(
            str(path),
            python_model=str(PRODUCT / "resources" / "served_model.py"),
            artifacts=artifacts,
            code_paths=[str(_loader(Path(folder)))],
            pip_requirements=[f"{name}=={metadata.version(name).split('+')[0]}" for name in needed],
            signature=None if contract is None else signature_of(artifact, contract, point),  # pyright: ignore[reportArgumentType]
            input_example=None if contract is None else example_of(artifact),  # pyright: ignore[reportArgumentType]
        )


def signature_of(artifact: Path, contract: Contract, point: OperatingPoint | None = None) -> ModelSignature | None:
    """What a request has to hold: the artifact's features with the contract's types. None of an unknown feature."""
    from mlflow.models import ModelSignature
    from mlflow.types import Schema

    features: list[str] = json.loads((artifact / "features.json").read_text())
    columns, required = {column.name: column for column in contract.columns}, never_null(contract.rules)
    if not columns.keys() >= set(features):
        return None
    inputs = Schema([_spec(columns[name], required=name in required) for name in features])
    return ModelSignature(inputs=inputs, outputs=_outputs(artifact, point))


def _spec(column: Column, *, required: bool) -> Any:
    """A column in MLflow's types. Its integers and booleans hold no null, so optional ones are wider."""
    from mlflow.types import ColSpec
    from mlflow.types.schema import AnyType

    if not required and column.logical_type == "boolean":
        return ColSpec(AnyType(), column.name, required=False)
    wide = not required and column.logical_type == "integer"
    return ColSpec("double" if wide else TYPES[column.logical_type], column.name, required=required)


def _outputs(artifact: Path, point: OperatingPoint | None) -> Schema | None:
    """A number a row, or one for each name of the kind's answers, and what is decided; None of pictures."""
    from mlflow.types import ColSpec, Schema

    kind = artifact_kind(artifact)
    if len(kind.answer_shape) > 1:
        return None
    if point is not None and point.decision.by_threshold:
        return Schema([ColSpec("double", PROBABILITY), ColSpec("long", DECISION)])
    answers = [ColSpec("double", name) if name else ColSpec("double") for name in kind.answer_names]
    return Schema([*answers, *([] if point is None else [ColSpec("string", DECISION)])])


def example_of(artifact: Path) -> pd.DataFrame | None:
    """A golden request as a service takes it, files as `data:` URIs; None without one, or if its files are large."""
    golden, files = read_golden(artifact, artifact_kind(artifact)), file_columns(artifact)
    if golden is None:
        return None
    example = golden.requests.head(1)
    paths = [Path(path) for name in files for path in example[name]]
    if sum(path.stat().st_size for path in paths) > MOST_EXAMPLE:
        return None
    return example.assign(**{name: example[name].map(_as_data).astype("str") for name in files})


def _as_data(path: Path) -> str:
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _loader(folder: Path) -> Path:
    """trainworthy/ with lifecycle alone, made in the folder: MLflow keeps a copy beside the model, by its name."""
    made = folder / "trainworthy"
    shutil.copytree(PRODUCT / "lifecycle", made / "lifecycle", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "earlier_name.py"):
        shutil.copy(IMPORTED_FROM / "trainworthy" / name, made)
    return made
