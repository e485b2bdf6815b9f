"""Whether the candidate's decisions tell rows apart.

Who acts on every row, or on none, needs no model. So it is where costs are declared the wrong way round, or where a
threshold of 0.5 meets a rare label: both look well measured otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainworthy.lifecycle.evaluation.comparison import weighed
from trainworthy.lifecycle.evaluation.decision import decisions_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import CANDIDATE
from trainworthy.lifecycle.protocol.operating_point import DECISIONS
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.wording import costs_told, count

if TYPE_CHECKING:
    import pandas as pd


def decisions_check(
    predictions: pd.DataFrame, benchmark: BenchmarkSpec, kind: Kind, threshold: float | None
) -> tuple[CheckResult, ...]:
    """The check where decisions are declared, else none. Alike on all rows they cap the verdict at shadow.

    `predictions` as in evaluate; `threshold` is the candidate's, None where a class is decided.
    """
    decided = decisions_of(CANDIDATE, weighed(predictions))
    if benchmark.decision is None or decided is None or not len(decided):
        return ()
    values = sorted(set(decided.tolist()))
    alike = len(values) == 1
    how = _acting(int(decided.sum()), len(decided), threshold) if threshold is not None else _answering(values, kind)
    return (
        CheckResult(
            name=DECISIONS,
            status="insufficient" if alike else "pass",
            observed=len(values),
            threshold=2,
            evidence=f"the candidate {how}" + (": whoever decides so needs no model" if alike else ""),
            fix=_fix(benchmark) if alike else "",
        ),
    )


def _acting(acted: int, rows: int, threshold: float) -> str:
    """On how many rows it acts, as a share where it tells some apart."""
    if acted in (0, rows):
        which = "none" if not acted else "all"
        return f"acts on {which} of {count(rows)} benchmark rows (it acts from {threshold:.3g} on)"
    return f"acts on {count(acted)} of {count(rows)} benchmark rows ({acted / rows:.2%}; from {threshold:.3g} on)"


def _answering(values: list[float], kind: Kind) -> str:
    names = [str(kind.answer_names[int(place)]) for place in values]
    return f"decides {names[0]} for all benchmark rows" if len(names) == 1 else f"decides {len(names)} classes"


def _fix(benchmark: BenchmarkSpec) -> str:
    assert benchmark.decision is not None
    costs = benchmark.decision.costs
    if costs is not None:
        return (
            f"{costs_told(costs.model_dump())}: if that is the wrong way round, swap them in benchmark.decision.costs"
        )
    if benchmark.decision.cost_matrix is not None:
        return "look at benchmark.decision.cost_matrix: it is read as {true class: {answered class: cost}}"
    if benchmark.decision.capacity is not None:
        return (
            "benchmark.decision.capacity chose the threshold by the calibration split: the benchmark's answers lie on "
            "one side of it, or more calibration rows have the greatest answer than it allows"
        )
    return "decide from a threshold that lies among the model's probabilities, or by a capacity or costs"
