"""Drafts a contract from rows: what these rows hold, loosely enough for the next version, for a person to review.

A draft knows values and no meaning. So that a review has something to hold on to:

- a number's range is as wide again on both sides as what was seen: a change of unit breaks it, a warm year does not;
- the texts of a short list are the valid ones, with 5 % of the rows to spare for new ones;
- a column without nulls must stay without; one with nulls may hold twice the share seen, plus one percent;
- codes of one form give a pattern, with as much to spare; columns that are null together, and pairs that are always in
  order, give rules that warn: they may be accidents, so they are marked `review`;
- every feature is declared to be known at the prediction time, which only a person can know: it carries
  `reviewed: false` until somebody has said so (`trainworthy contract review`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from trainworthy.lifecycle.contract.frame import logical_type
from trainworthy.lifecycle.contract.model import Label, Role
from trainworthy.lifecycle.contract.profile import null_groups, ordered_pairs, text_pattern
from trainworthy.lifecycle.contract.quality import ENGINE
from trainworthy.lifecycle.contract.rule import MOST_EXCEPTIONS
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.spec.frozen import Frozen

if TYPE_CHECKING:
    import pandas as pd

MOST_VALID_VALUES = 30
NEW_VALUES_PERCENT = MOST_EXCEPTIONS
REVIEW = "review"
_LABELS = ("target", "target_source")


class ColumnDraft(Frozen):
    """A column's role, and a remark for whoever reviews it; of a column of files their kind and size.

    `known`: it is made of when the model is asked, so that nobody has to say whether it is known then.
    """

    name: str
    role: Role
    remark: str = ""
    file: FileKind | None = None
    size: tuple[int, int] | None = None
    known: bool = False


def draft_contract(
    frame: pd.DataFrame, *, name: str, purpose: str, columns: Sequence[ColumnDraft], key: Sequence[str], label: Label
) -> dict[str, Any]:
    """The contract as the Open Data Contract Standard writes it. `columns` are those of the frame, in their order."""
    assert [column.name for column in columns] == list(frame.columns)
    half = len(frame) // 2
    return {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": name,
        "name": name,
        "version": "1.0.0",
        "status": "draft",
        "description": {"purpose": purpose},
        "customProperties": [{"property": "label", "value": _label(label)}],
        "schema": [
            {
                "name": name,
                "quality": [
                    {"id": "row_count", "metric": "rowCount", "mustBeGreaterOrEqualTo": max(1, half)},
                    *_across(frame),
                ],
                "properties": [_property(frame[column.name], column, list(key), label) for column in columns],
            }
        ],
    }


def _label(label: Label) -> dict[str, Any]:
    values: dict[str, Any] = {"name": label.name, "version": label.version, "column": label.column}
    if label.type != "event":
        separated = {} if label.separator is None else {"separator": label.separator}
        return values | {"type": label.type} | ({"classes": list(label.classes)} if label.classes else {}) | separated
    return values if label.greater_than is None else values | {"greaterThan": label.greater_than}


def _across(frame: pd.DataFrame) -> Iterable[dict[str, Any]]:
    """Rules across columns: they warn, as rows can't tell an accident from a law."""
    rules = [("null_together", group) for group in null_groups(frame)]
    rules += [("less_or_equal", pair) for pair in ordered_pairs(frame)]
    for kind, names in rules:
        implementation = {"rule": kind, "columns": list(names)}
        yield {"type": "custom", "engine": ENGINE, "severity": "warning", "implementation": implementation}


def _property(values: pd.Series, column: ColumnDraft, key: list[str], label: Label) -> dict[str, Any]:
    nulls = float(values.isna().mean())
    # All null: any type holds, and a number is what a column of nulls is read as.
    kind = "number" if nulls == 1 else logical_type(values)
    custom: list[dict[str, Any]] = [{"property": "role", "value": column.role}]
    if column.role == "feature":
        custom.append({"property": "availableAt", "value": "PT0S"})
        # Of a text that is predicted a place sees earlier bytes alone: there is nothing to ask a person.
        custom += [] if column.known or column.name == label.column else [{"property": "reviewed", "value": False}]
    if column.file is not None:
        custom.append({"property": "file", "value": column.file})
    if column.size is not None:
        custom.append({"property": "size", "value": list(column.size)})
    options, quality = _options(values, kind, column, label), list(_quality(values, kind, nulls, column))
    return {
        "name": column.name,
        "logicalType": kind,
        **({"primaryKey": True, "primaryKeyPosition": key.index(column.name) + 1} if column.name in key else {}),
        # Newer rows may wait for their label.
        **({"required": True} if nulls == 0 and column.role not in _LABELS and column.name not in key else {}),
        **({"logicalTypeOptions": options} if options else {}),
        "customProperties": custom,
        **({"quality": quality} if quality else {}),
    }


