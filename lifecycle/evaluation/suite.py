"""The suite that models are measured by, and how often its rows were looked at.

Each model that is measured on the same rows is a look at them: whoever tries fifty and takes the best is told by its
benchmark more than it can know. So looks are counted, by the rows and the label alone, since another limit on the same
rows makes them no fresher.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import canonical_json, sha256_json
from trainworthy.lifecycle.protocol.checks import CheckResult, holds
from trainworthy.lifecycle.protocol.suite import Looks, Suite
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec

NAME = "looks"


def suite_of(
    name: str, benchmark: BenchmarkSpec, *, rows: str, label: str, code: str, files: Mapping[str, str]
) -> Suite:
    """The suite; hashes are those of its fields."""
    declared = benchmark.model_dump(mode="json", exclude={"suite", "version"})
    measured = {"rows": rows, "label": label, "code": code, "files": dict(files)}
    # How often one may look says nothing of what is measured.
    of_all = {**measured, "declared": {key: value for key, value in declared.items() if key != "looks"}}
    return Suite(
        name=benchmark.suite or name,
        version=benchmark.version,
        sha256=sha256_json(of_all),
        declared=declared,
        **measured,
    )


def same_rows(suite: Suite, other: Suite) -> bool:
    """Whether models that were measured on the one and the other answered the same rows, about the same label."""
    return (suite.rows, suite.label) == (other.rows, other.label)


def look(path: Path, suite: Suite, artifact_sha256: str, *, use_case: str, run_id: str, at: str) -> Looks:
    """Write down that a model is measured on the suite, and count; each model once, however often it is measured.

    A line that a crash cut short is no look. Raises RecordError for a file that cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"rows": suite.rows, "label": suite.label, "artifact": artifact_sha256, "use_case": use_case,
             "run_id": run_id, "at": at}  # fmt: skip
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        entries = [record for record in _read(whole, path) if _same(record, entry)]
        if artifact_sha256 not in {record["artifact"] for record in entries}:
            file.truncate(len(whole))
            file.write(canonical_json(entry) + b"\n")
            entries.append(entry)
    return Looks(models=len({record["artifact"] for record in entries}), since=min(record["at"] for record in entries))


def looks_check(looks: Looks, suite: Suite, most: int | None) -> CheckResult:
    """Warns from the declared number of models on; without one it only tells."""
    count = f"{looks.models} model{'s' if looks.models != 1 else ''} measured on these rows since {looks.since[:10]}"
    return holds(
        NAME,
        most is None or looks.models < most,
        severity="warning",
        observed=looks.models,
        threshold=most,
        evidence=f"{count}, suite {suite.name} version {suite.version}",
        fix="measure on rows that no model was chosen by: a newer dataset version, or another benchmark split",
    )


def changed_limits(before: Suite, now: Suite) -> Iterable[tuple[str, Any, Any]]:
    """What is declared otherwise than in an earlier suite, and files that differ: key, then and now, None for nothing.

    What is new or gone is told whole; of what is there before and now, value by value.
    """
    then, here = ({**_items(suite.declared), **_items({"files": suite.files})} for suite in (before, now))
    for key in sorted(then.keys() | here.keys()):
        yield from _differences(key, then.get(key), here.get(key))


def _items(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Each key's value, and each item of a list by what it is about, by number where two are alike."""
    items: dict[str, Any] = {}
    for name, value in declared.items():
        if not isinstance(value, list | tuple):
            items[name] = value
            continue
        for item in value:
            key, again = f"{name}[{_title(item)}]", 2
            while key in items:
                key, again = f"{name}[{_title(item)} {again}]", again + 1
            items[key] = item
    return items


def _differences(key: str, then: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in sorted({*then, *now}):
            yield from _differences(f"{key}.{name}", then.get(name), now.get(name))
    elif then != now:
        yield key, _said(then), _said(now)


def _said(value: Any) -> Any:
    """A value without what nobody said."""
    return (
        {name: member for name, member in value.items() if member is not None} if isinstance(value, Mapping) else value
    )


def _title(item: Any) -> str:
    """What an item of a list is about: a slice's name or rule, a guardrail's metric with the side of its bound."""
    if not isinstance(item, Mapping):
        return str(item)
    named = next((item[key] for key in ("name", "where", "rows", "column") if item.get(key)), None)
    side = next((key for key in ("at_most", "at_least") if item.get(key) is not None), "")
    return str(named) if named is not None else f"{item.get('metric', '')} {side}".strip()


def _same(record: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return record["rows"] == entry["rows"] and record["label"] == entry["label"]


def _read(content: bytes, path: Path) -> list[dict[str, Any]]:
    try:
        records = [json.loads(line) for line in content.splitlines() if line.strip()]
        return [{name: record[name] for name in ("rows", "label", "artifact", "at")} | record for record in records]
    except (ValueError, TypeError, KeyError) as error:
        fix = "restore the file from a backup; without it nobody knows how often the rows were looked at"
        raise RecordError(f"the list of looks at a suite cannot be read: {error}", value=str(path), fix=fix) from None
