"""The report of a run: what it says, that it is safe to open, and that it holds for every kind of run."""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_records as example
from known import known
from PIL import Image

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import (
    Autocorrelation,
    BehaviourResult,
    BlindSpot,
    Calibration,
    ChangedInputs,
    Dependence,
    DependencePoint,
    Disparity,
    Estimate,
    Importance,
    LossAxis,
    LossPart,
    Metric,
    Perturbation,
    RateOfValue,
    Residuals,
    SliceResult,
    Standing,
    WorstRow,
)
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.records import STEPS, Cost, EvaluationReport, Record, Step, StoppedStep
from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.protocol.suite import Suite
from trainworthy.lifecycle.protocol.training_figures import Attempt
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.report import (
    figures,
    first_page,
    formatting,
    model_tables,
    outcome,
    pictures,
    render,
    sections,
)
from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, DecisionSpec, SliceSpec

LINKS = {"Dagster run": "http://localhost:3000/runs/1", "Commit": "https://example.org/c/1"}
VOID = {"meta", "link", "br", "img"}
PREFIXES = [STEPS[:length] for length in range(len(STEPS) + 1)]


class Page(HTMLParser):
    """Reads a page and notes what the tests ask for; unbalanced tags fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


DRAWN = ("learning_curve", "rate_curve", "reliability_curve", "slice_chart", "comparison_chart")


@pytest.fixture(scope="module", autouse=True)
def pictures_drawn() -> Iterator[list[tuple[str, object, bytes]]]:
    """Each picture by what it is drawn of: drawing is nine tenths of a page, and most tests here read the words."""
    drawn: list[tuple[str, object, bytes]] = []

    def once(draw: Callable[..., bytes]) -> Callable[..., bytes]:
        def picture(*of: object) -> bytes:
            for name, before, png in drawn:
                if (name, before) == (draw.__name__, of):
                    return png
            png = draw(*of)
            drawn.append((draw.__name__, of, png))
            return png

        return picture

    with pytest.MonkeyPatch.context() as patch:
        for name in DRAWN:
            patch.setattr(pictures, name, once(getattr(pictures, name)))
        yield drawn


def _pages() -> dict[str, str]:
    return {
        "promote": render.render(example.judged(), LINKS),
        "reject": render.render(example.judged("reject"), LINKS),
        "stopped": render.render(example.stopped_at_pilot(), LINKS, stopped_at="pilot"),
        "experiment": render.render(example.experiment(), LINKS),
        "empty": render.render({}, {}),
        "numbers": render.render(example.of_numbers(), LINKS),
        "classes": render.render(example.of_classes(), LINKS),
    }


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return _pages()


def test_report_of_promoted_model_tells_decision_reasons_cost_and_evidence(pages: dict[str, str]) -> None:
    text = Page(pages["promote"]).text
    for expected in (
        "flight_delays",
        "✓ Promote",
        "All five controls pass.",
        "The weakest proof is the gain over logistic regression",
        "0.0029 USD",
        "a score on 54,961 benchmark rows in 61 groups beside 3 reference models",
        "0.4987 [0.4901, 0.5073]",
        "+0.0091 [+0.0041, +0.0141]",
        "no difference shown",
        "carrier: small values",
        "9,430 rows without a label, 2.8 %",
        "Champion after this run version 4 before: none",
        "flights@v9 336,776 rows",
        "Benchmark 2013-11-01 to 2013-12-31",
        "actual 0.0019 USD, above the interval, 24% above the forecast",
        "20.7 %",
        "inside the interval",
        "Seeds: 0.",
        "clean",
    ):
        assert expected in text
    asked = [
        "What this verdict covers",
        "Is it better than what we have?",
        "Where it is worse",
        "Can the measurement be believed?",
        "Will it run?",
        "What did it cost?",
        "How was it trained?",
        "What did each check find?",
        "What was it made from?",
    ]
    assert sorted(asked, key=text.index) == asked


def test_report_of_rejected_model_tells_what_would_change_it(pages: dict[str, str]) -> None:
    text = Page(pages["reject"]).text
    assert "✕ Reject" in text
    changes = text.split("What would change it")[1].split("Failed and inconclusive checks")[0].strip()
    assert changes == example.verdict("reject").reasons[0]
    assert "Champion after this run version 3 unchanged" in text
    # The reader's first question is about what is in use.
    assert text.index("Gain over champion") < text.index("Gain over gradient boosting")
    assert outcome.all_comparisons(example.judged("reject"))[0].reference == "champion"
    # A failed check that is only a warning decides nothing, and is named with what to do.
    assert "Tailnum null share:" not in text
    assert first_page.open_checks(example.judged("reject")) == [
        ("snapshot: tailnum null share", "failed", "ask the owner of the source, or widen the rule in contract.yaml")
    ]


@pytest.mark.parametrize("headline", ["worse than logistic regression", ""])
def test_label_of_a_verdict_has_its_headline(headline: str) -> None:
    label = outcome.outcome(example.judged("promote", headline=headline), None).label
    assert label == ("Promote, worse than logistic regression" if headline else "Promote")


def test_changes_of_a_verdict_are_what_its_reasons_lack_and_do_not_repeat_them() -> None:
    held_back_by = ("Perhaps worse: 0.1 [-1, 2]; about 60 groups would show it.", "Guardrail not safely kept.")
    reasons = ("Perhaps worse: 0.1 [-1, 2].", "Guardrail not safely kept.", "Better than the label prior.")
    # Gradient boosting cannot be told from the candidate here, and blocks nothing.
    records = example.judged("shadow", reasons=reasons, held_back_by=held_back_by)
    assert outcome.outcome(records, None).changes == ("Perhaps worse: about 60 groups would show it.",)
    before_the_field = example.judged("shadow", reasons=reasons)
    assert outcome.outcome(before_the_field, None).changes == reasons[:1]


def test_first_page_names_what_was_inconclusive_with_its_fix_before_warnings() -> None:
    records = example.judged("shadow")
    check = CheckResult(name="seconds", status="insufficient", fix="time it on this machine")
    records["preflight"] = records["preflight"].model_copy(update={"checks": (check,)})
    found = first_page.open_checks(records)
    assert found[0] == ("preflight: seconds", "inconclusive", "time it on this machine")
    assert [fact.name for fact in found[1:]] == ["snapshot: tailnum null share"]
    accepted = check.model_copy(update={"name": "early", "status": "fail", "severity": "info"})
    records["dataset"] = records["dataset"].model_copy(update={"checks": (accepted,)})
    assert first_page.open_checks(records)[-1].name == "dataset: early"
    # What stopped the run is its first sentence already.
    assert first_page.open_checks(example.stopped_at_pilot()) == first_page.open_checks(example.judged())


@pytest.mark.parametrize(
    ("records", "name", "told"),
    [
        (example.judged(), "AUC", "a positive row ranks above a negative one in 70.8 % of pairs"),
        (example.of_numbers(), "R²", "11.3 % of the labels' variance is explained"),
        (example.of_classes(), "Accuracy", "the predicted class is right for 58.3 % of rows"),
    ],
)
def test_first_page_has_beside_the_primary_metric_one_that_people_know(
    records: dict[Step, Record], name: str, told: str
) -> None:
    primary, familiar = first_page.quality(records)
    assert primary.name.endswith(" on the benchmark")
    assert familiar.name == name
    assert familiar.remark.startswith("95 % [")
    assert familiar.remark.endswith(told)


def test_splits_without_times_are_in_no_order_of_time() -> None:
    records = example.judged()
    snapshot = example.snapshot()
    splits = {name: split.model_copy(update={"start": "", "end": ""}) for name, split in snapshot.splits.items()}
    records["snapshot"] = snapshot.model_copy(update={"splits": splits})
    assert "in the order of time" not in Page(render.render(records, LINKS)).text
    assert "in the order of time" in Page(render.render(example.judged(), LINKS)).text


@pytest.mark.parametrize(
    ("decision", "champion", "summary"),
    [
        ("promote", None, "The model becomes the champion."),
        ("promote", "4", "The model stays the champion."),
        ("shadow", None, "There is still no champion; the evidence does not suffice to make this model the first."),
        ("shadow", "3", "The model may run beside the champion; the evidence does not suffice to replace it."),
        ("shadow", "4", "The model stays the champion; this evidence would not promote it."),
        ("reject", None, "The model is not shipped. There is still no champion."),
        ("reject", "3", "The model is not shipped."),
    ],
)
def test_summary_of_a_verdict_is_true_of_what_is_live(decision: str, champion: str | None, summary: str) -> None:
    assert outcome.outcome(example.judged(decision, champion=champion), None).summary == summary


def test_report_calls_each_baseline_and_metric_by_one_name(pages: dict[str, str]) -> None:
    page = Page(pages["promote"])
    cells = {word.strip() for word in page.words}
    assert {"logistic regression", "label prior", "gradient boosting", "log loss"} <= cells
    assert not {"linear", "prior", "gradient_boosting", "log_loss"} & cells
    told = [image["alt"] or "" for image in page.tags("img")]
    assert not any("linear" in text or "gradient_boosting" in text for text in told)


def test_report_of_stopped_run_names_the_failed_check_its_fix_and_what_was_spared(pages: dict[str, str]) -> None:
    text = Page(pages["stopped"]).text
    assert "✕ Stopped at pilot" in text
    assert "Learned something: permuting predictions" in text
    assert "(observed 0.0031, threshold 0.02)" in text
    assert "replay the stage with its seed" in text
    assert "stops the run" in text
    assert "forecast for training, 0.0013 USD were not spent" in text
    assert "Not reached: full, evaluation, promotion." in text
    assert "training did not finish" in text


def test_report_of_experiment_says_that_nothing_was_judged(pages: dict[str, str]) -> None:
    text = Page(pages["experiment"]).text
    assert "Experiment: not judged" in text
    assert "the benchmark is untouched" in text
    assert "the five controls were not judged" in text
    assert "Benchmark 2013-11-01 to 2013-12-31 untouched" in text
    assert "Will it run?" not in text
    assert "Promote" not in text


@pytest.mark.parametrize("steps", PREFIXES, ids=lambda steps: steps[-1] if steps else "none")
def test_report_of_every_prefix_of_the_steps_renders(steps: tuple[str, ...]) -> None:
    records = {step: record for step, record in example.judged().items() if step in steps}
    page = Page(render.render(records, {}))
    assert len(page.tags("h1")) == 1
    assert ("Promote" in page.text) == ("promotion" in steps)


def test_report_of_run_that_crashed_without_record_says_where_it_stopped() -> None:
    records = {step: record for step, record in example.experiment().items() if step != "full"}
    text = Page(render.render(records, {}, stopped_at="full")).text
    assert "Stopped at full" in text
    assert "see the log of the run" in text


def test_report_of_step_that_ended_without_result_tells_its_error() -> None:
    for step in STEPS:
        records = {name: record for name, record in example.judged().items() if STEPS.index(name) <= STEPS.index(step)}
        base = {name: getattr(records[step], name) for name in Record.model_fields}
        records[step] = StoppedStep(**base, error="the file is gone\n  fix: restore <it>")
        page = Page(render.render(records, {}, stopped_at=step))
        assert f"Stopped at {step}" in page.text
        assert "the file is gone fix: restore <it>" in page.text


def test_report_of_missing_forecast_says_so_and_spares_nothing() -> None:
    records = example.stopped_at_pilot()
    records["preflight"] = example.preflight().model_copy(update={"cost_usd": None, "memory_bytes": None})
    text = Page(render.render(records, {}, stopped_at="pilot")).text
    assert text.count("could not be forecast") == 3
    assert "were not spent" not in text


def test_outcome_of_promote_verdict_over_a_closed_gate_is_stopped() -> None:
    records = example.judged()
    failed = CheckResult(name="planted", status="error", evidence="was never measured")
    records["evaluation"] = records["evaluation"].model_copy(update={"checks": (failed,)})
    assert outcome.outcome(records, None).label == "Stopped at evaluation"
    assert outcome.outcome(example.judged(), None).label == "Promote"


def test_controls_that_the_verdict_leaves_out_are_shown_as_insufficient() -> None:
    rows = sections.control_rows(example.judged(controls=()))
    assert [(row.name, row.status) for row in rows] == [(name, "insufficient") for name in outcome.CONTROLS]


def test_report_escapes_everything_that_comes_from_data() -> None:
    evil = "<script>alert(1)</script>"
    records = example.judged(reasons=(evil,), model_name=evil, evidence={evil: evil})
    report = example.evaluation()
    metrics = tuple(item.model_copy(update={"slice": f"{evil}={i}"}) for i, item in enumerate(report.metrics))
    check = CheckResult(name=evil, status="fail", severity="warning", evidence=evil, fix=evil, details=({evil: evil},))
    records["evaluation"] = report.model_copy(update={"metrics": (*report.metrics, *metrics), "checks": (check,)})
    page = Page(render.render(records, {evil: evil}, question=evil))
    assert page.tags("script") == []
    assert evil in page.text
    assert all(evil not in (name or "") for _, attributes in page.seen for name in attributes)


def test_report_shows_an_unsafe_link_as_text_only() -> None:
    targets = ["javascript:alert(1)", " JavaScript:alert(1)", "java\tscript:alert(1)", "data:text/html,x", "vbscript:x"]
    page = Page(render.render({}, {f"link {i}": target for i, target in enumerate(targets)}))
    assert all((link["href"] or "").startswith("#") for link in page.tags("a"))
    good = ["http://a/b", "https://a/b?c=d:e", "file:///tmp/x", "reports/run.html", "/var/x:y", "#part"]
    assert all(render.is_safe(target) for target in good)


def test_report_loads_nothing_and_runs_nothing(pages: dict[str, str]) -> None:
    for html in pages.values():
        page = Page(html)
        assert all((image["src"] or "").startswith("data:image/png;base64,") for image in page.tags("img"))
        assert [link["href"] for link in page.tags("link")] == ["data:,"]
        assert not {tag for tag, _ in page.seen} & {"script", "iframe", "object", "embed", "form", "base"}
        assert not re.search(r"url\(|@import", html)
        assert not [name for _, attributes in page.seen for name in attributes if name.startswith("on")]
        assert any("default-src 'none'" in (meta.get("content") or "") for meta in page.tags("meta"))


def test_report_is_accessible_in_structure(pages: dict[str, str]) -> None:
    for html in pages.values():
        page = Page(html)
        levels = [int(tag[1]) for tag, _ in page.seen if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
        assert all(len(image["alt"] or "") > 20 for image in page.tags("img"))
        assert len(page.tags("caption")) == len(page.tags("table"))
        assert all(head.get("scope") for head in page.tags("th"))
        ids = [attributes["id"] for _, attributes in page.seen if "id" in attributes]
        assert len(ids) == len(set(ids))
        anchors = [link["href"][1:] for link in page.tags("a") if (link["href"] or "").startswith("#")]  # pyright: ignore
        assert set(anchors) <= set(ids)
        assert page.tags("html")[0]["lang"] == "en"


def test_report_stays_small_and_is_a_pure_function(pages: dict[str, str], pictures_drawn: list) -> None:
    pictures_drawn.clear()
    assert all(len(html.encode()) < 300_000 for html in pages.values())
    assert _pages() == pages


def test_report_of_huge_findings_stays_below_two_megabytes() -> None:
    records = example.judged()
    report = example.evaluation()
    metric = pictures.slice_metrics(report)[0]
    slices = tuple(metric.model_copy(update={"slice": f"tailnum=N{i:05}"}) for i in range(5_000))
    rows = tuple({"key": i, "value": "x" * 5_000} for i in range(2_000))
    checks = tuple(CheckResult(name=f"check_{i}", status="fail", severity="warning", details=rows) for i in range(60))
    changes = {"metrics": (*report.metrics, *slices), "checks": checks}
    records["evaluation"] = report.model_copy(update=changes)
    html = render.render(records, {})
    assert len(html.encode()) < 2_000_000
    assert "1,980 more in the record" in Page(html).text


def test_report_of_reused_steps_counts_them_at_zero_for_the_run() -> None:
    records = example.experiment()
    for step in ("dataset", "snapshot", "preflight", "smoke"):
        earlier = records[step].provenance.model_copy(update={"run_id": "an-earlier-run"})
        records[step] = records[step].model_copy(update={"provenance": earlier})
    costs = outcome.costs_of_run(records)
    assert costs["smoke"] == Cost()
    assert costs["full"] == records["full"].cost
    assert outcome.model_cost(records).usd == pytest.approx(sum(record.cost.usd for record in records.values()))
    assert "reused; made for" in Page(render.render(records, {})).text


def test_report_of_uncommitted_code_says_so() -> None:
    records = example.experiment()
    for dirty, words in ((True, "with uncommitted changes"), (None, "state unknown")):
        origin = records["full"].provenance.model_copy(update={"git_dirty": dirty})
        changed = {**records, "full": records["full"].model_copy(update={"provenance": origin})}
        assert words in Page(render.render(changed, {})).text


def test_report_lists_the_five_passed_controls_as_one_reason() -> None:
    controls = example.verdict("promote").controls
    told = tuple(f"Control {control.name} passed: {control.reason}" for control in controls[:5])
    verdict = example.verdict("promote").model_copy(update={"reasons": ("Better than the prior.", *told)})
    assert outcome.in_brief(verdict) == ("Better than the prior.", "All five controls passed.")
    failed = controls[0].model_copy(update={"status": "fail"})
    held_back = verdict.model_copy(update={"controls": (failed, *controls[1:])})
    assert outcome.in_brief(held_back) == verdict.reasons


def test_report_of_reasons_beyond_the_first_page_points_to_them() -> None:
    reasons = tuple(f"Reason number {number}." for number in range(20))
    text = Page(render.render(example.judged(reasons=reasons), {})).text
    first, evidence = text.split("Is it better than what we have?")
    assert "13 more below" in first
    assert "Reason number 19." not in first
    assert "Reason number 19." in evidence


def test_report_shows_the_failing_rows_of_a_check_before_those_that_passed() -> None:
    rows = [{"status": "pass", "rule": f"rule {n}"} for n in range(150)] + [
        {"status": "fail", "rule": "the broken one"}
    ]
    records = example.experiment()
    check = CheckResult(name="contract", status="fail", details=tuple(rows))
    records["snapshot"] = records["snapshot"].model_copy(update={"checks": (check,)})
    page = Page(render.render(records, {}))
    assert "the broken one" in page.text
    assert page.text.index("rule status") < page.text.index("the broken one") < page.text.index("rule 0")


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_style_text_has_enough_contrast_in_every_theme(theme: str) -> None:
    colours = _colours(theme)
    on_page = [(text, ground) for text in ("ink", "soft", "accent") for ground in ("page", "card", "row")]
    tones = ("good", "hold", "bad", "neutral")
    statuses = [(tone, ground) for tone in tones for ground in ("page", "card", f"{tone}-tint")]
    for text, ground in on_page + statuses:
        ratio = _contrast(colours[text], colours[ground])
        assert ratio >= 4.5, f"{text} on {ground} in {theme}: {ratio:.2f}"


def _colours(theme: str) -> dict[str, str]:
    """The colours of style.css: the light ones, and over them those of the theme's own block."""
    style = (Path(render.__file__).parent / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 3
    chosen = blocks[0] + {"light": "", "dark": blocks[1], "print": blocks[2]}[theme]
    return dict(re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", chosen))


def _contrast(one: str, other: str) -> float:
    """Ratio of relative luminances (WCAG 2.2)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    full = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    channels = [int(full[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_pictures_are_png_that_fit_into_metadata() -> None:
    stages = outcome.stages_of(example.experiment())
    report = example.evaluation()
    many = report.model_copy(update={"metrics": report.metrics * 9})
    drawn = {
        "learning": pictures.learning_curve(stages),
        "one stage": pictures.learning_curve(stages[:1]),
        "reliability": pictures.reliability_curve(report),
        "slices": pictures.slice_chart(report),
        "many slices": pictures.slice_chart(many),
        "comparison": pictures.comparison_chart(report.comparisons, Words()),
    }
    for name, png in drawn.items():
        # Base64 makes four bytes of three; the data URI must stay below 100 kB.
        assert len(png) < 74_000, name
        picture = Image.open(io.BytesIO(png)).convert("RGB")
        assert picture.getpixel((0, 0)) == (255, 255, 255)
        assert len(picture.getcolors(1 << 20) or []) > 8, f"{name} is empty"


def test_pictures_without_data_say_so_in_words() -> None:
    empty = example.evaluation().model_copy(update={"metrics": (), "comparisons": (), "reliability": ()})
    blank = example.stage("smoke", 1_870, 24, 0.5).model_copy(update={"metrics": {}, "curve": ()})
    for png in (
        pictures.slice_chart(empty),
        pictures.reliability_curve(empty),
        pictures.comparison_chart((), Words()),
        pictures.learning_curve([blank]),
        pictures.learning_curve([]),
    ):
        assert Image.open(io.BytesIO(png)).width > 300


def test_pictures_of_values_that_are_not_finite_are_drawn_and_count_as_worst() -> None:
    report = example.evaluation()
    first = pictures.slice_metrics(report)[0]
    broken = first.model_copy(
        update={
            "slice": "$x_{$ broken",
            "estimate": Estimate(value=math.nan, low=math.nan, high=math.nan, standard_error=math.nan, groups=3),
        }
    )
    changed = report.model_copy(update={"metrics": (*report.metrics, broken)})
    assert pictures.worst_first(pictures.slice_metrics(changed))[0] is broken
    assert pictures.slice_chart(changed)
    assert "not a number" in Page(render.render({**example.judged(), "evaluation": changed}, {})).text
    stage = example.stage("smoke", 1_870, 24, math.nan)
    assert pictures.learning_curve([stage])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 USD"),
        (0.0000321, "0.000032 USD"),
        (0.00289, "0.0029 USD"),
        (0.5, "0.5000 USD"),
        (1234.5, "1,234.50 USD"),
        (-0.25, "−0.2500 USD"),
        (math.nan, "not a number"),
    ],
)
def test_usd_keeps_the_digits_that_matter(value: float, shown: str) -> None:
    assert formatting.usd(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 s"),
        (0.00213, "2.13 ms"),
        (1.234, "1.23 s"),
        (61.04, "61.0 s"),
        (173, "2 min 53 s"),
        (7_260, "2 h 1 min"),
        (math.inf, "not a number"),
    ],
)
def test_seconds_change_unit_with_size(value: float, shown: str) -> None:
    assert formatting.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (336_776, "336,776"),
        (-3, "−3"),
        (0.5, "0.5"),
        (123.4567, "123.46"),
        (-1e-9, "−1e−09"),
        (1e-5, "0.00001"),
        (math.nan, "not a number"),
        ("inf", "inf"),
        ({"b": 1}, "b 1"),
        (["year", 2], "year, 2"),
        ([], "–"),
    ],
)
def test_plain_shows_values_of_every_type(value: object, shown: str) -> None:
    assert formatting.plain(value) == shown


def test_estimate_shows_two_digits_of_its_standard_error() -> None:
    assert formatting.estimate(example.estimate(0.5, 0.01)) == "0.5000 [0.4800, 0.5200]"
    assert formatting.estimate(example.estimate(0.0000412, 0.000011), sign=True) == "+0.000041 [+0.000019, +0.000063]"
    assert formatting.estimate(example.estimate(-0.00001, 0.01), sign=True) == "0.0000 [−0.0200, +0.0200]"


def test_range_of_learning_rates_is_drawn_with_the_declared_one_and_those_worth_trying():
    trial = {"check": "learning_rate.range", "curve": [[1e-4, 0.7], [3e-3, 0.5], [0.1, 2.0]], "observed": 0.001}
    check = CheckResult(name="learning_rate", status="pass", details=(trial,))
    records = example.judged("shadow")
    assert "rates" not in figures.figures(records)
    records["preflight"] = records["preflight"].model_copy(update={"checks": (check,)})
    drawn = figures.figures(records)["rates"]
    assert drawn.alt == "Loss by learning rate: worth trying 0.0001 to 0.001, declared 0.001"


def test_report_names_the_ends_that_a_stage_went_on_after_and_what_it_waited():
    records = example.judged()
    killed = Attempt(cause="out_of_memory", told="<b>killed</b>", from_step=0, to_step=1200, seconds=61.0)
    cost = Cost(wall_seconds=5.0, usd=0.1, queue_seconds=90.0)
    records["full"] = records["full"].model_copy(update={"attempts": (killed,), "cost": cost})
    text = Page(render.render(records, LINKS)).text
    assert re.search(r"out of memory after .{1,8}, at step 1,200", text)
    assert re.search(r"waited .{1,12} for an equal run, at no cost", text)
    before = Page(render.render(example.judged(), LINKS)).text
    assert "for an equal run" not in before


def test_page_of_numbers_speaks_of_numbers(pages: dict[str, str]) -> None:
    text = Page(pages["numbers"]).text
    for told in (
        "RMSE on the benchmark 41.27 95 % [39.45, 43.09]",
        "Better than the best constant answer: RMSE gain +2.54 [+2.21, +2.87], 61 groups.",
        "Better than best constant answer (RMSE), ridge regression (RMSE); "
        "not measurably different from gradient boosting",
        "RMSE (primary) lower is better",
        "R² higher is better",
        "1 of 3 slices lie above all rows in RMSE",
        "Labels",
        "median -5, 80 % from -22 to 41",
        "Validation MAE",
        "validation MAE 24.1,",
        "validation loss of prior 1,919.3",
    ):
        assert told in text, told
    for wrong in ("Positives", "label prior", "nats", "AUC", "positives"):
        assert wrong not in text, wrong


def test_page_of_classes_tells_slices_by_a_metric_that_they_have(pages: dict[str, str]) -> None:
    text = Page(pages["classes"]).text
    for told in (
        "Macro F1 on the benchmark 0.5940",
        "Better than label prior (macro F1), logistic regression (macro F1)",
        "recall of very_late higher is better",
        "slices lie above all rows in log loss",
        "3 classes, rarest very_late 9.1%",
        "Validation accuracy",
    ):
        assert told in text, told
    assert "Positives" not in text
    assert text.index("macro F1 (primary)") < text.index("log loss lower is better")


def test_page_of_a_kind_names_its_references_in_every_picture(pages: dict[str, str]) -> None:
    alts = [str(image["alt"]) for image in Page(pages["numbers"]).tags("img")]
    assert any(alt.startswith("Gain over best constant answer +2.54") for alt in alts)
    assert any(alt.startswith("RMSE on 3 slices, from carrier=EV 49.52") for alt in alts)
    assert any("full 1,703 on 186,993 rows" in alt for alt in alts)


def test_reliability_of_numbers_spans_what_they_span_and_of_probabilities_ends_at_one() -> None:
    numbers, classes = (
        outcome.record_of(made(), "evaluation", EvaluationReport) for made in (example.of_numbers, example.of_classes)
    )
    assert numbers is not None
    assert classes is not None
    low, top = pictures._range(numbers)
    assert (low, top) == pytest.approx((-15.64 - 0.08 * 77.77, 62.13 + 0.08 * 77.77), abs=0.01)
    assert pictures._range(classes) == pytest.approx((0.0, 0.972))


def test_slices_whose_metric_is_higher_the_better_are_worst_where_it_is_lowest() -> None:
    report = outcome.record_of(example.of_classes(), "evaluation", EvaluationReport)
    assert report is not None
    recalls = tuple(
        Metric(model="candidate", metric="recall[late]", estimate=example.estimate(value, 0.01), rows=300, slice=name)
        for name, value in (("a", 0.7), ("b", 0.3), ("c", 0.5), (None, 0.6))
    )
    told = report.model_copy(update={"primary": "recall[late]", "metrics": recalls})
    assert [item.slice for item in sections.slices_shown(told)] == ["b", "c", "a"]
    assert sections.slices_in_words(told).startswith("2 of 3 slices lie below all rows in recall of late with their")
    assert "worst first: b (0.3000 [0.2800, 0.3200]), c" in sections.slices_in_words(told)


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("rmse", "lower is better"), ("r2", "higher is better"), ("recall[a b]", "higher is better"),
        ("pinball[0.9]", "lower is better"), ("coverage[0.9]", "best at 0.9"), ("interval_width", ""), ("own", ""),
    ],
)  # fmt: skip
def test_direction_of_a_metric_is_told_by_its_name(metric: str, told: str) -> None:
    assert sections.direction(metric) == told


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (0.4987, 0.0043, "0.4987 [0.4901, 0.5073]"),
        (41.27, 0.91, "41.27 [39.45, 43.09]"),
        (41.27, 3.2, "41.3 [34.9, 47.7]"),
        (151_234.5, 812.0, "151,234 [149,610, 152,858]"),
        (3.1e-6, 4e-7, "0.00000310 [0.00000230, 0.00000390]"),
        (1 / 3, 2e-17, "0.3333 [0.3333, 0.3333]"),
        (1 / 3, 0.0, "0.3333 [0.3333, 0.3333]"),
    ],
)
def test_estimate_has_the_decimals_that_its_error_allows(value: float, error: float, told: str) -> None:
    assert formatting.estimate(example.estimate(value, error)) == told


def test_report_tells_how_each_slice_that_decides_stands() -> None:
    """What is broken comes first; before a verdict nothing is said of how they stand."""
    measured = Estimate(value=0.7, low=0.65, high=0.75, standard_error=0.025, groups=30)
    standings: tuple[tuple[str, Standing], ...] = (("a", "kept"), ("b", "broken"), ("c", "not_shown"))
    results = tuple(
        SliceResult(
            slice=name, declared=SliceSpec(where="wind > 1", at_most=0.6), rows=300, groups=30, metric="log_loss",
            estimate=measured, bound=bound,
        )
        for name, bound in standings
    )  # fmt: skip
    records = example.judged()
    judged: dict[Step, Record] = {**records, "promotion": records["promotion"].model_copy(update={"slices": results})}
    page = render.render(judged, LINKS)
    table = page[page.index("Slices that decide") :].partition("</table>")[0]
    assert re.findall(r'<th scope="row">(.)</th><td>bound: ([a-z ]+)</td>', table) == [
        ("b", "broken"), ("c", "not shown"), ("a", "kept"),
    ]  # fmt: skip
    assert "log loss at most 0.6 (wind &gt; 1)" in table
    plain = tuple(result.model_copy(update={"bound": "not_asked"}) for result in results)
    waiting: dict[Step, Record] = {"evaluation": records["evaluation"].model_copy(update={"slices": plain})}
    assert {model_tables.slice_standing(item) for item in model_tables.deciding_slices(waiting)} == {"not judged"}


def test_report_tells_calibration_fairness_and_where_the_loss_lies() -> None:
    records = example.judged()
    report = records["evaluation"]
    assert isinstance(report, EvaluationReport)
    rate, far = example.estimate(0.3, 0.02), example.estimate(-0.02, 0.004)
    value = RateOfValue(value="region=a", rows=900, groups=61, rate=rate)
    small = RateOfValue(value="region=<b>", rows=40, groups=20, reason="40 rows, fewer than 100")
    part = LossPart(name="wind > 20", rows=400, groups=60, loss=rate, gain=far)
    told = report.model_copy(
        update={
            "calibration": (
                Calibration(
                    model="candidate", claim="label 1", rows=900, groups=61, slope=rate, reasons=("error: too few",)
                ),
            ),
            "fairness": (
                Disparity(
                    model="candidate", column="region", claim="label 1", rate="selection_rate", values=(value, small),
                    other_values=3, other_rows=12, highest="region=a", reason="1 values of region can be measured",
                ),
            ),
            "residuals": Residuals(
                loss="log_loss", baseline="linear", axes=(LossAxis(by="wind", parts=(part,)),),
                autocorrelation=Autocorrelation(lag_one=0.5, factor=1.73, gain=rate, widened=rate),
                worst=(WorstRow(row=1234, loss=9.0),), other_features=7,
            ),
            "blind_spots": (
                BlindSpot(
                    rule='origin == "EWR" and wind > 30', rows=640, groups=50, share=0.02, excess=rate, expected=0.02,
                    champion=far, p=0.001, confirmed=True, examples=(4711, 12),
                ),
            ),
        }
    )  # fmt: skip
    page = render.render({**records, "evaluation": told}, LINKS)
    for name in (
        "wind &gt; 20",
        "error: too few",
        "3 more values of 12 rows",
        "1234",
        "region=&lt;b&gt; (40 rows",
        "wind &gt; 30",
        "4711, 12",
    ):
        assert name in page
    assert model_tables.worst_parts(known(told.residuals))[0] == ("wind", part)
    # Records of before these were measured tell none of them.
    assert "Blind spots" not in render.render(records, LINKS)
    assert "Rates by protected column" not in render.render(records, LINKS)


def test_report_says_how_an_interval_was_made_where_it_is_not_the_usual_one():
    exact, usual = "Clopper–Pearson, 37 effective of 80 rows", "t by group"
    report = example.evaluation()
    others = tuple(
        one.model_copy(update={"estimate": one.estimate.model_copy(update={"method": "exact", "made": exact})})
        if one.model == "candidate" and one.slice is None
        else one
        for one in report.metrics
    )
    page = render.render({"evaluation": report.model_copy(update={"metrics": others})}, {})
    assert f'<br><span class="soft small wraps">{exact}</span>' in page
    plain = render.render({"evaluation": report}, {})
    assert exact not in plain
    assert usual not in plain


def test_report_shows_what_the_model_takes_beside_the_champion_with_each_limit() -> None:
    serving = (
        ServingFigure(
            quantity="batch_latency", candidate=12.0, champion=10.0, ratio=1.2, low=1.1, high=1.31, rounds=9, rows=256,
            limit=1.25,
        ),
        ServingFigure(quantity="size", candidate=2.0, champion=1.0, ratio=2.0, low=2.0, high=2.0),
        ServingFigure(quantity="memory", told="the champion <could> not be served", limit=1.5),
    )  # fmt: skip
    text = Page(render.render(example.judged("shadow", serving=serving), {})).text
    assert "Latency of a batch of 256 rows 12 ms 10 ms 1.2 [1.1 to 1.31] 1.25: not shown" in text
    assert "Size 2 MB 1 MB 2 no limit" in text
    assert "Memory not measured not measured the champion <could> not be served 1.5: not shown" in text
    assert "measured in turns" not in Page(render.render(example.judged("shadow"), {})).text


def test_report_says_what_a_served_model_decides_and_that_it_is_the_champion_under_another_decision() -> None:
    costs = DecisionSpec.model_validate({"costs": {"false_positive": 1, "false_negative": 4}})
    point = OperatingPoint(decision=costs, threshold=0.2)
    text = Page(render.render(example.judged("promote", decides=point, champion="3"), {})).text
    assert "Version 4 decides where it is served: it gives 1 from an answer of 0.2 on." in text
    assert "Version 4 is the champion, version 3, under another decision" in text
    plain = Page(render.render(example.judged("promote"), {})).text
    assert "decides where it is served" not in plain
    assert "under another decision" not in plain


def changed_inputs_told() -> tuple[ChangedInputs, tuple[BehaviourResult, ...]]:
    """What is told of two features, one of them not used, and two declared tests, one of them not measured."""
    rise, none = example.estimate(0.3, 0.02), example.estimate(0.001, 0.004)
    points = tuple(
        DependencePoint(value=str(at), at=at, answer=example.estimate(at / 10, 0.01)) for at in (1.0, 2.0, 3.0)
    )
    shops = tuple(DependencePoint(value=name, answer=rise) for name in ("<b>", "$x$"))
    found = ChangedInputs(
        rows=4000, groups=61, loss="log_loss", measure="flip_rate", left_out=("photo: its values are files",),
        importance=(Importance(column="wind", loss=rise), Importance(column="$shop", loss=none)),
        dependence=(
            Dependence(column="wind", claim="label 1", points=points),
            Dependence(column="$shop", claim="label 1", points=shops),
        ),
        perturbations=(
            Perturbation(column="wind", change="jitter", refused=0.0, moved=none, loss=none),
            Perturbation(column="wind", change="thousandfold", refused=0.25, moved=rise, loss=rise),
            Perturbation(column="wind", change="missing", refused=1.0, reason="the contract refuses it"),
            Perturbation(column="$shop", change="unknown", refused=0.0, reason="model.py raised KeyError"),
            Perturbation(column="$shop", change="swapped", refused=0.0, asked=False, reason="no other value"),
        ),
    )  # fmt: skip
    declared = BehaviourSpec(column="wind", direction="rises", at_most=0.05)
    result = BehaviourResult(declared=declared, measure="violation_rate", rows=900, estimate=rise)
    unmeasured = result.model_copy(update={"estimate": None, "told": "training rows have no two values"})
    return found, (result, unmeasured)


def test_report_tells_what_is_answered_if_inputs_change() -> None:
    records = example.judged()
    found, results = changed_inputs_told()
    told = records["evaluation"].model_copy(update={"changed_inputs": found, "behaviour": results})
    page = render.render({**records, "evaluation": told}, LINKS)
    assert "Not shown to be used: $shop." in page
    assert "Left out: photo: its values are files." in page
    assert "not measured: training rows have no two values" in page
    table = page[page.index("One feature changed in all rows") :].partition("</table>")[0]
    # What does most harm first, and what was not asked last.
    assert re.findall(r"<td>(moved by|a thousand times|missing|a value|swapped)", table) == [
        "a thousand times", "moved by", "missing", "a value", "swapped",
    ]  # fmt: skip
    assert "25.0 % of rows" in table
    assert "Share of decisions that flip" in table
    unanswered = page[page.index("the model has no answer to") :].partition("</table>")[0]
    assert unanswered.count('<th scope="row">') == 1
    assert "model.py raised KeyError" in unanswered
    assert {"importance", "dependence"} <= figures.figures({**records, "evaluation": told}).keys()
    assert isinstance(told, EvaluationReport)
    for picture in (pictures.importance_chart(told), pictures.dependence_chart(told)):
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 100_000
    # Records of before it was asked, and models that have nothing to change.
    assert "if its inputs change" not in render.render(records, LINKS)
    nothing = told.model_copy(update={"changed_inputs": ChangedInputs(reason="no feature has values"), "behaviour": ()})
    page = render.render({**records, "evaluation": nothing}, LINKS)
    assert "Not measured: no feature has values." in page
    assert "Permutation importance" not in page


def test_what_decisions_cost_is_told_with_its_column_and_the_threshold():
    records = example.judged()
    report = records["evaluation"]
    assert isinstance(report, EvaluationReport)
    suite = Suite(
        name="flights", version=1, rows="", label="", code="", files={}, sha256="",
        declared={"decision": {"costs": {"false_positive": 5.0, "false_negative": "a<b>mount"}}},
    )  # fmt: skip
    told = report.model_copy(update={"suite": suite, "thresholds": {"candidate": 0.0663, "linear": 0.2}})
    page = render.render({**records, "evaluation": told}, LINKS)
    assert "a<b>mount" not in page
    assert (
        "Decision cost is a row's mean: acting on a row of label 0 costs 5, not acting on a row of label 1 costs what "
        "its column a<b>mount says. The candidate acts from 0.0663 on."
    ) in Page(page).text
    assert "Decision cost is" not in Page(render.render(records, LINKS)).text
