"""One thread a test process, the order of the files, and a headless Chromium for the tests that look at pages."""

import os
import shutil
from collections.abc import Iterator

import pytest

# Before torch or numpy is loaded, here or in a process that a test starts. The rows of tests are too few for several
# threads, and those of one process wait for each other busily: test_healthy.py twice at once on two busy cores took
# over 300 s with two threads each, and 76 s with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Chromium looks for its vendor's hosts unless it is told not to.
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


# Longest first: a long file that comes last keeps one process busy while the others have nothing to do. Those of the
# pipeline share a training of a minute: one process makes it while another has the file before them.
LONG = (
    "tests/lifecycle/test_preflight_trials", "tests/pipeline/", "tests/lifecycle/preflight/", "tests/lifecycle/",
    "tests/expectations/",
)  # fmt: skip


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files in the order of LONG, then all others, each whole; make test-changed brings an order of its own."""
    if not config.pluginmanager.has_plugin("tests.changed"):
        items.sort(
            key=lambda item: next((n for n, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))
        )


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
