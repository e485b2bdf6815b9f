"""This machine: Python, packages, environment variables, disk."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from trainworthy.lifecycle.errors import NotifierError, did_you_mean
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.storage.state import LEAST_FREE_BYTES
from trainworthy.resources.notifier import WEBHOOK, webhook
from trainworthy.resources.settings import (
    DAGSTER_URL,
    DATABASE,
    DURABLE,
    MLFLOW_URL,
    NODE_ADDRESS,
    NODE_COMMAND,
    NODES,
    PRODUCT,
    PROJECT,
    RAY_ADDRESS,
    RAY_FOLDER,
    STATE,
    USE_CASES,
    VAR,
    Settings,
)

PYTHONS = ((3, 11), (3, 14))
# The demo leaves 0.2 GB and needs about as much again while it runs; a dataset version is kept three times.
COMFORTABLE_FREE_GB = 3.0
# NVIDIA's driver makes it.
GPU = Path("/dev/nvidiactl")
# As in lifecycle/worker.py, which takes a third of a second to import.
SPOT_NOTICE = "TRAINWORTHY_SPOT_NOTICE"
VARIABLES = (
    PROJECT, VAR, USE_CASES, DURABLE, DATABASE, RAY_ADDRESS, RAY_FOLDER, NODES, NODE_COMMAND, NODE_ADDRESS,
    DAGSTER_URL, MLFLOW_URL, SPOT_NOTICE, STATE, WEBHOOK,
)  # fmt: skip


def python(settings: Settings) -> Iterator[CheckResult]:
    """Python's version, and whether it is the project's own."""
    low, high = PYTHONS
    yield holds(
        "python",
        low <= sys.version_info[:2] < high,
        evidence=f"Python {platform.python_version()} at {sys.executable}",
        fix="remove .venv, then make setup PYTHON=/path/to/python3.11; Python 3.11 to 3.13 is needed",
    )


def packages(settings: Settings) -> Iterator[CheckResult]:
    """Every dependency of pyproject.toml is installed in its range; other versions than constraints.txt are told."""
    from packaging.requirements import Requirement

    declared = [
        requirement
        for requirement in map(Requirement, _dependencies())
        if requirement.marker is None or requirement.marker.evaluate()
    ]
    wrong = []
    for requirement in declared:
        version = installed(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement} (found {version or 'none'})")
    evidence = f"wrong or missing: {', '.join(wrong)}" if wrong else f"all {len(declared)} dependencies are in range"
    yield holds("packages", not wrong, evidence=evidence, fix="make setup")
    yield from _exact_versions(PRODUCT / "constraints.txt")
    yield from _torch()


def _dependencies() -> list[str]:
    """As pyproject.toml has them, which an editable install may be older than; an installed Trainworthy has none."""
    declared = PRODUCT / "pyproject.toml"
    if not declared.is_file():
        return metadata.requires("trainworthy") or []
    return tomllib.loads(declared.read_text(encoding="utf-8"))["project"]["dependencies"]


def _exact_versions(constraints: Path) -> Iterator[CheckResult]:
    if not constraints.is_file():
        return
    pins = [line.split("==") for line in constraints.read_text(encoding="utf-8").splitlines() if "==" in line]
    # A local build tag (+cpu) is the same release.
    versions = {name: (installed(name) or "").partition("+")[0] for name, _ in pins}
    other = [f"{name} {versions[name]} (not {pin})" for name, pin in pins if versions[name] not in ("", pin)]
    shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
    yield holds(
        "exact_versions",
        not other,
        severity="warning",
        evidence=shown or "as in constraints.txt",
        fix="make setup; other versions may give other figures, and a verdict binds the environment",
    )


def _torch() -> Iterator[CheckResult]:
    """Told from metadata: importing torch takes seconds."""
    version = installed("torch")
    if version is None:
        return  # packages has said so
    cuda = "+cpu" not in version and any(
        (distribution.metadata["Name"] or "").startswith("nvidia-") for distribution in metadata.distributions()
    )
    gpu = GPU.exists()
    description = {
        (True, True): "a CUDA build, and a GPU is there",
        (True, False): "a CUDA build without a GPU: it works on the CPU and takes several GB of disk",
        (False, True): "a CPU build, and a GPU is there: it will not be used",
        (False, False): "a CPU build, no GPU: training runs on the CPU",
    }[cuda, gpu]
    fix = "install torch's CUDA build of the same version, if use cases shall train on the GPU"
    status = "fail" if gpu and not cuda else "pass"
    yield CheckResult(
        name="torch", status=status, severity="warning", evidence=f"torch {version}: {description}", fix=fix
    )


def installed(name: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def environment(settings: Settings) -> Iterator[CheckResult]:
    """Variables that have no effect, or that send state elsewhere."""
    findings = [
        (f"{name} is set and has no effect", did_you_mean(name, VARIABLES))
        for name in os.environ
        if name.startswith("TRAINWORTHY_") and name not in VARIABLES
    ]
    home = os.environ.get("DAGSTER_HOME")
    if home and not (Path(home) / "dagster.yaml").is_file():
        findings.append((f"DAGSTER_HOME names a folder without dagster.yaml: {home}", "unset DAGSTER_HOME"))
    elif home and Path(home).resolve() != settings.project:
        findings.append((f"DAGSTER_HOME is set: Dagster follows {home}/dagster.yaml", "unset it to use the project's"))
    elif not home and Path.cwd() != settings.project:
        findings.append(
            (f"Dagster's bare commands read dagster.yaml of {Path.cwd()}", f"cd {shlex.quote(str(settings.project))}")
        )
    for problem, fix in findings:
        yield CheckResult(name="environment", status="fail", severity="warning", evidence=problem, fix=fix)
    if not findings:
        yield CheckResult(name="environment", status="pass", evidence="no conflicting variables")


def alerts(settings: Settings) -> Iterator[CheckResult]:
    """Where a validation's alerts go; the webhook's address is not told, since it may hold a key."""
    try:
        posted = webhook() is not None
    except NotifierError as error:
        yield CheckResult(name="alerts", status="fail", severity="warning", evidence=error.problem, fix=error.fix)
        return
    destination = "the run's log and a webhook" if posted else f"the run's log; {WEBHOOK} names no webhook"
    yield CheckResult(name="alerts", status="pass", evidence=f"go to {destination}")


def disk(settings: Settings) -> Iterator[CheckResult]:
    """Free space where the state folder is, and what the state takes."""
    place = next(folder for folder in (settings.var, *settings.var.parents) if folder.exists())
    free, used = shutil.disk_usage(place).free / 1e9, folder_bytes(settings.var) / 1e9
    yield CheckResult(
        name="disk",
        status="pass" if free >= COMFORTABLE_FREE_GB else "fail",
        # Below it no step starts.
        severity="error" if free * 1e9 < LEAST_FREE_BYTES else "warning",
        observed=round(free, 2),
        threshold=COMFORTABLE_FREE_GB,
        evidence=f"{free:.1f} GB free, the state folder takes {used:.2f} GB",
        fix=f"free space on {place}, or move {settings.var} and name it in TRAINWORTHY_VAR",
    )


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below; a file that goes meanwhile counts as none."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
