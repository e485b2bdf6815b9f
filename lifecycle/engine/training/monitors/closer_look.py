"""The closer look at one update: forward hooks while it runs, weights before and after, and one read of the device.

Large tensors are looked at in part: MOST_ELEMENTS of a parameter, MOST_FEATURES of MOST_ROWS rows of an output, evenly
spread. Only what must not be missed, a value that is not finite, is looked for in all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.training.monitors.non_finite import bad_names
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import (
    content_of,
    gpu_busy,
    left_out,
    replica_checksums,
    row_sums,
)
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY, Layer, Sample

MOST_ELEMENTS, MOST_ROWS, MOST_FEATURES, MOST_LAYERS = 512, 128, 32, 64


class CloserLooks:
    """What all closer looks at one model share."""

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.is_floating_point() and p.numel()]
        self.model = model
        self.names = tuple(name for name, _ in named)
        self.parameters = [parameter for _, parameter in named]
        self.strides = [_stride(parameter) for parameter in self.parameters]
        sizes = [len(range(0, p.numel(), k)) for p, k in zip(self.parameters, self.strides, strict=True)]
        self.looked_at = sum(sizes)
        self.starts = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(int)
        # What was looked at stands for the whole tensor.
        self.whole = np.array([parameter.numel() for parameter in self.parameters]) / np.array(sizes)
        self.layers = _leaves(model)

    def begin(self, state: TrainState) -> CloserLook:
        """Hooks are on from here to `end` or `leave`."""
        return CloserLook(self, state)

    def not_finite(self) -> list[str]:
        """Names of the parameters that are not finite."""
        return bad_names(zip(self.names, self.parameters, strict=True))

    def some_weights(self) -> Tensor:
        """A part of each parameter, in one vector that shares nothing with them."""
        return _some(self.parameters, self.strides)

    def some_gradients(self) -> Tensor:
        """The same of each gradient; zero where there is none."""
        gradients = [
            parameter.new_zeros(()).expand(parameter.shape)
            if parameter.grad is None or parameter.grad.is_sparse
            else parameter.grad
            for parameter in self.parameters
        ]
        return _some(gradients, self.strides)


@dataclass(frozen=True)
class NoLooks:
    """In their place where no process has the whole weights. `not_finite` names the parameters that are not finite."""

    not_finite: Callable[[], list[str]]

    def begin(self, state: TrainState) -> None:
        """Nothing is looked at."""


class CloserLook:
    """One of them; made before the forward pass."""

    def __init__(self, shared: CloserLooks, state: TrainState) -> None:
        self._shared, self._state, self._step = shared, state, state.step
        self._sums: Tensor | None = None
        self._noted: dict[str, _Noted] = {}
        # A part of many layers, another one each time. The model itself has no name.
        every = -(-len(shared.layers) // MOST_LAYERS) or 1
        layers = [("", shared.model), *shared.layers[self._step // SAMPLE_EVERY % every :: every]]
        self._hooks = [module.register_forward_hook(self._noting(name)) for name, module in layers]
        self._hooks.append(shared.model.register_forward_pre_hook(self._note_inputs))
        self._before = shared.some_weights()

    def leave(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def end(self) -> Sample:
        """What was seen, once the update is applied. The device is read once."""
        self.leave()
        shared, noted = self._shared, list(self._noted.values())
        weights = [self._before, shared.some_weights(), self._gradients()]
        extremes = (
            torch.stack([extreme for layer in noted for extreme in (layer.lowest, layer.highest)]) if noted else None
        )
        outputs = [layer.some.reshape(-1) for layer in noted]
        tensors = [*weights, _norms(shared.parameters), *([] if extremes is None else [extremes]), *outputs]
        # As float64, since all float types fit into it, and the sums of rows are fingerprints.
        sums = self._sums if self._sums is not None else self._before.new_zeros(0)
        read = torch.cat([torch.cat(tensors).double(), sums.double()]).cpu().numpy()
        with np.errstate(all="ignore"):
            return self._sample(read[: len(read) - len(sums)], read[len(read) - len(sums) :])

    def _gradients(self) -> Tensor:
        """A part of those of the update."""
        return self._shared.some_gradients()

    def _other_facts(self, sums: np.ndarray) -> dict[str, Any]:
        """What follows neither from weights nor from outputs."""
        content, replicas = content_of(sums), replica_checksums(self._shared.parameters)
        return {"left_out": left_out(self._state), "content": content, "replicas": replicas}

    def _sample(self, read: np.ndarray, sums: np.ndarray) -> Sample:
        shared, count = self._shared, self._shared.looked_at
        before, after, gradient = read[: 3 * count].reshape(3, count)
        norms, rest = read[3 * count :][: len(shared.names)], read[3 * count + len(shared.names) :]
        moving = gradient != 0
        change = after - before
        changes = np.sqrt(np.add.reduceat(change * change, shared.starts) * shared.whole)
        same = np.add.reduceat(moving & (change == 0), shared.starts, dtype=float)
        unchanged = same / np.maximum(1, np.add.reduceat(moving, shared.starts, dtype=float))
        layers, spread, place = [], (math.nan, math.nan), 2 * len(self._noted)
        for number, (name, noted) in enumerate(self._noted.items()):
            some = rest[place : place + noted.some.numel()].reshape(noted.some.shape)
            place += noted.some.numel()
            if name or shared.layers[0][0] == "":
                layers.append(_layer(name, some, *rest[2 * number : 2 * number + 2].tolist()))
            if not name:
                spread = _spread(some)
        device, trainable = (
            shared.parameters[0].device,
            tuple(parameter.requires_grad for parameter in shared.parameters),
        )
        return Sample(
            self._step, shared.names, trainable, tuple(norms.tolist()), tuple(changes.tolist()),
            tuple(unchanged.tolist()), tuple(layers), *spread, memory_bytes(device), **self._other_facts(sums),
            gpu_busy=gpu_busy(device), along=_cosine(change, gradient),
        )  # fmt: skip

    def _noting(self, name: str) -> Any:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            rows = _rows(output)
            if rows is None:
                return
            lowest, highest = rows.aminmax()
            some = rows[:: -(-len(rows) // MOST_ROWS), :: -(-rows.shape[1] // MOST_FEATURES)]
            # A copy: a part that shares its memory would keep the whole output.
            noted = _Noted(lowest.float(), highest.float(), some.to(torch.float32, copy=True))
            known = self._noted.get(name)
            self._noted[name] = noted if known is None else known.beside(noted)

        return note

    def _note_inputs(self, module: nn.Module, inputs: Any) -> None:
        if self._sums is None:
            self._sums = row_sums(inputs)


class _Noted(NamedTuple):
    """One module's output: its extremes, and some features of some rows."""

    lowest: Tensor
    highest: Tensor
    some: Tensor

    def beside(self, again: _Noted) -> _Noted:
        """The first call and a later one: zero is what each call has so. A state may begin at zero."""
        lowest, highest = self.lowest.minimum(again.lowest), self.highest.maximum(again.highest)
        if self.some.shape != again.some.shape:
            return _Noted(lowest, highest, self.some)
        return _Noted(lowest, highest, torch.where((self.some == 0).all(0), again.some, self.some))


