"""What a finding says, and the effect sizes below which nothing is one, whatever history showed."""

from __future__ import annotations

from trainworthy.lifecycle.drift.block_null import Judged
from trainworthy.lifecycle.drift.time_axis import Axis
from trainworthy.lifecycle.spec.frozen import Frozen

# PSI: 0.1 is the usual "moderate". Nulls: a day without weather is one in 30, and one in 7.
PSI_FLOOR = 0.1
JENSEN_SHANNON_FLOOR = 0.01
NULL_FLOOR, NULL_FLOOR_WEEK = 0.05, 0.2
PILE_FLOOR = 0.04
CLIP_FLOOR = 0.005
NEW_FLOOR = 0.01
WEEK = 7
_NAMED = 5


class Shift(Frozen):
    """One thing that is unusual about a column (None: about the rows): what was seen, and what may be."""

    column: str | None
    statistic: str
    observed: float
    threshold: float
    threshold_from: str
    where: str
    cause: str
    fix: str
    code: str = ""

    @property
    def excess(self) -> float:
        """How far beyond the threshold, as a ratio; for telling the greatest first."""
        return self.observed / self.threshold if self.threshold else self.observed


def lengths(axis: Axis) -> tuple[int, ...]:
    """The block lengths at which a window is looked at: all of it, and its weeks if it has more than two."""
    return (axis.length, WEEK) if axis.in_time and axis.length > 2 * WEEK else (axis.length,)


def of_judged(name: str, statistic: str, judged: Judged, axis: Axis, cause: str, fix: str, code: str = "") -> Shift:
    """The finding about a judged statistic."""
    return Shift(
        column=name,
        statistic=statistic,
        observed=judged.observed,
        threshold=judged.threshold,
        threshold_from=f"{judged.source}, against {judged.against}",
        where=axis.span(judged.start, judged.length),
        cause=cause,
        fix=fix,
        code=code,
    )


def named(value: float, hidden: bool) -> str:
    """A value in words, or that it may not be told."""
    return "(of a sensitive column)" if hidden else f"{value:g}"


def listed(names: list[str], hidden: bool) -> str:
    """The first five names."""
    if hidden or not names:
        return f"{len(names)} values" if hidden else "rare values"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
