"""A pytest plugin that switches one protection off: `PROTECTION_OFF=<id> pytest -p benchmarks.protection_plugin …`.

Modules are compiled with their places marked (protection_sites.py). A marked place gives its value on, unless it is the
one that is switched off: then it says that nothing is wrong. The checks of preflight, the rules of causes and
the contract's kinds of rule are switched off where they are registered. Only this process is changed: a worker that a
test starts works as ever.
"""

from __future__ import annotations

import builtins
import functools
import importlib.abc
import importlib.machinery
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, get_args

import pytest
from _pytest.runner import runtestprotocol

from benchmarks.protection_sites import HARMLESS, PROTECTION, Site, all_sites, marked, module_files

OFF = "PROTECTION_OFF"
# CPU seconds. What takes longer waits until all files were run.
AT_ONCE_SECONDS = 2.0
HOOKS = ("after_backward", "after_window", "after_sample", "after_points")


@dataclass
class Switch:
    """`off` is the id of what is switched off.

    `seen` are the protections that said meanwhile that something is wrong, `before` those of them that said so while
    fixtures were made.
    """

    off: str = ""
    seen: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)


SWITCH = Switch()


def protection(identifier: str, kind: str, value: Any) -> Any:
    """A marked place's value, or what it is if nothing is wrong."""
    if kind == "monitor":
        return _watched(identifier, value)
    if not _is_wrong(kind, value):
        return value
    SWITCH.seen.add(identifier)
    return _nothing_wrong(kind, value) if identifier == SWITCH.off else value


def _is_wrong(kind: str, value: Any) -> bool:
    if kind in ("check result", "own check"):
        return value.status not in HARMLESS
    if kind == "control":
        return value[0] != "pass"
    return value == kind.split()[1] if kind.startswith("decide") else bool(value)


def _nothing_wrong(kind: str, value: Any) -> Any:
    match kind:
        case "check result":
            return value.model_copy(update={"status": "pass"})
        case "own check":
            return replace(value, status="pass")
        case "control":
            return "pass", ""
        case "decide reject" | "decide shadow":
            return "promote"
        case "drift shifts":
            return []
        case "gate":
            return False if isinstance(value, bool) else ()
    return None


def _watched(identifier: str, monitor: Any) -> Any:
    """The monitor; switched off, it looks at nothing."""
    if SWITCH.off == identifier:
        for name in (*HOOKS, "look"):
            if hasattr(monitor, name):
                setattr(monitor, name, lambda *seen: None)
        return monitor
    names = [name for name in (*HOOKS, "_finding") if hasattr(monitor, name)]
    for name in names:
        setattr(monitor, name, _noted(identifier, getattr(monitor, name)))
    return monitor


def _noted(identifier: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*seen: Any) -> Any:
        found = hook(*seen)
        if found is not None:
            SWITCH.seen.add(identifier)
        return found

    return asked


def install() -> None:
    """From here on, the packages' modules are compiled with their places marked."""
    loaded = [name for name in module_files() if name in sys.modules and name not in ("trainworthy.lifecycle",)]
    assert not loaded, f"imported before their places could be marked: {loaded[:3]}"
    setattr(builtins, PROTECTION, protection)
    sys.meta_path.insert(0, _Finder())


def registered() -> tuple[Site, ...]:
    """What is switched off at its registration; from here on, it can be."""
    from trainworthy.lifecycle.contract import polars_engine
    from trainworthy.lifecycle.contract.rule import Kind
    from trainworthy.lifecycle.engine.preflight.catalogue import TRAINER_CHECKS, WORKER_CHECKS
    from trainworthy.lifecycle.engine.training.monitors.causes import RULES
    from trainworthy.lifecycle.gates.host import AFTER_CHECKS, HOST_CHECKS

    sites, count = [], Counter[str]()
    for check in (*HOST_CHECKS, *WORKER_CHECKS, *TRAINER_CHECKS, *AFTER_CHECKS):
        sites.append(Site(check.id, "preflight check", check.look.__module__))
        look = check.look
        object.__setattr__(check, "look", _guarded_look(check.id, look))
        # Tests ask the function as well, where it is written or where the check is.
        for module in [module for name, module in sys.modules.items() if name.startswith("trainworthy.lifecycle.")]:
            if vars(module).get(look.__name__) is look:
                setattr(module, look.__name__, check.look)
    for rule in RULES:
        count[rule.name] += 1
        suffix = f"#{count[rule.name]}" if count[rule.name] > 1 else ""
        name = f"cause.{rule.name}{suffix}"
        sites.append(Site(name, "rule of causes", "trainworthy.lifecycle.engine.training.monitors.causes"))
        object.__setattr__(rule, "holds", _guarded_rule(name, rule))
    module = "trainworthy.lifecycle.contract.polars_engine"
    sites += [Site(f"contract.{kind}", "contract rule", module) for kind in get_args(Kind)]
    polars_engine._result = _guarded_result(polars_engine._result)
    return tuple(sites)


