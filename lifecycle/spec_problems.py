"""What pydantic finds wrong in a YAML file, above all use_case.yaml, in the words of somebody who writes one."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from trainworthy.lifecycle.errors import Problem, did_you_mean, nearest
from trainworthy.lifecycle.hyperparameters import reads_as_number
from trainworthy.lifecycle.spec.task import KINDS

# How keys are added that somebody meets in a file of before there were such.
_ADDED = {
    "task": f"write task: {{kind: {KINDS[0]}}}, {', '.join(KINDS[1:-1])} or {KINDS[-1]}, or let `trainworthy check "
    "--fix` write what the contract's label is",
}


def spec_problems(
    errors: Sequence[Any], form: type[BaseModel], file: str = "use_case.yaml", how_to: str = "docs/how-to/use-case.md"
) -> list[Problem]:
    """Pydantic's errors of `form` as Problems; a key that is there under a misspelled name is told once."""
    misspelled = {
        (*item["loc"][:-1], nearest(str(item["loc"][-1]), _place(item["loc"], form)[1]))
        for item in errors
        if item["type"] == "extra_forbidden"
    }
    told = [item for item in errors if not (item["type"] == "missing" and tuple(item["loc"]) in misspelled)]
    return [spec_problem(item, form, file, how_to) for item in told]


def spec_problem(
    item: Any, form: type[BaseModel], file: str = "use_case.yaml", how_to: str = "docs/how-to/use-case.md"
) -> Problem:
    """One of pydantic's errors of `form` as a Problem, with a did-you-mean for unknown keys and kinds.

    `file` is what was read, `how_to` the page that explains its keys.
    """
    path, known, annotation = _place(item["loc"], form)
    where, how_to = _where(file, path), f"{how_to} explains each key"
    if item["type"] == "extra_forbidden":
        return Problem(where, "unknown key", did_you_mean(path[-1], known), item["input"])
    if item["type"] == "missing":
        return Problem(where, "the key is missing", f"{_ADDED.get('.'.join(path), 'add it')}; {how_to}")
    if item["type"] == "union_tag_not_found":
        key = item["ctx"]["discriminator"].strip("'")
        return Problem(_where(file, [*path, key]), "the key is missing", f"add it; {how_to}")
    if item["type"] == "union_tag_invalid":
        key, kinds = item["ctx"]["discriminator"].strip("'"), item["ctx"]["expected_tags"].replace("'", "")
        fix = did_you_mean(item["ctx"]["tag"], kinds.split(", "))
        return Problem(_where(file, [*path, key]), "there is no such kind", fix, item["ctx"]["tag"])
    if item["type"] == "literal_error" and isinstance(item["input"], str):
        values = re.findall("'([^']*)'", item["ctx"]["expected"])
        return Problem(where, "there is no such value", did_you_mean(item["input"], values), item["input"])
    said = _said_of_text(annotation, item["input"]) if item["type"] == "string_type" else _said(item)
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        # Keys that do not go together: the message names them, and the value would be the whole section.
        return Problem(where, said, f"correct one of them; {how_to}")
    return Problem(where, said, f"correct the value; {how_to}", item["input"])


# Of pydantic's kinds of mistakes those that a YAML file can hold, in words; in braces what its context says.
_SAYS = {
    "int_": "must be a whole number", "float_": "must be a number", "bool_": "must be true or false",
    "date_": "must be a date, written year-month-day, for example 2015-03-01",
    "string_type": "must be a text; put it in quotes where it looks like a number", "finite_number": "must be finite",
    "string_pattern_mismatch": "must look like {pattern}", "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}", "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}", "list_type": "must be a list", "tuple_type": "must be a list",
    "dict_type": "must hold keys and values", "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values", "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}", "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}  # fmt: skip

# Beginnings of pydantic's kinds that stand for several.
_FAMILIES = ("int_", "float_", "bool_", "date_")


def _said_of_text(annotation: Any, value: object) -> str:
    """What is wrong with a number where a text belongs: its form, where quotes alone would not do."""
    if annotation is not None and isinstance(value, int | float):
        try:
            TypeAdapter(annotation).validate_python(str(value))
        except ValidationError as error:
            return _said(error.errors()[0])
        except PydanticUserError:
            pass  # an annotation that is no type by itself
    return _SAYS["string_type"]


def _said(item: Any) -> str:
    """What is wrong with a value, in words of ours where pydantic's speak of Python."""
    kind = item["type"]
    context = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in item.get("ctx", {}).items()}
    says = _SAYS.get(kind) or next((_SAYS[name] for name in _FAMILIES if kind.startswith(name)), None)
    try:
        return says.format(**context) if says else item["msg"].removeprefix("Value error, ")
    except KeyError:
        return item["msg"]


