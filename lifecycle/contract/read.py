"""contract.yaml read: the contract, or everything that is wrong with it.

Columns whose values are files: `file` says of which kind, `size` of which size, in a column's customProperties.

A value is the file's path below the dataset's folder, with `/`, and begins with `files/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from trainworthy.lifecycle.contract import rules as compiler
from trainworthy.lifecycle.contract.availability import PREDICTION, is_known_instant
from trainworthy.lifecycle.contract.completed import completed_rules
from trainworthy.lifecycle.contract.freshness import freshness
from trainworthy.lifecycle.contract.model import Column, Contract, Label, LabelType, Role
from trainworthy.lifecycle.contract.odcs import HOW_TO, Document, custom_properties, read_document, where
from trainworthy.lifecycle.contract.rule import NO_ROW, LogicalType, Rule, make_rule
from trainworthy.lifecycle.errors import Problem, UseCaseError, did_you_mean
from trainworthy.lifecycle.files.kind import FileKind

_COLUMN_PROPERTIES = (
    "role", "unit", "availableAt", "reviewed", "sensitive", "allowedDrift", "decidesLabel", "file", "size",
)  # fmt: skip


_CONTRACT_PROPERTIES = ("label", "timeline", "tables")


_LABEL_KEYS = {
    "name": "name", "version": "version", "column": "column", "greaterThan": "greater_than", "type": "type",
    "classes": "classes", "separator": "separator",
}  # fmt: skip
# Labels that stand beside their column: what is added to their names for example, and what the column keeps.
_LABEL_ENDING: dict[LabelType, tuple[str, str]] = {"mask": ("classes", "paths"), "text": ("bytes", "texts")}


def load_contract(path: Path, *, pinned: bool = True) -> Contract:
    """The contract in a contract.yaml. Raises UseCaseError with every independent problem.

    Without `pinned`, rules of kind distribution lack their reference: for whoever makes that.
    """
    contract, problems = _read(path, pinned)
    if contract is None or problems:
        raise UseCaseError(path.resolve().parent.name, problems)
    return contract


def contract_problems(path: Path) -> list[Problem]:
    """Everything that is wrong with a contract.yaml."""
    return _read(path)[1]


def _read(path: Path, pinned: bool = True) -> tuple[Contract | None, list[Problem]]:
    document = read_document(path)
    problems = list(document.problems)
    table = document.table
    if table is None:
        return None, problems
    rules, rule_problems = compiler.compile_rules(table, document.broken)
    timeline, timeline_problems = _timeline(document)
    columns, column_problems = _columns(document, table, timeline)
    label, label_problems = _label(document, columns, compiler.column_names(table))
    rules, incomplete = completed_rules(rules, document, path.parent, columns, pinned)
    latency, late_problems = freshness(document.values, table, compiler.sound_properties(table, document.broken))
    problems += [*rule_problems, *timeline_problems, *column_problems, *label_problems, *incomplete, *late_problems]
    if problems or label is None:
        return None, problems
    labelled = next(column for column in columns if column.name == label.column)
    return Contract(
        name=str(document.values.get("name") or document.values["id"]),
        version=document.values["version"],
        columns=columns,
        rules=(*rules, *_label_rules(label, labelled.logical_type)),
        label=label,
        primary_key=compiler.primary_key(table),
        timeline=timeline,
        freshness=latency,
    ), []


def _timeline(document: Document) -> tuple[tuple[str, ...], list[Problem]]:
    properties = custom_properties(document.values)
    problems = [
        Problem(where("customProperties", key), "unknown property", did_you_mean(key, _CONTRACT_PROPERTIES))
        for key in sorted(set(properties) - set(_CONTRACT_PROPERTIES))
    ]
    names = properties.get("timeline", [])
    place = where("customProperties", "timeline")
    if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
        return (), [*problems, Problem(place, "must be a list of names", f"see {HOW_TO}", names)]
    if names and (names.count(PREDICTION) != 1 or len(set(names)) < len(names)):
        fix = f"write each name once, from early to late, and {PREDICTION!r} among them"
        problems.append(Problem(place, f"does not order its names around {PREDICTION!r}", fix, names))
    return tuple(names), problems


def _columns(
    document: Document, table: Mapping[str, Any], timeline: tuple[str, ...]
) -> tuple[tuple[Column, ...], list[Problem]]:
    columns: list[Column] = []
    problems: list[Problem] = []
    for item in compiler.sound_properties(table, document.broken):
        values = custom_properties(item)
        mistakes = list(_column_problems(item, values, timeline))
        problems += mistakes
        # A wrong logicalType is reported by the compiler.
        if not mistakes and item.get("logicalType") in get_args(LogicalType):
            columns.append(_column(item, values))
    if not problems and not document.broken and not any(column.role == "feature" for column in columns):
        problems.append(Problem(where("schema"), "no column has the role feature", "give the model's inputs that role"))
    return tuple(columns), problems


def _column(item: Mapping[str, Any], values: Mapping[str, Any]) -> Column:
    return Column(
        name=item["name"],
        logical_type=item["logicalType"],
        role=values["role"],
        unit=values.get("unit"),
        available_at=values.get("availableAt"),
        sensitive=values.get("sensitive", False),
        allowed_drift=values.get("allowedDrift"),
        decides_label=values.get("decidesLabel"),
        reviewed=values.get("reviewed", True),
        file=values.get("file"),
        size=values.get("size"),
    )


def _column_problems(
    item: Mapping[str, Any], values: Mapping[str, Any], timeline: tuple[str, ...]
) -> Iterator[Problem]:
    name = item["name"]
    for key in sorted(set(values) - set(_COLUMN_PROPERTIES)):
        yield Problem(where(name, "customProperties", key), "unknown property", did_you_mean(key, _COLUMN_PROPERTIES))
    role, sensitive = values.get("role"), values.get("sensitive", False)
    if role not in get_args(Role):
        known = get_args(Role)
        fix = f"write one of {', '.join(known)}" if role is None else did_you_mean(str(role), known)
        yield Problem(where(name, "role"), "the role is missing" if role is None else "unknown role", fix, role)
    if not isinstance(values.get("unit", ""), str):
        yield Problem(where(name, "unit"), "must be text", "write the unit's name, for example minutes", values["unit"])
    reason = values.get("decidesLabel", "")
    if not isinstance(reason, str) or ("decidesLabel" in values and not reason.strip()):
        fix = "write in a sentence why the column is known at prediction time and may decide the label alone"
        yield Problem(where(name, "decidesLabel"), "must be a reason", fix, reason)
    reviewed = values.get("reviewed", True)
    if not isinstance(reviewed, bool) and not (isinstance(reviewed, str) and reviewed.strip()):
        fix = "write true or false, or in a sentence why the column was accepted without a review"
        yield Problem(where(name, "reviewed"), "must be true, false or a reason", fix, reviewed)
    if not isinstance(sensitive, bool):
        yield Problem(where(name, "sensitive"), "must be true or false", "write true or false", sensitive)
    elif sensitive and item.get("primaryKey"):
        fix = "name rows by a key that says nothing about a person"
        yield Problem(where(name, "sensitive"), "a sensitive column can't be in the key: rows are named by it", fix)
    drift = values.get("allowedDrift")
    if "allowedDrift" in values and (
        isinstance(drift, bool) or not isinstance(drift, int | float) or not 0 < drift < 100
    ):
        fix = "write a PSI above 0 as a number, for example 0.2"
        yield Problem(where(name, "allowedDrift"), "must be a number above 0 and below 100", fix, drift)
    available_at = values.get("availableAt")
    if available_at is not None and not is_known_instant(available_at, timeline):
        fix = "write an ISO 8601 duration (PT0S: at prediction time, -PT1H: an hour before), or a name in the timeline"
        yield Problem(where(name, "availableAt"), "neither a duration nor a name in the timeline", fix, available_at)
    yield from file_problems(item, values)


def _label(
    document: Document, columns: tuple[Column, ...], names: tuple[str, ...]
) -> tuple[Label | None, list[Problem]]:
    place = where("customProperties", "label")
    values = custom_properties(document.values).get("label")
    if not isinstance(values, dict):
        fix = "add the property label with value {name, version, column} and greaterThan, type: number, or classes"
        return None, [Problem(place, "the label's definition is missing", fix, values)]
    unknown = [
        Problem(f"{place}.{key}", "unknown key", did_you_mean(str(key), _LABEL_KEYS))
        for key in values
        if key not in _LABEL_KEYS
    ]
    try:
        label = Label.model_validate({_LABEL_KEYS[key]: value for key, value in values.items() if key in _LABEL_KEYS})
    except ValidationError as error:
        return None, [*unknown, *(_label_problem(place, item) for item in error.errors())]
    if unknown:
        return None, unknown
    if label.column not in names:
        fix = did_you_mean(label.column, names)
        return None, [Problem(f"{place}.column", "the column is not declared", fix, label.column)]
    return label, [problem for column in columns if column.name == label.column for problem in _misfit(label, column)]


def _misfit(label: Label, column: Column) -> Iterator[Problem]:
    """What keeps a column from being the label's: its type, or a role that would let the model read it."""
    fitting: dict[LabelType, tuple[LogicalType, ...]] = {
        "event": ("integer", "number", *(("boolean",) if label.greater_than is None else ())),
        "class": ("string", "integer"),
        "labels": ("string",),
        "number": ("integer", "number"),
        "mask": ("string",),
        "text": ("string",),
    }
    if column.logical_type not in fitting[label.type]:
        fix = {
            "event": "name a column of integers or numbers (or, without greaterThan, of booleans)",
            "class": "name a column of texts or integers",
            "labels": "name a column of texts: names with a separator between them",
            "number": "name a column of integers or numbers",
            "mask": "name a column of texts with the customProperty file: mask",
            "text": "name a column of texts",
        }[label.type]
        yield Problem(where(column.name), f"can't make a label of type {label.type}", fix, column.logical_type)
    text = column.logical_type == "string"
    if label.type == "class" and any(isinstance(value, str) != text for value in label.classes):
        fix = f"write the classes as {'texts' if text else 'whole numbers'}, as the column holds them"
        place = where("customProperties", "label")
        yield Problem(f"{place}.classes", f"do not fit the column {column.name}", fix, list(label.classes))
    if (label.type == "mask") != (column.file is not None):
        fix = "give the column the customProperty file: mask" if label.type == "mask" else "write type: mask"
        yield Problem(where(column.name, "file"), f"does not fit a label of type {label.type}", fix, column.file)
    if label.type in _LABEL_ENDING and label.name == column.name:
        place = where("customProperties", "label")
        added, kept = _LABEL_ENDING[label.type]
        fix = f"name the label otherwise, for example {label.name}_{added}: the column keeps the {kept}"
        yield Problem(f"{place}.name", "is the name of the label's column", fix, label.name)
    if label.type == "text" and column.sensitive:
        fix = "predict another text, or one without what is sensitive: a model of texts can recite those it has seen"
        yield Problem(where(column.name, "sensitive"), "a text that is predicted must not be sensitive", fix, True)
    role = {"text": "feature"}.get(label.type, "target" if label.greater_than is None else "target_source")
    if column.role != role:
        yield Problem(where(column.name, "role"), "is not the role of the label's column", f"write {role}", column.role)


