"""How `trainworthy explain` writes what it tells: paragraphs, causes with their fixes, what benchmarks have found."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # At run time it would cost every command a quarter of its start.
    from trainworthy.lifecycle.gates.check_record import Of
    from trainworthy.lifecycle.gates.monitor_words import CauseWords

WIDTH = 100
# Causes of a monitor that are told with their fixes: an alarm names the one that its figures show.
IN_FULL = 3


def causes(of: Sequence[CauseWords]) -> Iterator[str]:
    """The first causes with their fixes, the others below in a line each; of a cause with several cases one entry."""
    by_id: dict[str, list[CauseWords]] = {}
    for cause in of:
        by_id.setdefault(cause.id, []).append(cause)
    for name, cases in [*by_id.items()][:IN_FULL]:
        fixes = dict.fromkeys(case.fix for case in cases)
        yield from words(cause=f"{_numbered(case.cause for case in cases)} ({name})", fix=_numbered(fixes))
    if rest := [*by_id.items()][IN_FULL:]:
        yield "  other causes, in the order in which they are tried; trainworthy explain CAUSE has the fix of each:"
        yield from (line for name, cases in rest for line in words(**{name: _numbered(case.cause for case in cases)}))


def _numbered(texts: Iterable[str]) -> str:
    """One text as it is, several with a number each."""
    several = [*dict.fromkeys(texts)]
    return several[0] if len(several) == 1 else "; ".join(f"({place}) {text}" for place, text in enumerate(several, 1))


def words(**paragraphs: str) -> Iterator[str]:
    """A paragraph of each, behind its name."""
    for name, text in paragraphs.items():
        yield textwrap.fill(f"{name}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def record(name: str, of: Of) -> Iterator[str]:
    """What benchmarks have found of it, and where that is from."""
    from trainworthy.lifecycle.gates.check_record import parts, record_of

    found = record_of(name, of, parts())
    if found is None:
        yield "  record: no record"
        return
    for line in found.in_words():
        yield from words(record=line)
    for source in found.sources():
        yield from words(**{"from": source})
