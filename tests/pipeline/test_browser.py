"""The Dagster UI and the report in a real headless Chromium, on the state that a real training left."""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ui(trained) -> Iterator[str]:
    """Address of a real webserver on the trained state."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-m", "pipeline.definitions", "-h", "127.0.0.1"]
    server = trained.toy.start([*command, "-p", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/server_info", server)
        yield address
    finally:
        server.terminate()
        server.communicate(timeout=30)


def test_ui_promotion_shows_decision_reasons_and_lineage(browser, ui):
    page = browser.new_page(viewport={"width": 1500, "height": 1200})
    page.goto(f"{ui}/assets/toy/promotion")
    page.get_by_text("Better than the prior", exact=False).first.wait_for(timeout=60_000)
    for shown in ("decision", "lineage/dataset_version", "toy_rows@v1", "Five controls"):
        assert page.get_by_text(shown, exact=False).count(), f"{shown} is not on the page"
    page.close()


def test_ui_lineage_shows_all_eight_steps(browser, ui):
    page = browser.new_page(viewport={"width": 1800, "height": 1000})
    page.goto(f"{ui}/asset-groups")
    for step in ("dataset", "snapshot", "preflight", "smoke", "pilot", "full", "evaluation", "promotion"):
        page.get_by_text(step, exact=True).first.wait_for(timeout=60_000)
    page.close()


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_report_opens_offline_and_fits_the_screen(browser, trained, width):
    page = browser.new_page(viewport={"width": width, "height": 900}, offline=True)
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
    page.goto((trained.toy.var / "reports" / "toy" / "latest.html").as_uri())
    assert page.get_by_text("Promote", exact=False).first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    pictures = page.locator("img")
    assert pictures.count() >= 3
    assert all(pictures.nth(n).evaluate("image => image.naturalWidth > 0") for n in range(pictures.count()))
    assert failed == []
    page.close()


def _wait_for(address: str, server) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert server.poll() is None, server.communicate()[0][-2000:]
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"{address} did not answer")