def _label_problem(place: str, item: Any) -> Problem:
    if not item["loc"]:
        problem, _, fix = item["msg"].removeprefix("Value error, ").partition(": ")
        return Problem(place, problem, fix)
    key = next(written for written, field in _LABEL_KEYS.items() if field == item["loc"][0])
    fix = (
        "write {name: text, version: a whole number from 1, column: a declared column}, and of an event greaterThan: "
        "a number, of classes type: class and classes: [first, second, …], of several labels a row type: labels, "
        "classes and a separator, of numbers type: number, of masks type: mask and classes, of next bytes "
        "type: text"
    )
    return Problem(f"{place}.{key}", item["msg"], fix, None if item["type"] == "missing" else item["input"])


def _label_rules(label: Label, logical_type: LogicalType) -> tuple[Rule, ...]:
    """Without a limit the column is the label itself, so it holds nothing but 0 and 1, or the declared classes.

    Of several labels a row each is named once at most; a text that is predicted has more than white space.
    """
    if label.greater_than is not None or logical_type == "boolean" or label.type in ("number", "mask"):
        return ()
    if label.type == "text":
        return (make_rule("label.values", "pattern", (label.column,), bound=NO_ROW, pattern=r"\S"),)
    if label.type == "labels":
        pattern = _names_pattern([str(class_name) for class_name in label.classes], label.separator or "")
        return (make_rule("label.values", "pattern", (label.column,), bound=NO_ROW, pattern=pattern),)
    values = list(label.classes) if label.type == "class" else [0, 1]
    return (make_rule("label.values", "allowed", (label.column,), bound=NO_ROW, values=values),)


