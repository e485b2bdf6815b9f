"""step_checks.toml: what Dagster shows of a step as a check, but for the checks of a stage."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS


@dataclass(frozen=True)
class StepCheck:
    """A check of a step by its name there, what it asks, and the page about it, which may name a section."""

    name: str
    question: str
    page: str


STEP_CHECKS: tuple[StepCheck, ...] = tuple(
    StepCheck(**entry)
    for entry in tomllib.loads(Path(__file__).with_name("step_checks.toml").read_text(encoding="utf-8"))["check"]
)
# What each check of any step asks, by its name.
QUESTIONS: dict[str, str] = {check.name: check.question for check in (*STAGE_CHECKS, *STEP_CHECKS)}
