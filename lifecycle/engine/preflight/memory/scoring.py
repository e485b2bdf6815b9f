"""What scoring the validation split holds: a forward pass of many rows at once, without gradients.

It comes between updates with early stopping, and at the end of every stage: beside weights, gradients and optimizer
state. A network that trains on few rows at a time may hold most of all here.
"""

from __future__ import annotations

import torch

from trainworthy.lifecycle.engine.preflight.memory.fake_step import Timeline, empty_rows, fake_counter
from trainworthy.lifecycle.engine.preflight.subject import Subject


def scoring_bytes(subject: Subject, timeline: Timeline) -> int:
    """The peak while a chunk of the validation split is scored, after the followed update; 0 if there is none.

    0 as well where the network asks for values that fake tensors do not have. Raises what the model raises.
    """
    scored = subject.scored
    if scored is None:
        return 0
    above = _above_the_model(subject, min(scored.rows, scored.chunk))
    # Early stopping scores the average in place of the weights, which are copied meanwhile.
    copied = timeline.kinds.get("average", 0) if scored.kept else 0
    return timeline.state + copied + above if above else 0


def _above_the_model(subject: Subject, rows: int) -> int:
    """Bytes that a forward pass in evaluation mode holds at its peak, its inputs among them."""
    mode, counter = fake_counter()
    with mode, counter, torch.no_grad():
        model = subject.build().eval()
        before = counter.now
        counter.new_step()
        outputs = model(empty_rows(subject.held_out, rows).inputs)
        if subject.predict is not None:
            subject.predict(outputs).double()
    return 0 if counter.values_read else max(counter.held, default=before) - before
