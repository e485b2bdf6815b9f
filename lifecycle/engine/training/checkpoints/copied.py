"""A state copied into buffers that are used again: what the loop waits for at a checkpoint."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor


class Buffers:
    """Memory of this host for one copy of a state; it grows with the first copy and is used again by the next.

    Allocating and touching fresh pages takes longer than the copy itself.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def copy(self, saved: dict[str, Any]) -> dict[str, Any]:
        """An equal state that shares nothing with `saved`; it is valid until the next copy."""
        kept, copied = self._kept, {}
        self._kept = {}
        result = self._copy(saved, "", kept, copied)
        if any(tensor.is_cuda for tensor, _ in copied.values()):
            torch.cuda.synchronize()
        return result

    def _copy(self, value: Any, name: str, kept: dict[str, Tensor], copied: dict[Any, tuple[Tensor, Tensor]]) -> Any:
        if torch.is_tensor(value):
            return self._tensor(value, name, kept, copied)
        if isinstance(value, dict):
            # Copied whole first: a model's state_dict is a dict with a version of each module beside it.
            whole = copy.copy(value)
            for key, inner in value.items():
                whole[key] = self._copy(inner, f"{name}/{key}", kept, copied)
            return whole
        if isinstance(value, list | tuple):
            inner = [self._copy(one, f"{name}/{number}", kept, copied) for number, one in enumerate(value)]
            return inner if isinstance(value, list) else tuple(inner)
        return copy.deepcopy(value)

    def _tensor(self, tensor: Tensor, name: str, kept: dict[str, Tensor], copied: dict[Any, Any]) -> Tensor:
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_quantized:
            return tensor.cpu().clone()
        # Tied weights have two names: copied once, they are one storage in the file, too.
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in copied:
            return copied[place][1]
        buffer = kept.get(name)
        if buffer is None or (buffer.dtype, buffer.shape) != (tensor.dtype, tensor.shape):
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda, requires_grad=False)
        buffer.copy_(tensor, non_blocking=tensor.is_cuda)
        # The tensor is kept till the copy ends, or another one could lie at its address.
        self._kept[name], copied[place] = buffer, (tensor, buffer)
        return buffer
