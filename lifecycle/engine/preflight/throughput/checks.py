"""Whether the network waits: for its rows, for their augmentation, for the disk."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.throughput.step_time import measure_step
from trainworthy.lifecycle.gates.catalogue import check_of
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.protocol.forecasts import StepTime

# A quarter of a night is worth a morning's work; a quarter of a minute is not.
MOST_WAITING, WORTH_SECONDS = 0.25, 60.0
# Share of making tensors, above which loaders wait for files more than they compute.
READING = 0.5

# Weak, since a subject holds all tensors of its sample.
_MEASURED: WeakKeyDictionary[Subject, StepTime] = WeakKeyDictionary()


def step_time(subject: Subject) -> StepTime:
    """Measured once a subject: the forecasts of time and cost go by it as well."""
    if subject not in _MEASURED:
        _MEASURED[subject] = measure_step(subject)
    return _MEASURED[subject]


def waits_little(subject: Subject) -> Outcome:
    """Share of an update that goes by before the network computes, and the slowest of its parts by name."""
    step = step_time(subject)
    total = subject.plan.last_step - subject.plan.first_step
    lost = step.waiting_seconds * total
    bad = step.waiting > MOST_WAITING and lost > WORTH_SECONDS
    name, fix = _bottleneck(step)
    # Loaders that compute share the cores with other work; of one process alone every part takes as much longer.
    other_work = bad and step.disturbed and step.loaders > 0 and (step.read_share or 0.0) <= READING
    if other_work:
        fix = f"run preflight again while the machine has less to do: other work had {step.others_busy:.1f} cores"
    return Outcome(
        "insufficient" if other_work else "fail" if bad else "pass",
        f"{_parts(step)}; {step.cores_busy:.1f} of {step.cores} cores busy; waiting in all {lost:.0f} s",
        observed=step.waiting,
        threshold=MOST_WAITING,
        cause=f"most of the waiting is {name}" if bad else "",
        fix=fix if bad else "",
    )


def _parts(step: StepTime) -> str:
    """The update in words: what it takes, and the share of each part."""
    rows = f"waiting for {step.loaders} loader{'s' * (step.loaders > 1)}" if step.loaders else "batch selection"
    shares = {rows: step.rows_seconds, "augmentation": step.augment_seconds, "logging": step.logging_seconds}
    parts = ", ".join(f"{name} {seconds / step.seconds:.0%}" for name, seconds in shares.items() if seconds)
    parts += f" ({_making(step)})" if step.loaders else ""
    return f"{step.seconds * 1e3:.2f} ms per update: {parts}; a checkpoint blocks {_milliseconds(step)}"


def _milliseconds(step: StepTime) -> str:
    return f"{step.checkpoint_seconds * 1e3:.1f} ms and is written in {step.write_seconds * 1e3:.0f} ms"


def _making(step: StepTime) -> str:
    """What loaders do while they are waited for."""
    if step.read_share is None:
        return "whether they read or decode cannot be told here"
    return f"making tensors was {step.read_share:.0%} reading"


def _bottleneck(step: StepTime) -> tuple[str, str]:
    if step.logging_seconds > max(step.rows_seconds, step.augment_seconds):
        return "logging of the updates", "let stderr go to a file or a faster terminal"
    if step.loaders:
        return _of_loaders(step)
    if step.augment_seconds > step.rows_seconds:
        return "augmentation (decode)", "do once in to_tensors what is no augmentation, and vectorise what is"
    return (
        "batch selection (loading)",
        "give narrower tensors: fewer columns, smaller types, indices instead of one-hot",
    )


def _of_loaders(step: StepTime) -> tuple[str, str]:
    """What loaders wait for themselves: reading, else a core each."""
    if step.read_share is not None and step.read_share > READING:
        return (
            "for loaders that read (disk or network)",
            "keep the rows' files on a local or faster disk, few large ones in place of many small ones; more "
            "compute.loaders than cores read more of them at once",
        )
    also = "" if step.read_share is not None else ", or read: here that cannot be told apart"
    if step.loaders + 1 < step.cores:
        return (
            f"for loaders (workers) that decode and augment{also}",
            f"raise compute.loaders: {step.loaders} of {step.cores} cores make batches",
        )
    return (
        f"for loaders that decode and augment{also}",
        "keep the rows in a form that decodes faster; compute.loaders has a core for each loader already",
    )


CHECKS = (check_of("throughput.data_wait", waits_little),)