def _names_pattern(names: Sequence[str], separator: str) -> str:
    """A regular expression of texts that hold some of the names or none, in any order, each once at most."""
    name, between = "|".join(map(re.escape, names)), re.escape(separator)
    again = rf"(?:.*{between})?({name}){between}(?:.*{between})?\1(?:{between}|\Z)"
    return rf"(?s)\A(?!{again})(?:(?:{name})(?:{between}(?:{name}))*)?\Z"


FILE_ROLES = ("feature", "target", "other")
_MOST_AXES = 8


def file_problems(item: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a column's `file` and `size`; nothing if it has neither."""
    name, kind, size = item["name"], values.get("file"), values.get("size")
    if "file" not in values:
        if "size" in values:
            yield Problem(where(name, "size"), "is the size of a file, and the column names none", _add_file(), size)
        return
    known = get_args(FileKind)
    if kind not in known:
        fix = did_you_mean(kind, known) if isinstance(kind, str) else f"write one of {', '.join(known)}"
        yield Problem(where(name, "file"), "unknown kind of file", fix, kind)
        return
    if item.get("logicalType") != "string":
        fix = "write logicalType: string; the column holds each file's path"
        yield Problem(where(name, "file"), "a file is named by a text", fix, item.get("logicalType"))
    if values.get("role", "feature") not in FILE_ROLES:
        yield Problem(
            where(name, "role"), "a file can't have this role", "write feature, target or other", values["role"]
        )
    if "allowedDrift" in values:
        fix = "remove it: drift looks at the values of columns, and paths are none"
        yield Problem(where(name, "allowedDrift"), "can't be judged of a file", fix, values["allowedDrift"])
    if "size" in values:
        yield from _size_problems(name, str(kind), size)


def _size_problems(name: str, kind: str, size: Any) -> Iterator[Problem]:
    place = where(name, "size")
    if kind == "text":
        yield Problem(place, "a text has no size", "remove it", size)
        return
    whole = isinstance(size, list) and size and all(type(side) is int and side > 0 for side in size)
    axes = (1, _MOST_AXES) if kind == "array" else (2, 2)
    if not whole or not axes[0] <= len(size) <= axes[1]:
        form = "the array's shape, for example [128, 3]" if kind == "array" else "[height, width] in pixels"
        yield Problem(place, "is no size", f"write {form}, whole numbers above 0", size)


def _add_file() -> str:
    return f"add {{property: file, value: {' | '.join(get_args(FileKind))}}}, or remove size"
