"""Writes into contract.yaml what a person said of its columns: only the values change, comments and form stay.

`reviewed` of a column becomes true, or the reason for which it was accepted unasked. A column that is known by the
prediction time is a feature, with availableAt; one that is known later is none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import yaml

from trainworthy.lifecycle.contract.availability import duration_seconds, known_by_prediction
from trainworthy.lifecycle.contract.draft import inline
from trainworthy.lifecycle.contract.model import Column
from trainworthy.lifecycle.errors import Problem, did_you_mean

LATER, TARGET = "later", "target"
# Roles that a review may change; what a row is named by is another question.
REVIEWABLE = ("feature", "other", "entity")
_FIX = "edit that column of contract.yaml by hand: role, availableAt, reviewed"


class Edit(NamedTuple):
    """Text that takes the place of a stretch of the file."""

    start: int
    end: int
    text: str


def answer_values(known: str, timeline: Iterable[str]) -> dict[str, Any]:
    """The customProperties that an answer gives, None for one that goes. Raises ValueError if it is no answer.

    `known` is an ISO 8601 duration or a name of the timeline, or one of LATER and TARGET.
    """
    if known in (LATER, TARGET):
        return {"role": "other", "availableAt": None, "reviewed": True}
    timeline = tuple(timeline)
    if known not in timeline:
        duration_seconds(known)
    role = "feature" if known_by_prediction(known, timeline) else "other"
    return {"role": role, "availableAt": known, "reviewed": True}


def fix_of_role(name: str, column: Column) -> str:
    """How a column of another role than feature becomes an input of the use case `name`; or that it can be none."""
    if column.role in ("target", "target_source"):
        return "leave it out of model.py: the label is no input"
    if column.role in REVIEWABLE:
        known = f"trainworthy contract review {name} --column {shlex.quote(column.name)} --known PT0S"
        return f"leave it out of model.py; or, if it is known when the model is asked: {known}"
    if column.role == "key":
        return (
            "write role: feature with availableAt: PT0S for it in contract.yaml, if its value itself tells something; "
            "primaryKey: true may stay beside that"
        )
    return (
        f"leave it out of model.py; what a model needs of it gets a column of its own in dataset.py and contract.yaml, "
        f"since the role {column.role} is needed"
    )


def with_answers(text: str, answers: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Problem]]:
    """The file with the columns' customProperties changed; or as it was, and why not."""
    columns = {item["name"].value: item for item in _columns(text)}
    problems, edits = [], []
    for name, values in answers.items():
        if name not in columns:
            problems.append(Problem("--column", "is no column of contract.yaml", did_you_mean(name, columns), name))
            continue
        column_edits = _edits(text, columns[name].get("customProperties"), values)
        edits += column_edits or []
        if column_edits is None:
            problems.append(Problem(f"contract.yaml: {name}", "can't be changed as it is written", _FIX))
    if problems:
        return text, problems
    changed = text
    for edit in sorted(edits, reverse=True):
        changed = changed[: edit.start] + edit.text + changed[edit.end :]
    if not _reads_as(changed, _expected(text, answers)):
        return text, [Problem("contract.yaml", "can't be changed as it is written", _FIX)]
    return changed, []


def _columns(text: str) -> list[dict[str, yaml.Node]]:
    """The nodes of each column by key."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    tables = _values(root).get("schema") if root else None
    table = tables.value[0] if isinstance(tables, yaml.SequenceNode) and tables.value else None
    items = _values(table).get("properties")
    return [values for item in (items.value if items else []) if "name" in (values := _values(item))]


def _values(node: yaml.Node | None) -> dict[str, Any]:
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _edits(text: str, node: yaml.Node | None, values: Mapping[str, Any]) -> list[Edit] | None:
    """The changes of one column; None if its customProperties are not written as a list of property and value."""
    if not isinstance(node, yaml.SequenceNode):
        return None
    written = ((item, _values(item)) for item in node.value)
    items = {keys["property"].value: (item, keys) for item, keys in written if "property" in keys}
    if "role" not in items:
        return None
    edits, added = [], []
    for name, value in values.items():
        if name not in items:
            # Silence means reviewed.
            added += [(name, value)] if value not in (None, True) else []
        elif value is None:
            edits.append(_removed(text, items[name][0], bool(node.flow_style)))
        else:
            old = items[name][1]["value"]
            # As an item of a list: alone, a text with a comma needs no quotes.
            edits.append(Edit(old.start_mark.index, old.end_mark.index, inline([value])[1:-1]))
    if added:
        edits.append(_added(items["role"][0], added, bool(node.flow_style)))
    return edits


def _added(role: yaml.Node, added: list[tuple[str, Any]], flow: bool) -> Edit:
    """Items behind the one of the role."""
    items = [inline({"property": name, "value": value}) for name, value in added]
    if flow:
        end = role.end_mark.index
        return Edit(end, end, "".join(f", {item}" for item in items))
    # Before it, where its line begins: a block's end is not marked exactly.
    start = role.start_mark.index - role.start_mark.column
    indent = " " * (role.start_mark.column - 2)
    return Edit(start, start, "".join(f"{indent}- {item}\n" for item in items))


def _removed(text: str, item: yaml.Node, flow: bool) -> Edit:
    """Without the item, and its comma or its lines."""
    start, end = item.start_mark.index, item.end_mark.index
    if not flow:
        last = item.value[-1][1].end_mark.index
        return Edit(start - item.start_mark.column, (text.find("\n", last) + 1) or len(text), "")
    behind = re.match(r"\s*,\s*", text[end:])
    if behind:
        return Edit(start, end + behind.end(), "")
    before = re.search(r"\s*,\s*$", text[:start])
    return Edit(before.start() if before else start, end, "")


def _expected(text: str, answers: Mapping[str, Mapping[str, Any]]) -> Any:
    """What the changed file has to say."""
    document = yaml.safe_load(text)
    for column in document["schema"][0]["properties"]:
        changes = answers.get(column["name"], {})
        properties = {item["property"]: item for item in column.get("customProperties", [])}
        for name, value in changes.items():
            if value is None:
                properties.pop(name, None)
            elif name in properties or value is not True:
                properties[name] = {**properties.get(name, {"property": name}), "value": value}
        if changes:
            column["customProperties"] = sorted(properties.values(), key=lambda item: item["property"])
    return document


def _reads_as(text: str, expected: Any) -> bool:
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    for document in (parsed, expected):
        for column in document["schema"][0]["properties"]:
            if isinstance(column.get("customProperties"), list):
                column["customProperties"] = sorted(column["customProperties"], key=lambda item: item["property"])
    return parsed == expected
