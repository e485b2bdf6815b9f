"""On a GPU each loss is asked on the CPU first: what a kernel refuses there ends CUDA for the whole process.

Checks ask a loss of labels and outputs that a training would not give it, and a loss may refuse them: a class beyond
the head, probabilities outside 0 to 1. On a CPU it raises, and the check knows; a kernel on a GPU fails its own
assertion, and nothing more can be computed there, nor told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import LossFn

# What torch says of a loss that has tensors of its own on the GPU: it cannot be asked on the CPU.
ELSEWHERE = "same device"


@dataclass(frozen=True, eq=False)
class AskedOnCpu:
    """A loss that raises on the CPU what it raises there, before it is computed where its outputs are."""

    loss_fn: LossFn

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        drawn = torch.get_rng_state()
        try:
            # With their graph, since a loss may take a derivative.
            self.loss_fn(tree_map(_on_cpu, outputs), targets.cpu())
        except NotImplementedError:
            # A GPU may have what a CPU has not.
            pass
        except RuntimeError as error:
            if ELSEWHERE not in str(error):
                raise
        finally:
            torch.set_rng_state(drawn)
        return self.loss_fn(outputs, targets)


def _on_cpu(value: Any) -> Any:
    """There, and in float32 where it was shorter: a GPU's autocast does not hold on a CPU."""
    if not isinstance(value, Tensor):
        return value
    return value.float().cpu() if value.dtype in (torch.float16, torch.bfloat16) else value.cpu()


def in_float64(loss_fn: LossFn, copy: Callable[[LossFn], LossFn]) -> LossFn:
    """A copy of the loss itself, asked as before."""
    return AskedOnCpu(copy(loss_fn.loss_fn)) if isinstance(loss_fn, AskedOnCpu) else copy(loss_fn)


def cpu_first(subject: Subject) -> Subject:
    """A subject whose loss is asked on the CPU first, where it is on a GPU."""
    return subject if subject.device == "cpu" else _with_loss(subject, AskedOnCpu)


def as_trained(subject: Subject) -> Subject:
    """The same with the loss alone, for what measures time and memory."""
    loss_fn = subject.recipe.loss_fn
    return _with_loss(subject, lambda _: loss_fn.loss_fn) if isinstance(loss_fn, AskedOnCpu) else subject


def _with_loss(subject: Subject, change: Callable[[LossFn], LossFn]) -> Subject:
    return replace(subject, recipe=replace(subject.recipe, loss_fn=change(subject.recipe.loss_fn)))
