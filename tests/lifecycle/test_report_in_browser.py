"""The report in a real headless Chromium: what it shows to eyes, keyboards and printers, and that data stay data."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator

import pytest
import report_records as example
from PIL import Image

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.report.first_page import quality
from trainworthy.lifecycle.report.outcome import outcome
from trainworthy.lifecycle.report.render import render
from trainworthy.lifecycle.report.site import Champion, LatestRun, UseCaseRow, render_site

pytestmark = pytest.mark.slow

QUESTION = "Will this flight arrive more than 15 minutes late, asked at its scheduled departure?"
LINKS = {"Dagster run": "http://127.0.0.1:3000/runs/1", "Commit": "https://example.org/c/1"}
# An A4 page at 96 pixels an inch, less the margins that style.css declares.
A4 = {"width": 695, "height": 1016}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, str]:
    """Address of a report of each kind of run."""
    made = {
        "promote": render(example.judged(), LINKS, question=QUESTION),
        "reject": render(example.judged("reject"), LINKS, question=QUESTION),
        "stopped": render(example.stopped_at_pilot(), LINKS, stopped_at="pilot", question=QUESTION),
        "experiment": render(example.experiment(), LINKS, question=QUESTION),
        "wide": render(wide(), LINKS, question=QUESTION),
        "hostile": render(hostile(), {HOSTILE: "javascript:document.title=1"}, question=HOSTILE),
    }
    made["site"] = render_site(use_cases(), "2026-03-02T09:00:00+00:00", 30)
    folder = tmp_path_factory.mktemp("reports")
    for name, html in made.items():
        (folder / f"{name}.html").write_text(html)
    return {name: (folder / f"{name}.html").as_uri() for name in made}


def use_cases() -> list[UseCaseRow]:
    """Use cases of every state: with a champion, stopped, hostile, and none of whose runs is there."""
    champion = Champion("4", "2026-03-01T09:00:00+00:00", "flights@v9", tuple(quality(example.judged())), "r.html")
    newest = LatestRun(outcome(example.stopped_at_pilot(), "pilot"), "2026-03-02T08:00:00+00:00", "r.html")
    return [
        *(UseCaseRow(f"delays_{n}", QUESTION, champion, newest, 12, 1_234.5, 12.3456) for n in range(30)),
        UseCaseRow("unbroken" * 20, HOSTILE, latest=newest, problem="unbroken" * 20),
        UseCaseRow("empty", ""),
    ]


HOSTILE = """<script>document.title = "ran"</script><img src=x onerror="document.title = 'ran'">'"&amp;`${1}é漢\u202e"""


def hostile() -> dict:
    """Records in which everything that comes from data tries to be markup."""
    check = CheckResult(
        name=HOSTILE, status="fail", severity="warning", observed=HOSTILE, threshold=HOSTILE, evidence=HOSTILE,
        fix=HOSTILE, details=({HOSTILE: HOSTILE, "slice": HOSTILE},),
    )  # fmt: skip
    records = example.judged(reasons=(HOSTILE,) * 9, model_name=HOSTILE, evidence={HOSTILE: {HOSTILE: HOSTILE}})
    report, snapshot = example.evaluation(), example.snapshot()
    metrics = tuple(item.model_copy(update={"slice": f"{HOSTILE}={n}"}) for n, item in enumerate(report.metrics))
    split = snapshot.splits["benchmark"].model_copy(update={"name": HOSTILE, "start": HOSTILE, "end": HOSTILE})
    changes = {"label": HOSTILE, "feature_columns": (HOSTILE,), "splits": {**snapshot.splits, "benchmark": split}}
    records["snapshot"] = snapshot.model_copy(update=changes | {"checks": (check,)})
    records["evaluation"] = report.model_copy(update={"metrics": (*report.metrics, *metrics), "checks": (check,)})
    records["dataset"] = example.dataset().model_copy(update={"name": HOSTILE, "use_case": HOSTILE})
    records["promotion"] = records["promotion"].model_copy(update={"use_case": HOSTILE})
    return records


def wide() -> dict:
    """Records with a check whose rows have 32 keys that differ from row to row, and words that offer no break."""
    word = "unbroken" * 40
    rows = tuple({f"seconds_of_part_{8 * row + key}": 0.0123456 for key in range(8)} for row in range(4))
    check = CheckResult(
        name="cost_forecast", status="fail", severity="warning", observed=word, evidence=f"a long name: {word}. " * 3,
        fix=word, details=(*rows, {"kinds": {"activations": 18_451_024, word: 1}, "told": word}),
    )  # fmt: skip
    few = CheckResult(name="contract", status="pass", details=tuple({"rule": word, "observed": word} for _ in range(9)))
    records = example.judged()
    records["preflight"] = example.preflight().model_copy(update={"checks": (check, few)})
    return records


@pytest.fixture
def page(browser) -> Iterator:
    page = browser.new_page(viewport={"width": 1280, "height": 1000}, offline=True)
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: failed.append(dialog.message))
    yield page
    page.close()
    assert failed == []


