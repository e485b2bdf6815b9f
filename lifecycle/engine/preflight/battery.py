"""The battery: every check on one subject, in the order of their cost, each contained, timed and counted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from trainworthy.lifecycle.engine.training.random_state import random_kept, seed_torch
from trainworthy.lifecycle.gates import trials
from trainworthy.lifecycle.gates.check import Check
from trainworthy.lifecycle.gates.trials import Describe, Updates
from trainworthy.lifecycle.protocol.trial import Trial


def run_checks(
    checks: Sequence[Check[Any]],
    subject: Any,
    *,
    device: str,
    not_applicable: Mapping[str, str],
    earlier: Sequence[Trial] = (),
    describe: Describe = lambda error: f"{type(error).__name__}: {error}",
) -> tuple[Trial, ...]:
    """Every check's trial, in order (gates/trials.py), each from equal random numbers on, its updates counted."""
    return trials.run_checks(
        checks,
        subject,
        device=device,
        not_applicable=not_applicable,
        earlier=earlier,
        describe=describe,
        around=counted_updates,
    )


@contextlib.contextmanager
def counted_updates() -> Iterator[Updates]:
    """Counts the updates of every optimizer of this process meanwhile, from equal random numbers on."""
    updates = Updates()

    def count(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        # A step within a step (super().step(), a wrapped optimizer) is the outer one's. Torch's wrapper around each
        # step calls this; the stack tells, since one that raised would leave a depth behind.
        wrapper = sys._getframe(1)
        outer = wrapper.f_back
        while outer is not None and outer.f_code is not wrapper.f_code:
            outer = outer.f_back
        updates.count += outer is None

    handle = register_optimizer_step_post_hook(count)
    try:
        with same_random_numbers():
            yield updates
    finally:
        handle.remove()


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """Each check starts from equal random numbers, whichever ran before it."""
    import random

    with random_kept():
        seed_torch(0)
        random.seed(0)
        np.random.seed(0)
        yield
