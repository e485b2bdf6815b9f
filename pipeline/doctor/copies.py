"""The storage that outlives this machine, to which checkpoints are copied."""

from __future__ import annotations

from collections.abc import Iterator

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.gates.declared import LOST_DISKS, NETWORK_DISKS, file_system
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.storage.durable.bucket import is_bucket
from trainworthy.lifecycle.storage.durable.place import takes_copies
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import DURABLE, Settings, use_case_folders


def durable_folder(settings: Settings) -> Iterator[CheckResult]:
    """The storage for copies of checkpoints takes files; use cases on spot machines have one that outlives them."""
    durable, spot = settings.durable, _on_spot(settings)
    if durable is None:
        yield _unnamed(settings, spot)
        return
    make = "put that right" if is_bucket(durable) else "mount it and make it writable"
    fix = f"{make}, or name another place in {DURABLE}; every training refuses until then"
    try:
        takes_copies(durable)
    except (OSError, TrainworthyError) as error:
        said = error.strerror or error if isinstance(error, OSError) else f"{error.problem}; {error.fix}"
        evidence = f"checkpoints are copied to {durable}, which takes no files: {said}"
        yield CheckResult(name="durable_folder", status="fail", evidence=evidence, fix=fix)
        return
    kind = file_system(durable)
    yield holds(
        "durable_folder",
        not (spot and kind.startswith(LOST_DISKS)),
        severity="warning",
        evidence=f"checkpoints are copied to {durable}, which takes files and lies on {kind}{_spot_note(spot)}",
        fix=f"memory and a container's own layer go with a spot machine: name a volume or a bucket in {DURABLE}",
    )


def _unnamed(settings: Settings, spot: list[str]) -> CheckResult:
    """No folder is named: nothing is amiss, unless a spot machine would take its only checkpoints with it."""
    if not spot:
        evidence = f"{DURABLE} names no storage, and no use case trains on a spot machine"
        return CheckResult(name="durable_folder", status="not_applicable", evidence=evidence)
    kind = file_system(next(folder for folder in (settings.var, *settings.var.parents) if folder.exists()))
    return holds(
        "durable_folder",
        kind.startswith(NETWORK_DISKS),
        severity="warning",
        evidence=f"{DURABLE} names no storage, and checkpoints lie on {kind}{_spot_note(spot)}",
        fix=f"name storage that outlives the machine in {DURABLE}, or remove compute.spot",
    )


def _spot_note(spot: list[str]) -> str:
    return f"; on spot machines train {', '.join(spot)}" if spot else ""


def _on_spot(settings: Settings) -> list[str]:
    """Names of the use cases that declare a spot machine; one that does not load is told by its own check."""
    names = []
    for folder in use_case_folders(settings):
        try:
            use_case = load_use_case(folder)
        except TrainworthyError:
            continue
        if use_case.spec.compute.spot:
            names.append(folder.name)
    return names