def memory_bytes(device: torch.device) -> float:
    """What the GPU's allocator has given out; on a CPU the process's resident memory, 0 where it can't be read."""
    if device.type == "cuda":
        return float(torch.cuda.memory_allocated(device))
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            return float(os.read(file, 100).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            os.close(file)
    except OSError:
        return 0.0


def _leaves(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules without modules inside, but for those that change no value worth a look."""
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
    with torch.no_grad():
        return torch.cat([_part(tensor, stride) for tensor, stride in zip(tensors, strides, strict=True)])


def _part(tensor: Tensor, stride: int) -> Tensor:
    """Every so many elements. By one operation where memory allows: each takes some microseconds."""
    if tensor.is_contiguous():
        return tensor.as_strided((-(-tensor.numel() // stride),), (stride,))
    return tensor.reshape(-1)[::stride]


def _norms(parameters: Sequence[Tensor]) -> Tensor:
    """Of whole parameters, in float32 or wider: fewer digits overflow where the weights do not."""
    wide = torch.float64 if any(parameter.dtype == torch.float64 for parameter in parameters) else torch.float32
    detached = [parameter.detach() for parameter in parameters]
    return torch.stack(torch._foreach_norm(detached, 2, wide))  # pyright: ignore[reportPrivateImportUsage]


def _rows(output: Any) -> Tensor | None:
    """The first tensor of an output as a row a row, `(N, features)`; None if there is none of numbers."""
    while isinstance(output, list | tuple | dict):
        output = next(iter(output.values() if isinstance(output, dict) else output), None)
    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.dim() or not output.numel():
        return None
    return output.detach().reshape(len(output), -1)


def _layer(name: str, some: np.ndarray, lowest: float, highest: float) -> Layer:
    other = int(np.count_nonzero(some.any(axis=0)))
    return Layer(
        name,
        rms=math.sqrt(float(np.vdot(some, some)) / some.size),
        largest=max(abs(lowest), abs(highest)),
        zero_rows=1.0 - other / some.shape[1],
        equal_rows=len(some) > 1 and bool((some == some[0]).all()),
        finite=math.isfinite(lowest) and math.isfinite(highest),
    )


def _cosine(change: np.ndarray, gradient: np.ndarray) -> float:
    """Between two vectors; 0 where one is nothing, or not finite."""
    sizes = math.sqrt(float(np.vdot(change, change))) * math.sqrt(float(np.vdot(gradient, gradient)))
    cosine = float(np.vdot(change, gradient)) / sizes if sizes > 0 else 0.0
    return cosine if math.isfinite(cosine) else 0.0


def _spread(some: np.ndarray) -> tuple[float, float]:
    """Of the model's outputs, relative to their size and as it is; NaN of fewer than two rows, or of infinite ones."""
    square = float(np.vdot(some, some)) / some.size
    if len(some) < 2 or not math.isfinite(square):
        return math.nan, math.nan
    centred = some - some.sum(axis=0) / len(some)
    # What numpy's var gives, in a quarter of its time.
    deviation = math.sqrt(float(np.vdot(centred, centred)) / some.size)
    return deviation / math.sqrt(square) if square > 0 else 0.0, deviation
