"""Tries each rule of a contract on rows that should break it: a rule that nothing breaks says nothing.

A rule with limits on both sides makes two claims, and each is tried on its own. In a round every rule that still holds
gets its next fault; all of them lie side by side in one frame, each on columns of its own, so that the engine is asked
once a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.mutations import faults_of
from trainworthy.lifecycle.contract.result import RuleResult
from trainworthy.lifecycle.contract.rule import Rule, within
from trainworthy.lifecycle.contract.sample import sample_rows

Judge = Callable[["pd.DataFrame", Contract], Sequence[RuleResult]]
# A dataset that is a hundred times as long as it should be: every row joined with a hundred others.
JOINED = 100
_SIDES = {"minimum": "minimum", "exclusive_minimum": "minimum", "maximum": "maximum", "exclusive_maximum": "maximum"}
# Operators that a count on the way from a sample to all rows keeps its meaning for.
_SCALED = ("mustBeGreaterThan", "mustBeGreaterOrEqualTo", "mustBeLessThan", "mustBeLessOrEqualTo", "mustBeBetween")


@dataclass
class Claim:
    """A rule, or one side of it, with what was tried so far."""

    rule: Rule
    side: str = ""
    tried: list[str] = field(default_factory=list)
    broken: bool = False


@dataclass(frozen=True)
class Trial:
    """`never` holds the claims that nothing broke; `already` the results that are no pass on the rows as they are."""

    claims: int
    never: tuple[Claim, ...]
    already: tuple[RuleResult, ...]
    rows_tried: int


def try_rules(rows: pd.DataFrame, total: int, contract: Contract, judge: Judge) -> Trial:
    """Try every rule of the contract.

    Args:
        rows: a sample of the dataset, with a default index; not changed.
        total: how many rows the dataset has; bounds in rows are scaled to the sample.
        judge: the engine that is asked.
    """
    scaled = [_scaled(rule, total / max(1, len(rows))) for rule in contract.rules]
    sampled = contract.model_copy(update={"rules": tuple(rule for rule in scaled if rule.kind != "row_count")})
    # A rule that names a column twice is none that rows can keep or break, whatever an engine makes of it.
    judged = [result for result in judge(rows, sampled) if not _names_twice(result.rule)]
    already = tuple(result for result in judged if result.status != "pass")
    known = {result.rule.id for result in already}
    claims = [claim for rule in sampled.rules if rule.id not in known for claim in _claims(rule, len(rows))]
    _try_in_rounds(claims, rows, contract, judge)
    counted = [Claim(rule) for rule in contract.rules if rule.kind == "row_count"]
    _try_row_counts(counted, rows, total, contract, judge)
    every = [*counted, *claims]
    return Trial(len(every), tuple(claim for claim in every if not claim.broken), already, len(rows))


def _scaled(rule: Rule, times: float) -> Rule:
    bound = rule.parameters["bound"]
    if rule.kind == "row_count" or bound["unit"] == "percent" or bound["operator"] not in _SCALED:
        return rule
    value = bound["value"]
    smaller = [number / times for number in value] if isinstance(value, list) else value / times
    return rule.model_copy(update={"parameters": {**rule.parameters, "bound": {**bound, "value": smaller}}})


def _names_twice(rule: Rule) -> bool:
    return len(set(rule.columns)) < len(rule.columns)


def _always_holds(rule: Rule, rows: int) -> bool:
    """True if the bound holds however many rows break the rule."""
    return all(within(rule.parameters["bound"], count, rows) for count in range(rows + 1))


def _claims(rule: Rule, rows: int) -> Iterator[Claim]:
    sides = [key for key in rule.parameters if key in _SIDES]
    if len(sides) < 2 or _always_holds(rule, rows):
        yield Claim(rule, _SIDES[sides[0]] if sides else "")
        return
    for side in sides:
        parameters = {key: value for key, value in rule.parameters.items() if key == side or key not in _SIDES}
        yield Claim(rule.model_copy(update={"parameters": parameters}), _SIDES[side])


def _try_in_rounds(claims: list[Claim], rows: pd.DataFrame, contract: Contract, judge: Judge) -> None:
    made = sample_rows(
        contract, tuple(column.name for column in contract.columns), rows=len(rows), fit_rows=len(rows) // 2
    )
    waiting = [(claim, _changed(claim, _with_values(rows, made, claim.rule))) for claim in claims]
    while waiting:
        trials = [(claim, changes, change) for claim, changes in waiting if (change := next(changes, None)) is not None]
        frames: dict[str, Any] = {}
        rules, columns = [], {}
        for place, (claim, _, (fault, changed)) in enumerate(trials):
            claim.tried.append(fault)
            names = {name: f"{place}_{name}" for name in claim.rule.columns}
            frames |= {names[name]: changed[name] for name in map(str, changed)}
            columns |= {new: contract.column(name) for name, new in names.items()}
            own = {"id": str(place), "columns": tuple(names[name] for name in claim.rule.columns)}
            rules.append(claim.rule.model_copy(update=own))
        for result in judge(_side_by_side(frames, rows), _contract_of(contract, rules, columns)) if trials else ():
            trials[int(result.rule.id)][0].broken = result.status == "fail"
        waiting = [(claim, changes) for claim, changes, _ in trials if not claim.broken]


def _side_by_side(frames: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(frames, index=rows.index)


def _contract_of(contract: Contract, rules: Sequence[Rule], columns: dict[str, Column]) -> Contract:
    """A contract of these rules. All of its columns are sensitive, so that the engine spends no time on naming rows."""
    renamed = (column.model_copy(update={"name": name, "sensitive": True}) for name, column in columns.items())
    return contract.model_copy(update={"rules": tuple(rules), "columns": tuple(renamed), "primary_key": ()})


def _with_values(rows: pd.DataFrame, made: pd.DataFrame, rule: Rule) -> pd.DataFrame:
    """The rule's columns, one that holds no value at all from rows made of the contract."""
    names = dict.fromkeys(rule.columns)
    return pd.DataFrame({name: made[name] if rows[name].isna().all() else rows[name] for name in names})


