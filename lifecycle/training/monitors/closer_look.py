"""The closer look at one update: forward hooks while it runs, weights before and after, and one read of the device.

Large tensors are looked at in part: MOST_ELEMENTS of a parameter and MOST_FEATURES of an output, evenly spread. Only
what must not be missed, a value that is not finite, is looked for in all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lifecycle.training.monitors.signals import SAMPLE_EVERY, Layer, Sample

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from lifecycle.training.loop import TrainState

MOST_ELEMENTS, MOST_FEATURES, MOST_LAYERS = 1024, 64, 64


class CloserLooks:
    """What all closer looks at one model share."""

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.is_floating_point() and p.numel()]
        self.model = model
        self.names = tuple(name for name, _ in named)
        self.parameters = [parameter for _, parameter in named]
        self.strides = [_stride(parameter) for parameter in self.parameters]
        self.sizes = [len(range(0, p.numel(), k)) for p, k in zip(self.parameters, self.strides, strict=True)]
        self.layers = _leaves(model)

    def begin(self, state: TrainState) -> CloserLook:
        """Hooks are on from here to `end` or `leave`."""
        return CloserLook(self, state.step)


class CloserLook:
    """One of them; made before the forward pass."""

    def __init__(self, shared: CloserLooks, step: int) -> None:
        self._shared, self._step = shared, step
        self._noted: list[tuple[str, int, int]] = []
        self._parts: list[Tensor] = []
        self._outputs: Tensor | None = None
        # A part of many layers, another one each time.
        every = -(-len(shared.layers) // MOST_LAYERS) or 1
        layers = shared.layers[step // SAMPLE_EVERY % every :: every]
        self._hooks = [module.register_forward_hook(self._noting(name)) for name, module in layers]
        self._hooks.append(shared.model.register_forward_hook(self._note_outputs))
        self._before = _some(shared.parameters, shared.strides)

    def leave(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def end(self) -> Sample:
        """What was seen, once the update is applied."""
        import torch

        self.leave()
        shared = self._shared
        gradients = [
            parameter.new_zeros(()).expand(parameter.shape) if parameter.grad is None else parameter.grad
            for parameter in shared.parameters
        ]
        after, gradient = _some(shared.parameters, shared.strides), _some(gradients, shared.strides)
        found = [self._before, after, gradient, _norms(shared.parameters), *self._parts]
        if self._outputs is not None:
            found.append(self._outputs)
        # As float64, since all float types fit into it.
        read = torch.cat([part.double() for part in found]).cpu().numpy()
        return self._sample(read)

    def _sample(self, read: np.ndarray) -> Sample:
        import numpy as np

        shared, count = self._shared, sum(self._shared.sizes)
        before, after, gradient = read[:count], read[count : 2 * count], read[2 * count : 3 * count]
        starts = np.concatenate(([0], np.cumsum(shared.sizes)[:-1])).astype(int)
        moving = gradient != 0
        of = np.maximum(1, np.add.reduceat(moving, starts, dtype=float))
        with np.errstate(all="ignore"):
            change = after - before
            # What was looked at stands for the whole tensor.
            whole = np.array([p.numel() for p in shared.parameters]) / np.array(shared.sizes)
            changes = np.sqrt(np.add.reduceat(change * change, starts) * whole)
        unchanged = np.add.reduceat(moving & (change == 0), starts, dtype=float) / of
        rest = read[3 * count :]
        norms, rest = rest[: len(shared.names)], rest[len(shared.names) :]
        layers = []
        for name, rows, features in self._noted:
            layers.append(_layer(name, rows, rest[: 2 * features + 4], features))
            rest = rest[2 * features + 4 :]
        return Sample(
            self._step, shared.names, tuple(parameter.requires_grad for parameter in shared.parameters),
            tuple(norms.tolist()), tuple(changes.tolist()), tuple(unchanged.tolist()), tuple(layers),
            _spread(rest), memory_bytes(shared.parameters[0].device),
        )  # fmt: skip

    def _noting(self, name: str) -> Any:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            rows = _rows(output)
            # A module that is called again, or once more for a checkpointed backward, has been seen.
            if rows is not None and all(name != noted for noted, _, _ in self._noted):
                import torch

                some = rows[:, :: _every(rows.shape[1])]
                low, high = some.aminmax(dim=0)
                lowest, highest = rows.aminmax()
                norm = torch.linalg.vector_norm(some, dtype=torch.float32)
                size = norm.new_tensor(float(some.numel()))
                self._parts += [low, high, torch.stack([lowest.float(), highest.float(), norm, size])]
                self._noted.append((name, len(rows), some.shape[1]))

        return note

    def _note_outputs(self, module: nn.Module, inputs: Any, output: Any) -> None:
        import torch

        rows = _rows(output)
        if rows is not None and self._outputs is None and len(rows) > 1:
            some = rows[:, :: _every(rows.shape[1])].float()
            self._outputs = torch.stack([some.var(dim=0, correction=0).mean(), some.square().mean()])


def memory_bytes(device: torch.device) -> float:
    """What the GPU's allocator has given out; on a CPU the process's resident memory, 0 where it can't be read."""
    import torch

    if device.type == "cuda":
        return float(torch.cuda.memory_allocated(device))
    try:
        with open("/proc/self/statm", "rb") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def _leaves(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules without modules inside, but for those that change no value worth a look."""
    import torch
    from torch import nn

    dull = (nn.Identity, nn.Flatten, nn.Dropout, torch.jit.ScriptModule)
    return [
        (name, module)
        for name, module in model.named_modules()
        if not isinstance(module, dull) and next(module.children(), None) is None
    ]


def _stride(parameter: Tensor) -> int:
    """Every so many elements are looked at; a stride that shares no factor with a row meets every column."""
    stride = -(-parameter.numel() // MOST_ELEMENTS)
    while stride > 1 and math.gcd(stride, parameter.shape[-1]) > 1:
        stride += 1
    return stride


def _some(tensors: Sequence[Tensor], strides: list[int]) -> Tensor:
    """A part of each, in one vector that shares nothing with them."""
    import torch

    return torch.cat([tensor.detach().reshape(-1)[::stride] for tensor, stride in zip(tensors, strides, strict=True)])


def _norms(parameters: Sequence[Tensor]) -> Tensor:
    """Of whole parameters, in float32 or wider: fewer digits overflow where the weights do not."""
    import torch

    wide = torch.float64 if any(parameter.dtype == torch.float64 for parameter in parameters) else torch.float32
    detached = [parameter.detach() for parameter in parameters]
    return torch.stack(torch._foreach_norm(detached, 2, wide))  # pyright: ignore[reportPrivateImportUsage]


def _rows(output: Any) -> Tensor | None:
    """The first tensor of an output as a row a row, `(N, features)`; None if there is none of numbers."""
    import torch

    while isinstance(output, list | tuple | dict):
        output = next(iter(output.values() if isinstance(output, dict) else output), None)
    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.dim() or not output.numel():
        return None
    return output.detach().reshape(len(output), -1)


def _every(features: int) -> int:
    return -(-features // MOST_FEATURES)


def _layer(name: str, rows: int, read: np.ndarray, features: int) -> Layer:
    """One module's part of what was read: lows and highs of its features, then four numbers."""
    low, high = read[:features], read[features : 2 * features]
    lowest, highest, norm, size = read[2 * features :].tolist()
    return Layer(
        name,
        rms=norm / math.sqrt(size),
        largest=max(abs(lowest), abs(highest)),
        zero_rows=float(((low == 0) & (high == 0)).mean()),
        equal_rows=rows > 1 and bool((low == high).all()),
        finite=math.isfinite(lowest) and math.isfinite(highest),
    )


def _spread(read: np.ndarray) -> float:
    """Of the model's outputs, relative to their size; NaN of fewer than two rows."""
    if not len(read):
        return math.nan
    variance, square = read.tolist()
    return math.sqrt(variance / square) if square > 0 else 0.0
