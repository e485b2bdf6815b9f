"""Whether the checks exist that a use case declares not to apply. Reads model.py as text: no torch is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainworthy.lifecycle.errors import Problem, did_you_mean, nearest
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.own_names import own_id, own_names_of

# Checks that there were: a use case may still declare that they do not apply.
RETIRED = ("overfit.zeroed_inputs",)


def not_applicable_problems(declared: Iterable[str], model: Path) -> list[Problem]:
    """A problem for each id that is neither in the catalogue nor an own check of model.py."""
    own = [own_id(name) for name in own_names_of(model)]
    known = [*(check.id for check in CATALOGUE), *own]
    return [_unknown(name, known, own) for name in declared if name not in (*known, *RETIRED)]


def _unknown(name: str, known: list[str], own: list[str]) -> Problem:
    where = f"use_case.yaml: preflight.not_applicable.{name}"
    if name.startswith("own."):
        define_fix = f"define check_{name.removeprefix('own.')} in model.py, or remove the key"
        return Problem(where, "model.py defines no such check", did_you_mean(name, own) if own else define_fix)
    fix = did_you_mean(name, known)
    return Problem(where, "there is no such check", fix if nearest(name, known) else f"{fix}; {_PAGES}")


_PAGES = "docs/preflight/README.md lists them"
