"""Makes docs/images from the newest run of flight_delays: the report's first page and the UI's page of its verdict.

`make screenshots`, after `make demo`.
"""

import io
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from trainworthy.resources.settings import read_settings

IMAGES = Path(__file__).parent / "images"
# Chromium looks for its vendor's hosts unless it is told not to.
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
# A README is read over slow lines too.
MOST_BYTES = 250_000


def main() -> None:
    report = read_settings().var / "reports" / "flight_delays" / "latest.html"
    if not report.is_file():
        sys.exit(f"there is no report yet: {report}\n  fix: make demo")
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = _page(browser, 1280, 900)
        page.goto(report.as_uri())
        _save(page, IMAGES / "report.png")
        _ui(browser)
        browser.close()


def _ui(browser: Browser) -> None:
    """The page of the verdict, from a webserver of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command)
    try:
        _wait_for(f"http://127.0.0.1:{port}/server_info")
        # As high as the decision and its reasons: the paths of the machine stand below them.
        page = _page(browser, 1800, 1100)
        page.goto(f"http://127.0.0.1:{port}/assets/flight_delays/promotion")
        page.get_by_text("All five controls passed", exact=False).first.wait_for(timeout=60_000)
        _save(page, IMAGES / "ui.png")
    finally:
        server.terminate()
        server.wait(timeout=30)


def _page(browser: Browser, width: int, height: int) -> Page:
    return browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")


def _save(page: Page, path: Path) -> None:
    """The screen in 128 colours, which looks the same and takes a third of the bytes."""
    file = io.BytesIO()
    drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    drawn.quantize(128, dither=Image.Dither.NONE).save(file, format="png", optimize=True)
    if file.tell() > MOST_BYTES:
        sys.exit(f"{path.name} takes {file.tell():,} bytes, more than {MOST_BYTES:,}")
    path.write_bytes(file.getvalue())
    print(f"{path}: {drawn.width} x {drawn.height}, {file.tell():,} bytes")


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
