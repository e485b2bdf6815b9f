"""The Dagster UI and the report in a real headless Chromium, on the state that a real training left.

`dagster dev` runs webserver and daemon, as `make ui` does. A test finds what it clicks by words that a person reads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_rollback import replace_champion
from toy_project import Toy

pytestmark = pytest.mark.slow

HOSTILE = "<b id='injected'>bold</b><script>document.title='ran'</script>"


@dataclass(frozen=True)
class Ui:
    """Address of a running Dagster, and the project that it serves."""

    address: str
    toy: Toy


@pytest.fixture(scope="module")
def ui(trained, tmp_path_factory) -> Iterator[Ui]:
    """`dagster dev` on a copy of the trained state, with a use case whose description tries to be markup."""
    toy = trained.toy.copied(tmp_path_factory.mktemp("ui"))
    toy.edit("use_case.yaml", "description: A small", f'description: "{HOSTILE}"  # A small')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    server = toy.start(command)
    try:
        _wait_for(f"http://127.0.0.1:{port}/server_info", server)
        yield Ui(f"http://127.0.0.1:{port}", toy)
    finally:
        _end_group(server)


@pytest.fixture
def page(browser) -> Iterator:
    page = browser.new_page(viewport={"width": 1900, "height": 1200})
    page.set_default_timeout(60_000)
    yield page
    # Whatever a page showed, none of the data became an element or ran.
    assert page.locator("#injected").count() == 0
    assert page.title() != "ran"
    page.close()


def test_ui_promotion_shows_decision_reasons_and_lineage(page, ui):
    page.goto(f"{ui.address}/assets/toy/promotion")
    page.get_by_text("Better than the label prior", exact=False).first.wait_for()
    for shown in ("decision", "reasons", "lineage/dataset_version", "toy_rows@v1", "Five controls"):
        assert page.get_by_text(shown, exact=False).count(), f"{shown} is not on the page"


def test_ui_lineage_shows_all_eight_steps(page, ui):
    page.goto(f"{ui.address}/asset-groups")
    for step in ("dataset", "snapshot", "preflight", "smoke", "pilot", "full", "evaluation", "promotion"):
        page.get_by_text(step, exact=True).first.wait_for()


def test_ui_launchpad_tells_what_the_intent_of_a_run_may_be(page, ui):
    page.goto(f"{ui.address}/locations/trainworthy.pipeline.definitions/jobs/train_toy/playground")
    for shown in ("first_model: false", "fail_on: never", "dataset_version"):
        page.get_by_text(shown, exact=False).first.wait_for()
    page.get_by_text("No errors", exact=True).first.wait_for()


def test_ui_training_launched_by_a_click_shows_its_decision_and_its_report(page, ui):
    run_id = _materialize(page, ui, "train_toy", "Success")
    page.goto(f"{ui.address}/assets/toy/promotion")
    report = page.get_by_text(f"/reports/toy/{run_id}.html").first
    report.wait_for()
    for shown in ("promote", "Better than the label prior", "open the report"):
        assert page.get_by_text(shown, exact=False).count(), f"{shown} is not on the page"
    page.goto(Path(report.inner_text()).as_uri())
    assert page.get_by_text("Promote", exact=False).first.is_visible()
    assert page.get_by_text(HOSTILE).is_visible()


def test_ui_planted_fault_is_stopped_by_a_gate_that_tells_the_fix(page, ui):
    healthy = "return torch.sigmoid(outputs)"
    planted = f'raise ValueError("{HOSTILE}")'
    ui.toy.edit("model.py", healthy, planted)
    try:
        run_id = _materialize(page, ui, "preflight_toy", "Failure")
    finally:
        ui.toy.edit("model.py", planted, healthy)
    (check,) = [check for check in ui.toy.record(run_id, "preflight").checks if check.name == "one_batch"]
    page.goto(f"{ui.address}/assets/toy/preflight?view=checks&checkDetail=one_batch")
    page.get_by_text("Does one batch go through", exact=False).first.wait_for()
    assert page.get_by_text("Failed", exact=False).count()
    assert HOSTILE in check.evidence
    for shown in (HOSTILE, check.fix):
        assert page.get_by_text(shown, exact=False).first.is_visible(), f"{shown} is not on the page"
    # The step was observed and not materialized, with the same keys.
    page.goto(f"{ui.address}/assets/toy/preflight?view=events")
    page.get_by_text("stopped at preflight", exact=False).first.wait_for()
    page.get_by_text(HOSTILE, exact=False).first.wait_for()


def test_ui_rollback_launched_with_a_reason_brings_the_previous_champion_back(page, ui):
    replace_champion(ui.toy)
    assert ui.toy.champion() == "2"
    page.goto(f"{ui.address}/locations/trainworthy.pipeline.definitions/jobs/rollback_toy/playground")
    page.get_by_role("button", name="Launch Run").wait_for()
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.type(f'reason: "late answers {HOSTILE}"')
    page.get_by_text("No errors", exact=True).first.wait_for()
    page.get_by_role("button", name="Launch Run").click()
    _ended(page, "Success")
    assert ui.toy.champion() == "1"
    assert ui.toy.verdict_log()[-1]["reason"] == f"late answers {HOSTILE}"
    page.goto(f"{ui.address}/assets/toy/promotion?view=events")
    page.get_by_text("rolled back", exact=True).first.wait_for()


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


def _materialize(page, ui: Ui, job: str, expected: str) -> str:
    """Launch a job by its button, follow the run to the expected end on its page; gives the run's id."""
    page.goto(f"{ui.address}/locations/trainworthy.pipeline.definitions/jobs/{job}")
    page.get_by_role("button", name="Materialize all").click()
    assert page.locator("#injected").count() == 0
    page.get_by_text("Launched run", exact=False).first.wait_for()
    page.get_by_text("View", exact=True).first.click()
    return _ended(page, expected)


def _ended(page, expected: str) -> str:
    """Wait on the page of a run for its end, as the page tells it without being loaded anew; gives the run's id."""
    page.wait_for_url("**/runs/*")
    page.get_by_text(expected, exact=True).first.wait_for(timeout=200_000)
    return page.url.split("/runs/")[1][:36]


def _end_group(server: subprocess.Popen[str]) -> None:
    """End webserver, daemon and code server: all that `dagster dev` started is in its group."""
    os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.communicate(timeout=15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.communicate(timeout=15)


def _wait_for(address: str, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, server.communicate()[0][-2000:]
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"{address} did not answer")
