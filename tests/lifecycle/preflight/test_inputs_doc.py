"""The pages of the family inputs say what the checks say."""

from pathlib import Path

import pytest

from trainworthy.lifecycle.engine.preflight.inputs.checks import CHECKS

PAGES = Path(__file__).parents[3] / "docs" / "preflight"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_inputs_page_has_the_words_of_its_check(check):
    text = " ".join((PAGES / f"{check.id}.md").read_text().split())
    for word, said in {
        "Asks": check.question,
        "Symptom": check.symptom,
        "Cause": check.cause,
        "Fix": check.fix,
    }.items():
        assert f"**{word}** {' '.join(said.split())}" in text
