"""Is the loss the logarithm of a probability, which a focal loss reads off it?"""

from __future__ import annotations

import torch

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.passes import forward, stirred
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Outcome

ROWS = 64
# Of a probability; far above what exp, sigmoid and their inverses lose in 32 bits.
TOLERANCE = 1e-3


def loss_is_a_log_likelihood(subject: Subject) -> Outcome:
    """exp(-loss) of some rows, against the probability that `predict` gives their label."""
    if not subject.recipe.focal_gamma:
        return Outcome("not_applicable", "training.focal_gamma is not declared")
    if subject.predict is None:
        return Outcome("insufficient", "the model gives no probabilities to hold the loss against")
    rows = spread_rows(subject.training, ROWS).to(subject.device)
    data, generator = subject.training.take(rows), subject.recipe.generator(0)
    inputs, targets = data.inputs, data.targets
    if subject.recipe.augment is not None and generator is not None:
        inputs, targets = subject.recipe.augment(inputs, targets, generator)
    if not bool(((targets == 0) | (targets == 1)).all()):
        fix = "leave labels 0 and 1 in augment, or remove training.focal_gamma"
        return Outcome("fail", "augment gives labels between 0 and 1", cause="mixed or smoothed labels", fix=fix)
    with torch.no_grad():
        outputs = forward(stirred(subject.model()).eval(), inputs)
        of_loss, positive = torch.exp(-subject.recipe.loss_fn(outputs, targets).double()), subject.predict(outputs)
    given = torch.where(targets == 1, positive, 1 - positive).double()
    difference = float((of_loss - given).abs().max())
    worst = int((of_loss - given).abs().argmax())
    evidence = (
        f"exp(-loss) is {float(of_loss[worst]):.4g} where predict gives the row's label {float(given[worst]):.4g}"
    )
    if not difference <= TOLERANCE:
        return Outcome("fail", evidence, difference, TOLERANCE)
    return Outcome("pass", f"exp(-loss) is what predict gives the label, to {difference:.1g}, on {len(rows)} rows",
                   difference, TOLERANCE)  # fmt: skip
