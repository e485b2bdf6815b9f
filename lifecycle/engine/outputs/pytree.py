"""What a network gives, leaf by leaf: a tensor, or a tree of tensors, of which not every leaf belongs to the rows.

A learned temperature of no dimension, a plain number, None in the place of attentions: these stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and len(leaf) == rows


def row_places(leaves: Sequence[Any], rows: int) -> list[int]:
    """Places of the float tensors (rows, ...); where there are none, of those that hold several lines a row, as flat
    sequences (rows · T, ...) do.

    What needs no gradient, as an input that is handed through, counts only if all are so.
    """
    floats = [at for at, leaf in enumerate(leaves) if is_float(leaf) and leaf.ndim and len(leaf)]
    own = [at for at in floats if len(leaves[at]) == rows] or [at for at in floats if len(leaves[at]) % rows == 0]
    return [at for at in own if leaves[at].requires_grad] or own


def flat(tensor: Tensor) -> Tensor:
    """A gradient as one line of real numbers, float64: of complex ones both parts."""
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    return (torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense).flatten().double()