def _where(file: str, path: list[str]) -> str:
    return ": ".join(part for part in (file, ".".join(path)) if part)


def _place(location: tuple[Any, ...], form: type[BaseModel]) -> tuple[list[str], list[str], Any]:
    """The place as it is written in YAML, the keys that are known where its last part stands, and that key's type.

    Pydantic puts the chosen kind of a union into the location, which no YAML holds. None for the type of an item of a
    list, and of an unknown key.
    """
    forms, known, path, chosen, annotation = (form,), list[str](), list[str](), False, None
    for part in location:
        if chosen:
            # Each kind of split names itself in `by`; other unions hold one form.
            forms = tuple(kind for kind in forms if part in _own_names(kind)) or forms
            chosen = False
            continue
        path.append(str(part))
        known = [name for kind in forms for name in _keys(kind)]
        annotation = next((_keys(kind)[part] for kind in forms if part in _keys(kind)), None)
        if annotation is not None:
            forms, chosen = tuple(_forms(annotation)), _is_union(annotation)
    return path, known, annotation


def _keys(form: type[BaseModel]) -> dict[Any, Any]:
    """Annotation of each key with what is asked of its value, by the name that is written."""
    # A form that another one names before it is written knows its own fields' only after this.
    form.model_rebuild()
    return {
        field.alias or name: Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        for name, field in form.model_fields.items()
    }


def _own_names(form: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(_keys(form).get("by"))


def _forms(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _forms(part)


def _is_union(annotation: Any) -> bool:
    """True for a choice between kinds, not for a value that may be left out."""
    if get_origin(annotation) is Annotated:
        return _is_union(get_args(annotation)[0])
    if get_origin(annotation) not in (Union, types.UnionType):
        return False
    kinds = [part for part in get_args(annotation) if part is not type(None)]
    return len(kinds) > 1 or _is_union(kinds[0])


def typed_otherwise(values: Any, form: type[BaseModel], file: str = "use_case.yaml") -> list[Problem]:
    """Values of another type than their key's that pydantic would convert: "0.1" and true are no number, 1 is not true.

    `values` are what the file of `form` holds, read so that an unquoted number is one; what has mistakes elsewhere is
    looked at as far as it can be.
    """
    found = _typed_otherwise(values, form, [])
    # A key that two kinds of a section share is looked at by each.
    return [*{path: Problem(_where(file, [path]), *said) for path, said in found}.values()]


def _typed_otherwise(value: Any, annotation: Any, path: list[str]) -> Iterator[tuple[str, tuple[str, str, Any]]]:
    kinds = [*_kinds(annotation)]
    if isinstance(value, dict):
        for key, part in value.items():
            types_of_key = [_keys(kind)[key] for kind in kinds if _is_form(kind) and key in _keys(kind)]
            types_of_key += [get_args(kind)[1] for kind in kinds if get_origin(kind) is dict]
            for type_of_key in types_of_key:
                yield from _typed_otherwise(part, type_of_key, [*path, str(key)])
    elif isinstance(value, list):
        for item_type in (get_args(kind)[0] for kind in kinds if get_origin(kind) in (tuple, list)):
            for number, part in enumerate(value):
                yield from _typed_otherwise(part, item_type, [*path, str(number)])
    elif said := _another_type(value, kinds):
        fix = f"{said[1]}: {path[-1]}: {said[2]}" if path and not path[-1].isdigit() else f"{said[1]}: {said[2]}"
        yield ".".join(path), (said[0], fix, value)


def _another_type(value: object, kinds: Iterable[Any]) -> tuple[str, str, str] | None:
    """What is wrong with a single value, what to do, and how it is written; None where pydantic judges right."""
    number, truth = not {int, float}.isdisjoint(kinds), bool in kinds
    if number and isinstance(value, str) and reads_as_number(value):
        return "must be a number, and in quotes it is a text", "write it without quotes", value.strip()
    if truth and isinstance(value, str) and value.lower() in _TRUTH:
        return "must be true or false, and this is a text", "write it without quotes", _TRUTH[value.lower()]
    if number and not truth and isinstance(value, bool):
        return "must be a number, and true and false are none", "write the number", str(int(value))
    if truth and not number and isinstance(value, int | float) and not isinstance(value, bool) and value in (0, 1):
        return "must be true or false, and a number is neither", "write", str(bool(value)).lower()
    return None


# Texts that pydantic takes for true and false.
_TRUTH: dict[str, str] = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "f", "n", "0"), "false"),
}


def _is_form(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types among which a value may choose: of `float | None` both."""
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation
