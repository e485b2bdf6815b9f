"""What a replay tells beside the step itself: what is different here, and which gradients stand out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from trainworthy.lifecycle.engine.training.checkpoints.made_with import made_with
from trainworthy.lifecycle.identity import python_sources, sha256_files
from trainworthy.lifecycle.incidents.incident import Incident
from trainworthy.lifecycle.provenance import PRODUCT

# Layers that are told of.
_LAYERS = 3


def elsewhere(incident: Incident, device: str, code_sha256: str) -> tuple[str, ...]:
    """What the bits hang on and is different from when it was recorded."""
    made = incident.environment
    other = [f"{name} {value} instead of {made.made_with[name]}" for name, value in made_with(device).items()
             if made.made_with.get(name, value) != value]  # fmt: skip
    if incident.job.training.compile:
        # What is compiled shows no operation.
        other.append("updates as they are written instead of compiled ones")
    if code_sha256 != made.code_sha256:
        other.append("other code of the use case")
    if sha256_files(python_sources(PRODUCT / "lifecycle", skip=("report",))) != made.trainworthy_sha256:
        other.append("other code of Trainworthy")
    return tuple(other)


def outstanding(incident: Incident, step: int, names: Sequence[str], norms: Sequence[float | None]) -> tuple[str, ...]:
    """The parameters whose gradient stands out most from what was recorded before the step."""
    before = [signals for signals in incident.signals if signals.step < step and len(signals.grad_norms) == len(names)]
    deviations: list[tuple[float, str]] = []
    for place, (name, norm) in enumerate(zip(names, norms, strict=True)):
        if norm is None:
            continue
        if not math.isfinite(norm):
            deviations.append((math.inf, f"{name}: its gradient is not finite"))
            continue
        usual_norms = [signals.grad_norms[place] for signals in before]
        usual = statistics.median(
            [value for value in usual_norms if value is not None and math.isfinite(value)] or [0.0]
        )
        if usual > 0:
            times = norm / usual
            text = f"{name}: gradient norm {norm:.3g}, {times:.3g} times its median before"
            deviations.append((abs(math.log(times)) if times else math.inf, text))
    return tuple(text for _, text in sorted(deviations, reverse=True)[:_LAYERS])
