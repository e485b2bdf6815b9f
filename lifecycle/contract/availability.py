"""When a column's value is known, relative to the prediction time: a feature known only later is no feature.

`available_at` is an ISO 8601 duration of weeks, days, hours, minutes and seconds (PT0S: at prediction time, -PT1H: an
hour before, PT2H: two hours after), or a name in the contract's timeline, an ordered list that holds `prediction`.
Years and months are refused: their length depends on the date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.protocol.checks import CheckResult

if TYPE_CHECKING:
    from trainworthy.lifecycle.contract.model import Contract

PREDICTION = "prediction"
_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def availability_check(contract: Contract, feature_columns: Sequence[str]) -> CheckResult:
    """Passes if each of the columns that a model reads is known by the prediction time.

    A column that is not declared, not of the role feature, or declares no available_at fails: unknown is not known.
    """
    details = tuple(_judged(contract, name) for name in feature_columns)
    late = [item for item in details if item["status"] != "pass"]
    if not details:
        evidence, fix = "no feature column is named", "name the columns that the model reads"
        return CheckResult(name="availability", status="error", evidence=evidence, fix=fix)
    if not late:
        evidence = f"all {len(details)} feature columns are known by the prediction time"
        guessed = sum(name in contract.unreviewed_features for name in feature_columns)
        if guessed:
            evidence += f"; of {guessed} of them that is the guess of a draft, which nobody has reviewed"
        return CheckResult(
            name="availability", status="pass", observed=0, threshold=0, evidence=evidence, details=details
        )
    return CheckResult(
        name="availability",
        status="fail",
        observed=len(late),
        threshold=0,
        evidence="; ".join(f"{item['column']}: {item['reason']}" for item in late),
        fix="remove these columns from the features, or declare in contract.yaml (availableAt) when they are known",
        details=details,
    )


def _judged(contract: Contract, name: str) -> dict[str, Any]:
    column = next((column for column in contract.columns if column.name == name), None)
    available_at = column.available_at if column else None
    if column is None:
        reason = "not declared in the contract"
    elif column.role != "feature":
        reason = f"its role is {column.role}, not feature"
    elif available_at is None:
        reason = "declares no availableAt"
    elif not known_by_prediction(available_at, contract.timeline):
        reason = f"known only at {available_at}, after the prediction time"
    else:
        reason = ""
    return {"column": name, "available_at": available_at, "status": "fail" if reason else "pass", "reason": reason}


def known_by_prediction(available_at: str, timeline: Sequence[str]) -> bool:
    """True if that instant is not after the prediction time. Raises ValueError if it names no instant."""
    if available_at in timeline:
        return timeline.index(available_at) <= timeline.index(PREDICTION)
    return duration_seconds(available_at) <= 0


def is_known_instant(available_at: Any, timeline: Sequence[str]) -> bool:
    """True for a duration or a name in the timeline."""
    return isinstance(available_at, str) and (available_at in timeline or bool(_DURATION.fullmatch(available_at)))


def duration_seconds(duration: str) -> float:
    """Seconds of an ISO 8601 duration; negative before the prediction time. Raises ValueError."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"not an ISO 8601 duration of weeks, days, hours, minutes and seconds: {duration!r}")
    seconds = sum(float(match[unit] or 0) * length for unit, length in _SECONDS.items())
    return -seconds if match["sign"] == "-" else seconds
