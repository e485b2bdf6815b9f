"""The values that a list does not hold, by name: "27,202 rows" sends a person looking, "YX, NK, G4" tells them.

A value is named from LEAST_ROWS rows on, so that none points at a person, and never of a sensitive column.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from trainworthy.lifecycle.contract.batches import batches
from trainworthy.lifecycle.contract.failing_rows import plain_rows
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.polars_masks import broken_by
from trainworthy.lifecycle.contract.result import RuleResult, Unlisted
from trainworthy.lifecycle.contract.table import Table

LEAST_ROWS = 20
MOST_NAMED, MOST_CHARACTERS = 5, 40
# A column with more other values is no list of a few codes; none is named, so that the counts stay small.
_MOST_DISTINCT = 100_000


def with_unlisted(table: Table, contract: Contract, results: Sequence[RuleResult]) -> tuple[RuleResult, ...]:
    """The results; a failed rule that lists the values of one column says which others are there, most rows first."""
    rules = {result.rule.id: result.rule for result in results if _is_named(result, contract)}
    counts: dict[str, pl.DataFrame] = {}
    columns = tuple(dict.fromkeys(rule.columns[0] for rule in rules.values()))
    for frame in batches(table, columns) if rules else ():
        for name, rule in rules.items():
            values = frame.filter(broken_by(rule, table)).get_column(rule.columns[0])
            counts[name] = _counted(values, counts.get(name))
    return tuple(
        result.model_copy(update={"unlisted": _most_frequent(counts[result.rule.id])})
        if result.rule.id in counts
        else result
        for result in results
    )


def _is_named(result: RuleResult, contract: Contract) -> bool:
    lists = result.rule.kind in ("allowed", "references") and len(result.rule.columns) == 1
    return lists and result.status == "fail" and not set(contract.sensitive_columns) & set(result.rule.columns)


def _counted(values: pl.Series, before: pl.DataFrame | None) -> pl.DataFrame:
    """Columns value and rows: of these values and those counted before."""
    counts = values.alias("value").value_counts(name="rows")
    if before is None or len(before) > _MOST_DISTINCT:
        return counts if before is None else before
    return pl.concat([before, counts]).group_by("value").agg(pl.col("rows").sum())


def _most_frequent(counts: pl.DataFrame) -> Unlisted:
    """The values with enough rows to be named."""
    if len(counts) > _MOST_DISTINCT:
        return Unlisted()
    known = counts.filter(pl.col("rows") >= LEAST_ROWS).sort(["rows", "value"], descending=[True, False])
    values = plain_rows(known.head(MOST_NAMED))
    return Unlisted(
        named=tuple((_shown(str(row["value"])), row["rows"]) for row in values), more=len(counts) - len(values)
    )


def _shown(text: str) -> str:
    """A value as a word of a sentence: short, and without what moves a console's cursor."""
    plain = text if text.isprintable() and text.strip() == text != "" else repr(text)
    return plain if len(plain) <= MOST_CHARACTERS else f"{plain[:MOST_CHARACTERS]}…"
