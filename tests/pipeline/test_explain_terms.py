"""`trainworthy explain` knows the words that reports, verdicts and lines of checks use as terms."""

from pathlib import Path
from typing import get_args

import pytest

from tests.lifecycle import report_records as example
from trainworthy.lifecycle.gates.monitor_words import causes_of
from trainworthy.lifecycle.gates.preflight import CHECKS
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
from trainworthy.lifecycle.gates.step_checks import STEP_CHECKS
from trainworthy.lifecycle.gates.terms import TERMS
from trainworthy.lifecycle.protocol.checks import Severity, Status
from trainworthy.lifecycle.protocol.records import STAGES, STEPS
from trainworthy.lifecycle.report.outcome import CONTROLS
from trainworthy.lifecycle.report.sections import status_words
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.wording import metric_name
from trainworthy.pipeline.cli import main

ROOT = Path(__file__).parents[2]
TARGETS = (
    {"kind": "binary"}, {"kind": "regression"}, {"kind": "regression", "quantiles": (0.1, 0.5, 0.9)},
    *({"kind": kind, "classes": ("a", "b", "c")} for kind in ("multiclass", "multilabel", "segmentation")),
    {"kind": "language_model", "length": 128},
)  # fmt: skip
METRICS = sorted({name for target in TARGETS for name in kind_of(Target.model_validate(target)).metrics})


def unknown(names, capsys) -> list[str]:
    found = [name for name in dict.fromkeys(names) if main(["explain", name])]
    capsys.readouterr()
    return found


def test_explain_knows_steps_splits_statuses_and_severities(capsys):
    statuses = [*get_args(Status), *(status_words(status).lower() for status in get_args(Status))]
    splits = list(example.snapshot().splits)
    assert unknown([*STEPS, *splits, *statuses, *get_args(Severity), *CONTROLS], capsys) == []


def test_explain_knows_every_metric_of_every_kind_of_task_as_code_and_report_name_it(capsys):
    assert len(METRICS) > 20
    assert unknown([*METRICS, *map(metric_name, METRICS)], capsys) == []


def test_explain_knows_every_check_with_its_step_as_a_report_and_a_verdict_write_it(capsys):
    of_stages = [f"{stage}{mark}{check.name}" for stage in STAGES for mark in "./" for check in STAGE_CHECKS]
    others = [f"preflight/{name}" for name in CHECKS] + [f"snapshot/{check.name}" for check in STEP_CHECKS]
    assert (
        unknown([*of_stages, *others, "preflight/own.rows", "full/completed", "preflight/inputs.finite"], capsys) == []
    )


@pytest.mark.parametrize(
    "word",
    [
        "smoke", "pilot", "full", "log loss", "margin", "group", "held back", "insufficient", "inconclusive",
        "answered",
        "pilot.references", "full.references", "candidate", "gain", "slice", "interval", "baseline", "goodput",
        "held back by", "gradient boosting", "logistic regression", "label prior",
    ],
)  # fmt: skip
def test_explain_knows_the_words_that_a_newcomer_meets(word, capsys):
    assert unknown([word], capsys) == []


def test_explain_says_that_inconclusive_and_insufficient_are_one_thing_and_what_follows(capsys):
    for word, other in (("inconclusive", "insufficient"), ("insufficient", "inconclusive")):
        assert main(["explain", word]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert other in told
        assert "neither passed nor failed" in told


def test_pages_that_terms_name_are_there_and_no_word_has_two_terms():
    pages = {term.page.partition("#")[0] for term in TERMS}
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    names = [name for term in TERMS for name in {term.id, *term.also}]
    assert len(names) == len(set(names))


def test_word_that_is_no_term_is_still_unknown(capsys):
    assert unknown(["smoke.nothing", "own", "flibber"], capsys) == ["smoke.nothing", "flibber"]


def test_monitor_of_many_causes_tells_three_in_full_and_each_cause_once(capsys):
    assert main(["explain", "loss_spike"]) == 0
    told = capsys.readouterr().out
    named = dict.fromkeys(cause.id for cause in causes_of("loss_spike"))
    first, rest = told.split("other causes, in the order in which they are tried")
    assert first.count("  cause: ") == first.count("  fix: ") == 3
    # Of two cases both are told, in one entry.
    assert "(1) every update goes along its gradient" in first
    for place, name in enumerate(named):
        assert (first.count(f"({name})"), rest.count(f"\n  {name}: ")) == ((1, 0) if place < 3 else (0, 1)), name


def test_monitor_of_few_causes_tells_all_in_full(capsys):
    assert main(["explain", "replicas_apart"]) == 0
    told = capsys.readouterr().out
    assert told.count("  fix: ") == len(causes_of("replicas_apart"))
    assert "other causes" not in told


def test_check_with_codes_tells_each_fix_once_with_its_codes(capsys):
    assert main(["explain", "stage.references"]) == 0
    told = capsys.readouterr().out
    assert "  fix of shift: look for inputs or labels with other codes" in told
    assert told.count("  fix: ") == 1
