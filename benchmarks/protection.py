"""Which fast test fails if a protection is taken away: `make bench NAME=protection`.

    python -m benchmarks.protection [--list | --short | --only ID …] [--jobs N] [--page docs/protection.md]

A protection is a check of preflight, a monitor, an alarm, a rule from alarms to a cause, a control, a branch of
decide(), a result of a gate, or a kind of rule of the contract. All are read off the code (protection_sites.py), so
that a new one is asked about on the day it is written. A short run tries three.

Files of tests run one after the other, those first that import what is asked about and need no torch. After each quick
test, every protection that said in it that something is wrong is switched off, and the test runs again: it has to
fail. What only slow tests saw, or fixtures, is switched off in a process of its own, the quickest test first. What no
test noticed is asked of the files of its folder, and at last of those that import a caller. A file that shows nothing
new for long waits until the others have run.

What a worker says that a test starts as a process is not counted, so the answer errs on the side of NOT PROTECTED.
"""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.protection_plugin import SWITCH, Recorder, install, registered, switch_off
from benchmarks.protection_sites import ROOT, Site, all_sites, imported, module_files
from benchmarks.result import arguments, begin, commit, finish, hardware

# A file of tests, or the tests of one protection, may take so long.
LIMIT_SECONDS = 900.0
TABLE = "<!-- table -->"
NOT_PROTECTED = "NOT PROTECTED"
# One of each is tried in a short run; their tests take no second.
SHORT_KINDS = ("control", "decide shadow", "drift shifts")
# So many tests are tried for one protection, the quickest first.
MOST_TESTS = 60

Tests = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Line:
    """What became of a protection that was switched off: the test that failed, "" of none, and how long that took."""

    site: Site
    test: str
    seconds: float
    tried: int

    @property
    def told(self) -> str:
        return (
            f"{self.site.id} | {self.site.kind} | {self.test or NOT_PROTECTED} | {self.seconds:.1f} s of {self.tried}"
        )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--list", action="store_true", help="say what would be switched off")
    parser.add_argument("--only", nargs="+", metavar="ID", default=())
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--page", type=Path, help=f"write the table into this file, after the line {TABLE}")
    given = parser.parse_args()
    begin(given.short)
    install()
    sites = (*registered(), *all_sites())
    chosen = _chosen(sites, given.only, given.short)
    if given.list:
        print("\n".join(f"{site.id} | {site.kind}" for site in chosen))
        return
    started = time.perf_counter()
    found = _lines(chosen, given.jobs)
    lines = [found[site] for site in chosen]
    bare = [line for line in lines if not line.test]
    for line in bare:
        print(f"{NOT_PROTECTED}: {line.site.id} ({line.site.kind}); {line.tried} tests saw it")
    if given.page:
        _write(given.page, lines)
    figures = {"protections": len(lines), "not_protected": len(bare), "seconds": time.perf_counter() - started}
    finish("protection", figures, {"not_protected": 0}, short=given.short, zero_allowed=["not_protected"])


def _chosen(sites: Sequence[Site], only: Sequence[str], short: bool) -> tuple[Site, ...]:
    if short:
        first = {site.kind: site for site in reversed(sites)}
        return tuple(first[kind] for kind in SHORT_KINDS)
    if unknown := set(only) - {site.id for site in sites}:
        sys.exit(f"there is no protection {', '.join(sorted(unknown))}. Fix: python -m benchmarks.protection --list")
    return tuple(site for site in sites if not only or site.id in only)


