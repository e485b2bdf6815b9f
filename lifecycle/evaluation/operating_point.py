"""What is frozen in a registered model, so that it decides as it was evaluated: the operating point as a file.

It lies beside the artifact, whose bytes know of no decision: one artifact under two decisions is two models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.decision import decided
from trainworthy.lifecycle.identity import canonical_json, sha256_json
from trainworthy.lifecycle.protocol.figures import CANDIDATE
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, DecisionSpec

if TYPE_CHECKING:
    import numpy as np

    from trainworthy.lifecycle.tasks.kind import Kind

FILE = "decision.json"
# Columns of a served answer; the first where a probability of 1 is all that a model gives.
PROBABILITY, DECISION = "probability", "decision"
# Characters of a tag that every registry takes; a table of costs may have more.
MOST_TAG = 5000


def operating_point(benchmark: BenchmarkSpec, thresholds: Mapping[str, float]) -> OperatingPoint | None:
    """The candidate's, by the thresholds that its evaluation found; None where no decision is declared."""
    if benchmark.decision is None:
        return None
    threshold = thresholds[CANDIDATE] if benchmark.decision.by_threshold else None
    return OperatingPoint(decision=benchmark.decision, threshold=threshold)


def content_of(point: OperatingPoint) -> bytes:
    """The file's bytes: one way to write each operating point."""
    return canonical_json(_values(point))


def sha256_of(point: OperatingPoint) -> str:
    """Hash of the file."""
    return sha256_json(_values(point))


def read_point(path: Path) -> OperatingPoint | None:
    """The operating point in a file; None without one. Raises ChampionError for a file that holds none."""
    if not path.is_file():
        return None
    try:
        return OperatingPoint.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fix = "restore this file as it was registered"
        raise ChampionError("the registered decision cannot be read", value=str(path), fix=fix) from error


def point_tags(point: OperatingPoint | None) -> dict[str, str]:
    """What the registry says of it; empty without one. `decision` is left out where it is too long for a tag."""
    if point is None:
        return {}
    declared = canonical_json(point.decision.model_dump(mode="json", exclude_none=True)).decode()
    return {
        "decision_sha256": sha256_of(point),
        **({"decision": declared} if len(declared) <= MOST_TAG else {}),
        **({} if point.threshold is None else {"threshold": repr(point.threshold)}),
    }


def registered_with(tags: Mapping[str, str], point: OperatingPoint | None) -> bool:
    """Whether a version with these tags was registered with this operating point.

    Versions from before it was a file have the tags `decision` and `threshold` alone.
    """
    if "decision_sha256" in tags:
        return point is not None and tags["decision_sha256"] == sha256_of(point)
    return "decision" not in tags if point is None else _tagged(tags) == point


def same_point(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether two versions with these tags decide alike."""
    hashes = [_hash_of(tags) for tags in (first, second)]
    return hashes[0] == hashes[1]


def frozen_threshold(benchmark: BenchmarkSpec, tags: Mapping[str, str]) -> float | None:
    """The threshold that a registered model was judged with; None without one, or if it was by another decision."""
    point = _tagged(tags)
    return point.threshold if point is not None and point.decision == benchmark.decision else None


def served(kind: Kind, answers: np.ndarray, point: OperatingPoint | None) -> dict[str, Any]:
    """What a service answers, by column, a value for each of `(N, ...)` whole answers.

    With an operating point `decision` is the last column: 1 or 0 beside `probability`, or a class by its name.
    """
    if point is None:
        return kind.served(answers)
    decisions = decided(point.decision, kind, answers, point.threshold)
    if point.threshold is not None:
        return {PROBABILITY: answers, DECISION: decisions.astype("int64")}
    return {**kind.served(answers), DECISION: [kind.answer_names[place] for place in decisions]}


def _hash_of(tags: Mapping[str, str]) -> str | None:
    """Hash of the decision that these tags name, by its text for a version from before it was a file; None for none."""
    point = _tagged(tags)
    return tags.get("decision_sha256") or (None if point is None else sha256_of(point))


def _tagged(tags: Mapping[str, str]) -> OperatingPoint | None:
    """What the tags `decision` and `threshold` say; None where they say nothing that is read today."""
    try:
        decision = DecisionSpec.model_validate_json(tags["decision"])
        return OperatingPoint(decision=decision, threshold=float(tags["threshold"]) if decision.by_threshold else None)
    except (KeyError, ValueError):
        return None


def _values(point: OperatingPoint) -> dict[str, Any]:
    # What is left out is no part of it: a key of decisions that comes later changes no hash.
    return point.model_dump(mode="json", exclude_none=True)
