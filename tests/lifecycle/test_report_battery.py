"""The report's section on preflight: every trial once, with its words where it did not pass."""

import re

import report_records as example

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.report.render import render

EVIL = "<script>alert(1)</script>"
TRIALS = (
    Trial(check="wiring.rows", status="pass", evidence="rows are apart", seconds=0.21, device="cpu", optimizer_steps=1),
    Trial(check="wiring.labels", status="fail", severity="warning", evidence=EVIL, symptom="it stays", cause="left",
          fix="use them", device="cpu", optimizer_steps=2),
    Trial(check="wiring.causal", status="not_applicable", evidence="declared: no sequence"),
)  # fmt: skip


def page() -> str:
    records = example.experiment()
    family = CheckResult(
        name="wiring", status="fail", severity="warning", evidence="one of three",
        details=tuple(trial.model_dump(mode="json") for trial in TRIALS),
    )  # fmt: skip
    preflight = records["preflight"]
    records["preflight"] = preflight.model_copy(update={"checks": (*preflight.checks, family)})
    return render(records, {})


def test_report_lists_each_trial_with_its_words():
    html = page()
    section = html.split('<h2 id="preflight">')[1].split("</section>")[0]
    text = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    assert "3 checks in 0.2 s, with 3 optimizer updates: 1 failed, 1 passed, 1 not applicable." in text
    assert "rows are apart" in text
    assert "Symptom: it stays" in text
    assert "Likely cause: left" in text
    assert "Fix: use them" in text
    assert "declared: no sequence" in text
    assert "cpu" in text
    assert EVIL not in html
    # Their rows are told once.
    assert html.count("rows are apart") == 1


def test_report_without_trials_has_no_such_section():
    assert 'id="preflight"' not in render(example.experiment(), {})
