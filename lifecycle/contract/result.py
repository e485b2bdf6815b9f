"""What each rule found, and the check that sums it up: the form is the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from trainworthy.lifecycle.contract.rule import Rule, within
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.spec.frozen import Frozen

MAX_NAMED_ROWS = 20
# Rules that the check's evidence names; all of them are in its details.
MAX_NAMED_RULES = 5


class Unlisted(Frozen):
    """Values that a rule's list does not hold, with their rows, and how many more such values there are."""

    named: tuple[tuple[str, int], ...] = ()
    more: int = 0

    @property
    def in_words(self) -> str:
        """The named values in a sentence; empty if none may be named."""
        rest = f" and {self.more} more" if self.more else ""
        return ", ".join(f"{value} in {rows}" for value, rows in self.named) + rest if self.named else ""


class RuleResult(Frozen):
    """One rule's outcome. error: it could not be evaluated, which is never a pass.

    `count` is what the bound judges: the rows that break the rule, for row_count the rows there are. `failing_rows`
    are up to 20 rows by primary key, with the rule's columns; empty if one of these columns is sensitive. `unlisted`
    names what a failed list lacks.
    """

    rule: Rule
    status: Literal["pass", "fail", "error"]
    rows: int
    count: int | None = None
    observed: str | None = None
    error: str | None = None
    failing_rows: tuple[dict[str, Any], ...] = ()
    withheld: bool = False
    unlisted: Unlisted = Unlisted()

    @property
    def share(self) -> float | None:
        """Share of all rows, 0 to 1; None if nothing was counted, there are no rows or rows are not counted."""
        if self.count is None or self.rows == 0 or self.rule.kind in ("row_count", "type"):
            return None
        return self.count / self.rows


# What a column may hold for a declared type: an integer is a number, a midnight is a moment in time.
ACCEPTED = {"number": ("number", "integer"), "timestamp": ("timestamp", "date")}


def counted(rule: Rule, count: int, rows: int) -> RuleResult:
    """The outcome of a rule that found `count`, judged by its bound."""
    status = "pass" if within(rule.parameters["bound"], count, rows) else "fail"
    share = f" ({100 * count / rows:.3g} %)" if rows else ""
    observed = f"{count} rows" if rule.kind == "row_count" else f"{count} of {rows} rows{share}"
    return RuleResult(rule=rule, status=status, rows=rows, count=count, observed=observed)


def of_type(rule: Rule, rows: int, held: str) -> RuleResult:
    """The outcome of a `type` rule whose column holds this type (or another word on what is there)."""
    declared = rule.parameters["logical_type"]
    wrong = held not in ACCEPTED.get(declared, (declared,))
    status = "pass" if within(rule.parameters["bound"], int(wrong), rows) else "fail"
    observed = (held if " " in held else f"holds {held}") if wrong else f"holds {declared}"
    return RuleResult(rule=rule, status=status, rows=rows, count=int(wrong), observed=observed)


def could_not(rule: Rule, rows: int, reason: str, sensitive: Sequence[str]) -> RuleResult:
    """The outcome of a rule that was not evaluated. Over a sensitive column the words stay unsaid: they may quote."""
    words = " ".join(reason.split())[:300]
    if set(sensitive) & set(rule.columns):
        words = "could not be evaluated (message withheld: a column of this rule is sensitive)"
    return RuleResult(rule=rule, status="error", rows=rows, error=words)


def contract_check(results: Sequence[RuleResult]) -> CheckResult:
    """The check `contract`: fail if a rule of severity error fails, error if a rule could not be evaluated.

    A failed rule of severity warning or info does not stop; the evidence counts it.
    """
    failed = [result for result in results if result.status == "fail" and result.rule.severity == "error"]
    errors = [result for result in results if result.status == "error"]
    noted = [result for result in results if result.status == "fail" and result.rule.severity != "error"]
    parts = [f"{len(failed)} of {len(results)} rules fail"] if failed else []
    parts += [f"{len(errors)} could not be evaluated"] if errors else []
    if not parts:
        parts = [f"{len(results) - len(noted)} of {len(results)} rules hold"]
    status = "fail" if failed else "error" if errors or not results else "pass"
    return CheckResult(
        name="contract",
        status=status,
        observed=len(failed) + len(errors),
        threshold=0,
        evidence="; ".join([*parts, *_lines([*failed, *errors, *noted])]) if results else "no rule was evaluated",
        fix=_fix(bool(failed), bool(errors)) if status != "pass" else "",
        details=tuple(_detail(result) for result in results),
    )


def _fix(failed: bool, errors: bool) -> str:
    parts = ["correct the dataset, or change contract.yaml if the rule is wrong"] if failed else []
    if errors:
        parts.append(
            "a rule that could not be evaluated says nothing about the rows: restore the column or type that its "
            "message names, or correct the rule's columns and values in contract.yaml"
        )
    return "; ".join(parts) or "write at least one rule into contract.yaml"


def _lines(results: Sequence[RuleResult]) -> list[str]:
    """The first MAX_NAMED_RULES in words, and how many more there are."""
    more = len(results) - MAX_NAMED_RULES
    lines = [_line(result) for result in results[:MAX_NAMED_RULES]]
    return [*lines, f"and {more} more, in the details"] if more > 0 else lines


def _line(result: RuleResult) -> str:
    outcome = result.error if result.status == "error" else result.observed
    label = "" if result.rule.severity == "error" else f"{result.rule.severity}: "
    unlisted = f": {result.unlisted.in_words}" if result.unlisted.in_words else ""
    return f"{label}{result.rule.id}: {outcome}{unlisted}"


def _detail(result: RuleResult) -> dict[str, Any]:
    """Only what is known, so that hundreds of passed rules stay small."""
    detail = {
        "rule": result.rule.id,
        "kind": result.rule.kind,
        "columns": list(result.rule.columns),
        "status": result.status,
        "severity": result.rule.severity,
        "observed": result.observed,
        "unexpected": None if result.rule.kind == "row_count" else result.count,
        "share": result.share,
        "error": result.error,
        "unlisted": dict(result.unlisted.named) or None,
        "rows": list(result.failing_rows) or None,
        "rows_withheld": "a column of this rule is sensitive" if result.withheld else None,
    }
    return {key: value for key, value in detail.items() if value is not None}