def _guarded_look(identifier: str, look: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from trainworthy.lifecycle.gates.check import Outcome

    @functools.wraps(look)
    def guarded(subject: Any) -> Any:
        if SWITCH.off == identifier:
            return Outcome("pass", "switched off")
        try:
            found = look(subject)
        except Exception:
            SWITCH.seen.add(identifier)
            raise
        if found.status not in HARMLESS:
            SWITCH.seen.add(identifier)
        return found

    return guarded


def _guarded_rule(identifier: str, rule: Any) -> Callable[[Any], object]:
    holds = rule.holds or (lambda told: rule.explains[0] in told.findings)

    def guarded(told: Any) -> object:
        found = holds(told)
        if found:
            SWITCH.seen.add(identifier)
        return found if SWITCH.off != identifier else None

    return guarded


def _guarded_result(result: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(rule: Any, *rest: Any) -> Any:
        found, identifier = result(rule, *rest), f"contract.{rule.kind}"
        if found.status in HARMLESS:
            return found
        SWITCH.seen.add(identifier)
        return found.model_copy(update={"status": "pass"}) if SWITCH.off == identifier else found

    return guarded


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._files = {site.module: module_files()[site.module] for site in all_sites()}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        file = self._files.get(fullname)
        return file and spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # Never from or to the cache of byte code, which others read.
        path = Path(self.get_filename(fullname))
        return compile(marked(fullname, path.read_text())[0], str(path), "exec", dont_inherit=True)


class Recorder:
    """Of each test its CPU seconds, whether it failed, and what it saw to be wrong: while it ran, and in fixtures.

    A quick test runs again at once for each of the `wanted` that it saw, with that one switched off: `failing` has the
    first that failed without it. The rest is left out once nothing `near` is wanted, with `until_one_fails` once a test
    fails, and once so many CPU seconds have shown nothing new (`patience_seconds`).
    """

    def __init__(
        self,
        wanted: Iterable[str] = (),
        near: Iterable[str] = (),
        until_one_fails: bool = False,
        patience_seconds: float = math.inf,
    ) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.failing: dict[str, tuple[str, float, int]] = {}
        self._wanted, self._near = set(wanted), set(near)
        self._ends, self._until_one_fails = bool(self._near), until_one_fails
        self._patience, self._in_vain = patience_seconds, 0.0
        self.ran_out = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Any:
        done = yield
        SWITCH.before = set(SWITCH.seen)
        return done

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        test = self.tests[item.nodeid] = _run(item, nextitem)
        if test["failed"]:
            item.session.shouldstop = "one failed" if self._until_one_fails else ""
        self._in_vain += test["seconds"]
        if self._in_vain > self._patience:
            self.ran_out, item.session.shouldstop = True, "nothing new for long"
        if test["failed"] or test["seconds"] > AT_ONCE_SECONDS:
            return True
        for identifier in sorted(self._wanted & {*test["seen"]}):
            SWITCH.off = identifier
            again = _run(item, nextitem)
            SWITCH.off = ""
            if identifier not in test["before"]:
                # Else a fixture may have been made with it switched on.
                test["tried"].append(identifier)
            if again["failed"]:
                self.failing[identifier] = (item.nodeid, again["seconds"], 1)
                self._wanted.discard(identifier)
                self._in_vain = 0.0
        if self._ends and not self._near & self._wanted:
            item.session.shouldstop = "nothing that is near is wanted"
        return True


def _run(item: pytest.Item, nextitem: pytest.Item | None) -> dict[str, Any]:
    """Run a test as pytest does, as often as one likes."""
    started, SWITCH.seen, SWITCH.before = sum(os.times()[:4]), set(), set()
    item._initrequest()  # pyright: ignore[reportAttributeAccessIssue]
    failed = [report for report in runtestprotocol(item, nextitem=nextitem, log=False) if report.failed]
    return {
        "seconds": sum(os.times()[:4]) - started, "failed": bool(failed), "seen": sorted(SWITCH.seen),
        "before": sorted(SWITCH.before), "tried": [], "told": failed[0].longreprtext[-600:] if failed else "",
    }  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """As a plugin of its own, before any file of tests is imported: the variable says what is switched off."""
    if OFF not in os.environ:
        return
    install()
    identifier, sites = os.environ[OFF], all_sites()
    # The registries take seconds to import.
    switch_off(identifier, sites if any(site.id == identifier for site in sites) else (*sites, *registered()))


def switch_off(identifier: str, sites: Sequence[Site]) -> None:
    """Raises UsageError for what there is not."""
    if identifier not in {site.id for site in sites}:
        raise pytest.UsageError(f"there is no protection {identifier!r}. Fix: python -m benchmarks.protection --list")
    SWITCH.off = identifier
