"""Decision and reasons of each record, as Dagster's pages show them."""

from __future__ import annotations

import pytest
import report_records as example

from trainworthy.assets.metadata import figures_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import StageReport, StoppedStep
from trainworthy.lifecycle.report import in_words


def test_reasons_of_a_judged_run_tell_every_step_in_figures() -> None:
    records = example.judged()
    told = {step: " ".join(in_words.reasons(record)) for step, record in records.items()}
    expected = {
        "dataset": "flights@v9: 336,776 rows in 12 files.",
        "snapshot": "benchmark 2013-11-01 to 2013-12-31, 54,961 rows",
        "preflight": "Seconds: 58.0 s [44.0 s to 79.0 s]",
        "smoke": "validation loss 0.5794, where always saying the label prior gives 0.5771, after 24 steps",
        "pilot": "Go: validation loss 0.5231",
        "full": "Trained: validation loss 0.4987",
        "evaluation": "Gain over logistic regression in log loss: +0.0091 [+0.0041, +0.0141], better.",
        "promotion": "The gain over logistic regression in log loss",
    }
    assert {step: sentence for step, sentence in expected.items() if sentence not in told[step]} == {}
    decisions = {step: in_words.decision(record) for step, record in records.items()}
    assert decisions.pop("promotion") == "promote"
    assert set(decisions.values()) == {"passed"}


def test_reasons_of_another_kind_are_in_its_words() -> None:
    told = {step: " ".join(in_words.reasons(record)) for step, record in example.of_numbers().items()}
    expected = {
        "snapshot": "benchmark 2013-11-01 to 2013-12-31, 54,961 rows, median -2, 80 % from -22 to 44",
        "pilot": "Go: validation loss 1,788, where always saying the best constant answer gives 1,919, after",
        "evaluation": "Gain over ridge regression in RMSE: +1.33 [+1.00, +1.66], better.",
        "promotion": "Better than ridge regression: RMSE gain +1.33",
    }
    assert {step: sentence for step, sentence in expected.items() if sentence not in told[step]} == {}


def test_validated_stage_is_told_in_a_line_beside_the_constant_answer() -> None:
    full = example.judged()["full"]
    assert isinstance(full, StageReport)
    metrics = {"val_loss": 0.4987, "val_loss_of_prior": 0.5771, "val_auc": 0.7123, "peak_memory_bytes": 4e8}
    told = in_words.validated(full.model_copy(update={"metrics": metrics}))
    assert told == "validation: loss 0.4987 (always saying the label prior: 0.5771), AUC 0.7123"
    # Calibration mends it, so that no later figure tells.
    above = full.model_copy(update={"metrics": metrics | {"val_loss": 0.6}})
    assert "loss 0.6000 (always saying the label prior: 0.5771, which is better), AUC" in in_words.validated(above)
    assert in_words.validated(full.model_copy(update={"metrics": {}})) == "validation: not measured"


def test_reasons_of_a_stopped_step_say_what_was_seen_and_the_fix() -> None:
    record = example.stopped_at_pilot()["pilot"]
    assert in_words.decision(record) == "stopped"
    (told,) = in_words.reasons(record)
    assert told.startswith("Learned something: permuting")
    assert "Fix: check that labels and rows belong together" in told


def test_reasons_of_a_step_without_result_are_those_of_its_gate() -> None:
    check = CheckResult(name="contract", status="fail", evidence="2 of 40 rules are broken", fix="correct the source")
    base = {name: getattr(example.snapshot(), name) for name in StoppedStep.model_fields if name != "error"}
    record = StoppedStep(**{**base, "checks": (check,)}, error="contract: fail")
    assert in_words.reasons(record) == ("Contract: 2 of 40 rules are broken. Fix: correct the source",)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", r"\<script\>alert(1)\</script\>"),
        ("[x](javascript:alert(1)) ![y](z)", r"\[x\](javascript\:alert(1)) \!\[y\](z)"),
        ("a_b *c* `d` | ~e~ &amp; $f$", r"a\_b \*c\* \`d\` \| \~e\~ \&amp; \$f\$"),
        ("- item\n# title", r"\- item \# title"),
        ("1. first", r"1\. first"),
        ("see https://www.example.org", r"see https\://www\.example.org"),
        ("2.50 USD é漢", r"2\.50 USD é漢"),
    ],
)
def test_markdown_of_text_holds_no_markup(text: str, shown: str) -> None:
    assert in_words.as_markdown(text) == shown


def test_markdown_list_stays_below_what_dagster_shows_in_place() -> None:
    told = in_words.markdown_list(tuple(f"{n} {'x' * 90}" for n in range(40)))
    assert len(told) < 1_000
    assert told.splitlines()[-1].startswith("- and 3")


def test_figures_of_a_stage_have_names_that_mlflow_takes() -> None:
    stage = example.stage("pilot", 600, 60, 0.4)
    changed = stage.model_copy(update={"metrics": {**stage.metrics, "val_pinball[0.1]": 0.2}})
    assert figures_of(changed)["val_pinball:0.1"] == 0.2
    assert figures_of(changed)["val_loss"] == stage.metrics["val_loss"]
