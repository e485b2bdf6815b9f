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

# The packages that a served model needs, and that decide its numbers.
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


@functools.cache
def deciding_packages() -> Mapping[str, str]:
    """Versions of Python and of what features hang on, without importing it; read once a process."""
    import platform

    # Two decide what is accepted, and no served model needs them; Pillow decides the points of a picture.
    names = (*DECIDING_PACKAGES, "great-expectations", "pillow", "polars")
    versions = {name: metadata.version(name) for name in names}
    return MappingProxyType({"python": platform.python_version(), **versions})


def told_packages() -> dict[str, str]:
    """The same as one machine tells another: without what only says how a package was built (+cpu, +cu130)."""
    return {name: version.partition("+")[0] for name, version in deciding_packages().items()}


def other_packages(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Packages whose version here differs from that on another machine, each with both versions."""
    import platform

    differing = []
    for name, version in sorted(versions.items()):
        try:
            here = platform.python_version() if name == "python" else metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            here = "missing"
        if here != version:
            differing.append(f"{name} {here}, not {version}")
    return tuple(differing)


def step_identity(step: str, *, sections: Mapping[str, Any], inputs: Mapping[str, str], code_sha256: str) -> str:
    """Identity of a step: its YAML sections, what it read (by identity or content hash), and its code.

    The code's hash has the versions of the packages that it imports (code_identity.py).
    """
    return sha256_json(
        {
            "step": step,
            "sections": dict(sections),
            "inputs": dict(inputs),
            "code": code_sha256,
        }
    )


def job_sha256(job: AnyJob) -> str:
    """Hash that ties an answer to its job.

    Without the path of the use case's code: two checkouts of equal code ask the same, and `out` names what they ask.
    Without what a machine's interruptions are like, and when its budget ends: a training that this ended goes on.
    """
    return sha256_json(job.model_dump(mode="json", exclude={"use_case_folder", "interruptions", "ends_at"}))
