"""stages.toml: the checks of a stage, and those of leakage, with all that is said of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from trainworthy.lifecycle.protocol.checks import Severity


@dataclass(frozen=True)
class StageWords:
    """A stage's check as people are told of it: an entry of stages.toml. Its id is `stage.` and the check's name."""

    id: str
    question: str
    symptom: str
    cause: str
    fix: str
    page: str
    severity: Severity = "error"
    fixes: dict[str, str] = field(default_factory=dict)
    measured_by: dict[str, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.id.partition(".")[2]


STAGE_CHECKS: tuple[StageWords, ...] = tuple(
    StageWords(**entry)
    for entry in tomllib.loads(Path(__file__).with_name("stages.toml").read_text(encoding="utf-8"))["check"]
)
_BY_NAME = {check.name: check for check in STAGE_CHECKS}


def fix_of(name: str, case: str = "") -> str:
    """What to do about a stage's check of that name. Raises KeyError."""
    words = _BY_NAME[name]
    return words.fixes[case] if case else words.fix
