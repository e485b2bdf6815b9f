"""Kinds of task: what a label is, what an answer is, and how it is scored. A file a kind; nobody else names one."""

from __future__ import annotations

from functools import lru_cache

from trainworthy.lifecycle.protocol.records import Record
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.spec.task import ClassValue, KindName, Target
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.lifecycle.tasks.segmentation import Segmentation


def kind_of(target: Target) -> Kind:
    """The kind of a target, with what it has to know of the label."""
    return _kind(target.kind, target.classes, target.quantiles, target.length)


@lru_cache(maxsize=32)
def _kind(name: KindName, classes: tuple[ClassValue, ...], quantiles: tuple[float, ...], length: int) -> Kind:
    match name:
        case "binary":
            return BINARY
        case "multiclass":
            return Multiclass(classes)
        case "multilabel":
            return Multilabel(classes)
        case "regression":
            return Regression(quantiles)
        case "segmentation":
            return Segmentation(classes)
        case "language_model":
            return LanguageModel(length)


def words_of(record: Record) -> Words:
    """The words of the kind of task that a record is about."""
    return kind_of(Target.model_validate({"kind": record.task})).words


def is_better_higher(metric: str) -> bool | None:
    """Whether more of a metric is better, by its name, as records have it; None where neither more nor less is."""
    return _DIRECTIONS.get(metric.partition("[")[0])


# Names mean the same in every kind; a class and quantiles stand for any others.
_SAMPLES: tuple[Kind, ...] = (
    BINARY, Multiclass(("0", "1")), Multilabel(("0", "1")), Regression(), Regression((0.1, 0.5, 0.9)),
    Segmentation(("0", "1")), LanguageModel(256),
)  # fmt: skip
_DIRECTIONS = {
    metric.name.partition("[")[0]: metric.higher_is_better
    for kind in _SAMPLES
    for metric in kind.metrics.values()
    if metric.ranks
}
