"""All checks of `trainworthy doctor` in order, each by itself; their text; and the repairs of --fix."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError, TrainworthyError
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.pipeline.doctor import clusters, machine, ports, project, sensitive, stores
from trainworthy.pipeline.doctor.project import in_short, refused
from trainworthy.resources.settings import Settings, project_folder, read_settings, state_folder

Check = Callable[[Settings], Iterator[CheckResult]]
SIGNS = {"pass": "✓", "not_applicable": "-", "insufficient": "!"}


def runs_checks(settings: Settings) -> Iterator[CheckResult]:
    """The checks that need Dagster, which takes a second to import."""
    from trainworthy.pipeline.doctor import runs

    if settings_there()[1] is not None or (settings.var.exists() and not os.access(settings.var, os.W_OK)):
        evidence, fix = (
            "not looked at: Dagster's storage needs what failed above",
            "fix that, then run trainworthy doctor again",
        )
        yield CheckResult(name="runs", status="insufficient", severity="warning", evidence=evidence, fix=fix)
        return
    for check in (runs.stuck, runs.pools, runs.workers, runs.attempts):
        yield from examined(check, settings)


# The nearest to the machine first: what fails there explains what fails below.
CHECKS: tuple[Check, ...] = (
    machine.python, machine.packages, machine.environment, machine.alerts, machine.disk, ports.ports,
    stores.state_folder, stores.shared_place, stores.durable_folder, clusters.ray, project.location, project.use_cases,
    project.prices, project.git, stores.dagster_store, stores.mlflow_store, stores.verdicts, sensitive.sensitive,
    runs_checks,
)  # fmt: skip


def examine() -> list[CheckResult]:
    """Every check's results. One that breaks is told as its own error and hides no other."""
    settings, wrong = settings_there()
    results = [wrong] if wrong else []
    return results + [result for check in CHECKS for result in examined(check, settings)]


def of_restored(settings: Settings) -> list[CheckResult]:
    """What is asked of a state folder that was just restored: its stores, its runs and its attempts."""
    checks: tuple[Check, ...] = (
        stores.state_folder, stores.dagster_store, stores.mlflow_store, stores.verdicts, runs_checks,
    )  # fmt: skip
    return [result for check in checks for result in examined(check, settings)]


def settings_there() -> tuple[Settings, CheckResult | None]:
    """The settings, without the folders of use cases if they cannot be used, and then what is wrong."""
    try:
        return read_settings(), None
    except SettingsError as error:
        project = _project_or_here()
        return (
            Settings(project=project, var=state_folder(project), use_cases=(), prices=project / "prices.yaml"),
            refused("settings", error),
        )


def _project_or_here() -> Path:
    try:
        return project_folder()
    except SettingsError:
        return Path.cwd()


def examined(check: Check, settings: Settings) -> list[CheckResult]:
    """A check's results, and an error of its name if it breaks on the way."""
    results: list[CheckResult] = []
    name = check.__name__
    try:
        results.extend(check(settings))
    except TrainworthyError as error:
        results.append(refused(name, error))
    except Exception as error:
        evidence = f"could not be checked: {in_short(error)}"
        fix = "fix what the message names, then run trainworthy doctor again"
        results.append(CheckResult(name=name, status="error", evidence=evidence, fix=fix))
    return results


def repairs() -> Iterator[str]:
    """The safe repairs; a line for each that was done, and for each that could not be."""
    from trainworthy.pipeline.doctor import runs

    settings, _ = settings_there()
    for repair in (
        runs.repair_runs, runs.repair_attempts, stores.repair_addresses, stores.repair_aliases,
        sensitive.repair_sensitive,
    ):  # fmt: skip
        try:
            for done in repair(settings):
                refused_one = isinstance(done, TrainworthyError)
                yield f"not repaired ({repair.__name__}): {in_short(done)}" if refused_one else f"repaired: {done}"
        except Exception as error:
            yield f"not repaired ({repair.__name__}): {in_short(error)}"


def text(results: Iterable[CheckResult]) -> str:
    """A line for each result, below it what to do if it did not pass."""
    lines = []
    for result in results:
        sign = SIGNS.get(result.status) or ("✗" if result.stops else "!")
        # "use_case flight_delays": the second word is a name.
        check, _, name = result.name.partition(" ")
        lines.append(f"{sign} {check.replace('_', ' ')}{name and f' {name}'}: {result.evidence}")
        lines += [] if _good(result) else [f"    fix: {result.fix}"]
    return "\n".join(lines)


def in_brief(results: Iterable[CheckResult]) -> str:
    """What failed, then what is a warning, each with its fix and, of several use cases, once."""
    several: dict[tuple[str, str, str], list[CheckResult]] = {}
    for result in results:
        if not _good(result):
            several.setdefault((result.name.partition(" ")[0], result.evidence, result.fix), []).append(result)
    told = [_as_one(alike) for alike in several.values()]
    return text(sorted(told, key=lambda result: not result.stops))


def _as_one(alike: list[CheckResult]) -> CheckResult:
    names = filter(None, (result.name.partition(" ")[2] for result in alike))
    return alike[0].model_copy(update={"name": f"{alike[0].name.partition(' ')[0]} {', '.join(names)}".strip()})


def summary(results: Iterable[CheckResult]) -> str:
    """How many failed, are warnings, passed and do not apply here."""
    results = list(results)
    passed, failed = sum(result.status == "pass" for result in results), sum(result.stops for result in results)
    unasked = sum(result.status == "not_applicable" for result in results)
    well = f"{passed} passed{f', {unasked} not applicable' if unasked else ''}"
    warned = len(results) - passed - unasked - failed
    if not failed and not warned:
        return f"{'✓ all is well: ' if passed else '! nothing was checked: '}{well}"
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    return f"{len(results)} checks: {failed} failed, {warnings}, {well}"


def _good(result: CheckResult) -> bool:
    return result.status in ("pass", "not_applicable")
