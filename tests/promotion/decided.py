"""Evidence for decide(), which promotes as it is; what a test names is otherwise."""

import math
from typing import Any

from trainworthy.lifecycle.promotion.evidence import CONTROLS, PromotionEvidence, guardrail_results
from trainworthy.lifecycle.protocol.figures import (
    Comparison,
    Disparity,
    Estimate,
    Metric,
    PairDifference,
    RateOfValue,
)
from trainworthy.lifecycle.protocol.records import Control
from trainworthy.lifecycle.spec.benchmark import Guardrail

MARGIN = 0.005
NAN, INF = math.nan, math.inf


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, standard_error=(high - low) / 4, groups=30)


def gain(reference: str, low: float, high: float) -> Comparison:
    return Comparison(reference=reference, metric="log_loss", gain=estimate(low, high))


def guardrails(rules: list[tuple[str, float, float, float]]):
    """(at_most or at_least, bound, low, high) → results."""
    found = []
    for rule, bound, low, high in rules:
        guardrail = Guardrail.model_validate({"metric": "auc", rule: bound})
        metric = Metric(model="candidate", metric="auc", estimate=estimate(low, high), rows=900)
        found += guardrail_results([guardrail], [metric], "candidate")
    return tuple(found)


def evidence(*, prior=(0.01, 0.03), linear=(0.001, 0.02), champion=None, rules=(), **changed) -> PromotionEvidence:
    """A good first model; `champion` gives the interval of the gain over one."""
    values = {
        "metric": "log_loss",
        "margin": MARGIN,
        "purpose": "improve",
        "first_model": champion is None,
        "champion": "flights/3" if champion else None,
        "baselines": (gain("prior", *prior), gain("linear", *linear)),
        "champion_comparison": gain("champion", *champion) if champion else None,
        "guardrails": guardrails(list(rules)),
        "controls": tuple(Control(name=name, status="pass", reason="good.") for name in CONTROLS),
    }
    return PromotionEvidence(**{**values, **changed})


def with_control(name: str, status: str) -> tuple[Control, ...]:
    return tuple(
        Control(name=n, status="pass" if n != name else status, reason="what was seen.")  # pyright: ignore
        for n in CONTROLS
    )


def measured(value: float, reach: float, groups: int) -> Estimate:
    return Estimate(value=value, low=value - reach, high=value + reach, standard_error=reach / 2, groups=groups)


def disparity(values: int = 3, widest=(0.01, 0.08), surest=None) -> Disparity:
    """Of values 0, 1, …, all with a rate; the widest pair, and the surest one where it is another."""
    rates = tuple(RateOfValue(value=str(n), rows=900, groups=30, rate=estimate(0.2, 0.3)) for n in range(values))
    pairs = [PairDifference(highest="0", lowest="1", difference=estimate(*one)) for one in (widest, surest or widest)]
    return Disparity(
        model="candidate", column="region", claim="label 1", rate="selection_rate", values=rates, highest="0",
        lowest="1", difference=pairs[1].difference, widest=pairs[0], surest=pairs[1],
    )  # fmt: skip


def changed(found: Disparity, **values: Any) -> Disparity:
    return found.model_copy(update=values)


def limited(*found: Disparity, columns: tuple[str, ...] = ("region",)) -> PromotionEvidence:
    return evidence(disparities=found, difference_limits={"selection_rate": 0.1}, protected_columns=columns)