def _lines(sites: Sequence[Site], jobs: int) -> dict[Site, Line]:
    """Each protection's line; what no test of the nearest files noticed is asked of more of them."""
    lines: dict[Site, Line] = {}
    tests: Tests = {}
    run: set[Path] = set()

    def say(site: Site, answer: Sequence[Any] | None) -> None:
        lines[site] = Line(site, *answer) if answer else Line(site, "", LIMIT_SECONDS, 0)
        print(lines[site].told, flush=True)

    def left() -> list[Site]:
        return [site for site in sites if site not in lines or not lines[site].test]

    for near, patience in ROUNDS:
        asked = {path: [site for site in left() if near(path, site)] for path in _test_files() if path not in run}
        files = [path for _, path in sorted((_late(path, some), path) for path, some in asked.items() if some)]
        if not files:
            continue
        # Imported here, once: what runs them are copies of this process.
        _collect(files)
        see = partial(_seen_by, asked=asked, left=left, patience=patience)
        for path, answer in _copies(files, see, jobs):
            found, failing, ran_out = answer or ({}, {}, False)
            tests |= found
            run |= set() if ran_out else {path}
            _say_recorded(path, found)
            for site in left():
                if site.id in failing:
                    say(site, failing[site.id])
        for site, answer in _copies(left(), partial(_first_failing, sites=sites, tests=tests), jobs):
            if answer is None or answer[0] or answer[2]:
                say(site, answer)
    return {site: lines.get(site, Line(site, "", 0.0, 0)) for site in sites}


def _imports(path: Path, site: Site) -> bool:
    """True if the file, or a file of helpers beside it, imports the module or names the protection."""
    wanted = {site.module, f"trainworthy.lifecycle.engine.preflight.{site.id.partition('.')[0]}.checks"}
    return bool(wanted & _imported_with_helpers(path)) or f'"{site.id}"' in _text(path)


def _in_folder(path: Path, site: Site) -> bool:
    """True if the file lies where the tests of the module's package, or of one around it, lie."""
    parts = site.module.split(".")[:-1]
    return path.parent in {
        Path("tests", *parts[start:end]) for start in (0, 1) for end in range(start + 1, len(parts) + 1)
    }


def _mirrors(path: Path, site: Site) -> bool:
    return _in_folder(path, site) and _imports(path, site)


def _imports_a_caller(path: Path, site: Site) -> bool:
    """True if the file imports a module that imports the protection's."""
    return any(site.module in _imported(file) for name, file in _modules().items() if name in _imported(path))


def _late(path: Path, near: Sequence[Site]) -> tuple[bool, bool, float]:
    """Tests of a module's own come before those elsewhere; then what needs no torch and no process; then what is near
    the most, for its length."""
    heavy = {"torch", "subprocess", "toy_jobs"} & _imported_with_helpers(path)
    return not any(_in_folder(path, site) for site in near), bool(heavy), -len(near) / len(_text(path))


@cache
def _imported_with_helpers(path: Path) -> frozenset[str]:
    helpers = {one.stem: one for one in path.parent.glob("*.py") if not one.stem.startswith("test_")}
    return _imported(path).union(*(_imported(helpers[name]) for name in _imported(path) if name in helpers))


@cache
def _modules() -> dict[str, Path]:
    return module_files()


# Which files are asked, and after how many CPU seconds without anything new the rest of one waits.
ROUNDS = (
    (_mirrors, 10.0), (_imports, 10.0), (_in_folder, 10.0), (_imports, math.inf), (_imports_a_caller, math.inf),
)  # fmt: skip


