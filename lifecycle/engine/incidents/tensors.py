"""What is asked of every tensor of an update: is it finite, and where does it lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves


def number_tensors(values: Any) -> list[Tensor]:
    """The tensors of numbers that can be infinite, in nested values."""
    return [
        value
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor)
        and (value.is_floating_point() or value.is_complex())
        and value.layout == torch.strided
    ]


def is_finite(tensor: Tensor) -> bool:
    """True if every number is."""
    return bool(tensor.isfinite().all())


def has_nan(tensor: Tensor) -> bool:
    """True if a number is NaN."""
    return bool(tensor.isnan().any())


def told_range(given: Sequence[Tensor]) -> str:
    """What the finite numbers of these lie between, to follow a comma; "" if there are none."""
    finite = [part for tensor in given if (part := tensor[tensor.isfinite()]).numel() and not part.is_complex()]
    if not finite:
        return ""
    low, high = min(float(part.min()) for part in finite), max(float(part.max()) for part in finite)
    return f", given {low:.4g}" if low == high else f", given numbers from {low:.4g} to {high:.4g}"


def told_bad(tensor: Tensor) -> str:
    """NaN, else inf."""
    return "NaN" if has_nan(tensor) else "inf"


def place_of(tensor: Tensor) -> int:
    """Where the storage lies: the same for views of it."""
    return tensor.untyped_storage().data_ptr()


def is_whole(tensor: Tensor) -> bool:
    """True if the tensor is all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
