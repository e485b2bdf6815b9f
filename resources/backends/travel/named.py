"""The files that a job names, and which of them lie where a worker finds them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.code_identity import modules_around
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.jobs import AnyJob
from trainworthy.resources.backends.travel.places import field_of

# Fields of jobs that hold paths, of a diagnosis's training as well. Texts elsewhere, such as a hyperparameter, may look
# like one.
PATH_FIELDS = frozenset({
    "use_case_folder", "out", "rows.files_root", "training_file", "validation_file", "calibration_file", "rows_file",
    "reference_files", "artifact", "candidate.path", "champion.path", "start.path", "incident", "kept_features.folder",
    "data_folders", "durable", "interruptions.durable",
})  # fmt: skip


def files_of(job: AnyJob) -> dict[str, str]:
    """Absolute paths in a job that are there on this machine, by where they stand in it."""
    texts = _texts(job.model_dump(mode="json"), "")
    return {where: text for where, text in texts if field_of(where) in PATH_FIELDS and _is_file(text)}


def all_of(job: AnyJob) -> dict[str, str]:
    """The same with the modules around its use case, which a machine without the project needs as well."""
    return files_of(job) | _imported(Path(job.use_case_folder))


def refuse_not_below(root: Path, named: Mapping[str, str], problem: str, fix: str) -> None:
    """Raises SettingsError if files lie outside of `root`; `named` has each by what it is."""
    outside = {what: path for what, path in named.items() if not Path(path).is_relative_to(root)}
    if outside:
        listed = "; ".join(f"{what}: {path}" for what, path in outside.items())
        raise SettingsError(f"{problem}: {listed}", fix=fix)


def _imported(use_case_folder: Path) -> dict[str, str]:
    """Modules around a use case that it imports, each by a text of its own: many are called __init__.py."""
    around = modules_around(use_case_folder)
    return {f"imported by the use case: {os.path.relpath(path, use_case_folder)}": str(path) for path in around}


def _is_file(text: str) -> bool:
    try:
        return text.startswith("/") and Path(text).exists()
    except (OSError, ValueError):
        return False


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield where, value
        case dict():
            for name, entry in value.items():
                yield from _texts(entry, f"{where}.{name}" if where else str(name))
        case list():
            for number, entry in enumerate(value):
                yield from _texts(entry, f"{where}[{number}]")
        case _:
            pass
