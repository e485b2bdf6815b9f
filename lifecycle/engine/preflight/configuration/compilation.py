"""With training.compile: is there a compiler, does it get through, and is the result the same update?"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.battery import same_random_numbers
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.techniques.compiled import compile_updates
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.gates.check import Outcome

# Updates after which nothing may be compiled any more, and as many that are watched.
WARM_UP, WATCHED = 2, 3
# Of the gradient's norm: fused kernels round elsewhere, in bf16 to two digits.
TOLERANCE = 0.05


def compiles(subject: Subject) -> Outcome:
    """A few updates with and without: gradients of the first, and whether later ones are compiled anew."""
    from torch._dynamo.exc import TorchDynamoException

    if not subject.compiled:
        return Outcome("not_applicable", "training.compile is not declared")
    torch.compiler.reset()
    began, state = time.perf_counter(), subject.state()
    compile_updates(state.model)
    try:
        compiled_gradient = _gradient(subject, state, 0)
        seconds = time.perf_counter() - began
        for step in range(1, WARM_UP):
            _gradient(subject, state, step)
        before = _graphs()
        for step in range(WARM_UP, WARM_UP + WATCHED):
            _gradient(subject, state, step)
    except TrainingError as error:
        return Outcome("fail", error.problem, fix=error.fix)
    except TorchDynamoException as error:
        # Of the backward pass, which is compiled when it is first needed.
        return Outcome("fail", f"torch.compile cannot compile the backward pass here: {str(error)[:200]}")
    plain_gradient = _gradient(subject, subject.state(), 0)
    again, difference = (
        _graphs() - before,
        float((compiled_gradient - plain_gradient).norm() / plain_gradient.norm().clamp_min(1e-12)),
    )
    evidence = (
        f"the first update took {seconds:.1f} s with its compilation; gradients differ by {difference:.1g} of their "
        "norm"
    )
    if again:
        cause = "batches of other shapes each time, or a Python number of the model that changes with every pass"
        fix = "let to_tensors and augment give one shape, hold counters in buffers, or remove training.compile"
        return Outcome("fail", f"{again} times compiled anew in {WATCHED} updates", again, 0, cause=cause, fix=fix)
    return Outcome("pass" if difference <= TOLERANCE else "fail", evidence, difference, TOLERANCE)


def _gradient(subject: Subject, state: TrainState, step: int) -> Tensor:
    """All gradients of an update on the rows that a step would draw of the sample, in a row."""
    count = len(subject.training.targets)
    size = min(subject.plan.batch_size, count)
    rows = (torch.arange(size, device=subject.device) + step * size) % count
    state.model.train()
    with same_random_numbers():
        train_step(state, subject.training, rows, subject.recipe)
    state.step += 1
    return torch.cat([p.grad.flatten().float() for p in state.model.parameters() if p.grad is not None])


def _graphs() -> int:
    """Graphs that were compiled so far."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]
