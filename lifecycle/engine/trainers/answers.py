"""Whether predict squashes once more what a script's model has squashed already.

Of such a network only the script knows the loss: if its outputs come of a softmax or a sigmoid and predict applies
another, no answer gets near 0 or 1, and a cross-entropy over them, which takes the softmax itself, stays far above 0.
"""

from __future__ import annotations

from typing import Any

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
    """`a softmax` or `a sigmoid` where the outputs end with it and predict changes them; else empty."""
    model.eval()
    with torch.enable_grad():
        outputs = model(inputs)
    squash = _last_step(outputs) if isinstance(outputs, torch.Tensor) else ""
    if not squash:
        return ""
    with torch.no_grad():
        answers = task.predict(outputs.detach())
    same = answers.shape == outputs.shape and torch.allclose(answers.to(outputs), outputs, atol=1e-6)
    # A calibrated or chosen part of them is none: only another squash of all is.
    again = any(torch.allclose(answers.to(outputs), f(outputs), atol=1e-5) for f in _again(outputs, answers))
    return "" if same or not again else squash


def _again(outputs: torch.Tensor, answers: torch.Tensor) -> list[Any]:
    if answers.shape != outputs.shape:
        return []
    return [torch.sigmoid, *([lambda of: torch.softmax(of, 1)] if outputs.ndim > 1 else [])]


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
