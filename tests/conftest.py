"""One thread a test process, and a real headless Chromium for the tests that look at pages."""

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
