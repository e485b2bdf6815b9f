"""The artifact: what is evaluated, registered and shipped, byte for byte the same.

A folder with model.pt2 (torch.export), preprocessing.json, calibration.json, target.json (what is predicted; an
artifact without it is of a binary label), files.json (features that are files and their kinds, if there are any), the
use case's code, golden.parquet (requests with the artifact's own answers; golden.py) and, written last, manifest.json
with every file's sha256. Loading verifies the manifest first. No pickle is read: pt2 holds a graph and weights. No row
of the data is in any of these files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.files.values import opened_files
from trainworthy.lifecycle.golden import file_columns, made_columns, write_golden
from trainworthy.lifecycle.identity import canonical_json, python_sources, sha256_file
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.storage.state import sync_folder, write_atomic
from trainworthy.lifecycle.task import load_task
from trainworthy.lifecycle.tasks import Kind, kind_of
from trainworthy.lifecycle.tasks.kind import parts_of
from trainworthy.lifecycle.tasks.labels import truth_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch

    from trainworthy.lifecycle.protocol.jobs import Rows

# What torch.export notes in each node about the source that it came from.
_SOURCES = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


def write_artifact(
    folder: Path,
    *,
    task_folder: Path,
    model: torch.nn.Module,
    example: dict[str, torch.Tensor],
    preprocessing: Mapping[str, Any],
    calibration: Mapping[str, Any],
    target: Target,
    requests: pd.DataFrame,
) -> tuple[str, str]:
    """Write the artifact to `folder`, replacing one from before; returns its path and its sha256.

    `example` holds inputs of at least 2 rows, so that the batch dimension stays free. `requests` are the
    golden requests (draw_requests); their columns are the features, in order.
    """
    temporary = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    export_model(model, example, temporary / "model.pt2")
    values: dict[str, Any] = {
        "preprocessing": preprocessing, "calibration": calibration, "features": list(requests),
        "target": target.model_dump(mode="json"),
    }  # fmt: skip
    if files := made_columns(requests):
        values["files"] = files
    for name, value in values.items():
        # In the order of the state: model.py may count on the order of a dict.
        (temporary / f"{name}.json").write_text(json.dumps(value, allow_nan=False))
    for name, source in python_sources(task_folder).items():
        copied = temporary / "code" / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copied)
    write_golden(temporary, requests, _load(temporary), kind_of(target))
    write_atomic(temporary / "manifest.json", canonical_json(_hashes(temporary)))
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)
    sync_folder(folder.parent)
    return str(folder), artifact_sha256(folder)


def export_model(model: torch.nn.Module, example: dict[str, torch.Tensor], path: Path) -> None:
    """torch.export on the CPU in evaluation mode, with a free batch dimension for every input.

    Where the code lay is left out of the file, so that equal weights and code give equal bytes. The
    example's shapes are traced, not its values: the file keeps its example, and rows must not ship with it.
    """
    import copy
    import warnings

    import torch

    exported = copy.deepcopy(model).cpu().eval()
    batch = torch.export.Dim("batch")
    shapes = ({name: {0: batch} for name in example},)
    blank = {name: torch.zeros_like(tensor, device="cpu") for name, tensor in example.items()}
    with warnings.catch_warnings():
        # What torch's own recurrent layers keep beside their weights, and no state of the use case's.
        warnings.filterwarnings("ignore", message=r"The tensor attributes? self\.\S*_flat_weights")
        program = torch.export.export(exported, (blank,), dynamic_shapes=shapes)
    _forget_sources(program)
    torch.export.save(program, path)


def _forget_sources(program: torch.export.ExportedProgram) -> None:
    """Drop what only tracing a graph back to its source needs: it holds absolute paths and module names."""
    import torch

    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                for name in _SOURCES:
                    node.meta.pop(name, None)


def artifact_sha256(folder: Path) -> str:
    """Hash of the manifest, which holds the hash of every other file."""
    return sha256_file(folder / "manifest.json")


def verify_artifact(folder: Path, sha256: str) -> None:
    """Raises CheckpointError unless every file is what was written."""
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise CheckpointError("the artifact is missing", value=str(folder), fix="train again", code="artifact.missing")
    if sha256_file(manifest) != sha256:
        problem, code = "the artifact is not the one on record", "artifact.other_manifest"
        raise CheckpointError(problem, value=str(folder), fix="train again", code=code)
    declared, present = json.loads(manifest.read_text()), _hashes(folder)
    changed = sorted(name for name in declared.keys() | present.keys() if declared.get(name) != present.get(name))
    if changed:
        fix = "restore them or train again"
        raise CheckpointError("files of the artifact were changed", value=changed, fix=fix, code="artifact.changed")


@dataclass(frozen=True)
class Scorer:
    """A loaded artifact. `answer` takes rows with the feature columns and what to make of each chunk of them.

    Called with rows it gives calibrated answers `(N, *answer_shape)`.
    """

    kind: Kind
    calibration: Mapping[str, Any]
    answer: Callable[[pd.DataFrame, Callable[[np.ndarray, slice], np.ndarray]], np.ndarray]

    def __call__(self, rows: pd.DataFrame) -> np.ndarray:
        return self.answer(rows, lambda raw, _: self.kind.calibrated(self.kind.of_predict(raw), self.calibration))

    def whole(self, rows: pd.DataFrame) -> np.ndarray:
        """Calibrated answers with all that the model gives."""
        return self.answer(rows, lambda raw, _: self._whole(raw))

    def statistics(self, rows: pd.DataFrame, columns: Rows) -> np.ndarray:
        """What a table of predictions keeps of the answers to labelled rows, `(N,)` or `(N, K)`."""
        return self.figures(rows, columns, lambda truth, answers, _: self.kind.statistics(truth, answers))

    def figures(
        self, rows: pd.DataFrame, columns: Rows, made: Callable[[np.ndarray, np.ndarray, slice], np.ndarray]
    ) -> np.ndarray:
        """What `made` makes of truth, whole answers and numbers of labelled rows, by parts_of."""
        import numpy as np

        parts = parts_of(self.kind, len(rows))
        return np.concatenate(
            [made(truth_of(columns, rows.iloc[some]), self.whole(rows.iloc[some]), some) for some in parts]
        )

    def _whole(self, raw: np.ndarray) -> np.ndarray:
        return self.kind.calibrated(self.kind.of_predict(raw, whole=True), self.calibration)


def load_artifact(folder: Path, sha256: str) -> Scorer:
    """Verify, then load.

    A value of a column of files is a path, or a data: URI with base64 content; see opened_files.
    """
    verify_artifact(folder, sha256)
    return _load(folder)


def artifact_kind(folder: Path) -> Kind:
    """What a verified artifact predicts."""
    path = folder / "target.json"
    return kind_of(Target.model_validate_json(path.read_bytes()) if path.is_file() else Target())


def _load(folder: Path) -> Scorer:
    import torch

    from trainworthy.lifecycle.scoring import in_chunks

    task = load_task(folder / "code")
    preprocessing, calibration, features = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("preprocessing", "calibration", "features")
    )
    model, kind, files = torch.export.load(folder / "model.pt2").module(), artifact_kind(folder), file_columns(folder)

    def answer(rows: pd.DataFrame, made: Callable[[np.ndarray, slice], np.ndarray]) -> np.ndarray:
        with opened_files(rows[features], files) as opened:
            return in_chunks(opened, task, preprocessing, model, "cpu", made)

    return Scorer(kind, calibration, answer)


def _hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file but the manifest and compiled code, by relative name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files if path.name != "manifest.json"}