@cache
def _test_files() -> tuple[Path, ...]:
    return tuple(path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py")))


@cache
def _imported(path: Path) -> frozenset[str]:
    return frozenset(imported(path))


@cache
def _text(path: Path) -> str:
    return path.read_text()


def _collect(files: Sequence[Path]) -> None:
    with tempfile.TemporaryFile("w+") as output:
        shown = os.dup(1)
        os.dup2(output.fileno(), 1)
        try:
            code = pytest.main(["--collect-only", "-q", *_FLAGS, *map(str, files)])
        finally:
            sys.stdout.flush()
            os.dup2(shown, 1)
        output.seek(0)
        assert code == pytest.ExitCode.OK, f"tests can't be collected:\n{output.read()[-3000:]}"


_FLAGS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow")


def _seen_by(
    path: Path, *, asked: Mapping[Path, Sequence[Site]], left: Callable[[], Sequence[Site]], patience: float
) -> tuple[Tests, dict[str, Any], bool]:
    """What the tests of a file saw, which of them fail without what, and whether some are left for want of patience; in
    a copy of this process."""
    wanted = [site.id for site in left()]
    near = [site.id for site in asked[path] if site.id in wanted]
    if not near:
        return {}, {}, True
    recorder = _run([str(path)], Recorder(wanted, near, patience_seconds=patience))
    return recorder.tests, recorder.failing, recorder.ran_out


def _run(what: Sequence[str], recorder: Recorder) -> Recorder:
    with tempfile.TemporaryDirectory() as folder:
        pytest.main([*_FLAGS, "--basetemp", f"{folder}/tests", *what], plugins=[recorder])
    return recorder


def _first_failing(site: Site, *, sites: Sequence[Site], tests: Tests) -> tuple[str, float, int]:
    """The test that fails first without it, its CPU seconds, and how many saw it; in a copy of this process."""
    seen = _who_saw(site, tests)
    if not seen:
        return "", 0.0, 0
    switch_off(site.id, sites)
    untried = [test for test in seen if site.id not in tests[test]["tried"]]
    run = _run(untried[:MOST_TESTS], Recorder(until_one_fails=True)).tests if untried else {}
    failed = next((test for test, told in run.items() if told["failed"]), "")
    seconds = run[failed]["seconds"] if failed else sum(told["seconds"] for told in run.values())
    return failed, seconds, len(seen)


def _who_saw(site: Site, tests: Tests) -> list[str]:
    """Tests that passed and in which it said that something is wrong, the quickest first.

    What it said while fixtures were made may be noticed by any test of the file.
    """
    files = {_file(test) for test, told in tests.items() if site.id in told["before"]}
    saw = [
        test for test, told in tests.items()
        if (site.id in told["seen"] or _file(test) in files) and not told["failed"]
    ]  # fmt: skip
    return sorted(saw, key=lambda test: tests[test]["seconds"])


def _file(test: str) -> str:
    return test.partition("::")[0]


def _say_recorded(path: Path, tests: Tests) -> None:
    if tests:
        print(f"{path}: {len(tests)} tests, {sum(told['seconds'] for told in tests.values()):.1f} CPU s", flush=True)
    for test in (test for test, told in tests.items() if told["failed"]):
        print(f"{test} fails with all protections on, and is left out: {tests[test]['told']}", flush=True)


def _copies(keys: Sequence[Any], work: Callable[[Any], Any], jobs: int) -> Iterator[tuple[Any, Any]]:
    """The work's answer for each key from a copy of this process, as they come; None of a copy that gave none."""
    gc.collect()
    gc.freeze()
    waiting, running = list(keys), dict[int, tuple[Any, Path, float]]()
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                key = waiting.pop(0)
                answer = Path(folder, str(len(waiting)))
                running[_copy(lambda key=key: work(key), answer)] = (key, answer, time.monotonic())
            for process, (key, answer, began) in list(running.items()):
                if time.monotonic() - began > LIMIT_SECONDS:
                    os.kill(process, signal.SIGKILL)
                if os.waitpid(process, os.WNOHANG)[0]:
                    del running[process]
                    yield key, json.loads(answer.read_text()) if answer.exists() else None
            time.sleep(0.02)


def _copy(work: Callable[[], Any], answer: Path) -> int:
    """The id of a copy of this process that writes its answer; what it prints is beside it."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    try:
        output = os.open(f"{answer}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        SWITCH.seen = set()
        given = json.dumps(work())
        # Whole or not there at all.
        Path(f"{answer}.part").write_text(given)
        Path(f"{answer}.part").rename(answer)
    finally:
        os._exit(0)


def _write(page: Path, lines: Sequence[Line]) -> None:
    """The table below the mark; what is above it is kept."""
    kept = page.read_text().partition(TABLE)[0] if page.exists() else ""
    rows = [f"| `{line.site.id}` | {line.site.kind} | {_named(line.test)} | {line.seconds:.1f} |" for line in lines]
    told = [
        f"`{' '.join(['python -m benchmarks.protection', *sys.argv[1:]])}` at commit {commit()}; {hardware()}.",
        f"{len(lines)} protections, {sum(not line.test for line in lines)} not protected.",
    ]
    head = ["| switched off | kind | fails | seconds |", "|---|---|---|---|"]
    page.write_text("\n".join([kept.rstrip(), "", TABLE, "", *told, "", *head, *rows, ""]))


def _named(test: str) -> str:
    return f"`{test.removeprefix('tests/')}`" if test else f"**{NOT_PROTECTED}**"


if __name__ == "__main__":
    main()
