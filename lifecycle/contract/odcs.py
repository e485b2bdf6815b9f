"""Reads contract.yaml as Open Data Contract Standard v3.1: its form, not yet its meaning.

The standard's own JSON schema (open-data-contract-standard, schema.json, JSON schema 2019-09) judges the form. It
refuses unknown keys by `additionalProperties` and `unevaluatedProperties`, but reports each up to three times, and
after any other mistake it also calls the *known* keys beside it unexpected. So a key counts as unknown only if no
branch of the schema at that place knows it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.unique_keys import unique_keys_loader, yaml_mistake

HOW_TO = "docs/how-to/contract.md"
_CLOSED = ("additionalProperties", "unevaluatedProperties")
# Parts of a JSON schema that apply to the same object as the schema that holds them.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else")


@dataclass(frozen=True)
class Document:
    """What the file holds. `broken` are ("properties" or "quality", position) of items whose form is wrong."""

    values: dict[str, Any]
    problems: tuple[Problem, ...]
    broken: frozenset[tuple[str, int]] = frozenset()

    @property
    def table(self) -> dict[str, Any] | None:
        """The one table, if the form allows to look at it."""
        tables = self.values.get("schema")
        if isinstance(tables, list) and len(tables) == 1 and isinstance(tables[0], dict):
            return tables[0]
        return None


def where(*parts: str | int) -> str:
    """The place of a problem, such as `contract.yaml: origin.quality[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return f"contract.yaml: {text.removeprefix('.')}"


def custom_properties(parent: Mapping[str, Any]) -> dict[str, Any]:
    """The customProperties of a part of the contract, as a mapping of name to value."""
    items = parent.get("customProperties")
    items = items if isinstance(items, list) else []
    return {str(item["property"]): item.get("value") for item in items if isinstance(item, dict) and "property" in item}


def read_document(path: Path) -> Document:
    """The file's content and every problem of its form; never raises for what a user wrote."""
    if not path.is_file():
        return Document({}, (Problem(path.name, "the file is missing", f"create it; see {HOW_TO}"),))
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.load(text, Loader=unique_keys_loader())  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mistake = yaml_mistake(error, text)
        return Document({}, (Problem(mistake.where(path.name), f"not valid YAML: {mistake.problem}", mistake.fix),))
    if not isinstance(values, dict):
        return Document({}, (Problem(path.name, "must be a mapping of keys", f"see {HOW_TO}", values),))
    return _checked(values)


def _checked(values: dict[str, Any]) -> Document:
    from jsonschema import Draft201909Validator

    schema = odcs_schema()
    validator = Draft201909Validator(schema)
    # A sound contract of 784 pixels is judged by its few forms of columns: 0.1 instead of 4 CPU seconds.
    sound = validator.is_valid(_one_of_each_form(values))
    errors = [] if sound else list(_leaves(validator.iter_errors(values)))
    unknown = [problem for error in errors for problem in _unknown_keys(error, values, schema)]
    invalid = [_problem(error, values) for error in errors if error.validator not in _CLOSED]
    # A known key in the wrong company (`query` beside `metric`) is worth a line only if nothing else explains it.
    misplaced = [] if unknown or invalid else [_problem(error, values) for error in errors]
    infinite = list(_not_finite(values, ()))
    not_finite = [
        Problem(where(*_named(values, path)), "the number is not finite", "write a finite number") for path in infinite
    ]
    problems = [*unknown, *invalid, *misplaced, *not_finite, *_table_count(values)]
    paths = [*(tuple(error.absolute_path) for error in errors), *infinite]
    broken = frozenset((str(path[2]), int(path[3])) for path in paths if len(path) > 3 and isinstance(path[3], int))
    return Document(values, tuple({str(problem): problem for problem in problems}.values()), broken)


def _one_of_each_form(values: dict[str, Any]) -> dict[str, Any]:
    """The contract with one column of those that differ in name, minimum and maximum alone.

    The standard asks of a name that it is text and of bounds that they have the column's type, and nothing of a column
    depends on another one: tests/lifecycle/contract/test_odcs_forms.py holds its schema to that.
    """
    tables = values.get("schema")
    if not isinstance(tables, list):
        return values
    return {**values, "schema": [_few_columns(table) for table in tables]}


def _few_columns(table: Any) -> Any:
    columns = table.get("properties") if isinstance(table, dict) else None
    if not isinstance(columns, list):
        return table
    return {**table, "properties": list({_form(column): column for column in columns}.values())}


def _form(column: Any) -> str:
    """A column without what its form does not depend on."""
    if not isinstance(column, dict):
        return repr(column)
    options = column.get("logicalTypeOptions")
    if isinstance(options, dict):
        bounds = {key: type(options[key]).__name__ for key in ("minimum", "maximum") if key in options}
        options = {**options, **bounds}
    return repr({**column, "name": type(column.get("name")).__name__, "logicalTypeOptions": options})


@functools.cache
def odcs_schema() -> dict[str, Any]:
    """The standard's own JSON schema, as the package open-data-contract-standard carries it."""
    text = resources.files("open_data_contract_standard").joinpath("schema.json").read_text(encoding="utf-8")
    return json.loads(text)


def _leaves(errors: Any) -> Iterator[Any]:
    """Each error; of a choice between object forms (`team`: a team or a list) the errors of the fitting form."""
    for error in errors:
        branches: dict[Any, list[Any]] = {}
        for inner in error.context or ():
            branches.setdefault(inner.schema_path[0], []).append(inner)
        fitting = [inner for inner in branches.values() if not any(_wrong_type(error, item) for item in inner)]
        if error.validator in ("oneOf", "anyOf") and len(fitting) == 1:
            yield from _leaves(fitting[0])
        else:
            yield error


def _wrong_type(outer: Any, inner: Any) -> bool:
    return inner.validator == "type" and inner.absolute_path == outer.absolute_path


def _unknown_keys(error: Any, values: dict[str, Any], schema: dict[str, Any]) -> Iterator[Problem]:
    if error.validator not in _CLOSED:
        return
    known = _known_keys(error.schema, schema)
    for key in error.instance:
        if key not in known:
            place = where(*_named(values, error.absolute_path), str(key))
            yield Problem(place, "unknown key", did_you_mean(str(key), known))


def _known_keys(part: Any, schema: dict[str, Any]) -> set[str]:
    """Every key that some branch of this part of the schema knows."""
    if not isinstance(part, dict):
        return set()
    known = set(part.get("properties", {}))
    if "$ref" in part:
        known |= _known_keys(schema["$defs"][part["$ref"].rsplit("/", 1)[-1]], schema)
    for name in _IN_PLACE:
        branches = part.get(name, [])
        for branch in branches if isinstance(branches, list) else [branches]:
            known |= _known_keys(branch, schema)
    return known


def _problem(error: Any, values: dict[str, Any]) -> Problem:
    place = where(*_named(values, error.absolute_path))
    if error.validator == "enum":
        known = [str(item) for item in error.validator_value]
        return Problem(place, "unknown value", did_you_mean(str(error.instance), known), error.instance)
    if error.validator == "oneOf":
        choices = [key for item in error.validator_value for key in item.get("required", ())]
        return Problem(place, "the form is ambiguous or incomplete", f"give exactly one of {', '.join(choices)}")
    if error.validator == "type" and not isinstance(error.instance, (dict, list)):
        fix = f"write a value of type {error.validator_value} (quote dates and versions)"
        return Problem(place, "the value has the wrong type", fix, error.instance)
    return Problem(place, error.message[:200], f"follow the standard's form; see {HOW_TO}")


def _named(values: Any, path: Any) -> list[str | int]:
    """A path with the table left out and columns called by their names."""
    parts: list[str | int] = []
    node = values
    for part in path:
        node = node[part]
        column = isinstance(part, int) and parts[-1:] == ["properties"] and isinstance(node, dict)
        if column and isinstance(node.get("name"), str):
            parts = [node["name"]]
        else:
            parts.append(part)
    return parts[2:] if parts[:2] == ["schema", 0] and len(parts) > 2 else parts


def _not_finite(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Paths of NaN and infinity: numbers to JSON schema, but no bound that a value could meet."""
    if isinstance(node, float) and not math.isfinite(node):
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from _not_finite(item, (*path, key))


def _table_count(values: dict[str, Any]) -> Iterator[Problem]:
    tables = values.get("schema")
    if not isinstance(tables, list) or len(tables) != 1:
        count = len(tables) if isinstance(tables, list) else 0
        yield Problem(where("schema"), "must describe exactly one table", "write one item below schema", count)
    elif isinstance(tables[0], dict) and not tables[0].get("properties"):
        yield Problem(where("schema"), "declares no column", "write one item below properties for each column")
