"""One self-contained HTML report of a run: render(records, links), a pure function.

No scripts, no external resources: a policy in the page itself forbids both. Everything that comes
from records is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainworthy.lifecycle import wording
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.leak import suspicions
from trainworthy.lifecycle.protocol.records import DatasetVersion, EvaluationReport, Snapshot, Step, Verdict
from trainworthy.lifecycle.report import (
    alarms,
    changed_inputs,
    decision_costs,
    figures,
    first_page,
    formatting,
    model_tables,
    origins,
    outcome,
    sections,
)
from trainworthy.lifecycle.report.outcome import Records

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_BACKTICKS = re.compile("`([^`\n]+)`")
_SCHEME = re.compile(r"^\s*([^/?#]*):")


def render(
    records: Records,
    links: Mapping[str, str],
    stopped_at: Step | None = None,
    run_id: str | None = None,
    question: str = "",
    notes: Sequence[str] = (),
) -> str:
    """The report as one HTML page.

    records: any prefix of the steps; none at all gives a page that says so. links: label to URL or
    path; anything but http, https, file and plain paths is shown as text. stopped_at: the step whose
    gate closed, also where it left no record. run_id: the run that the report is about; what another
    run made cost it nothing. question: what the model is to answer, in a sentence. notes: what
    has to be known first, such as that the verdict is an older run's.
    """
    records = sections.ordered(records)
    stopped = outcome.stopped_step(records, stopped_at)
    return (
        environment()
        .get_template("template.html.j2")
        .render(
            records=records,
            notes=notes,
            dataset=outcome.record_of(records, "dataset", DatasetVersion),
            snapshot=outcome.record_of(records, "snapshot", Snapshot),
            report=outcome.record_of(records, "evaluation", EvaluationReport),
            verdict=outcome.record_of(records, "promotion", Verdict),
            champion=outcome.of_champion(records),
            newest=list(records.values())[-1] if records else None,
            links=[(label, target, is_safe(target)) for label, target in links.items()],
            outcome=outcome.outcome(records, stopped),
            bought=outcome.bought(records, stopped),
            costs=outcome.costs_of_run(records, run_id),
            total_cost=outcome.total_cost(records),
            five=outcome.CONTROLS,
            controls={row.name: row for row in sections.control_rows(records)},
            comparisons=outcome.all_comparisons(records),
            figures=figures.figures(records),
            question=question,
            first_page=first_page,
            origins=origins,
            changed_inputs=changed_inputs,
            decision_costs=decision_costs,
            alarm_rows=alarms.alarm_rows(outcome.stages_of(records)),
            sections=sections,
            model_tables=model_tables,
            format=formatting,
            reading=outcome.reading,
            said=outcome.said(records),
            suspicions=suspicions,
        )
    )


def is_safe(target: str) -> bool:
    """True for http, https and file addresses and for paths; javascript: and the like are not links."""
    scheme = _SCHEME.match(target)
    return scheme is None or scheme[1].lower() in ("http", "https", "file")


@cache
def environment() -> Environment:
    """Jinja's; it keeps the compiled template, so a process compiles it once (0.1 s)."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("usd", "seconds", "share", "number", "plain", "interval", "moment", "day")
    environment.filters |= {name: getattr(formatting, name) for name in names}
    environment.filters |= {name: getattr(wording, name) for name in ("count", "words", "metric_name")}
    environment.filters["code"] = _code
    environment.filters["with_method"] = _with_method
    environment.filters["status"] = sections.status_words
    return environment


def _with_method(value: Estimate, sign: bool = False) -> Markup:
    """The value with its interval, and below it the method where it is not the usual one."""
    from markupsafe import Markup

    shown = formatting.estimate(value, sign)
    if not value.method_told:
        return Markup("{}").format(shown)
    return Markup('{}<br><span class="soft small wraps">{}</span>').format(shown, value.made)


def _code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is set as code."""
    from markupsafe import Markup, escape

    return Markup(_BACKTICKS.sub(r'<code class="wraps">\1</code>', str(escape(text))))
