"""What the host can say of a training without building it: its sums, its stores, a machine that may be taken away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainworthy.lifecycle.cost.checkpoint_interval import longest_seconds
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.plan import MIN_STEPS, Plan, plan_of_counts
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.jobs import DURABLE_SECONDS, Interruptions
from trainworthy.lifecycle.protocol.records import STAGES, Forecast
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.storage.durable.bucket import is_bucket
from trainworthy.lifecycle.storage.durable.folder import takes_files

# Epochs may be added until there are MIN_STEPS; beyond this factor another training runs than the declared one.
ADDED_EPOCHS = 2
# What pods and their launcher have in common; of which kind it is says neither.
SHARED_VOLUME = "shared volume"
NETWORK_DISKS = (
    SHARED_VOLUME,
    "s3",
    "nfs",
    "cifs",
    "smb",
    "fuse.",
    "lustre",
    "ceph",
    "gpfs",
    "beegfs",
    "9p",
    "virtiofs",
    "glusterfs",
)
LOST_DISKS = ("tmpfs", "ramfs", "overlay", "aufs")


@dataclass(frozen=True)
class Host:
    """What is known before the worker starts; `positives` of the training rows have the label 1, which only the
    oversampling of a label of two values asks.

    `stores` are by name what opens a store, or raises. `durable` is where checkpoints are copied to, `disk` its
    file system or protocol, that of the state folder if there is none. `seconds` are forecast of the three stages and
    `step` is measured, once they are.
    """

    spec: UseCaseSpec
    training_rows: int
    positives: int
    stores: Mapping[str, Callable[[], object]]
    disk: str
    seconds: Forecast | None = None
    durable: str | None = None
    step: StepTime | None = None

    def after(self, seconds: Forecast | None, step: StepTime | None) -> Host:
        """The same with what the worker found."""
        return replace(self, seconds=seconds, step=step)

    def plan(self, stage: str) -> Plan:
        """A stage's plan, as the worker will make it."""
        return plan_of_counts(self.training_rows, self.positives, self.spec.training, self.spec.stages, stage)


def steps_add_up(host: Host) -> Outcome:
    """Updates times their rows, against the rows times the epochs that are declared."""
    training, plan = host.spec.training, host.plan("full")
    update = training.batch_size * training.accumulate
    declared = f"{training.batch_size} rows × {training.accumulate} accumulated = {update:,} rows an update"
    if update > plan.draws:
        evidence = f"{declared}, and the training split has {plan.draws:,}: an epoch has no whole update"
        cause = (
            "the batch is larger than the data" if training.accumulate == 1 else "accumulated over more than an epoch"
        )
        return Outcome("fail", evidence, update, plan.draws, cause=cause)
    epochs = plan.horizon_steps // plan.steps_per_epoch
    evidence = f"{declared}; full: {plan.horizon_steps:,} updates, {epochs} epochs of {plan.steps_per_epoch:,}"
    if epochs > ADDED_EPOCHS * training.epochs:
        evidence += f", where training.epochs is {training.epochs}: fewer than {MIN_STEPS} updates train nothing"
        return Outcome("insufficient", evidence, epochs, training.epochs)
    evidence += f", {plan.draws - plan.rows:,} rows of the rare class again in each" if plan.draws > plan.rows else ""
    left = plan.draws - plan.steps_per_epoch * update
    evidence += f", {left:,} rows left out of each" if left else ""
    smaller = [stage for stage in STAGES if host.plan(stage).batch_size < update]
    return Outcome("pass", evidence + (f"; all rows of {', '.join(smaller)} are one update" if smaller else ""), epochs)


def stores_are_reachable(host: Host) -> Outcome:
    """Each store is opened; what it raises is told, without credentials."""
    broken = []
    for name, reach in host.stores.items():
        try:
            reach()
        except Exception as error:
            # Whatever a client of a server raises; its address may hold a password. Cut last, or the @ may be gone.
            said = without_credentials(str(error).partition("\n")[0])[:200]
            broken.append(f"{name}: {type(error).__name__}: {said}")
    if broken:
        return Outcome("fail", "; ".join(broken), len(broken), 0)
    return Outcome("pass", f"opened: {', '.join(host.stores)}", 0, 0, about=tuple(host.stores))


