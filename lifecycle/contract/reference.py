"""The pinned reference of `distribution` rules: reference.json beside contract.yaml.

`trainworthy contract pin` makes it. It names the dataset version that it was counted on and holds, for each column,
bins and how many rows lay in each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError, model_validator

from trainworthy.lifecycle.contract.odcs import where
from trainworthy.lifecycle.contract.rule import Rule
from trainworthy.lifecycle.errors import Problem
from trainworthy.lifecycle.spec.frozen import Frozen

if TYPE_CHECKING:
    from trainworthy.lifecycle.contract.model import Column

REFERENCE_FILE = "reference.json"

Edge = StrictInt | StrictFloat | StrictStr
Value = StrictBool | StrictStr


class Bins(Frozen):
    """Bins of one column, as rule.py describes them: `edges` or `values`, and the rows of each bin, nulls last."""

    edges: tuple[Edge, ...] | None = None
    values: tuple[Value, ...] | None = None
    counts: tuple[int, ...]

    @model_validator(mode="after")
    def _fits(self) -> Bins:
        if (self.edges is None) == (self.values is None):
            raise ValueError("give exactly one of edges and values")
        if len(self.counts) != len(self.edges if self.edges is not None else self.values or ()) + 2:
            raise ValueError("counts must be two more than edges or values")
        if min(self.counts) < 0 or sum(self.counts) == 0:
            raise ValueError("counts must be numbers of rows, not all 0")
        if self.values is not None and len(set(self.values)) < len(self.values):
            raise ValueError("values repeat")
        ordered = [_number(edge) for edge in self.edges or ()]
        if not all(math.isfinite(edge) for edge in ordered) or any(a >= b for a, b in pairwise(ordered)):
            raise ValueError("edges must be finite and ascend")
        return self

    def fits(self, logical_type: str) -> bool:
        """True if a column of that type can be sorted into these bins."""
        if self.values is not None:
            python_type = {"string": str, "boolean": bool}.get(logical_type)
            return python_type is not None and all(isinstance(value, python_type) for value in self.values)
        texts = [isinstance(edge, str) for edge in self.edges or ()]
        return (
            all(texts)
            if logical_type in ("date", "timestamp")
            else logical_type in ("integer", "number") and not any(texts)
        )


def _number(edge: Edge) -> float:
    """The edge for comparing; a wall-clock time is never read in this machine's zone, which skips and repeats hours."""
    if not isinstance(edge, str):
        return edge
    instant = datetime.fromisoformat(edge)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


class Reference(Frozen):
    """What reference.json holds."""

    format: Literal[1] = 1
    dataset: str
    version: str
    content_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    columns: dict[str, Bins]


def read_reference(path: Path) -> Reference | Problem:
    """The file's content, or what is wrong with it."""
    fix = f"run: trainworthy contract pin {path.resolve().parent.name}"
    if not path.is_file():
        return Problem(where(path.name), "a rule asks for a pinned reference, and there is none", fix)
    try:
        return Reference.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return Problem(where(path.name, *([place] if place else [])), first["msg"], fix)


def reference_text(reference: Reference) -> str:
    """The file's text: a line a column, so that a later pin differs in the lines that changed."""
    values = reference.model_dump(mode="json", exclude_none=True)
    columns = [f"  {json.dumps(name)}: {json.dumps(bins)}" for name, bins in sorted(values.pop("columns").items())]
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in values.items()]
    return "\n".join(["{", *lines, ' "columns": {', ",\n".join(columns), " }", "}"]) + "\n"


def with_reference(rule: Rule, path: Path, columns: Mapping[str, Column]) -> Rule | Problem:
    """The rule with the bins and counts of its column; or why there are none."""
    reference, (name,) = read_reference(path), rule.columns
    if isinstance(reference, Problem):
        return reference
    fix, place = f"run: trainworthy contract pin {path.resolve().parent.name}", f"contract.yaml: {rule.id}"
    if name not in reference.columns:
        return Problem(place, f"{REFERENCE_FILE} holds no distribution of this column", fix, name)
    bins = reference.columns[name]
    if not bins.fits(columns[name].logical_type):
        return Problem(place, f"{REFERENCE_FILE} was pinned for another type of this column", fix, name)
    parameters = {"bound": rule.parameters["bound"], **bins.model_dump(mode="json", exclude_none=True)}
    return rule.model_copy(update={"parameters": parameters})