def test_report_of_hostile_data_runs_nothing_and_injects_no_element(page, reports):
    page.goto(reports["hostile"])
    assert page.title().startswith("<script>")
    assert page.locator("script, iframe, object, form").count() == 0
    assert page.evaluate("[...document.images].filter(image => !image.src.startsWith('data:image/png')).length") == 0
    assert page.get_by_text(HOSTILE.replace("\u202e", "")[:40]).count() > 10
    # An address that would run is shown as text.
    assert page.locator("a:not([href^='#'])").count() == 0


@pytest.mark.parametrize("width", [360, 800, 1500])
@pytest.mark.parametrize("kind", ["promote", "stopped", "wide", "hostile"])
def test_report_needs_no_horizontal_scrolling(page, reports, kind, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reports[kind])
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Evidence is read without scrolling to it, on a phone as well.
    for cards in page.locator(".scroll:has(> .cards)").all():
        assert cards.evaluate("box => box.scrollWidth - box.clientWidth") <= 1


@pytest.mark.parametrize("width", [360, 390, 800, 1500])
def test_site_shows_every_column_without_scrolling(page, reports, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reports["site"])
    assert page.evaluate(OUTERMOST) <= width
    assert page.get_by_text("last 30 days 12.35 USD").first.is_visible()
    label = page.evaluate("getComputedStyle(document.querySelector('td'), '::before').content")
    assert label == ("none" if width >= 800 else '"Champion "')


@pytest.mark.parametrize("kind", ["promote", "reject", "stopped", "experiment"])
def test_report_first_page_fits_one_screen_and_one_sheet(page, reports, kind):
    page.goto(reports[kind])
    assert _bottom(page, "header") <= 1000
    page.set_viewport_size(A4)
    page.emulate_media(media="print")
    assert _bottom(page, "header") <= A4["height"]
    assert page.evaluate("getComputedStyle(document.querySelector('main')).breakBefore") == "page"


def test_report_in_print_is_white_and_opens_what_was_folded(page, reports):
    page.set_viewport_size(A4)
    page.goto(reports["promote"])
    page.emulate_media(media="print", color_scheme="dark")
    hidden = page.locator("details > :not(summary)")
    assert hidden.count() >= 4
    assert all(hidden.nth(n).is_visible() for n in range(hidden.count()))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.images[0]).filter") == "none"


@pytest.mark.parametrize("kind", ["promote", "stopped", "wide", "site"])
def test_report_on_a4_cuts_nothing_and_leaves_no_sheet_nearly_blank(page, reports, kind):
    page.set_viewport_size(A4)
    page.goto(reports[kind])
    page.emulate_media(media="print")
    assert page.evaluate(OUTERMOST) <= A4["width"] + 1
    *sheets, _ = lines_of_sheets(page.pdf(prefer_css_page_size=True))
    assert 3 <= len(sheets) <= 14
    assert min(sheets) >= 15, sheets


OUTERMOST = """() => Math.max(...[...document.querySelectorAll('body *')].map(element => {
  const box = element.getBoundingClientRect();
  return box.width ? Math.max(box.right, box.left + element.scrollWidth) : 0;
}))"""
# A picture stands for this many lines of text.
LINES_OF_PICTURE = 20


def lines_of_sheets(pdf: bytes) -> list[int]:
    """How many lines of text each sheet shows, pictures counted in lines, from the operators of its content."""
    lines = []
    for sheet in re.finditer(rb"/Type\s*/Page\b(?:(?!endobj).)*?/Contents (\d+) 0 R", pdf, re.DOTALL):
        packed = re.search(rb"\n" + sheet[1] + rb" 0 obj.*?stream\r?\n(.*?)endstream", pdf, re.DOTALL)
        assert packed is not None
        operators = zlib.decompress(packed[1])
        heights = set(re.findall(rb"(\S+) Tm\b", operators))
        lines.append(len(heights) + LINES_OF_PICTURE * len(re.findall(rb"\bDo\b", operators)))
    return lines


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_text_and_pictures_have_contrast_as_shown(page, reports, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(reports["promote"])
    # What the browser computed, over the nearest ground that is painted.
    assert page.evaluate(LOWEST_CONTRAST) >= 4.5
    for picture in page.locator("figure .frame").all():
        shown = Image.open(io.BytesIO(picture.screenshot())).convert("L")
        darkest, lightest = shown.getextrema()
        ground = max(shown.getcolors(), key=lambda found: found[0])[1]
        assert (ground > 200) == (scheme == "light")
        ink = darkest if scheme == "light" else lightest
        assert abs(ink - ground) > 140


LOWEST_CONTRAST = """() => {
  const rgb = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = rgb(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let lowest = 21;
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (!node.data.trim()) continue;
    const pair = [rgb(getComputedStyle(node.parentElement).color), ground(node.parentElement)].map(luminance);
    lowest = Math.min(lowest, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  }
  return lowest;
}"""


def test_report_by_keyboard_skips_to_the_evidence_and_opens_details(page, reports):
    page.goto(reports["promote"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        width = page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2, page.evaluate("document.activeElement.outerHTML")[:200]
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")


def _bottom(page, selector: str) -> float:
    return page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().bottom")
