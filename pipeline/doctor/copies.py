"""The folder on storage that outlives this machine, to which checkpoints are copied."""

from __future__ import annotations

from collections.abc import Iterator

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.gates.declared import LOST_DISKS, NETWORK_DISKS, file_system, takes_files
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import DURABLE, Settings, use_case_folders


def durable_folder(settings: Settings) -> Iterator[CheckResult]:
    """The folder for copies of checkpoints takes files; use cases on spot machines have one that outlives them."""
    durable, spot = settings.durable, _on_spot(settings)
    if durable is None:
        yield _unnamed(settings, spot)
        return
    fix = f"mount it and make it writable, or name another folder in {DURABLE}; every training refuses until then"
    try:
        takes_files(durable)
    except OSError as error:
        told = f"checkpoints are copied to {durable}, which takes no files: {error.strerror or error}"
        yield CheckResult(name="durable_folder", status="fail", evidence=told, fix=fix)
        return
    kind = file_system(durable)
    yield holds(
        "durable_folder",
        not (spot and kind.startswith(LOST_DISKS)),
        severity="warning",
        evidence=f"checkpoints are copied to {durable}, which takes files and lies on {kind}{_told(spot)}",
        fix=f"memory and a container's own layer go with a spot machine: name a folder on a volume in {DURABLE}",
    )


def _unnamed(settings: Settings, spot: list[str]) -> CheckResult:
    """No folder is named: nothing is amiss, unless a spot machine would take its only checkpoints with it."""
    if not spot:
        told = f"{DURABLE} names no folder, and no use case trains on a spot machine"
        return CheckResult(name="durable_folder", status="not_applicable", evidence=told)
    kind = file_system(next(folder for folder in (settings.var, *settings.var.parents) if folder.exists()))
    return holds(
        "durable_folder",
        kind.startswith(NETWORK_DISKS),
        severity="warning",
        evidence=f"{DURABLE} names no folder, and checkpoints lie on {kind}{_told(spot)}",
        fix=f"name a folder on storage that outlives the machine in {DURABLE}, or remove compute.spot",
    )


def _told(spot: list[str]) -> str:
    return f"; on spot machines train {', '.join(spot)}" if spot else ""


def _on_spot(settings: Settings) -> list[str]:
    """Names of the use cases that declare a spot machine; one that does not load is told by its own check."""
    found = []
    for folder in use_case_folders(settings):
        try:
            use_case = load_use_case(folder)
        except TrainworthyError:
            continue
        if use_case.spec.compute.spot:
            found.append(folder.name)
    return found
