"""torch.compile for the forward and backward pass of an update; whatever else asks the model gets the plain one.

Evaluation, export and the names of the weights are those of the plain network. Every shape of a batch is compiled for
itself, since a kernel for any shape would be used from another step on after a resume: bits would differ. Random
numbers are those of the plain network.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import nn

from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.progress import say

FIX = "install a C++ compiler (g++, with Python's headers; on CUDA triton) or remove training.compile"


class Compiled:
    """In the place of a model's forward. A deep copy belongs to the copied model and is compiled anew."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.plain = module, module.forward
        self._fast: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.module.training and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return self.plain(*args, **kwargs)
        if self._fast is not None:
            return self._fast(*args, **kwargs)
        return self._first(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        copied = object.__new__(Compiled)
        memo[id(self)] = copied
        copied.module, copied.plain = copy.deepcopy(self.module, memo), copy.deepcopy(self.plain, memo)
        copied._fast = None
        return copied

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        say("torch.compile: the first update waits for the compiler")
        began = time.perf_counter()
        self._fast = torch.compile(self.plain, dynamic=False, options={"fallback_random": True})
        try:
            result = self._fast(*args, **kwargs)
        except TorchDynamoException as error:
            reason = " ".join(str(error).split("\n\n")[0].split())[:200]
            raise TrainingError(f"torch.compile cannot compile the model here: {reason}", fix=FIX) from error
        say(f"torch.compile: the forward pass is compiled after {time.perf_counter() - began:.1f} s")
        return result


def compile_updates(model: nn.Module) -> None:
    """Compile the model's passes with gradients in training mode, at the first of them; that one raises TrainingError
    where no compiler is."""
    vars(model)["forward"] = Compiled(model)


def uncompiled(model: nn.Module) -> nn.Module:
    """The same model with its plain forward, as torch.export needs it."""
    if isinstance(vars(model).get("forward"), Compiled):
        del vars(model)["forward"]
    return model
