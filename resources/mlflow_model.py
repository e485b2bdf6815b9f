"""A model in MLflow: a version of its registry; and its form: from code, a signature by the contract, an example.

Golden rows alone would make a wrong signature: a column that may be null is optional by the contract, whether one of
fifty rows shows it or not.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from trainworthy.lifecycle.artifact import artifact_kind
from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import never_null
from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.operating_point import (
    DECISION,
    FILE,
    PROBABILITY,
    content_of,
    read_point,
)
from trainworthy.lifecycle.golden import file_columns, read_golden
from trainworthy.lifecycle.identity import DECIDING_PACKAGES
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.resources.settings import IMPORTED_FROM, PRODUCT, read_settings

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import Schema

# Folders of what was downloaded from a server, until this process ends.
_DOWNLOADS: list[tempfile.TemporaryDirectory[str]] = []

# MLflow's name of a logical type.
TYPES = {
    "string": "string", "integer": "long", "number": "double", "boolean": "boolean", "date": "datetime",
    "timestamp": "datetime",
}  # fmt: skip
# Bytes of the files in an example; beyond it a model has none.
MOST_EXAMPLE = 200_000
# What MLflow answers for a name, an alias or a file that does not exist.
NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


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
    return with_columns(example, {name: example[name].map(_as_data).astype("str") for name in files})


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


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the registry. `source` is the address of its files."""

    name: str
    version: str
    source: str
    tags: Mapping[str, str]

    @property
    def artifact_sha256(self) -> str:
        """By which versions with the same files are known; what they decide may differ. One without a tag has its own.

        Not of what Tracking.version gives, which reads no tags. Of versions that were promoted or rolled back to,
        promotion.judged.artifacts_of tells it without a registry.
        """
        return self.tags.get("artifact_sha256") or f"version {self.version}"

    @property
    def local(self) -> Path | None:
        """The folder that `source` names, there or not; None if the files lie on a server."""
        address = urlsplit(self.source)
        return Path(unquote(self.source.removeprefix("file://"))) if address.scheme in ("", "file") else None

    @cached_property
    def artifact(self) -> Path:
        """Folder of the artifact, downloaded from a server at its first use. Raises ChampionError if it is gone."""
        folder = (self.local or self._downloaded()) / "artifacts" / "artifact"
        if not folder.is_dir():
            raise self._gone()
        return folder

    @property
    def decision_file(self) -> Path:
        """Where the file of its operating point lies, if it has one. Raises ChampionError if its files are gone."""
        return self.artifact.parent / FILE

    @property
    def decides(self) -> OperatingPoint | None:
        """The operating point that is frozen in it; None if it gives answers alone. Raises ChampionError."""
        return read_point(self.decision_file)

    def _downloaded(self) -> Path:
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        try:
            return Path(download_artifacts(self.source, dst_path=_download_folder()))
        except MlflowException as error:
            if error.error_code in NOT_THERE:
                raise self._gone() from error
            raise

    def _gone(self) -> ChampionError:
        problem = f"{self.name} version {self.version} is registered, its artifact is gone"
        return ChampionError(problem, value=self.source, fix="restore this folder from a backup; a verdict needs it")


def _download_folder() -> str:
    """A folder below the state folder, where workers on other machines read what they are given."""
    place = read_settings().var / "registered"
    place.mkdir(parents=True, exist_ok=True)
    _DOWNLOADS.append(folder := tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True))
    return folder.name


def model_of(version: Any) -> RegisteredModel:
    """A version as MLflow gives it."""
    return RegisteredModel(version.name, str(version.version), version.source, dict(version.tags))


def has_files(model: RegisteredModel, point: OperatingPoint | None) -> bool:
    """True if the artifact is there, and the file of the operating point is the one that was registered, if any was."""
    try:
        file = model.decision_file
    except ChampionError:
        return False
    if not file.is_file():
        return "decision_sha256" not in model.tags
    return point is not None and file.read_bytes() == content_of(point)
