"""`make test-changed`: the tests that import a changed file, the nearest first, for about two minutes.

Changed is what differs from the commit where this branch left main, and what git does not know yet. Imports are read
from the sources, those in functions and for types as well; a test also imports the conftest.py around it. What is used
without an import counts as one: a module that a string names, as in `python -m trainworthy.lifecycle.worker` or a
monkeypatch; and a file that is no module where a string names it, or its folder where its own name is a common one
(use_case.yaml). A file that nothing names is taken for the modules beside it. A text (.md) is named by tests alone: a
message that points to it works as before.

So a test that starts a process depends on all that runs there, as far as its command names a module. The tests of whole
runs in tests/pipeline depend on everything: they are left to `make test` unless the change lies in WHOLE_RUNS_OF, or
they name it themselves.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
MAIN = ("main", "origin/main", "HEAD")
PACKAGES = ("lifecycle/", "expectations/", "resources/", "assets/", "pipeline/")
WHOLE_RUNS, WHOLE_RUNS_OF = "tests/pipeline/", ("assets/", "pipeline/", "resources/", "tests/")
# Found by the path that a test or a use case gives, and never imported by its dotted name.
LOADED_BY_PATH = ("use_cases/", "tests/toy/")
# When the tests shall end, in seconds of time.time(): for the processes that run them.
UNTIL = "TRAINWORTHY_TEST_CHANGED_UNTIL"


def main() -> int:
    """Run the tests; 0 if none of them failed."""
    began = time.time()
    parser = argparse.ArgumentParser(prog="make test-changed", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=110, help="no test starts later than this")
    parser.add_argument("--files", type=int, default=40, help="no more test files are read: 170 take half a minute")
    parser.add_argument("--list", action="store_true", help="say which tests, and run none")
    parser.add_argument("pytest", nargs="*", help="more arguments of pytest, after --")
    asked = parser.parse_args()
    files = changed_files(ROOT)
    tests = tests_of(ROOT, files)
    print(in_words(files, tests), flush=True)
    if asked.list:
        print("\n".join(f"{distance:4d}  {test}" for test, distance in tests.items()))
    if asked.list or not tests:
        return 0
    nearest_first = ("-p", "tests.changed", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not slow")
    near = list(tests)[: asked.files]
    if len(near) < len(tests):
        print(f"{len(tests) - len(near)} of them, the farthest, are left to make test; --files runs more", flush=True)
    command = [sys.executable, "-m", "pytest", *nearest_first, *asked.pytest, *near]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, UNTIL: str(began + asked.seconds)}, check=False)
    return 0 if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED else done.returncode


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """This file is the plugin of its own pytest: what has not begun in time is skipped, and counted as such."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("the time of make test-changed is over: make test runs it")


def in_words(files: Iterable[str], tests: Mapping[str, int]) -> str:
    """What was found, by how many imports lie between."""
    several = list(files)
    named = ", ".join(several[:5]) + (f" and {len(several) - 5} more" if len(several) > 5 else "")
    counts = sorted(Counter(tests.values()).items())
    by_distance = ", ".join(f"{count} at {distance}" for distance, count in counts)
    return f"changed: {named or 'nothing'}\n{len(tests)} test files, by imports in between: {by_distance or 'none'}"


def changed_files(root: Path) -> tuple[str, ...]:
    """Paths relative to the root, with / between; those that were removed are among them."""
    known = next(name for name in MAIN if _git(root, "rev-parse", "--verify", "--quiet", name))
    base = _git(root, "merge-base", "HEAD", known)[0]
    tracked = _git(root, "diff", "--name-only", "--no-renames", base)
    return tuple(sorted({*tracked, *_git(root, "ls-files", "--others", "--exclude-standard")}))


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def tests_of(root: Path, files: Iterable[str]) -> dict[str, int]:
    """Test files that need what changed, with the number of imports in between, the nearest first."""
    several = list(files)
    sources = _read(root, several)
    distances = _distances(_importers(sources), _starts(sources, several, _names(root)))
    tests = {path: distance for path, distance in distances.items() if PurePosixPath(path).name.startswith("test_")}
    whole_runs = any(path.startswith(WHOLE_RUNS_OF) for path in several)
    kept = {
        path: distance
        for path, distance in tests.items()
        if (root / path).is_file() and (whole_runs or distance <= 1 or not path.startswith(WHOLE_RUNS))
    }
    return dict(sorted(kept.items(), key=lambda found: (found[1], found[0])))


