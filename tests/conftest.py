"""One thread a test process, no search for garbage in what stays, the order of the files, and a headless Chromium."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.turns import in_turn

# Before torch or numpy is loaded, here or in a process that a test starts. The rows of tests are too few for several
# threads, and those of one process wait for each other busily: test_healthy.py twice at once on two busy cores took
# over 300 s with two threads each, and 76 s with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Chromium looks for its vendor's hosts unless it is told not to.
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

# The file whose tests are being run, and how many modules there were when all that was alive was last frozen.
FROZEN = pytest.StashKey[tuple[os.PathLike[str], int]]()
MANY_MODULES = 50

# Longest first: a long file that comes last keeps one process busy while the others have nothing to do. Those of the
# pipeline share a training of a minute: one process makes it while another has the file before them.
LONG = (
    "tests/benchmarks/test_benches", "tests/lifecycle/test_preflight_trials", "tests/pipeline/",
    "tests/lifecycle/preflight/", "tests/lifecycle/", "tests/expectations/",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--turn 2/4`: of the files with slow tests, the second of each four."""
    parser.addoption("--turn", metavar="K/N", default="1/1", help="of the slow tests, every N-th file from the K-th on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files in the order of LONG, then all others, each whole; make test-changed brings an order of its own."""
    slow = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("bench")]
    due = in_turn((item.path for item in slow), str(config.getoption("--turn")))
    if others := {item for item in slow if item.path not in due}:
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]
    if not config.pluginmanager.has_plugin("tests.changed"):
        items.sort(
            key=lambda item: next((n for n, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: nothing of it is looked through for garbage meanwhile, 3 of 11 seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What is alive before a file, above all imported packages, is looked through by no later collection.

    The same after a test that imported many more. A process that has imported what all files need looks through 1.5
    million objects each time, and preflight asks for it around each real step: tests of memory took 190 s in such a
    process, and take 14.
    """
    path, imported = item.config.stash.get(FROZEN, (None, 0))
    if item.path != path or len(sys.modules) > imported + MANY_MODULES:
        item.config.stash[FROZEN] = item.path, len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Playwright's browser; skipped where Chromium is not installed, but not in CI."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing; CI must install it")
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()
