"""What pydantic finds wrong in a YAML file, above all use_case.yaml, in the words of somebody who writes one."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from trainworthy.lifecycle.errors import Problem, did_you_mean, nearest
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
    path, known = _place(item["loc"], form)
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
    said = _said(item)
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        # Keys that do not go together: the message names them, and the value would be the whole section.
        return Problem(where, said, f"correct one of them; {how_to}")
    return Problem(where, said, f"correct the value; {how_to}", item["input"])


# Of pydantic's kinds of mistakes those that a YAML file can hold, in words; in braces what its context says.
_SAYS = {
    "int_": "must be a whole number", "float_": "must be a number", "bool_": "must be true or false",
    "string_type": "must be a text; put it in quotes where it looks like a number", "finite_number": "must be finite",
    "string_pattern_mismatch": "must look like {pattern}", "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}", "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}", "list_type": "must be a list", "tuple_type": "must be a list",
    "dict_type": "must hold keys and values", "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values", "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}", "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
}  # fmt: skip


def _said(item: Any) -> str:
    """What is wrong with a value, in words of ours where pydantic's speak of Python."""
    kind = item["type"]
    context = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in item.get("ctx", {}).items()}
    says = _SAYS.get(kind) or next((_SAYS[name] for name in ("int_", "float_", "bool_") if kind.startswith(name)), None)
    try:
        return says.format(**context) if says else item["msg"].removeprefix("Value error, ")
    except KeyError:
        return item["msg"]


def _where(file: str, path: list[str]) -> str:
    return ": ".join(part for part in (file, ".".join(path)) if part)


def _place(location: tuple[Any, ...], form: type[BaseModel]) -> tuple[list[str], list[str]]:
    """The place as it is written in YAML, and the keys that are known where its last part stands.

    Pydantic puts the chosen kind of a union into the location, which no YAML holds.
    """
    forms, known, path, chosen = (form,), list[str](), list[str](), False
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
    return path, known


def _keys(form: type[BaseModel]) -> dict[Any, Any]:
    """Annotation of each key, by the name that is written."""
    # A form that another one names before it is written knows its own fields' only after this.
    form.model_rebuild()
    return {field.alias or name: field.annotation for name, field in form.model_fields.items()}


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
