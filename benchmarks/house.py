"""How the product's code hangs together: sizes, imports, and what decides by a sentence.

Circles count lazy and typed imports too: a module that is imported in a function is imported. Targets: no circle, no
exception in the import linter, no decision on the words of a message, and few modules that would stand with their one
importer if that gave no file beyond 400 lines. Lines and modules are printed and not aimed at.
"""

from __future__ import annotations

import ast
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmarks.result import arguments, begin, finish

ROOT = Path(__file__).parents[1]
PACKAGES = ("lifecycle", "assets", "pipeline", "resources", "expectations")
# Attributes that hold words for people: to compare one with text, or to look into it, is to decide by a sentence.
WORDS = {"evidence", "cause", "fix", "problem", "symptom", "told"}
LOOKS = {"startswith", "endswith", "find", "index", "count"}
# There `cause` is a code: protocol.training_figures.Cause.
CODES_ONLY = ("trainworthy.lifecycle.failure",)
# Modules that name others one by one: checks, monitors, kinds of task, backends. A package's __init__ does, too.
LISTS = {"all", "battery", "catalogue", "checks", "choose", "watch"}
# The longest file that two of one subject may become.
MOST_LINES = 400
REPEATS = 5
TARGETS = {
    "circles": 0,
    "linter_exceptions": 0,
    "decisions_on_words": 0,
    "too_long_with_importer": 30,
    "definitions_beyond_dagster_cpu_s": 0.3,
}


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    named = {".".join(("trainworthy", *path.relative_to(ROOT).with_suffix("").parts)): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


@cache
def tree(name: str) -> ast.Module:
    """The module's syntax."""
    return ast.parse(modules()[name].read_text())


def imports(name: str) -> Iterator[str]:
    """Modules of the product that a module imports: at the top, in functions and for types alike."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        else:
            continue
        for first, second in wanted:
            found = next((one for one in (first, second) if one in modules() and one != name), None)
            if found:
                yield found


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by Tarjan's algorithm (1972), the largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(one: str) -> None:
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in edges.get(one, ()):
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            at = stack.index(one)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * len(edges) + 1000))
    for one in edges:
        if one not in number:
            visit(one)
    return sorted(found, key=len, reverse=True)


def beside_importer(edges: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Modules that one other imports, of the same folder, with that one."""
    importers: dict[str, list[str]] = {}
    for name, others in edges.items():
        for other in others:
            importers.setdefault(other, []).append(name)
    named = modules()
    return sorted(
        (name, by[0]) for name, by in importers.items() if len(by) == 1 and named[name].parent == named[by[0]].parent
    )


def unlisted(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without those that a list names, and those of which the import linter makes two layers: these stay apart."""
    layers = layer_of_each()
    return [
        (name, by)
        for name, by in pairs
        if not (by.rpartition(".")[2] in LISTS or modules()[by].name == "__init__.py")
        and not {name, by} <= layers.keys()
    ]


@cache
def layer_of_each() -> dict[str, int]:
    """The place of each module that is a layer of its container, by the import linter's contracts."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {
        f"{container}.{name.strip()}": place
        for contract in contracts
        for container in contract.get("containers", ())
        for place, layer in enumerate(contract["layers"])
        for name in layer.split("|")
    }


def decided_by_words() -> list[str]:
    """Places that compare an attribute of words with text, or look for text in it; reports and displays word, only."""
    return [
        f"{name}:{node.lineno}"
        for name in modules()
        if name not in CODES_ONLY and not name.startswith("trainworthy.lifecycle.report")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.expr) and (_compares(node) or _looks(node))
    ]


def _compares(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return False
    sides = [node.left, *node.comparators]
    # An empty text is no sentence.
    plain = [side for side in sides if isinstance(side, ast.Constant) and side.value in ("", None)]
    return not plain and any(isinstance(side, ast.Attribute) and side.attr in WORDS for side in sides)


def _looks(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    inside = called.value if isinstance(called, ast.Attribute) and called.attr in LOOKS else None
    return isinstance(inside, ast.Attribute) and inside.attr in WORDS


def figures() -> dict[str, float]:
    """All that is read off the sources."""
    edges = {name: set(imports(name)) for name in modules()}
    used = Counter(other for others in edges.values() for other in others)
    found = circles(edges)
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef)
    ]
    sizes = {name: path.read_text().count("\n") for name, path in modules().items()}
    local = sum(
        isinstance(node, ast.Import | ast.ImportFrom)
        for name in modules()
        for function in ast.walk(tree(name))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    )
    typed = sum(
        isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for name in modules()
        for node in ast.walk(tree(name))
    )
    beside = beside_importer(edges)
    apart = unlisted(beside)
    print(f"longest file: {max(sizes, key=sizes.__getitem__)}")
    for circle in found:
        print(f"circle of {len(circle)}: {', '.join(circle)}")
    for place in decided_by_words():
        print(f"decides by words: {place}")
    return {
        "lines": sum(sizes.values()),
        "modules": sum(path.name != "__init__.py" for path in modules().values()),
        "one_importer": sum(used[name] == 1 for name in modules()),
        "beside_importer": len(beside),
        "unlisted_beside_importer": len(apart),
        "too_long_with_importer": sum(sizes[name] + sizes[by] > MOST_LINES for name, by in apart),
        "circles": len(found),
        "in_circles": sum(map(len, found)),
        "linter_exceptions": linter_exceptions(),
        "decisions_on_words": len(decided_by_words()),
        "local_imports": local,
        "type_checking_blocks": typed,
        "longest_file_lines": max(sizes.values()),
        "longest_function_lines": max(functions),
        "median_function_lines": statistics.median(functions),
        "functions": len(functions),
    }


def linter_exceptions() -> int:
    """Imports that the import linter is told to look away from."""
    text = (ROOT / "pyproject.toml").read_text()
    ignored = re.findall(r"ignore_imports\s*=\s*\[(.*?)\]", text, re.DOTALL)
    return sum(block.count("->") for block in ignored)


def cpu_seconds(code: str, repeats: int) -> float:
    """Median CPU seconds of a Python process that runs the code, once all that it imports has been compiled."""
    measure = "import resource\nused = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime)"
    command = [sys.executable, "-c", f"{code}\n{measure}"]
    # To compile takes as long again, at every start where no bytecode may be written.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = [
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        for _ in range(repeats + 1)
    ]
    return statistics.median(float(run.stdout.split()[-1]) for run in runs[1:])


def main() -> None:
    """Print the table and one JSON line."""
    parsed = arguments(__doc__).parse_args()
    begin(parsed.short)
    repeats = 1 if parsed.short else REPEATS
    found = figures()
    dagster = cpu_seconds("import dagster", repeats)
    found["definitions_beyond_dagster_cpu_s"] = (
        cpu_seconds("import trainworthy.pipeline.definitions", repeats) - dagster
    )
    asked = "import contextlib, sys\nfrom trainworthy.pipeline.cli import main\nsys.argv = ['trainworthy', '--help']\n"
    found["help_cpu_s"] = cpu_seconds(f"{asked}with contextlib.suppress(SystemExit): main()", repeats)
    for name, value in found.items():
        print(f"{name:<34} {value:,.2f}" if value != int(value) else f"{name:<34} {int(value):,}")
    finish("house", found, TARGETS, short=parsed.short, zero_allowed=tuple(found))


if __name__ == "__main__":
    main()
