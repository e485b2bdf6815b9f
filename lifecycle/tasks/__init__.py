"""Kinds of task: what a label is, what an answer is, and how it is scored. A file a kind; nobody else names one."""

from __future__ import annotations

from functools import lru_cache

from lifecycle.tasks.binary import BINARY
from lifecycle.tasks.kind import Kind
from lifecycle.tasks.multiclass import Multiclass
from lifecycle.tasks.regression import Regression
from lifecycle.tasks.target import Target


@lru_cache(maxsize=32)
def kind_of(target: Target) -> Kind:
    """The kind of a target, with what it has to know of the label."""
    match target.kind:
        case "binary":
            return BINARY
        case "multiclass":
            return Multiclass(target.classes)
        case "regression":
            return Regression(target.quantiles)
