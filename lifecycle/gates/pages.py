"""The index of the pages in docs/preflight.

`python -m trainworthy.lifecycle.gates.pages > docs/preflight/README.md` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.gates.catalogue import CATALOGUE

PAGES = Path(__file__).resolve().parents[2] / "docs" / "preflight"
_INTRODUCTION = """# The checks of preflight

Each has a standard id, which is what a terminal, an annotation, the JUnit file, the report and
`preflight.not_applicable` call it. They run in this order, cheap ones first; see
[how to read them](../how-to/preflight.md).
A use case adds its own as functions of `model.py` named `check_<something>`: their ids are `own.<something>`.
"""
_FORECASTS = """## forecasts

Memory, time and cost are forecast beside the checks: [memory_forecast](memory_forecast.md).
"""


def index_text() -> str:
    """The index of all pages, family by family."""
    return "\n".join([_INTRODUCTION, *_families(), _FORECASTS])


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
