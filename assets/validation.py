"""Which engine judges the rows, and the check `contract` that comes of it. Each gives the same verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.result import RuleResult, contract_check
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.spec.use_case import Engine
from trainworthy.lifecycle.storage.state import StateFolder

Validate = Callable[[Path, Contract], tuple[RuleResult, ...]]
IN_WORDS = {
    "fused": "the fused engine",
    "great_expectations": "Great Expectations",
    "spark": "Great Expectations on Spark",
}


def checked_contract(
    state: StateFolder, use_case: str, dataset: str, engine: Engine, folder: Path, contract: Contract
) -> CheckResult:
    """The check `contract` of a dataset's files; all failing rows lie below validation/<use case>/<dataset's hash>."""
    from trainworthy.lifecycle.contract.failing_rows import write_failing_rows

    chosen = chosen_engine(engine)
    results = validator(chosen)(folder, contract)
    target = state.folder("validation", use_case, dataset[:16])
    files = {rows_file.rule: rows_file for rows_file in write_failing_rows(folder, contract, results, target)}
    check = contract_check(results)
    details = [dict(detail) for detail in check.details]
    for detail in details:
        if rows_file := files.get(detail["rule"]):
            detail["failing_rows"] = {"rows": rows_file.rows, "file": state.relative(target / rows_file.file)}
    evidence = f"{check.evidence}. Judged by {IN_WORDS[chosen]}"
    return check.model_copy(update={"evidence": evidence, "details": tuple(details)})


def chosen_engine(engine: Engine) -> Engine:
    """The engine that `auto` means. Fused takes a tenth of the time; see docs/decisions/0012-engines.md."""
    return "fused" if engine == "auto" else engine


def validator(engine: Engine) -> Validate:
    """The engine's function. Raises SettingsError where Spark is not installed."""
    if engine == "great_expectations":
        from trainworthy.expectations.validate import validate_files
    elif engine == "spark":
        _refuse_without(("pyspark",))
        from trainworthy.expectations.spark import validate_files
    else:
        from trainworthy.lifecycle.contract.polars_engine import validate_files
    return validate_files


def _refuse_without(modules: Sequence[str]) -> None:
    absent = [name for name in modules if find_spec(name) is None]
    if absent:
        raise SettingsError(
            "validation.engine is spark, and that is not installed",
            value=", ".join(absent),
            fix="pip install -e '.[spark]' (it needs Java 17), or write validation: {engine: auto}",
        )
