"""step_checks.toml: every check that a step shows has a question, and every page is there."""

import re
from pathlib import Path

from trainworthy.assets.declare import CHECKS
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
from trainworthy.lifecycle.gates.step_checks import QUESTIONS, STEP_CHECKS
from trainworthy.lifecycle.protocol.operating_point import DECISIONS

ROOT = Path(__file__).parents[2]


def test_every_check_of_every_step_has_one_question():
    shown = {name for names in CHECKS.values() for name in names} | {DECISIONS}
    assert shown - set(QUESTIONS) == set()
    assert {check.family for check in CATALOGUE} - set(QUESTIONS) == set()
    names = [check.name for check in (*STAGE_CHECKS, *STEP_CHECKS)]
    assert len(names) == len(set(names))


def test_every_page_of_a_steps_check_is_there_with_its_section():
    for check in STEP_CHECKS:
        page, _, section = check.page.partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        sections = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not section or section in sections, check.page
