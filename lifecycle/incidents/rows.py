"""Which rows of a batch do it: found by training on parts of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

# A part of a batch is a forward and a backward pass; a few guilty rows among thousands need some tens of them.
MOST_TRIES = 256
# Rows that are tried alone first: if all of these do it, it is not the rows.
_SCOUTS = 4


@dataclass
class Search:
    """Bisects a batch. `is_bad` tells whether these rows, by their place in the batch, do it on their own."""

    is_bad: Callable[[Sequence[int]], bool]
    alone: list[int] = field(default_factory=list)
    together: list[Sequence[int]] = field(default_factory=list)
    tries: int = 0

    def run(self, count: int) -> str:
        """Search the whole batch; a sentence on what was found."""
        scouts = sorted({place * (count - 1) // max(_SCOUTS - 1, 1) for place in range(_SCOUTS)})
        if count > _SCOUTS and all(self._tried([place]) for place in scouts):
            return f"each of {len(scouts)} rows that were tried alone does it: look at weights and model, not at rows"
        if not self._search(range(count)):
            return "parts of the batch do not do it; only the whole batch with its own random numbers does"
        if self.tries >= MOST_TRIES:
            return (
                f"{len(self.alone)} rows do it alone; the search ended after {self.tries} parts, and there may be more"
            )
        if self.alone:
            return f"{len(self.alone)} of {count} rows do it alone; found with {self.tries} parts of the batch"
        return f"no row does it alone; these {len(self.together[0])} do together"

    def _search(self, part: Sequence[int]) -> bool:
        if self.tries >= MOST_TRIES or not self._tried(part):
            return False
        if len(part) == 1:
            self.alone.append(part[0])
            return True
        middle = len(part) // 2
        left, right = self._search(part[:middle]), self._search(part[middle:])
        if not left and not right and self.tries < MOST_TRIES:
            self.together.append(part)
        return True

    def _tried(self, part: Sequence[int]) -> bool:
        self.tries += 1
        return self.is_bad(part)
