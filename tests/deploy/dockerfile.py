"""A Dockerfile as a list of instructions: comments gone, lines that go on joined."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """`name` as FROM or RUN, `value` what stands behind it, `stage` the number of its FROM; -1 before the first."""

    name: str
    value: str
    stage: int

    @property
    def words(self) -> list[str]:
        return shlex.split(self.value)


def instructions(path: Path) -> list[Instruction]:
    """Those of a file, in its order."""
    found, stage, waiting = [], -1, ""
    for line in path.read_text().splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            continue
        waiting += line.strip().removesuffix("\\") + " "
        if line.rstrip().endswith("\\"):
            continue
        name, _, value = waiting.strip().partition(" ")
        stage += name == "FROM"
        found.append(Instruction(name, value.strip(), stage))
        waiting = ""
    assert waiting == "", "the last line goes on"
    return found
