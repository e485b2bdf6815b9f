"""What pydantic finds wrong in a YAML file, above all use_case.yaml, in the words of somebody who writes one."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.lifecycle.spec.task import KINDS

# How keys are added that somebody meets in a file of before there were such.
_ADDED = {
    "task": f"write task: {{kind: {KINDS[0]}}}, {', '.join(KINDS[1:-1])} or {KINDS[-1]}, or let `trainworthy check "
    "--fix` write what the contract's label is",
}


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
    said = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" and isinstance(item["input"], dict):
        # Keys that do not go together: the message names them, and the value would be the whole section.
        return Problem(where, said, f"correct one of them; {how_to}")
    return Problem(where, said, f"correct the value; {how_to}", item["input"])


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
