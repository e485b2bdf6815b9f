"""Single operations run again, alone, with as many rows as the whole batch has: what their kernels hold then.

A kernel's memory is no straight line in the rows: oneDNN takes another kernel from some size on, and a line through
that point from few rows was 66 % too high, or 7 % too low. An operation alone needs no step around it, only
tensors of the sizes that it will meet; these follow from the sizes in two real steps on few rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
        import torch

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
        from torch.utils._pytree import tree_unflatten

        leaves = [leaf.zeros() if isinstance(leaf, Form) else leaf for leaf in self.leaves]
        run(self.operation, *tree_unflatten(leaves, self.nesting))


def call_of(operation: Any, args: Any, kwargs: Any) -> Call | None:
    """The call without its values; None if an argument is neither a plain strided tensor nor a plain value."""
    import torch
    from torch.utils._pytree import tree_flatten

    plain = (int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
    leaves, nesting = tree_flatten((args, kwargs))
    found = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
            found.append(Form(leaf.dtype, leaf.device, tuple(leaf.shape), leaf.stride()))
        elif isinstance(leaf, plain):
            found.append(leaf)
        else:
            return None
    return Call(operation, tuple(found), nesting)


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


def replay(calls: Sequence[Call], device: str, cpu_seconds: float) -> dict[str, int]:
    """Bytes that each call's kernels held beside its outputs, by key, in the order given.

    Left out is what would take more than is left of `cpu_seconds`, and what does not run on zeros.
    """
    import torch

    from lifecycle.preflight.memory.real_step import on_device

    ran: list[tuple[str, bool]] = []

    def run(mode: Any) -> None:
        mode.begin()
        end = time.process_time() + cpu_seconds
        for call in calls:
            if time.process_time() + call.cpu_seconds <= end:
                ran.append((call.key, _runs(call, mode)))

    with torch.no_grad():
        levels = on_device(device, run)
    return {key: inside for (key, well), inside in zip(ran, levels.inside, strict=True) if well}


def _runs(call: Call, mode: Any) -> bool:
    try:
        call.again(mode.call)
    except Exception:
        # Zeros may be refused, or lengths not fit together: the line from few rows stays.
        return False
    return True
