"""How long a fit is waited for: until it has learned, brings nothing more, or went as far as all planned updates.

Small steps need many updates, and a training of batches of one row at a rate of 0.001 makes tens of thousands. While
steps are small, the loss depends on the sum of their rates alone: so where they end short of the target, longer ones of
the same kind take their place, until their sum is that of all planned updates. What the planned updates reach is no
fault; what they do not reach is one, and where longer steps do not descend, nothing is shown.
"""

from __future__ import annotations

from collections.abc import Callable

STEPS, MOST_STEPS = 400, 1600
# Of the way from the constant's loss to the target: what a quarter of STEPS has to bring for more of them.
BROUGHT = 0.02
# How much longer steps become at a time, after how many updates, and for how many in all.
LONGER, LEVEL, MOST_LONGER = 4.0, 100, 1000
# Of a number of updates that is fixed, in how many parts they become longer.
PARTS = 4


class Patience:
    """Asked with a loss and the updates so far, whether that is enough.

    `begun` is the loss before the first update, `constant` that of the best output for all rows, and `planned` how
    many updates at the peak rate go as far as all planned ones. `times` is what the next rates are multiplied by,
    `covered` how far the updates went, in updates at the peak rate. Where steps became too long for the loss, `jumped`
    is True, `last_good` says after how many updates it had not risen yet, `covered` counts no further than that, and
    `cut_off` is True if it still fell then.
    """

    def __init__(self, begun: float, target: float, constant: float, planned: float) -> None:
        self.times, self.covered, self.cut_off = 1.0, 0.0, False
        self.jumped, self.last_good = False, 0
        self._levels: list[float] = []
        self._begun, self._target, self._planned = begun, target, planned
        self._constant, self._least = constant, BROUGHT * (constant - target)
        self._losses: dict[int, float] = {}
        self._done, self._longer_from, self._level = 0, 0, begun
        # By an update at the declared rate at last, and by the newest level of longer steps (at first, by the newest of
        # those at the declared rate).
        self._pace, self._brought = 0.0, 0.0

    def __call__(self, loss: float, done: int) -> bool:
        """True if it is enough."""
        self.covered += (done - self._done) * self.times
        self._done = done
        if loss <= self._target:
            return True
        return self._with_longer_steps(loss, done) if self._longer_from else self._as_declared(loss, done)

    def more(self, loss: float) -> str:
        """How many updates at the declared rate would meet the target, in words; "" where they brought nothing."""
        if not self._pace > 0:
            return ""
        few = f"about {float(f'{(loss - self._target) / self._pace:.1g}'):,.0f} more updates at this pace would tell"
        return f"; {few}, of which {self._planned:,.0f} are planned"

    def may_reach(self, fell: float) -> bool:
        """Whether the target is met if all planned updates go on as those that lowered the loss by so much."""
        return self._begun - fell * max(self._planned / max(1.0, self.covered), 1.0) <= self._target

    def times_of(self, done: int) -> float:
        """What the rate of an update was multiplied by, from 1 on; those up to the last good one are made again."""
        level = -(-(done - self._longer_from) // LEVEL)
        return self._levels[level - 1] if self._longer_from and level > 0 else 1.0

    def _as_declared(self, loss: float, done: int) -> bool:
        self._losses[done] = loss
        brought = self._losses.get(done - STEPS // 4, loss) - loss
        if done < STEPS or (done < MOST_STEPS and loss < self._constant and brought > self._least):
            return False
        self._pace = brought / (STEPS // 4)
        # What the steps did not lower, longer ones of the same kind need not.
        if not loss < self._begun or self.covered >= self._planned:
            return True
        self._longer_from, self._level, self._brought = done, loss, brought
        self._lengthen()
        return False

    def _with_longer_steps(self, loss: float, done: int) -> bool:
        made = done - self._longer_from
        if self.covered >= self._planned or made >= MOST_LONGER:
            return True
        if made % LEVEL:
            return False
        if not loss <= self._level + self._least:
            self.jumped, self.last_good = True, done - LEVEL
            self.covered -= LEVEL * self.times
            self.cut_off = self._still_fell()
            return True
        self._brought, self._level = self._level - loss, loss
        self._lengthen()
        return False

    def _still_fell(self) -> bool:
        """Of steps that became too long: did those before bring much, or as much as the planned ones need to bring?"""
        pace = self._brought / (LEVEL * (self._levels[-2] if len(self._levels) > 1 else 1.0))
        reached = self._level - pace * max(0.0, self._planned - self.covered)
        return self._brought > self._least or reached <= self._target

    def _lengthen(self) -> None:
        """Longer steps, but so that a level goes no further than what is left of the planned ones."""
        self.times = max(1.0, min(self.times * LONGER, (self._planned - self.covered) / LEVEL))
        self._levels.append(self.times)


def longer_steps(updates: int, planned: float) -> tuple[Callable[[int], float], float]:
    """What the rate of each of so many updates is multiplied by, from 1 on, and how far all of them go.

    They become longer from part to part, and go no further than the planned ones.
    """
    part = max(1, updates // PARTS)

    def far(growth: float) -> float:
        return sum(growth ** ((done - 1) // part) for done in range(1, updates + 1))

    # Of a plan that goes much further, steps of a rate of 0.0001 become 4,000 times as long at most.
    shares = (quarters / 4 for quarters in range(8, 0, -1))
    growth = next((LONGER**share for share in shares if far(LONGER**share) <= planned), 1.0)
    return lambda done: growth ** ((done - 1) // part), far(growth)
