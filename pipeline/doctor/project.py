"""The project's own files: use cases, published datasets, prices, git."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.declarations import refuse_declarations
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.provenance import changed_files, git_state, installed_version, without_credentials
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT, Settings, use_case_folders

OLD_PRICES_DAYS = 365


def location(settings: Settings) -> Iterator[CheckResult]:
    """Which project this is, by which Trainworthy; and whether Dagster finds its settings there."""
    product = installed_version() or f"Trainworthy's checkout {PRODUCT}"
    yield holds(
        "project",
        bool(os.environ.get("DAGSTER_HOME")) or (settings.project / "dagster.yaml").is_file(),
        severity="warning",
        evidence=f"{settings.project}, by {product}",
        fix=f"trainworthy init {shlex.quote(str(settings.project))}, which writes what is missing, as dagster.yaml",
    )


def use_cases(settings: Settings) -> Iterator[CheckResult]:
    """Every use case loads, its files agree, its dataset version is published, and its SKU has a price."""
    folders = use_case_folders(settings)
    if not folders:
        fix = "trainworthy new NAME --data TABLE --target COLUMN, see docs/how-to/use-case.md"
        if os.environ.get("TRAINWORTHY_USE_CASES") or settings.var.is_dir():
            yield CheckResult(name="use_cases", status="fail", evidence="there is no use case", fix=fix)
        else:
            # As init leaves it: nothing is wrong before the first one is drafted.
            yield CheckResult(name="use_cases", status="not_applicable", evidence=f"none yet; {fix}")
    for folder in folders:
        try:
            use_case = load_use_case(folder)
            refuse_declarations(use_case, load_prices(settings.prices))
        except TrainworthyError as error:
            yield refused(f"use_case {folder.name}", error)
        else:
            spec = use_case.spec
            evidence = f"loads; trains on {spec.dataset.name}@{spec.dataset.version}"
            yield CheckResult(name=f"use_case {folder.name}", status="pass", evidence=evidence)


def loadable(settings: Settings) -> Iterator[UseCase]:
    """The use cases that load; one that does not is told by its own check."""
    for folder in use_case_folders(settings):
        try:
            yield load_use_case(folder)
        except TrainworthyError:
            continue


def prices(settings: Settings) -> Iterator[CheckResult]:
    """The price table can be read and is no more than a year old."""
    table = load_prices(settings.prices)
    age = (datetime.now(UTC).date() - table.dated).days
    yield holds(
        "prices",
        age <= OLD_PRICES_DAYS,
        severity="warning",
        evidence=f"{len(table.skus)} SKUs, entered on {table.dated}",
        fix="look the prices up again, and write the day to `dated` in prices.yaml",
    )


def git(settings: Settings) -> Iterator[CheckResult]:
    """A verdict can promote only code that a commit holds."""
    for folder in use_case_folders(settings):
        yield _committed(f"git {folder.name}", folder)


def _committed(name: str, folder: Path) -> CheckResult:
    commit, dirty = git_state(folder)
    fix = "git add and git commit (a file of trainworthy/: install it again); until then a verdict stays at shadow"
    if commit is None:
        evidence = "the use case lies in no git repository, or in one without a commit"
        return CheckResult(name=name, status="fail", severity="warning", evidence=evidence, fix=f"git init, {fix}")
    if dirty is None:
        evidence = f"Trainworthy's own folder {PRODUCT} is neither installed nor in a git repository"
        fix = "install Trainworthy with pip, or run it from a clone; until then a verdict stays at shadow"
        return CheckResult(name=name, status="fail", severity="warning", evidence=evidence, fix=fix)
    evidence = f"commit {commit[:12]}" + (
        f", not in it: {', '.join(changed_files(folder) or ())}" if dirty else ", clean"
    )
    return holds(name, not dirty, severity="warning", evidence=evidence, fix=fix)


def in_short(error: Exception) -> str:
    """Kind and message of an unexpected error; addresses without credentials."""
    return f"{type(error).__name__}: {without_credentials(str(error))}"


def refused(name: str, error: TrainworthyError) -> CheckResult:
    """An error as the result of a check."""
    value = "" if error.value is None else f" (value: {error.value!r})"
    return CheckResult(name=name, status="fail", evidence=f"{error.problem}{value}", fix=error.fix)
