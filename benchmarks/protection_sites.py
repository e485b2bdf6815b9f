"""Every place of the code that can say that something is wrong, read off its syntax.

A new check, alarm, control or rule is in the list on the day it is written, since nobody keeps the list. `marked` puts
a call of PROTECTION around each place; protection_plugin.py is what is called.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROTECTION = "__protection__"
PACKAGES = ("lifecycle", "assets", "expectations", "resources")
# It words what others decided.
WORDS_ONLY = "trainworthy.lifecycle.report"
# Constructors of what a gate is made of.
RESULTS = ("CheckResult", "holds", "at_most", "at_least", "Leak")
GATES = ("stopping", "stops", "stops_the_step")
# Functions that give unusual columns, by what they return.
DRIFT = {"list[Shift]": "drift shifts", "Shift | None": "drift shift"}
HARMLESS = ("pass", "not_applicable")
WATCHED = (
    "trainworthy.lifecycle.engine.training.monitors",
    "trainworthy.lifecycle.engine.trainers",
    "trainworthy.lifecycle.trainers",
)
DECIDE, CONTROLS, OWN = (
    "trainworthy.lifecycle.promotion.decide",
    "trainworthy.lifecycle.promotion.controls",
    "trainworthy.lifecycle.engine.preflight.own",
)


@dataclass(frozen=True)
class Site:
    """A place that protects: `id` names module, function and what is said there; `kind` says how it is switched off."""

    id: str
    kind: str
    module: str


@cache
def module_files() -> dict[str, Path]:
    """Each module of the packages by its dotted name."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    dotted = ((path, ".".join(("trainworthy", *path.relative_to(ROOT).with_suffix("").parts))) for path in files)
    named = {name.removesuffix(".__init__"): path for path, name in dotted}
    return {name: path for name, path in named.items() if not name.startswith(WORDS_ONLY)}


@cache
def all_sites() -> tuple[Site, ...]:
    """Those of all modules, in the order of the files."""
    texts = ((module, path.read_text()) for module, path in module_files().items())
    names = (*RESULTS, *GATES, *monitor_classes(), "Finding", "Outcome", "Shift", "tell", "_control")
    # Most modules have none of these: not to go through their syntax saves a second.
    worth_it = re.compile(rf"\b({'|'.join(names)})\b")
    return tuple(site for module, text in texts if worth_it.search(text) for site in marked(module, text)[1])


def marked(module: str, source: str) -> tuple[ast.Module, tuple[Site, ...]]:
    """The module's syntax with its places marked, and the places."""
    marker = _Marker(module)
    tree = marker.visit(ast.parse(source))
    return ast.fix_missing_locations(tree), tuple(marker.sites)


@cache
def monitor_classes() -> frozenset[str]:
    """Names of the classes that watch a training: subclasses of the monitors' base and the heartbeats."""
    bases: dict[str, set[str]] = {}
    for module, path in module_files().items():
        if module.startswith(WATCHED):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    found = {"Base", "Heartbeat"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return frozenset(found - {"Base"})


class _Marker(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self._module, self._inside = module, list[str]()
        self._returns: list[str] = []
        self._count: Counter[str] = Counter()
        self.sites: list[Site] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._returns.append(ast.unparse(node.returns) if node.returns else "")
        node.body = self._within(node.name, node.body)
        self._returns.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = self._within(node.name, node.body)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        kind = DRIFT.get(self._returns[-1]) if self._returns else None
        if kind and node.value is not None and not _is_nothing(node.value):
            node.value = self._put(node.value, kind, "return")
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        self.generic_visit(node)
        if self._returns[-1] != "Iterator[Shift]" or node.value is None:
            return node
        one = ast.copy_location(ast.List([node.value], ast.Load()), node)
        return ast.copy_location(ast.YieldFrom(self._put(one, "drift shifts", "yield")), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not self._inside:
            # At import nothing can be switched: the registries of checks and rules are the plugin's.
            return node
        if self._module.startswith(WATCHED):
            told = isinstance(node.func, ast.Attribute) and node.func.attr == "tell" and _is_self(node.func.value)
            if name == "Finding" or told:
                return self._put(node, "alarm", _label(node) or "finding")
        if name in monitor_classes() and self._module.startswith("trainworthy.lifecycle"):
            return self._put(node, "monitor", name)
        if self._module == DECIDE and name == "Finding":
            return self._outcome(node)
        if self._module == CONTROLS and name == "_control":
            node.args[2:] = [self._put(one, "control", _label(one) or "status") for one in node.args[2:]]
            return node
        if self._module == OWN and name == "Outcome" and _constant(node.args[0]) not in HARMLESS:
            return self._put(node, "own check", str(_constant(node.args[0])))
        if name in GATES:
            return self._put(node, "gate", name)
        return self._put(node, "check result", _label(node) or name) if _can_fail(name, node) else node

    def _outcome(self, node: ast.Call) -> ast.AST:
        """The decision that a rule allows; one that is not written there may be either."""
        written = _constant(node.args[0])
        if written != "promote":
            for outcome in (written,) if written else ("reject", "shadow"):
                node.args[0] = self._put(node.args[0], f"decide {outcome}", str(outcome))
        return node

    def _put(self, node: ast.expr, kind: str, label: str) -> ast.Call:
        identifier = f"{'.'.join([self._module, *self._inside])}:{label}"
        self._count[identifier] += 1
        if (number := self._count[identifier]) > 1:
            identifier = f"{identifier}#{number}"
        self.sites.append(Site(identifier, kind, self._module))
        call = ast.Call(ast.Name(PROTECTION, ast.Load()), [ast.Constant(identifier), ast.Constant(kind), node], [])
        return ast.copy_location(call, node)

    def _within(self, name: str, body: list[ast.stmt]) -> list[ast.stmt]:
        self._inside.append(name)
        visited = [self.visit(one) for one in body]
        self._inside.pop()
        return visited


def _can_fail(name: str, node: ast.Call) -> bool:
    if name not in RESULTS:
        return False
    status = next((word.value for word in node.keywords if word.arg == "status"), None)
    if name == "holds":
        status = node.args[1] if len(node.args) > 1 else status
    return _constant(status) not in (*HARMLESS, True)


def _label(node: ast.expr) -> str:
    """The name that is written in a call: its first argument, or `name` or `family`."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call):
        return ""
    named = (word.value for word in node.keywords if word.arg in ("name", "family"))
    written = (_constant(one) for one in (*node.args[:1], *named))
    return next((one for one in written if isinstance(one, str)), "")


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_nothing(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value is None) or (isinstance(node, ast.List) and not node.elts)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, anywhere in it; `from a import b` may mean the module a.b."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
