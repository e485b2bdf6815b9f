"""What an update computes, counted: the same on any machine, however busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

# Beside views: what only allocates, or gives another shape to the same bytes.
NO_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "unsafe_split")


class Work(NamedTuple):
    """Floating-point operations of matrix products and convolutions, and calls that start a kernel."""

    flops: float
    operations: int


def counted(run: Callable[[], object]) -> Work:
    """The work of what runs."""

    class Calls(TorchDispatchMode):
        """Torch's own FlopCounterMode follows modules by hooks too, which a derivative within forward does not bear."""

        count, flops = 0, 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # pyright: ignore[reportIncompatibleMethodOverride]
            self.count += not (func.is_view or func.overloadpacket.__name__ in NO_KERNEL)
            output, of = func(*args, **(kwargs or {})), flop_registry.get(func.overloadpacket)
            self.flops += of(*args, **(kwargs or {}), out_val=output) if of else 0
            return output

    with Calls() as calls:
        run()
    return Work(float(calls.flops), calls.count)
