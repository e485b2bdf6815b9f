"""The suite that models are measured by, and how often its rows were looked at.

Each model that is measured on the same rows is a look at them: whoever tries fifty and takes the best is told by its
benchmark more than it can know. So looks are counted, by the rows and the label alone, since another limit on the same
rows makes them no fresher.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json, sha256_json
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.protocol.records import Looks, Suite
from trainworthy.lifecycle.spec.use_case import BenchmarkSpec

NAME = "looks"


def suite_of(
    name: str, benchmark: BenchmarkSpec, *, rows: str, label: str, code: str, files: Mapping[str, str]
) -> Suite:
    """The suite; hashes are those of its fields."""
    declared = benchmark.model_dump(mode="json", exclude={"suite", "version", "looks"})
    measured = {"rows": rows, "label": label, "code": code, "files": dict(files), "declared": declared}
    return Suite(name=benchmark.suite or name, version=benchmark.version, sha256=sha256_json(measured), **measured)


def answers_key(suite: Suite, artifact_sha256: str) -> str:
    """Names the answers of a model to the suite's rows, whatever limits they are held against."""
    declared = {name: suite.declared.get(name) for name in ("weight", "metrics", "decision")}
    of_rows = {"rows": suite.rows, "label": suite.label, "code": suite.code, "files": suite.files}
    return sha256_json({"artifact": artifact_sha256, **of_rows, **declared})[:32]


def look(path: Path, suite: Suite, artifact_sha256: str, *, use_case: str, run_id: str, at: str) -> Looks:
    """Write down that a model is measured on the suite, and count; each model once, however often it is measured.

    Raises RecordError for a file that cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"rows": suite.rows, "label": suite.label, "artifact": artifact_sha256, "use_case": use_case,
             "run_id": run_id, "at": at}  # fmt: skip
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        entries = [one for one in _read(file.read(), path) if _same(one, entry)]
        if artifact_sha256 not in {one["artifact"] for one in entries}:
            file.write(canonical_json(entry) + b"\n")
            entries.append(entry)
    return Looks(models=len({one["artifact"] for one in entries}), since=min(one["at"] for one in entries))


def looks_check(looks: Looks, suite: Suite, most: int | None) -> CheckResult:
    """Warns from the declared number of models on; without one it only tells."""
    told = f"{looks.models} model{'s' if looks.models != 1 else ''} measured on these rows since {looks.since[:10]}"
    return holds(
        NAME,
        most is None or looks.models < most,
        severity="warning",
        observed=looks.models,
        threshold=most,
        evidence=f"{told}, suite {suite.name} version {suite.version}",
        fix="measure on rows that no model was chosen by: a newer dataset version, or another benchmark split",
    )


def changed_limits(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    """What is declared otherwise than in an earlier suite: key, then and now; None for what is not there."""
    then, here = dict(_flat(before)), dict(_flat(now))
    for key in sorted(then.keys() | here.keys()):
        if then.get(key) != here.get(key):
            yield key, then.get(key), here.get(key)


def _flat(value: Any, at: str = "") -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _flat(one, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list | tuple):
        for place, one in enumerate(value):
            title = one.get("name") or one.get("metric") if isinstance(one, Mapping) else None
            yield from _flat(one, f"{at}[{title or place}]")
    else:
        yield at, value


def _same(one: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return one["rows"] == entry["rows"] and one["label"] == entry["label"]


def _read(content: bytes, path: Path) -> list[dict[str, Any]]:
    try:
        found = [json.loads(line) for line in content.splitlines() if line.strip()]
        return [{name: one[name] for name in ("rows", "label", "artifact", "at")} | one for one in found]
    except (ValueError, TypeError, KeyError) as error:
        fix = "restore the file from a backup; without it nobody knows how often the rows were looked at"
        raise RecordError(f"the list of looks at a suite cannot be read: {error}", value=str(path), fix=fix) from None