def _changed(claim: Claim, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each fault in all rows; then, where more broken rows are no worse, each in as many rows as the bound forbids."""
    yield from faults_of(claim.rule, rows)
    for count in _forbidden(claim.rule, len(rows)):
        for fault, broken in faults_of(claim.rule, rows):
            yield f"{fault}, in {count} rows", pd.concat([broken.iloc[:count], rows.ffill().bfill().iloc[count:]])


def _forbidden(rule: Rule, rows: int) -> list[int]:
    """The least numbers of broken rows that the bound forbids, if it allows all of them."""
    bound = rule.parameters["bound"]
    if not within(bound, rows, rows):
        return []
    return [count for count in range(rows + 1) if not within(bound, count, rows)][:2]


def _try_row_counts(claims: list[Claim], rows: pd.DataFrame, total: int, contract: Contract, judge: Judge) -> None:
    """No rows at all by the engine; many and few by the bound alone, which decides for every engine."""
    claimed = contract.model_copy(update={"rules": tuple(claim.rule for claim in claims)})
    for claim, result in zip(claims, judge(rows.head(0), claimed), strict=True):
        counts = {"few rows": total // 100, "half of the rows": total // 2, f"{JOINED} times the rows": total * JOINED}
        claim.tried = ["no rows", *counts]
        bound = claim.rule.parameters["bound"]
        claim.broken = result.status == "fail" or not all(within(bound, count, count) for count in counts.values())


def fix_of(claim: Claim, rows: int) -> str:
    """What to do about a claim that nothing broke on that many rows."""
    if claim.rule.kind == "row_count":
        return f"write a bound that no rows, or {JOINED} times as many, break"
    if _always_holds(claim.rule, rows):
        return "tighten its bound: it holds however many rows break the rule"
    if _names_twice(claim.rule):
        return "name different columns"
    match claim.rule.kind:
        case "range" | "length":
            return f"write a {claim.side} that a wrong value passes, or remove it"
        case "pattern":
            return "write a pattern that wrong texts don't match, or remove it"
        case "allowed" | "references":
            return "leave out what is not valid: every value of this type is listed"
        case "missing":
            return "list values that a column of this type can hold"
    return "change the rule so that wrong rows break it, or remove it"
