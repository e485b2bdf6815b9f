"""Outputs that are several things side by side: a mixture's shares, means and spreads in the channels of one tensor.

Looked at only where free numbers gain without end: shares that need not sum to 1 gain a little for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free import Ends, Link, link_along, same, within

# Every pair of two places is tried as a part's first and last.
MOST_CHANNELS = 64


def held_links(links: Mapping[int, Link], seen: Mapping[int, Tensor], ends: Mapping[int, Ends]) -> dict[int, Link]:
    """The links by the place of a leaf, with parts along dimension 1 of the seen outputs, and within the ends."""
    parted = {at: joined(seen[at]) if link is same and at in seen else link for at, link in links.items()}
    return {at: within(link, ends[at]) if at in ends else link for at, link in parted.items()}


def joined(seen: Tensor) -> Link:
    """What turns any numbers into such outputs: parts that sum to 1, their logarithms, or directions."""
    parts = _parts(seen)
    if not parts:
        return same

    def link(tensor: Tensor) -> Tensor:
        found, done = [], 0
        for start, stop, of_part in parts:
            found += [tensor[:, done:start], of_part(tensor[:, start:stop])]
            done = stop
        return torch.cat([*found, tensor[:, done:]], 1)

    return link


def _parts(seen: Tensor) -> Sequence[tuple[int, int, Link]]:
    """First channel, the one behind the last, and the link, of parts that do not overlap."""
    channels = seen.shape[1] if seen.ndim > 1 else 0
    found, start = [], 0
    while start < channels - 1 and channels <= MOST_CHANNELS:
        stops = range(start + 2, channels + 1)
        stop, link = next(
            ((stop, link) for stop in stops if (link := link_along([seen[:, start:stop]], 1)) is not None), (0, same)
        )
        found += [(start, stop, link)] if stop else []
        start = stop or start + 1
    return found
