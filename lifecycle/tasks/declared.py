"""Metrics that a use_case.yaml names, held against those that its kind of task has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.spec.task import TaskSpec, target_of
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks import Kind, kind_of
from trainworthy.lifecycle.tasks.kind import BASELINES
from trainworthy.lifecycle.tasks.metric import DECISION_COST, TaskMetric

_COSTS = "say what wrong decisions cost: benchmark.decision: {costs: {false_positive: 1, false_negative: 5}}"


def metric_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Metrics that the declared kind does not know, of a file as it was read, which may have mistakes elsewhere.

    Which classes there are only the contract says: declarations.py holds the metrics of a class against it.
    """
    try:
        kind = kind_of(target_of(TaskSpec.model_validate(values.get("task"))))
    except ValidationError:
        return []
    ranking = [*(name for name, metric in kind.metrics.items() if metric.ranks), *_own(values)]
    return [
        Problem(
            f"use_case.yaml: benchmark.{place}",
            f"no {what} of kind {kind.name}",
            _COSTS if metric == DECISION_COST else did_you_mean(metric, known),
            metric,
        )
        for place, metric, known, what in _named(values.get("benchmark"), ranking, [*kind.metrics, *_own(values)])
        if not _is_known(metric, known, kind)
    ] + list(_turned_bounds(values, kind))


def _turned_bounds(values: Mapping[str, Any], kind: Kind) -> Iterator[Problem]:
    """Bounds that only a better model breaks: a loss of at least so much."""
    benchmark, higher = values.get("benchmark"), _higher_is_better(values, kind)
    primary = benchmark.get("primary") if isinstance(benchmark, Mapping) else None
    ranked = primary.get("metric") if isinstance(primary, Mapping) else None
    for place, section in _bounded(benchmark):
        metric = section.get("metric", ranked if place.startswith("slices") else None)
        if metric not in higher:
            continue
        right, wrong = ("at_least", "at_most") if higher[metric] else ("at_most", "at_least")
        # Where both are given, the spec says that one is too many.
        if section.get(wrong) is not None and section.get(right) is None:
            better = "higher" if higher[metric] else "lower"
            problem = f"{metric} is better when it is {better}, so {wrong} keeps no bad model out"
            yield Problem(f"use_case.yaml: benchmark.{place}", problem, f"say {right}", section[wrong])


def range_problems(benchmark: BenchmarkSpec, metrics: Mapping[str, TaskMetric]) -> Iterator[Problem]:
    """Bounds that no model breaks or none keeps, since they lie at an end of the metric's range or beyond it."""
    for section, listed in (("guardrails", benchmark.guardrails), ("slices", benchmark.slices)):
        for number, constraint in enumerate(listed):
            metric = metrics.get(constraint.metric or benchmark.primary.metric)
            key, bound = (
                ("at_least", constraint.at_least)
                if constraint.at_least is not None
                else ("at_most", constraint.at_most)
            )
            if metric is None or bound is None:
                continue
            near, far = (metric.low, metric.high) if key == "at_least" else (metric.high, metric.low)
            sign = 1 if key == "at_least" else -1
            if sign * bound <= sign * near:
                problem = "no model breaks it"
            elif sign * bound > sign * far:
                problem = "no model keeps it"
            else:
                continue
            place = f"use_case.yaml: benchmark.{section}.{number}.{key}"
            yield Problem(place, f"{problem}: {metric.name} {_range_in_words(metric)}", _bound_fix(metric), bound)


def _range_in_words(metric: TaskMetric) -> str:
    if math.isinf(metric.high):
        return f"is never below {metric.low:g}"
    return f"is never above {metric.high:g}" if math.isinf(metric.low) else f"lies in [{metric.low:g}, {metric.high:g}]"


def _bound_fix(metric: TaskMetric) -> str:
    if math.isinf(metric.high):
        inside = f"above {metric.low:g}"
    else:
        inside = f"below {metric.high:g}" if math.isinf(metric.low) else f"between {metric.low:g} and {metric.high:g}"
    return f"write a bound {inside}, or leave it out"


