"""Which tensors have the places of an answer (points of a mask, bytes of a text), and where their channels lie."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Layout = Literal["first", "last", "none"]


def channels_of(tensor: Tensor, places: tuple[int, ...]) -> Layout | None:
    """Where an input `(N, ...)` has its channels beside so many places; None if it has no such places.

    Pictures may be of another size than their masks, but for their proportions.
    """
    shape, count = tuple(tensor.shape[1:]), len(places)
    if len(shape) == count and _alike(shape, places):
        return "none"
    if len(shape) != count + 1:
        return None
    return "first" if _alike(shape[1:], places) else "last" if _alike(shape[:-1], places) else None


def with_channels(tensor: Tensor, channels: Layout) -> Tensor:
    """`(N, channels, ...)`."""
    return tensor if channels == "first" else tensor.movedim(-1, 1) if channels == "last" else tensor.unsqueeze(1)


def _alike(shape: tuple[int, ...], places: tuple[int, ...]) -> bool:
    if len(places) == 1:
        return shape == places
    return all(size * places[0] == shape[0] * place for size, place in zip(shape, places, strict=True))
