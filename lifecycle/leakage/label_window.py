"""L3.1: labels that become known only after the next split has begun.

Such a label carries what happened in the next split's time into training. The embargo between the splits has to be as
long as a label takes.
"""

from __future__ import annotations

from trainworthy.lifecycle.contract.availability import duration_seconds
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.protocol.leak import Leak
from trainworthy.lifecycle.spec.split import hours

FAMILY = "label_window"
DAY_SECONDS = 86_400


def label_window(contract: Contract, embargo: str | None) -> Leak:
    """Holds the label column's availableAt against the embargo (None: the splits do not follow each other in time).

    A name in the timeline has no length to compare.
    """
    column = contract.column(contract.label.column)
    known = column.available_at
    label_column = f"the label's column {column.name}"
    if embargo is None:
        return _unmeasured("the splits do not follow each other in time")
    if known is None:
        return _unmeasured(f"{label_column} declares no availableAt, so it can't be held against the embargo")
    if known in contract.timeline:
        return _unmeasured(
            f"{label_column} is known at {known!r}, a name in the timeline; write a duration (the longest that a label "
            "takes) to have it held against the embargo"
        )
    days, embargo_days = duration_seconds(known) / DAY_SECONDS, hours(embargo) / 24
    evidence = f"{label_column} is known {days:g} days after prediction; the splits lie {embargo} apart"
    fix = f"write an embargo of at least {-int(-days // 1)}d in use_case.yaml" if days > embargo_days else ""
    return Leak(
        taxon="L3.1", family=FAMILY, status="fail" if days > embargo_days else "pass", columns=(column.name,),
        observed=days, threshold=embargo_days, evidence=evidence, fix=fix,
    )  # fmt: skip


def _unmeasured(why: str) -> Leak:
    return Leak(taxon="L3.1", family=FAMILY, status="not_applicable", evidence=why)
