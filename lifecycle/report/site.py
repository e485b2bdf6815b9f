"""One page of all use cases: champion, newest verdict, what they cost. render_site(rows), a pure function.

As a report it loads nothing from elsewhere and runs no script, so that it opens offline and from any file server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainworthy.lifecycle.report.first_page import Fact
from trainworthy.lifecycle.report.outcome import RunOutcome
from trainworthy.lifecycle.report.render import environment


@dataclass(frozen=True)
class Champion:
    """The version that is live; `since` is ISO 8601, `figures` its quality on the benchmark."""

    version: str
    since: str
    dataset: str
    figures: tuple[Fact, ...]
    report: str | None


@dataclass(frozen=True)
class LatestRun:
    """How the newest run ended; `at` is ISO 8601."""

    outcome: RunOutcome
    at: str
    report: str | None


@dataclass(frozen=True)
class UseCaseRow:
    """A use case; `runs` are those that left a record, the costs in USD of all its records and of the newest ones.

    `report` of both is a path relative to the page. `problem` says why champion, run or cost could not be read:
    what stands beside it is then not all there is.
    """

    name: str
    question: str
    champion: Champion | None = None
    latest: LatestRun | None = None
    runs: int = 0
    usd: float = 0.0
    usd_recent: float = 0.0
    problem: str = ""


def render_site(rows: Sequence[UseCaseRow], made_at: str, recent_days: int) -> str:
    """The page. made_at: ISO 8601; recent_days: how long back `usd_recent` counts."""
    template = environment().get_template("site.html.j2")
    return template.render(rows=sorted(rows, key=lambda row: row.name), made_at=made_at, recent_days=recent_days)
