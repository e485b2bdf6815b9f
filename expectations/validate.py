"""Judges rows by a contract with Great Expectations: three states a rule, pass, fail and error.

First all rules are counted; then, for the rules that fail, the rows are found (up to 20, by primary key). Asking for
the rows at once would cost every passing rule an index list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expectations.imported import import_great_expectations
from expectations.suite import MISSING, Group, expectation, groups
from lifecycle.contract.model import Contract
from lifecycle.contract.result import MAX_NAMED_ROWS, RuleResult, contract_check
from lifecycle.contract.rule import Rule, within

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["contract_check", "validate_frame"]


def validate_frame(frame: pd.DataFrame, contract: Contract) -> tuple[RuleResult, ...]:
    """What each of the contract's rules finds in the rows, in the contract's order."""
    rows = frame.reset_index(drop=True)
    engine = _engine()
    found: dict[str, RuleResult] = {}
    for group in groups(contract.rules):
        for result in _judged(engine, group, rows, contract):
            found[result.rule.id] = result
    return tuple(found[rule.id] for rule in contract.rules)


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


def _judged(engine: Any, group: Group, rows: pd.DataFrame, contract: Contract) -> Iterator[RuleResult]:
    """The results of the rules that share a frame."""
    absent = [name for name in group.rules[0].columns if name not in rows]
    if absent and group.rules[0].kind != "type":
        reason = f"the column {', '.join(absent)} is missing"
        yield from (RuleResult(rule=rule, status="error", rows=len(rows), error=reason) for rule in group.rules)
        return
    sensitive = set(contract.sensitive_columns)
    try:
        frame = group.build(rows)
        answers = _validated(engine, frame, group.rules, "BASIC")
    except Exception as error:  # whatever the engine stumbles over, the rule is not evaluated, and says so
        for rule in group.rules:
            yield RuleResult(rule=rule, status="error", rows=len(rows), error=_reason(error, rule, sensitive))
        return
    for rule in group.rules:
        result = _result(rule, answers.get(rule.id), len(rows), sensitive)
        if result.status == "fail" and rule.kind not in ("type", "row_count"):
            result = _with_rows(engine, frame, result, rows, contract)
        yield result


def _validated(engine: Any, frame: pd.DataFrame, rules: Sequence[Rule], result_format: str) -> dict[str, Any]:
    """Great Expectations' answer to each rule, by the rule's id."""
    import great_expectations as gx

    batch = engine.get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="contract", expectations=[expectation(rule) for rule in rules])
    answer = batch.validate(suite, result_format=result_format)
    return {result.expectation_config.meta["rule"]: result for result in answer.results}


def _result(rule: Rule, answer: Any, rows: int, sensitive: set[str]) -> RuleResult:
    raised = _raised(answer)
    if raised is not None:
        return RuleResult(rule=rule, status="error", rows=rows, error=_reason(raised, rule, sensitive))
    name = "observed_value" if rule.kind == "row_count" else "unexpected_count"
    count = answer.result.get(name)
    if count is None or not math.isfinite(count):
        return RuleResult(rule=rule, status="error", rows=rows, error=f"no {name} came back")
    # numpy's numbers and booleans are not JSON's.
    count = int(count)
    status = "pass" if within(rule.parameters["bound"], count, rows) else "fail"
    return RuleResult(rule=rule, status=status, rows=rows, count=count, observed=_observed(rule, count, rows, answer))


def _raised(answer: Any) -> str | None:
    """The engine's message if the rule could not be evaluated: flat, or below an id for each metric."""
    if answer is None:
        return "no answer came back"
    info = answer.exception_info or {}
    for item in [info] if "raised_exception" in info else info.values():
        if isinstance(item, Mapping) and item.get("raised_exception"):
            return str(item.get("exception_message"))
    return None


def _reason(error: Exception | str, rule: Rule, sensitive: set[str]) -> str:
    """The message in one line; of a rule over a sensitive column none, as a message may quote a value."""
    if sensitive & set(rule.columns):
        return "could not be evaluated (message withheld: a column of this rule is sensitive)"
    return " ".join(str(error).split())[:300]


def _observed(rule: Rule, count: int, rows: int, answer: Any) -> str:
    if rule.kind == "type":
        held = (answer.result.get("partial_unexpected_list") or [rule.parameters["logical_type"]])[0]
        return "the column is missing" if held == MISSING else f"holds {held}"
    if rule.kind == "row_count":
        return f"{count} rows"
    return f"{count} of {rows} rows" + (f" ({100 * count / rows:.3g} %)" if rows else "")


def _with_rows(
    engine: Any, frame: pd.DataFrame, result: RuleResult, rows: pd.DataFrame, contract: Contract
) -> RuleResult:
    """The result with its failing rows, unless a column of the rule is sensitive."""
    if set(contract.sensitive_columns) & set(result.rule.columns):
        return result.model_copy(update={"withheld": True})
    answer = _validated(engine, frame, [result.rule], "COMPLETE")[result.rule.id]
    positions = [int(place) for place in answer.result.get("unexpected_index_list") or ()][:MAX_NAMED_ROWS]
    shown = [name for name in dict.fromkeys((*contract.primary_key, *result.rule.columns)) if name in rows]
    named = rows.loc[positions, shown].to_dict("records")
    return result.model_copy(update={"failing_rows": tuple({key: _plain(row[key]) for key in row} for row in named)})


def _plain(value: Any) -> Any:
    """A cell as JSON: null for NaN and NaT, ISO 8601 for an instant."""
    import pandas as pd

    if pd.isna(value):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    value = value.item() if hasattr(value, "item") else value
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
