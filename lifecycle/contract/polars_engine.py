"""Judges a folder of Parquet files by a contract, all rules in one pass: polars, batch after batch.

Verdicts, counts and failing rows are those of Great Expectations (expectations/validate.py), held equal by
tests/expectations/test_engines_agree.py; what is judged alike and why: docs/decisions/0012-engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import polars as pl

from trainworthy.lifecycle.contract.batches import batches
from trainworthy.lifecycle.contract.failing_rows import with_failing_rows
from trainworthy.lifecycle.contract.frame import as_files
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.polars_masks import tally
from trainworthy.lifecycle.contract.polars_unique import duplicates, hashes, repeated, rows_of
from trainworthy.lifecycle.contract.result import RuleResult, could_not, counted, of_type
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.contract.table import Table, read_table, type_held, unjudged_because
from trainworthy.lifecycle.contract.unexpected_values import with_unlisted
from trainworthy.lifecycle.errors import DatasetError

# Each rule's count, or why it has none, by the rule's id.
OnePass = Callable[[Table, Sequence[Rule]], Mapping[str, int | str]]


def validate_files(folder: Path, contract: Contract) -> tuple[RuleResult, ...]:
    """What each of the contract's rules finds in a folder of Parquet files, in the contract's order.

    Raises DatasetError for a file that can't be read.
    """
    return judged(read_table(folder), contract, _one_pass)


def judged(table: Table, contract: Contract, one_pass: OnePass) -> tuple[RuleResult, ...]:
    """What each rule finds if `one_pass` counts. It may raise: then the rule that it stumbles over is an error."""
    reasons = {rule.id: unjudged_because(rule, table) for rule in contract.rules}
    read = [rule for rule in contract.rules if reasons[rule.id] is None and _is_read(rule, table)]
    counts = _counts(table, read, one_pass)
    results = [
        _result(rule, table, reasons[rule.id] or counts.get(rule.id, 0), contract.sensitive_columns)
        for rule in contract.rules
    ]
    return with_unlisted(table, contract, with_failing_rows(table, contract, results))


def validate_frame(frame: pd.DataFrame, contract: Contract) -> tuple[RuleResult, ...]:
    """The same for rows in memory, in the types that a Parquet file gives them."""
    with as_files(frame) as folder:
        return validate_files(folder, contract)


def _is_read(rule: Rule, table: Table) -> bool:
    """False for what the files' schema alone tells."""
    if rule.kind == "type":
        name = rule.columns[0]
        is_wall_clock = name in table.types and table.held(name) == "timestamp" and not table.is_aware(name)
        return is_wall_clock and name not in table.conflicts
    return rule.kind != "row_count"


def _result(rule: Rule, table: Table, outcome: int | str, sensitive: Sequence[str]) -> RuleResult:
    if isinstance(outcome, str):
        return could_not(rule, table.rows, outcome, sensitive)
    if rule.kind == "type":
        return of_type(rule, table.rows, type_held(rule.columns[0], table, all_midnight=outcome == 0))
    return counted(rule, table.rows if rule.kind == "row_count" else outcome, table.rows)


def _counts(table: Table, rules: Sequence[Rule], one_pass: OnePass) -> Mapping[str, int | str]:
    """Each rule's count, or why it has none. A rule that stops the pass is found by halving, and stops no other."""
    if not rules:
        return {}
    try:
        return one_pass(table, rules)
    except DatasetError:
        raise
    except Exception as error:  # whatever the engine stumbles over, the rule is not evaluated, and says so
        if len(rules) == 1:
            return {rules[0].id: str(error)}
        half = len(rules) // 2
        return {**_counts(table, rules[:half], one_pass), **_counts(table, rules[half:], one_pass)}


def _one_pass(table: Table, rules: Sequence[Rule]) -> dict[str, int | str]:
    tallies = {rule.id: tally(rule, table) for rule in rules if rule.kind != "unique"}
    keys = {rule.id: rule.columns for rule in rules if rule.kind == "unique"}
    expressions = [
        expression.cast(pl.Int64).alias(str(number))
        for number, expression in enumerate(expression for each in tallies.values() for expression in each.expressions)
    ]
    columns = tuple(dict.fromkeys(name for rule in rules for name in rule.columns))
    sums, key_hashes = [0] * len(expressions), {identifier: list[pl.Series]() for identifier in keys}
    for frame in batches(table, columns):
        row = frame.lazy().select(expressions).collect().row(0) if expressions else ()
        sums = [total + (part or 0) for total, part in zip(sums, row, strict=True)]
        for identifier, names in keys.items():
            key_hashes[identifier].append(hashes(frame, names))
    outcomes: dict[str, int | str] = {}
    for identifier, each in tallies.items():
        outcomes[identifier] = each.count(sums[: len(each.expressions)])
        sums = sums[len(each.expressions) :]
    for identifier, names in keys.items():
        outcomes[identifier] = rows_of(duplicates(table, names, repeated(key_hashes.pop(identifier))))
    return outcomes