def _options(values: pd.Series, kind: str, column: ColumnDraft, label: Label) -> dict[str, Any]:
    """Bounds of the numbers of a feature and of a label, and the first day of the rows' own time."""
    is_label = column.role == "target_source" or (column.role == "target" and label.type == "number")
    if kind in ("number", "integer") and (column.role == "feature" or is_label):
        low, high = _range(values)
        return {"minimum": low, "maximum": high}
    if kind in ("date", "timestamp") and column.role == "event_time":
        first = values.min()
        return {"minimum": first.normalize().isoformat()}
    return {}


def _range(values: pd.Series) -> tuple[float, float]:
    """What was seen, and as much again on both sides, in round numbers; never below 0 if nothing was."""
    low, high = float(values.min()), float(values.max())
    margin = (high - low) or abs(high) or 1.0
    widened = _rounded(low - margin, margin, math.floor), _rounded(high + margin, margin, math.ceil)
    return (0, widened[1]) if low >= 0 else widened


def _rounded(value: float, scale: float, towards: Any) -> float:
    """The value to a tenth of the scale's power of ten, whole where that is exact."""
    digits = 1 - math.floor(math.log10(scale))
    # Shifted, not divided: 0.1 is no binary number, 10 is.
    rounded = towards(value * 10**digits) / 10**digits if digits > 0 else towards(value / 10**-digits) * 10.0**-digits
    return int(rounded) if rounded == int(rounded) else rounded


def _quality(values: pd.Series, kind: str, nulls: float, column: ColumnDraft) -> Iterable[dict[str, Any]]:
    if nulls > 0:
        allowed = min(100, math.ceil(200 * nulls + 1))
        yield {"metric": "nullValues", "unit": "percent", "mustBeLessOrEqualTo": allowed}
    if kind == "string" and column.role == "feature" and column.file is None:
        texts = sorted(values.dropna().unique())
        pattern = text_pattern(texts)
        if len(texts) <= MOST_VALID_VALUES or pattern:
            valid = {"validValues": texts} if len(texts) <= MOST_VALID_VALUES else {"pattern": pattern}
            yield {
                "metric": "invalidValues",
                "unit": "percent",
                "mustBeLessOrEqualTo": NEW_VALUES_PERCENT,
                "arguments": valid,
            }


def contract_text(document: Mapping[str, Any], columns: Sequence[ColumnDraft], heading: str = "") -> str:
    """The document as YAML that is pleasant to edit: a line a fact, remarks as comments."""
    remarks = {column.name: column.remark for column in columns if column.remark}
    lines = [f"# {line}" for line in heading.splitlines()]
    for key, value in document.items():
        if key != "schema":
            lines.append(f"{key}: {inline(value)}")
    (table,) = document["schema"]
    lines += ["schema:", f"  - name: {inline(table['name'])}", "    quality:"]
    for item in table["quality"]:
        lines.append(f"      - {inline(item)}" + (f"  # {REVIEW}" if item.get("severity") == "warning" else ""))
    lines.append("    properties:")
    for item in table["properties"]:
        if item["name"] in remarks:
            lines.append(f"      # {remarks[item['name']]}")
        lines += _property_lines(item)
    return "\n".join(lines) + "\n"


def _property_lines(item: Mapping[str, Any]) -> Iterable[str]:
    for key, value in item.items():
        if key == "quality":
            yield "        quality:"
            yield from (f"          - {inline(entry)}" for entry in value)
            continue
        yield f"{'      - ' if key == 'name' else '        '}{key}: {inline(value)}"


def inline(value: Any) -> str:
    """A value as YAML on one line; text is quoted wherever YAML would read it as something else."""
    # Without escapes a line break inside a name would end the line, so such text is written in double quotes.
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True)
    text = text.removesuffix("\n").removesuffix("\n...")
    return (
        text
        if "\n" not in text
        else yaml.safe_dump(
            value, default_style='"', default_flow_style=True, sort_keys=False, width=10**9
        ).removesuffix("\n")
    )
