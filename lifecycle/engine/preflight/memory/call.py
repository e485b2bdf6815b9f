"""A call of an operation by the forms of what it is given, so that it can be run again on zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten


@dataclass(frozen=True)
class Form:
    """A tensor without its values."""

    dtype: torch.dtype
    device: torch.device
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Those of its storage; an expanded tensor has fewer than its size says."""
        if 0 in self.size:
            return 0
        return 1 + sum((length - 1) * step for length, step in zip(self.size, self.stride, strict=True))

    def zeros(self) -> Tensor:
        """Zeros are valid row numbers and labels as well, and untouched ones take no memory."""
        storage = torch.zeros(self.elements, dtype=self.dtype, device=self.device)
        return storage.as_strided(self.size, self.stride)


@dataclass(frozen=True)
class Call:
    """An operation, its arguments' flat values with a Form for each tensor, how they nest, and its CPU seconds."""

    operation: Any
    leaves: tuple[Any, ...]
    nesting: Any
    cpu_seconds: float = 0.0

    @property
    def key(self) -> str:
        return f"{self.operation} {self.leaves}"

    @property
    def bytes(self) -> int:
        return sum(leaf.elements * leaf.dtype.itemsize for leaf in self.leaves if isinstance(leaf, Form))

    def again(self, run: Callable[[Any, Any, Any], Any]) -> None:
        """Runs it on zeros by `run`. Raises what the operation raises."""
        leaves = [leaf.zeros() if isinstance(leaf, Form) else leaf for leaf in self.leaves]
        run(self.operation, *tree_unflatten(leaves, self.nesting))


def call_of(operation: Any, args: Any, kwargs: Any) -> Call | None:
    """The call without its values; None if an argument is neither a plain strided tensor nor a plain value."""
    plain = (int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
    leaves, nesting = tree_flatten((args, kwargs))
    forms = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            forms.append(Form(leaf.dtype, leaf.device, tuple(leaf.shape), leaf.stride()))
        elif isinstance(leaf, plain):
            forms.append(leaf)
        else:
            return None
    return Call(operation, tuple(forms), nesting)


def call_at(rows: int, fewer: tuple[int, Call | None], more: tuple[int, Call | None]) -> Call | None:
    """The call with more rows, from two (rows, call): each length goes on in a straight line.

    None if they are of different forms, a length is no whole number, or nothing depends on the rows.
    """
    (first, low), (last, high) = fewer, more
    if low is None or high is None or first == last or low.leaves == high.leaves:
        return None
    if low.operation is not high.operation or low.nesting != high.nesting:
        return None

    def at(less: Any, greater: Any) -> Any:
        if isinstance(less, Form) and isinstance(greater, Form):
            if less.dtype != greater.dtype or len(less.size) != len(greater.size):
                raise ValueError("another form")
            size = tuple(map(at, less.size, greater.size))
            return Form(greater.dtype, greater.device, size, tuple(map(at, less.stride, greater.stride)))
        if type(less) is not int or type(greater) is not int:
            return greater
        steps, rest = divmod((greater - less) * (rows - last), last - first)
        if rest:
            raise ValueError("no whole number")
        return greater + steps

    try:
        leaves = tuple(map(at, low.leaves, high.leaves))
    except ValueError:
        return None
    return Call(high.operation, leaves, high.nesting, high.cpu_seconds * rows / last)
