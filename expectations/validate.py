"""Judges a dataset by a contract with Great Expectations: three states a rule, pass, fail and error.

First all rules are counted; then, for the rules that fail, the rows are found (up to 20, by primary key). Asking for
the rows at once would cost every passing rule an index list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from trainworthy.expectations.frames import read_frame
from trainworthy.expectations.imported import import_great_expectations
from trainworthy.expectations.suite import Group, expectations, groups
from trainworthy.lifecycle.contract.failing_rows import is_withheld, named_rows
from trainworthy.lifecycle.contract.frame import as_files
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.result import RuleResult, could_not, counted, of_type
from trainworthy.lifecycle.contract.rule import Rule, surplus
from trainworthy.lifecycle.contract.table import Table, read_table, unjudged_because
from trainworthy.lifecycle.contract.unexpected_values import with_unlisted
from trainworthy.lifecycle.errors import DatasetError


def validate_files(folder: Path, contract: Contract) -> tuple[RuleResult, ...]:
    """What each of the contract's rules finds in a folder of Parquet files, in the contract's order.

    Only the columns of one group of rules are held at once. Raises DatasetError for a file that can't be read.
    """
    table, results = read_table(folder), {}
    judged = []
    for rule in contract.rules:
        reason = unjudged_because(rule, table)
        if reason is None:
            judged.append(rule)
        else:
            results[rule.id] = could_not(rule, table.rows, reason, contract.sensitive_columns)
    engine = _engine()
    for group in groups(judged, table):
        for result in _judged(engine, group, table, contract):
            results[result.rule.id] = result
    return with_unlisted(table, contract, [results[rule.id] for rule in contract.rules])


def validate_frame(frame: pd.DataFrame, contract: Contract) -> tuple[RuleResult, ...]:
    """The same for rows in memory, in the types that a Parquet file gives them."""
    with as_files(frame) as folder:
        return validate_files(folder, contract)


def _engine() -> Any:
    """The definition of a batch of rows, in a context that lives in memory and prints nothing.

    One for all frames: each asset that is added serialises the whole context again (12 ms).
    """
    import_great_expectations()
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("contract").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("all")


def _judged(engine: Any, group: Group, table: Table, contract: Contract) -> Iterator[RuleResult]:
    """The results of the rules that share a frame."""
    try:
        frame = group.build(read_frame(table, group.columns))
        answers = _validated(engine, frame, group.rules, table, "BASIC")
    except DatasetError:
        raise
    except Exception as error:  # whatever the engine stumbles over, the rule is not evaluated, and says so
        for rule in group.rules:
            yield could_not(rule, table.rows, str(error), contract.sensitive_columns)
        return
    for rule in group.rules:
        result = _result(rule, answers.get(rule.id, []), table, contract)
        if result.status == "fail" and rule.kind not in ("type", "row_count", "distribution"):
            result = _with_rows(engine, frame, result, table, contract)
        yield result


def _validated(
    engine: Any, frame: pd.DataFrame, rules: Sequence[Rule], table: Table, result_format: str
) -> dict[str, list[Any]]:
    """Great Expectations' answers to each rule, by the rule's id: one, or one a bin."""
    import great_expectations as gx

    batch = engine.get_batch({"dataframe": frame})
    suite_expectations = [expectation for rule in rules for expectation in expectations(rule, table)]
    suite = gx.ExpectationSuite(name="contract", expectations=suite_expectations)
    by_rule: dict[str, list[Any]] = {}
    for result in batch.validate(suite, result_format=result_format).results:
        by_rule.setdefault(result.expectation_config.meta["rule"], []).append(result)
    return by_rule


def _result(rule: Rule, answers: Sequence[Any], table: Table, contract: Contract) -> RuleResult:
    raised = next((reason for reason in map(raised_message, answers or [None]) if reason is not None), None)
    if raised is not None:
        return could_not(rule, table.rows, raised, contract.sensitive_columns)
    if rule.kind == "type":
        held = (answers[0].result.get("partial_unexpected_list") or [rule.parameters["logical_type"]])[0]
        return of_type(rule, table.rows, str(held))
    name = "observed_value" if rule.kind == "row_count" else "unexpected_count"
    counts = [answer.result.get(name) for answer in answers]
    if any(count is None or not math.isfinite(count) for count in counts):
        return could_not(rule, table.rows, f"no {name} came back", contract.sensitive_columns)
    if rule.kind == "distribution":
        counts = [surplus(_in_order(answers), rule.parameters["counts"])]
    # numpy's numbers are not JSON's.
    return counted(rule, int(counts[0]), table.rows)


def _in_order(answers: Sequence[Any]) -> list[int]:
    """Rows of each bin, by the bins' numbers."""
    rows = {answer.expectation_config.kwargs["value_set"][0]: answer.result["unexpected_count"] for answer in answers}
    return [int(rows[place]) for place in sorted(rows)]


def raised_message(answer: Any) -> str | None:
    """The engine's message if the rule could not be evaluated: flat, or below an id for each metric."""
    if answer is None:
        return "no answer came back"
    info = answer.exception_info or {}
    for item in [info] if "raised_exception" in info else info.values():
        if isinstance(item, Mapping) and item.get("raised_exception"):
            return str(item.get("exception_message"))
    return None


def _with_rows(engine: Any, frame: pd.DataFrame, result: RuleResult, table: Table, contract: Contract) -> RuleResult:
    """The result with its failing rows, unless a column of the rule is sensitive."""
    if is_withheld(result, contract):
        return result.model_copy(update={"withheld": True})
    answer = _validated(engine, frame, [result.rule], table, "COMPLETE")[result.rule.id][0]
    numbers = [int(number) for number in answer.result.get("unexpected_index_list") or ()]
    return result.model_copy(update={"failing_rows": named_rows(table, contract, result.rule, numbers)})
