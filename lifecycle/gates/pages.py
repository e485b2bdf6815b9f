"""Pages that are made of the catalogues: the index of docs/preflight, and docs/how-to/alarms.md.

`python -m trainworthy.lifecycle.gates.pages > docs/preflight/README.md` writes the first anew, and
`python -m trainworthy.lifecycle.gates.pages alarms > docs/how-to/alarms.md` the second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS

PAGES = Path(__file__).resolve().parents[2] / "docs" / "preflight"
_INTRODUCTION = """# The checks of preflight

Each has a standard id, which is what a terminal, an annotation, the JUnit file, the report and
`preflight.not_applicable` call it. They run in this order, cheap ones first; see
[how to read them](../how-to/preflight.md).
Where another check measured one of a check's causes, that cause and its fix come first, with the id of that check.
A use case adds its own as functions of `model.py` named `check_<something>`: their ids are `own.<something>`.
"""
_FORECASTS = """## forecasts

Memory, time and cost are forecast beside the checks: [memory_forecast](memory_forecast.md).
"""
_ALARMS = """# The alarms of a training, and their causes

`trainworthy explain loss_spike` says the same of one, with what benchmarks found of it. [What watches a
training](monitors.md) says how they are judged and what can be done about them.

| alarm | at most | asks | says was seen |
|---|---|---|---|"""
_CAUSES = """
An alarm names its likeliest cause. Causes are tried in this order, in which what explains another comes
first.

| cause | what is the matter | fix | explains |
|---|---|---|---|"""


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


def alarms_text() -> str:
    """The page of all monitors and of all causes that alarms name."""
    return "\n".join([_ALARMS, *_monitors(), _CAUSES, *_causes()]) + "\n"


def _monitors() -> Iterator[str]:
    for monitor in MONITORS:
        symptoms = "; ".join(dict.fromkeys((monitor.symptom, *monitor.also.values())))
        yield f"| `{monitor.id}` | {monitor.severity} | {monitor.question} | {symptoms} |"


def _causes() -> Iterator[str]:
    for cause in CAUSES:
        case = f" ({cause.case})" if cause.case else ""
        yield f"| `{cause.id}`{case} | {cause.cause} | {cause.fix} | {', '.join(cause.explains)} |"


if __name__ == "__main__":
    sys.stdout.write(alarms_text() if sys.argv[1:] == ["alarms"] else index_text())
