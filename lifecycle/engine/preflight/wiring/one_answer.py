"""Why outputs are the same for every row: told first, since no gradient and no effect only follow from it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.preflight.start.activations import ROWS, watched
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import floats, forward, largest, spread, stirred
from trainworthy.lifecycle.gates.check import Outcome

CONSTANT_OUTPUTS, DEAD_UNITS = "constant_outputs", "dead_units"
# Share of stirring and seed of the networks whose outputs must differ somewhere.
LOOKS = ((0.1, 0), (2.0, 1), (-2.0, 1))


def one_answer(subject: Subject) -> Outcome | None:
    """One constant whatever weights and inputs are, or a rectified layer of zeros for every row; None if neither."""
    inputs = spread(subject, ROWS).inputs
    fresh = _outputs(subject.model(), inputs)
    if not fresh or not all(_equal(output) for output in fresh):
        return None
    stirred_outputs = [_outputs(stirred(subject.model(), *look), inputs) for look in LOOKS]
    if all(
        _equal(output) and _same(output, first)
        for other in stirred_outputs
        for output, first in zip(other, fresh, strict=True)
    ):
        evidence = f"the outputs are one constant, {float(fresh[0].flatten()[0]):.4g}, whatever weights and inputs are"
        cause = "a softmax or log-softmax over a dimension of one, a sign, or an output that is overwritten"
        fix = "give one output through a sigmoid, or two through a softmax; look at the last lines of forward"
        return Outcome("fail", evidence, 0, cause=cause, fix=fix, code=CONSTANT_OUTPUTS)
    name, share, rows = max(watched(subject, inputs, many=subject.batch_rows() > 1).dead, key=lambda layer: layer[1],
                            default=("", 0.0, 0))  # fmt: skip
    if share < 1 or rows < 2:
        return None
    evidence = (
        f"all units of {name} are zero for every one of {rows} rows, so that nothing behind it depends on the inputs"
    )
    cause = "dead rectified units: inputs far from zero that are not scaled, or a large negative bias"
    return Outcome(
        "fail", evidence, share, 1.0, cause, f"scale what enters {name} to about 1 around 0", code=DEAD_UNITS
    )


def _outputs(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [output.detach() for output in floats(forward(model.eval(), inputs)) if output.numel()]


def _equal(output: Tensor) -> bool:
    """Whether all values are the same but for rounding."""
    first = output.flatten()[0]
    return bool(output.isfinite().all()) and largest(output - first) <= 1e-6 * max(1.0, abs(float(first)))


def _same(output: Tensor, other: Tensor) -> bool:
    return output.shape == other.shape and largest(output - other) <= 1e-6 * max(1.0, largest(other))
