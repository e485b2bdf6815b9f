"""What makes two things the same: hashes of values, files and code.

Identity is what was declared plus what was read. Run ids, paths, prices and hosts are provenance
(provenance.py) and never enter it. A step of equal identity is reused.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainworthy.lifecycle.protocol.jobs import AnyJob

# The packages that decide numbers; the version of any other one is provenance.
DECIDING_PACKAGES = ("numpy", "pandas", "pyarrow", "scikit-learn", "scipy", "torch")


def canonical_json(value: Any) -> bytes:
    """One byte string per value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    """Hash of a JSON-able value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """Hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(files: Mapping[str, Path]) -> str:
    """Hash of named files: names and bytes both count."""
    return sha256_json({name: sha256_file(path) for name, path in files.items()})


def python_sources(folder: Path, skip: Iterable[str] = ()) -> dict[str, Path]:
    """The .py files below a folder by relative name, without the sub-folders named in `skip`."""
    skipped = set(skip)
    files = (path for path in folder.rglob("*.py") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path for name, path in sorted(named.items()) if not skipped & set(Path(name).parts[:-1])}


def step_code_sha256(use_case_folder: Path) -> str:
    """Hash of the code that decides a step's numbers: the use case's and ours.

    The report is left out: how a result is drawn does not change it.
    """
    return sha256_json({"use_case": sha256_files(python_sources(use_case_folder)), **_own_code()})


def own_code_sha256() -> str:
    """Hash of our part of that code, for what calls none of a use case's."""
    return sha256_json(_own_code())


def _own_code() -> dict[str, str]:
    ours = Path(__file__).parent
    return {
        "lifecycle": sha256_files(python_sources(ours, skip=("report",)) | _tables(ours)),
        "expectations": sha256_files(python_sources(ours.parent / "expectations")),
        "assets": sha256_files(python_sources(ours.parent / "assets")),
    }


def _tables(folder: Path) -> dict[str, Path]:
    """Tables that code decides by: a severity there is as good as one in a module."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.toml"))}


@functools.cache
def deciding_packages() -> Mapping[str, str]:
    """Python's and the deciding packages' versions, without importing them; read once a process."""
    import platform

    # Two decide what is accepted, and no served model needs them; Pillow decides the points of a picture.
    names = (*DECIDING_PACKAGES, "great-expectations", "pillow", "polars")
    versions = {name: metadata.version(name) for name in names}
    return MappingProxyType({"python": platform.python_version(), **versions})


def step_identity(step: str, *, sections: Mapping[str, Any], inputs: Mapping[str, str], code_sha256: str) -> str:
    """Identity of a step: its YAML sections, what it read (by identity or content hash), code, packages."""
    return sha256_json(
        {
            "step": step,
            "sections": dict(sections),
            "inputs": dict(inputs),
            "code": code_sha256,
            "packages": dict(deciding_packages()),
        }
    )


def job_sha256(job: AnyJob) -> str:
    """Hash that ties an answer to its job.

    Without the path of the use case's code: two checkouts of equal code ask the same, and `out` names what they ask.
    Without what a machine's interruptions are like, and when its budget ends: a training that this ended goes on.
    """
    return sha256_json(job.model_dump(mode="json", exclude={"use_case_folder", "interruptions", "ends_at"}))