@dataclass(frozen=True)
class Source:
    """A Python file: the dotted names that it imports or may name, and its strings."""

    imports: frozenset[str] = frozenset()
    strings: str = ""


def _read(root: Path, changed: Iterable[str]) -> dict[str, Source]:
    """All Python files that git knows or will know, and removed ones, whose importers are still there."""
    paths = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "*.py")
    # A million small objects that all stay: looking for garbage among them takes twice the time.
    gc.disable()
    try:
        found = {path: _source(root / path) for path in paths if (root / path).is_file()}
    finally:
        gc.enable()
    return {path: Source() for path in changed if path.endswith(".py")} | found


def _source(path: Path) -> Source:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError:
        # Its own test will say so.
        return Source()
    imports, strings = set[str](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node.value)
            imports |= {node.value} if re.fullmatch(r"[\w.]+\.\w+", node.value) else set()
    return Source(frozenset(imports), "\n".join(strings))


def _names(root: Path) -> Counter[str]:
    """How many files are called the same, by their name."""
    return Counter(
        PurePosixPath(path).name for path in _git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    )


def _importers(sources: Mapping[str, Source]) -> dict[str, set[str]]:
    """For each Python file those that import it."""
    modules = {_dotted(path): path for path in sources}
    # Folders of tests are on sys.path: what helps a test is imported by its bare name.
    modules |= {PurePosixPath(path).stem: path for path in sources if path.startswith("tests/")}
    importers: dict[str, set[str]] = {path: set() for path in sources}
    for path, source in sources.items():
        for name in source.imports:
            for imported in _modules_of(name, modules):
                importers[imported].add(path)
        for folder in PurePosixPath(path).parents:
            if f"{folder}/conftest.py" in sources and path.startswith("tests/"):
                importers[f"{folder}/conftest.py"].add(path)
    return importers


def _dotted(path: str) -> str:
    """The name that a file is imported by: src/trainworthy holds links to the packages."""
    path = f"trainworthy/{path}" if path.startswith(PACKAGES) else path.removeprefix("src/")
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _modules_of(name: str, modules: Mapping[str, str]) -> Iterator[str]:
    """The module of a dotted name and its packages, whose __init__.py run as well."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        if (dotted := ".".join(parts[:count])) in modules:
            yield modules[dotted]


def _starts(sources: Mapping[str, Source], changed: Iterable[str], names: Mapping[str, int]) -> dict[str, int]:
    """Where the search begins: changed modules, and the Python files that name what is no module."""
    starts = dict[str, int]()
    for path in changed:
        if path in sources:
            starts[path] = 0
        if path not in sources or path.startswith(LOADED_BY_PATH):
            for named in _naming(PurePosixPath(path), sources, names):
                starts.setdefault(named, 1 if PurePosixPath(named).name.startswith("test_") else 0)
    return starts


def _naming(path: PurePosixPath, sources: Mapping[str, Source], names: Mapping[str, int]) -> list[str]:
    """Python files with the file's name in a string; else its folder's name; else those beside it."""
    asked = {other: of for other, of in sources.items() if path.suffix != ".md" or other.startswith("tests/")}
    for name in (*((path.name,) if names[path.name] <= 1 else ()), path.parent.name):
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        if name and (found := [other for other, source in asked.items() if word.search(source.strings)]):
            return found
    return [other for other in asked if PurePosixPath(other).parent == path.parent]


def _distances(importers: Mapping[str, set[str]], starts: Mapping[str, int]) -> dict[str, int]:
    """Imports between each file and the nearest start."""
    found, waiting = dict(starts), sorted(starts, key=starts.__getitem__)
    for path in waiting:
        for importer in importers[path] - found.keys():
            found[importer] = found[path] + 1
            waiting.append(importer)
    return found


if __name__ == "__main__":
    sys.exit(main())
