"""What keeps backward from being the derivative of what was computed: where a forward pass leaves autograd, and where
somebody's own code is asked for the gradient.

Without any of these autograd's gradient is the derivative by construction, up to kinks.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.outputs.autograd_graph import nodes

_LEAVES = frozenset({"detach", "detach_", "numpy", "item", "tolist", "__float__", "__int__"})
# Torch's own functions in Python that leave the graph inside, where their calls are not seen one by one; and a gradient
# that is asked for on the way, which is a constant unless its graph is made.
_INSIDE = frozenset({"gumbel_softmax", "grad", "backward"})
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})
# Torch's own operations that pass a gradient through a rounding.
_STRAIGHT_THROUGH = ("FakeQuantize", "FusedMovingAvgObsFqHelper")
# Places that are told.
MOST_NAMED = 3


class Breaks(TorchFunctionMode):
    """Inside, notes what of torch's calls leaves the graph or changes a gradient: `look` has them in words."""

    def __init__(self) -> None:
        super().__init__()
        self._breaks: dict[str, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _HOOKS:
            self._breaks[f"a hook at {_place()}"] = None
        elif name in _INSIDE:
            self._breaks[f"{name} at {_place()}"] = None
        elif name in _LEAVES or _is_data(func):
            if isinstance(args[0], Tensor) and args[0].requires_grad:
                self._breaks[f"{name.strip('_') if name in _LEAVES else '.data'} at {_place()}"] = None
        elif not torch.is_grad_enabled() and any(
            isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves((args, kwargs))
        ):
            self._breaks[f"no_grad at {_place()}"] = None
        return func(*args, **(kwargs or {}))

    def look(self, model: nn.Module, loss: Tensor) -> tuple[str, ...]:
        """All of them in words, with those of the model's hooks and of the loss's graph; () if there is none."""
        for node in nodes(loss):
            if isinstance(node, BackwardCFunction):
                self._breaks[f"an autograd.Function: {type(node).__name__.removesuffix('Backward')}"] = None
            elif node.name().startswith(_STRAIGHT_THROUGH):
                self._breaks[f"torch's {node.name().partition('Backward')[0]}"] = None
        for name, parameter in model.named_parameters():
            if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
                self._breaks[f"a hook of {name}"] = None
        return tuple(self._breaks)


def in_words(breaks: tuple[str, ...]) -> str:
    """The first of them."""
    more = f" and {len(breaks) - MOST_NAMED} more" if len(breaks) > MOST_NAMED else ""
    return ", ".join(breaks[:MOST_NAMED]) + more


def _is_data(func: Callable[..., Any]) -> bool:
    return func in (Tensor.data.__get__, Tensor.data.__set__)  # pyright: ignore[reportAttributeAccessIssue]


_PASSED_OVER = (str(Path(torch.__file__).parent), sysconfig.get_path("stdlib"))


def _place() -> str:
    """File and line of the call, of the nearest code that is neither torch's nor the standard library's."""
    frame = sys._getframe(1)
    while (
        frame.f_back is not None
        and (frame.f_code.co_filename.startswith(_PASSED_OVER) or frame.f_globals.get("__name__") == __name__)
        and "site-packages" not in frame.f_code.co_filename.removeprefix(_PASSED_OVER[0])
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


@contextlib.contextmanager
def estimates_held(model: nn.Module) -> Iterator[None]:
    """Meanwhile torch's spectral norm keeps its estimate, which a pass in training mode makes better outside the graph:
    the first passes are no smooth function of the weights."""
    held = [
        module for module in model.modules()
        if module.training and (isinstance(module, _SpectralNorm) or any(
            isinstance(hook, SpectralNorm) for hook in module._forward_pre_hooks.values()))
    ]  # fmt: skip
    for module in held:
        module.training = False
    try:
        yield
    finally:
        for module in held:
            module.training = True


def padding_of(loss: Tensor) -> list[tuple[Tensor, int]]:
    """Tables of which torch's embedding keeps a row out of the gradient, and that row."""
    tables = []
    for node in nodes(loss):
        row = getattr(node, "_saved_padding_idx", -1)
        table = getattr(node.next_functions[0][0], "variable", None) if node.next_functions else None
        # None is kept as -1, which reads as the largest number.
        if table is not None and 0 <= row < len(table):
            tables.append((table, row))
    return tables
