"""The report of a run: what it says, that it is safe to open, and that it holds for every kind of run."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import report_records as example
from report_page import LINKS, Page

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Record, Step
from trainworthy.lifecycle.report import (
    first_page,
    outcome,
    render,
)

pytestmark = pytest.mark.usefixtures("pictures_drawn")


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
        "2013-12-31 label late (arrives 15 or more minutes after schedule): 13,025 of 54,961 rows are 1",
        "Cost of training 0.0019 USD, forecast 0.0015 USD: above the interval, 24% above the forecast",
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
    assert "Champion after this run version 3 as before" in text
    # The reader's first question is about what is in use.
    assert text.index("Gain over champion") < text.index("Gain over gradient boosting")
    assert outcome.all_comparisons(example.judged("reject"))[0].reference == "champion"
    # A failed check that is only a warning decides nothing, and is named with what to do.
    assert "Tailnum null share:" not in text
    assert first_page.left_open(example.judged("reject")) == [
        ("snapshot: tailnum null share", "failed", "ask the owner of the source, or widen the rule in contract.yaml")
    ]


@pytest.mark.parametrize("headline", ["worse than logistic regression", ""])
def test_label_of_a_verdict_has_its_headline(headline: str) -> None:
    label = outcome.outcome(example.judged("promote", headline=headline), None).label
    assert label == ("Promote, worse than logistic regression" if headline else "Promote")


TOLD = "Which part of the training keeps the model back: trainworthy diagnose "


@pytest.mark.parametrize(
    ("codes", "script", "told"),
    [
        (("linear.worse",), False, TOLD),
        (("checks.insufficient", "prior.not_shown"), False, TOLD),
        (("gradient_boosting.worse",), False, ""),
        (("linear.worse",), True, ""),
    ],
)  # fmt: skip
def test_model_behind_a_simple_baseline_is_told_with_the_command_that_finds_the_part(codes, script, told) -> None:
    held = tuple(f"Reason {place}." for place, _ in enumerate(codes))
    records = example.judged("shadow", reasons=held, held_back_by=held, codes=codes)
    if script:
        preflight = records["preflight"]
        check = preflight.checks[0].model_copy(update={"name": "trainer"})
        records["preflight"] = preflight.model_copy(update={"checks": (*preflight.checks, check)})
    last = outcome.outcome(records, None).changes[-1:]
    assert told in "".join(last)
    assert bool(told) == any("diagnose" in line for line in last)


def test_changes_of_a_verdict_are_what_its_reasons_lack_and_do_not_repeat_them() -> None:
    held_back_by = ("Perhaps worse: 0.1 [-1, 2]; about 60 groups would show it.", "Guardrail not safely kept.")
    reasons = ("Perhaps worse: 0.1 [-1, 2].", "Guardrail not safely kept.", "Better than the label prior.")
    # Gradient boosting cannot be told from the candidate here, and blocks nothing.
    records = example.judged("shadow", reasons=reasons, held_back_by=held_back_by)
    assert outcome.outcome(records, None).changes == ("Perhaps worse: about 60 groups would show it.",)
    before_the_field = example.judged("shadow", reasons=reasons)
    assert outcome.outcome(before_the_field, None).changes == reasons[:1]


def test_first_page_names_what_failed_before_what_was_inconclusive_and_what_was_accepted_last() -> None:
    records = example.judged("shadow")
    check = CheckResult(name="seconds", status="insufficient", fix="time it on this machine")
    records["preflight"] = records["preflight"].model_copy(update={"checks": (check,)})
    found = first_page.left_open(records)
    assert found[-1] == ("preflight: seconds", "inconclusive", "time it on this machine")
    assert [fact.name for fact in found[:-1]] == ["snapshot: tailnum null share"]
    accepted = check.model_copy(update={"name": "early", "status": "fail", "severity": "info"})
    records["dataset"] = records["dataset"].model_copy(update={"checks": (accepted,)})
    assert first_page.left_open(records)[-1].name == "dataset: early"
    # What stopped the run is its first sentence already.
    assert first_page.left_open(example.stopped_at_pilot()) == first_page.left_open(example.judged())


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


def test_report_lists_the_five_passed_controls_as_one_reason() -> None:
    controls = example.verdict("promote").controls
    reasons = ("Better than the prior.", *(f"A sentence on {control.name}." for control in controls[:5]))
    codes = ("prior.better", *(f"control.{control.name}.pass" for control in controls[:5]))
    verdict = example.verdict("promote").model_copy(update={"reasons": reasons, "codes": codes})
    assert outcome.in_brief(verdict) == ("Better than the prior.", "All five controls passed.")
    for others in ((*codes[:-1], "control.deployment.fail"), ()):
        assert outcome.in_brief(verdict.model_copy(update={"codes": others})) == reasons


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
