"""The features of a contract as whoever changes their values has to know them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import Rule, never_null
from trainworthy.lifecycle.evaluation.changes import NUMBERS, UNKNOWN
from trainworthy.lifecycle.protocol.jobs import ChangedInputsJob, InputColumn
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec

_LIMITS = ("minimum", "maximum", "exclusive_minimum", "exclusive_maximum")


def changed_inputs_job(
    contract: Contract, features: Iterable[str], tests: tuple[BehaviourSpec, ...]
) -> ChangedInputsJob:
    """What can be changed of these features, and what cannot."""
    columns = [contract.column(name) for name in features]
    label = contract.label.column
    whole = [column for column in columns if column.file is None and column.name != label]
    files = [column.name for column in columns if column.file is not None]
    return ChangedInputsJob(
        columns=tuple(input_column(column, contract.rules) for column in whole),
        tests=tests,
        left_out=tuple(_left_out(columns, label)),
        reason=f"the model reads files ({', '.join(files)}), which each answer would decode again" if files else "",
    )


def _left_out(columns: Iterable[Column], label: str) -> Iterator[str]:
    for column in columns:
        if column.name == label:
            yield f"{column.name}: it is input and label at once"
        elif column.file is not None:
            yield f"{column.name}: its values are files"


def input_column(column: Column, rules: Iterable[Rule]) -> InputColumn:
    """By rules that stop a run at a single row; what others let through is not refused."""
    own = [rule for rule in rules if rule.columns == (column.name,) and rule.stops_at_one_row]
    return InputColumn(
        name=column.name,
        logical_type=column.logical_type,
        nullable=column.name not in never_null(own),
        limits=_limits(own) if column.logical_type in NUMBERS else {},
        allowed=next((tuple(rule.parameters["values"]) for rule in own if rule.kind == "allowed"), ()),
        closed=any(map(_refuses_unknown, own)),
        sensitive=column.sensitive,
    )


def _limits(rules: Iterable[Rule]) -> dict[str, float]:
    """The narrowest of each."""
    limits: dict[str, float] = {}
    for rule in rules:
        for name, limit in _numbers(rule.parameters) if rule.kind == "range" else ():
            tighter = max if name.endswith("minimum") else min
            limits[name] = tighter(limits.get(name, limit), limit)
    return limits


def _numbers(parameters: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name in _LIMITS:
        if parameters.get(name) is not None:
            yield name, float(parameters[name])


def _refuses_unknown(rule: Rule) -> bool:
    """Whether a text that no row has breaks the rule."""
    if rule.kind in ("allowed", "references"):
        return True
    if rule.kind == "pattern":
        return re.search(rule.parameters["pattern"], UNKNOWN) is None
    size = len(UNKNOWN)
    return rule.kind == "length" and not (
        rule.parameters.get("minimum", size) <= size <= rule.parameters.get("maximum", size)
    )