def _higher_is_better(values: Mapping[str, Any], kind: Kind) -> dict[str, bool]:
    """Metrics with a better end, among them those of the use case's own."""
    benchmark = values.get("benchmark")
    own = benchmark.get("metrics") if isinstance(benchmark, Mapping) else None
    declared = {
        str(name): declaration["better"] == "more"
        for name, declaration in (own.items() if isinstance(own, Mapping) else ())
        if isinstance(declaration, Mapping) and declaration.get("better") in ("more", "less")
    }
    of_kind = {name: metric.higher_is_better for name, metric in kind.metrics.items() if metric.ranks}
    return of_kind | {DECISION_COST: False} | declared


def kind_problems(spec: UseCaseSpec) -> list[Problem]:
    """What the kind does not have: settings, decisions, limits of rates, tests of behaviour, baselines."""
    kind = kind_of(target_of(spec.task))
    unfit = [Problem("use_case.yaml", message, "remove the setting") for message in kind.unfit_settings(spec.training)]
    decision = spec.benchmark.decision
    if decision is not None and not (_has_thresholds(kind) if decision.by_threshold else kind.takes_cost_matrix):
        fix = "give costs" if _has_thresholds(kind) else "give cost_matrix" if kind.takes_cost_matrix else "remove it"
        unfit.append(Problem("use_case.yaml: benchmark.decision", f"kind {kind.name} has no such decision", fix))
    limits = spec.benchmark.fairness.at_most_difference if spec.benchmark.fairness is not None else {}
    if limits and not kind.has_decisions:
        place, fix = "use_case.yaml: benchmark.fairness.at_most_difference", f"remove {', '.join(limits)}"
        unfit.append(Problem(place, f"kind {kind.name} decides nothing of a row that would have a rate", fix))
    if spec.benchmark.behaviour and len(kind.answer_shape) > 1:
        place, fix = "use_case.yaml: benchmark.behaviour", "remove it; the report tells how far the loss rises"
        unfit.append(Problem(place, f"kind {kind.name} has neither a decision nor a number for a row", fix))
    missing = [name for name in BASELINES if name in spec.benchmark.baselines and name not in kind.baselines]
    return unfit + [
        Problem("use_case.yaml: benchmark.baselines", f"kind {kind.name} has no such baseline", f"remove {name}", name)
        for name in missing
    ]


def _has_thresholds(kind: Kind) -> bool:
    """Whether a number decides from some threshold on, and not one class of several."""
    return not kind.takes_cost_matrix and any(metric.decides for metric in kind.metrics.values())


def _own(values: Mapping[str, Any]) -> list[str]:
    """Names of the metrics of the use case's own, and of those that a declared decision gives."""
    benchmark = values.get("benchmark")
    own = benchmark.get("metrics") if isinstance(benchmark, Mapping) else None
    decision = benchmark.get("decision") if isinstance(benchmark, Mapping) else None
    cost = [DECISION_COST] if isinstance(decision, Mapping) and {"costs", "cost_matrix"} & decision.keys() else []
    return cost + ([str(name) for name in own] if isinstance(own, Mapping) else [])


def _named(benchmark: Any, ranking: list[str], known: list[str]) -> Iterator[tuple[str, str, Iterable[str], str]]:
    """Place, name, and what is known there, of each metric that is text."""
    primary = benchmark.get("primary") if isinstance(benchmark, Mapping) else None
    metric_entries = [("primary.metric", primary, ranking, "metric that ranks models")]
    metric_entries += [(f"{place}.metric", section, known, "metric") for place, section in _bounded(benchmark)]
    for place, section, names, what in metric_entries:
        metric = section.get("metric") if isinstance(section, Mapping) else None
        if isinstance(metric, str):
            yield place, metric, names, what


def _bounded(benchmark: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Place and mapping of each guardrail and slice."""
    for name in ("guardrails", "slices"):
        listed = benchmark.get(name) if isinstance(benchmark, Mapping) else None
        parts = listed if isinstance(listed, list) else []
        yield from ((f"{name}.{at}", section) for at, section in enumerate(parts) if isinstance(section, Mapping))


def _is_known(metric: str, names: Iterable[str], kind: Kind) -> bool:
    return metric in names or any(re.fullmatch(rf"{name}\[.+\]", metric) for name in kind.per_class)
