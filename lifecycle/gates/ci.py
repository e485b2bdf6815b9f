"""What a pull request is told: a table for a terminal, annotations for GitHub, JUnit XML for everything else.

Pure functions of checks. Their texts hold figures of a whole batch and names, never a value of a sensitive column.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal
from xml.etree import ElementTree

from trainworthy.lifecycle.gates.check import DECLARED, UNTRIED
from trainworthy.lifecycle.gates.preflight import trials_of
from trainworthy.lifecycle.protocol.checks import CheckResult, Severity, Status, stops_the_step

WIDTH, ID_WIDTH = 98, 36
_LINE = re.compile(r"\b([\w/]+\.(?:py|yaml)):(\d+)\b")
# Which file a step's or a family's answer is most likely to be in, where the evidence names none.
_FILES = {"configuration": "use_case.yaml", "cost_forecast": "use_case.yaml", "memory_forecast": "use_case.yaml"}
_STEP_FILES = {"dataset": "use_case.yaml", "snapshot": "contract.yaml"}
# What XML 1.0 may not hold, written out or as a reference. Compiled at first use: that takes 7 ms.
_NO_XML = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


@dataclass(frozen=True)
class Row:
    """A check as a reader is told of it: a trial of the battery, a check that has no trials, or a problem (refused.py).

    `file` and `line` are a problem's place; of a check the evidence names it. `follows`: another failure may be why.
    """

    step: str
    id: str
    status: Status
    severity: Severity
    required: bool
    evidence: str
    fix: str
    seconds: float = 0.0
    symptom: str = ""
    cause: str = ""
    file: str = ""
    line: int = 0
    code: str = ""
    follows: bool = False

    @property
    def stops(self) -> bool:
        return stops_the_step(self.status, self.severity, self.required)

    @property
    def quiet(self) -> bool:
        """True for what nobody has to look at: it passed, does not apply, or was accepted (baseline.py)."""
        return self.status in ("pass", "not_applicable") or self.accepted

    @property
    def accepted(self) -> bool:
        return self.severity == "info" and self.status in ("fail", "error")


def rows_of(step: str, checks: Iterable[CheckResult]) -> tuple[Row, ...]:
    """A row for each trial of a family, and one for each check without trials."""
    return tuple(chain.from_iterable(_rows(step, check) for check in checks))


def _rows(step: str, check: CheckResult) -> Iterator[Row]:
    trials = trials_of([check])
    for t in trials:
        yield Row(
            step, t.check, t.status, t.severity, t.required, t.evidence, t.fix, t.seconds, t.symptom, t.cause,
            code=t.code, follows=bool(t.follows),
        )  # fmt: skip
    if not trials:
        yield Row(
            step, check.name, check.status, check.severity, check.required, check.evidence, check.fix, code=check.code,
        )  # fmt: skip


def summary(rows: Sequence[Row]) -> str:
    """One line: how many checks of which steps ended how, and how long the trials took; then what is declared not to
    apply, and why."""
    names = {"pass": "passed", "fail": "failed", "error": "broke", "not_applicable": "not applicable"}
    counts = {status: sum(row.status == status for row in rows) for status in ("pass", "fail", "error", "insufficient",
                                                                              "not_applicable")}  # fmt: skip
    totals = ", ".join(f"{count} {names.get(status, status)}" for status, count in counts.items() if count)
    accepted = sum(row.accepted for row in rows)
    totals += f", of which {accepted} accepted by baseline.yaml" if accepted else ""
    left = [f"  not applicable: {row.id}, {printable(row.evidence)}" for row in rows if row.code == DECLARED]
    steps, seconds = ", ".join(dict.fromkeys(row.step for row in rows)), sum(row.seconds for row in rows)
    return "\n".join([f"{len(rows)} checks of {steps} in {seconds:.1f} s: {totals}", *left])


def table(rows: Sequence[Row]) -> str:
    """The checks that did not pass, worst first, at most 100 columns wide; untried ones in one line.

    What may follow from another failure stands after what does not.
    """
    loud = [row for row in rows if not row.quiet]
    decided = [row for row in loud if not _untried(row)]
    left = [row for row in loud if _untried(row)]
    if decided and left:
        last = f"{len(left)} more were {printable(left[0].evidence)}"
    else:
        decided, last = loud, ""
    width = min(ID_WIDTH, max((len(row.id) for row in decided), default=0))
    order = sorted(decided, key=lambda row: (not row.stops, row.status == "insufficient", row.follows))
    lines = [line for row in order for line in _lines(row, width)]
    return "\n".join([*lines, *textwrap.wrap(last, WIDTH, initial_indent="  ", subsequent_indent="  ")])


def _untried(row: Row) -> bool:
    return row.code == UNTRIED


def _lines(row: Row, width: int) -> Iterator[str]:
    """Id and status on the left; what was seen, the likely cause and the fix on the right."""
    status = row.status if row.stops or row.status == "insufficient" else "warning"
    left = [row.id] if len(row.id) <= width else [row.id, ""]
    room = WIDTH - width - 17
    parts = (("", row.evidence), ("cause: ", row.cause), ("fix: ", row.fix))
    right = [line for label, text in parts if text for line in textwrap.wrap(f"{label}{printable(text)}", room)]
    if len(left) > 1:
        yield f"  {status:<12}  {row.id}"
        left, status = [], ""
    for number, line in enumerate(right or [""]):
        first = (status if number == 0 else "", left[0] if left and number == 0 else "")
        yield f"  {first[0]:<12}  {first[1]:<{width}} {line}".rstrip()


def github_annotations(rows: Iterable[Row], folder: str, files: Collection[str]) -> tuple[str, ...]:
    """GitHub's workflow commands, one for each check that did not pass.

    `folder` is the use case's from the repository's root on, `files` are what it holds: a line of another file is no
    place in the pull request.
    """
    return tuple(_annotation(row, folder, files) for row in rows if not row.quiet and not _untried(row))


def _annotation(row: Row, folder: str, files: Collection[str]) -> str:
    name, line = _place(row, files)
    place = {"file": f"{folder}/{name}", "line": str(line), "title": row.id}
    properties = ",".join(f"{key}={_property(value)}" for key, value in place.items())
    words = (row.evidence, f"Cause: {row.cause}" if row.cause else "", f"Fix: {row.fix}" if row.fix else "")
    message = printable("\n".join(word for word in words if word), keep=True)
    return f"::{'error' if row.stops else 'warning'} {properties}::{_escaped(message)}"


def _place(row: Row, files: Collection[str]) -> tuple[str, int]:
    """File and line to look at: the last place that the evidence names, since a message before it may name others."""
    if row.file:
        return row.file, row.line
    named = [(name, int(line)) for name, line in _LINE.findall(row.evidence) if name in files]
    default = _STEP_FILES.get(row.step) or _FILES.get(row.id.partition(".")[0], "model.py")
    return named[-1] if named else (default, 1)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def printable(text: str, keep: bool = False) -> str:
    """The text without what would steer a terminal; with `keep` its line ends stay."""
    allowed = "\n\r\t" if keep else ""
    return "".join(c if c.isprintable() or c in allowed else " " for c in text)


def junit(name: str, rows: Sequence[Row], created_at: str, properties: Mapping[str, str]) -> bytes:
    """JUnit XML with a test case a check: failures, errors, and skipped for what was not measured.

    A warning passes with its words in system-out, since it stops nothing. If nothing but an unmeasured check stops the
    run, that one is an error: a reader of the XML must not see green where the command ended with 1.
    """
    alone = not any(_kind(row) in ("failure", "error") for row in rows)
    kinds = ["error" if alone and row.stops else _kind(row) for row in rows]
    total = f"{sum(row.seconds for row in rows):.3f}"
    counts = {
        f"{kind}s" if kind != "skipped" else kind: str(kinds.count(kind)) for kind in ("failure", "error", "skipped")
    }
    attributes = {"name": name, "tests": str(len(rows)), **counts, "time": total}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {**attributes, "timestamp": _xml(created_at)})
    block = ElementTree.SubElement(suite, "properties")
    for key, value in properties.items():
        ElementTree.SubElement(block, "property", {"name": key, "value": _xml(value)})
    for row, kind in zip(rows, kinds, strict=True):
        _case(suite, name, row, kind)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _kind(row: Row) -> Literal["failure", "error", "skipped", ""]:
    if row.status in ("insufficient", "not_applicable"):
        return "skipped"
    if not row.stops:
        return ""
    return "failure" if row.status == "fail" else "error"


def _case(suite: ElementTree.Element, name: str, row: Row, kind: str) -> None:
    family, _, check = row.id.partition(".") if "." in row.id and not row.file else (row.step, "", row.id)
    place = {"classname": _xml(f"{name}.{family}"), "name": _xml(check), "time": f"{row.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", place)
    words = (("seen", row.evidence), ("symptom", row.symptom), ("cause", row.cause), ("fix", row.fix))
    text = _xml("\n".join(f"{label}: {said}" for label, said in words if said))
    if kind:
        element = ElementTree.SubElement(case, kind, {"message": _xml(row.evidence)})
        if kind != "skipped":
            element.set("type", row.status)
        element.text = text
    else:
        ElementTree.SubElement(case, "system-out").text = text if row.quiet else f"warning\n{text}"


def _xml(text: str) -> str:
    return re.sub(_NO_XML, "\N{REPLACEMENT CHARACTER}", text)