def checkpoints_survive(host: Host) -> Outcome:
    """On a spot machine: how old the newest state may be that outlives it, and whether its disk does."""
    if not host.spec.compute.spot:
        return Outcome("not_applicable", "compute.spot is false: the machine stays")
    if host.seconds is None or host.step is None:
        return Outcome("insufficient", "there is no forecast of the seconds a step")
    likely, high, evidence = _oldest(host, host.seconds, host.step)
    # Each core that other work keeps busy may take as much of an update's time again as it has.
    alone = likely / (1 + host.step.others_busy)
    if alone <= DURABLE_SECONDS < likely and host.step.disturbed:
        evidence += f"; measured beside other work, which had {host.step.others_busy:.1f} cores"
        fix = "run preflight again while the machine has less to do"
        return Outcome("insufficient", evidence, round(likely), DURABLE_SECONDS, fix=fix)
    if likely > DURABLE_SECONDS:
        return Outcome("fail", evidence, round(likely), DURABLE_SECONDS)
    evidence += f"; {'copies' if host.durable else 'they'} lie on {host.disk}"
    if host.disk.startswith(LOST_DISKS):
        cause = "checkpoints lie in memory or in a container's own layer, which go with the machine"
        return Outcome("fail", evidence, host.disk, cause=cause, fix=_ELSEWHERE)
    if host.durable is None and not host.disk.startswith(NETWORK_DISKS):
        evidence += ", this machine's own disk, and TRAINWORTHY_DURABLE names no other storage"
        return Outcome("fail", evidence, host.disk, fix=f"{_ELSEWHERE}; {_DECLARE}")
    if high > DURABLE_SECONDS:
        return Outcome("insufficient", evidence, round(high), DURABLE_SECONDS)
    if not host.disk.startswith(NETWORK_DISKS):
        evidence += ", a local disk: whether it outlives the machine cannot be seen from here"
        return Outcome("insufficient", evidence, host.disk, fix=f"{_ELSEWHERE}; {_DECLARE}")
    return Outcome("pass", evidence, round(high), DURABLE_SECONDS)


def _oldest(host: Host, forecast: Forecast, step: StepTime) -> tuple[float, float, str]:
    """Seconds that the newest durable state may be old, likely and at most, and why.

    A checkpoint counts when its copy is whole: between two of them lie the updates and a write.
    """
    every = host.spec.training.checkpoint_every_steps
    # A stage ends with a checkpoint, however far apart the others are.
    longest = max(plan.last_step - plan.first_step for plan in map(host.plan, STAGES))
    updates, write = min(every or 1, longest) * step.seconds, step.write_seconds
    shares = (1.0, forecast.high / forecast.value if forecast.value else 1.0)
    if every is not None:
        likely, high = (share * (updates + write) for share in shares)
        evidence = f"a checkpoint every {min(every, longest):,} steps"
    else:
        # As often as pays, and never later than the bound allows that training keeps.
        bounds = [longest_seconds(share * write, Interruptions(spot=True)) for share in shares]
        likely, high = (
            max(share * updates, bound) + share * write for share, bound in zip(shares, bounds, strict=True)
        )
        evidence = f"checkpoints as often as pays; an update takes {_minutes(updates)}"
    evidence += (
        f", {_minutes(write)} until one is stored: the newest is {_minutes(likely)} old and at most {_minutes(high)}"
    )
    return likely, high, evidence


_ELSEWHERE = "name storage that outlives the machine in TRAINWORTHY_DURABLE: a folder, or s3://BUCKET/PREFIX"
_DECLARE = "if its disk does, say so under preflight.not_applicable"


def _minutes(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def is_writable(folder: Path) -> None:
    """Raises OSError unless files can be made in the folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    takes_files(folder)


def file_system(place: str | Path) -> str:
    """Kind of the file system that a folder lies on, such as ext4, nfs4 or tmpfs; s3 of a bucket.

    unknown where it can't be told.
    """
    import psutil

    if is_bucket(str(place)):
        return "s3"
    folder = Path(place)
    mounts = [part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
