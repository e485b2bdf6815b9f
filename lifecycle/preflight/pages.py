"""The pages of docs/preflight: how each begins, and their index.

`python -m lifecycle.preflight.pages > docs/preflight/README.md` writes the index anew.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lifecycle.preflight.catalogue import CATALOGUE
from lifecycle.preflight.check import Check

PAGES = Path(__file__).parents[2] / "docs" / "preflight"
_INTRODUCTION = """# The checks of preflight

Each has a standard id, which is what a terminal, an annotation, the JUnit file, the report and
`preflight.not_applicable` call it. They run in this order, cheap ones first; [how to read them](../how-to/preflight.md).
A use case adds its own as functions of `model.py` named `check_<something>`: their ids are `own.<something>`.
"""


def heading(check: Check[Any]) -> str:
    """What a check's page begins with: its id and its four texts, in lines of at most 120 characters."""
    parts = {"Asks": check.question, "Symptom": check.symptom, "Cause": check.cause, "Fix": check.fix}
    said = (textwrap.fill(f"**{name}** {text}", 120, break_long_words=False) for name, text in parts.items())
    return "\n\n".join([f"# {check.id}", *said]) + "\n"


def index_text() -> str:
    """The index of all pages, family by family."""
    return "\n".join([_INTRODUCTION, *_families()])


def _families() -> Iterator[str]:
    for family in dict.fromkeys(check.family for check in CATALOGUE):
        yield f"## {family}\n\n| id | asks |\n|---|---|"
        for check in CATALOGUE:
            if check.family == family:
                kind = " *(a warning)*" if check.severity == "warning" else ""
                yield f"| [{check.id}]({check.id}.md) | {check.question}{kind} |"
        yield ""


if __name__ == "__main__":
    sys.stdout.write(index_text())
