"""Whether predict squashes once more what a script's model has squashed already.

Of such a network only the script knows the loss: if its outputs come of a softmax or a sigmoid and predict applies
another, no answer gets near 0 or 1, and a cross-entropy over them, which takes the softmax itself, stays far above 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from trainworthy.lifecycle.task import Task

# By the names of their nodes in a graph.
SQUASHES = {"Softmax": "a softmax", "Sigmoid": "a sigmoid"}
# What leaves values as they are.
_RESHAPES = (
    "Squeeze", "Unsqueeze", "View", "Reshape", "UnsafeView", "Transpose", "T", "Permute", "Select", "Slice", "Clone",
    "Alias",
)  # fmt: skip


def squashed_twice(model: torch.nn.Module, inputs: dict[str, torch.Tensor], task: Task) -> str:
    """`a sigmoid, and predict applies a sigmoid to them` and the like, where that is so; else empty."""
    model.eval()
    try:
        with torch.enable_grad(), _followed(model):
            outputs = model(inputs)
    except RuntimeError:
        # It may bear no graph where it is only asked, as one that writes into a weight: nothing is known then.
        return ""
    squash = _last_step(outputs) if isinstance(outputs, torch.Tensor) else ""
    if not squash:
        return ""
    with torch.no_grad():
        answers = task.predict(outputs.detach())
        for name, value in _squashed(outputs.detach()):
            forms = (value, value.squeeze(-1), value[..., 1]) if value.ndim > 1 and value.shape[-1] == 2 else (
                value, value.squeeze(-1))  # fmt: skip
            if any(form.shape == answers.shape and torch.allclose(answers.to(form), form, atol=1e-5) for form in forms):
                return f"{squash}, and predict applies {name} to them"
    return ""


@contextlib.contextmanager
def _followed(model: torch.nn.Module) -> Iterator[None]:
    """Outputs have a graph inside, also those of a copy that does not train."""
    still = [p for p in model.parameters() if not p.requires_grad and p.is_floating_point()]
    for parameter in still:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in still:
            parameter.requires_grad_(False)


def _squashed(outputs: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "a sigmoid", outputs.sigmoid()
    if outputs.ndim > 1 and outputs.shape[-1] > 1:
        yield "a softmax", outputs.softmax(1)


def _last_step(outputs: torch.Tensor) -> str:
    """The squash by which these values came, behind what only gives them another shape."""
    node = outputs.grad_fn
    while node is not None:
        name = type(node).__name__.partition("Backward")[0]
        if name in SQUASHES:
            return SQUASHES[name]
        if name not in _RESHAPES or not node.next_functions:
            return ""
        node = node.next_functions[0][0]
    return ""
