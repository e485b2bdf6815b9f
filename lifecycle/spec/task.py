"""What is predicted: the kind that use_case.yaml declares, and what the kind has to know of the label."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainworthy.lifecycle.spec.frozen import Frozen

KindName = Literal["binary", "multiclass", "multilabel", "regression", "segmentation", "language_model"]
KINDS: tuple[KindName, ...] = ("binary", "multiclass", "multilabel", "regression", "segmentation", "language_model")
# The type of label in contract.yaml that each kind predicts.
LABEL_TYPES: dict[KindName, Literal["event", "class", "labels", "number", "mask", "text"]] = {
    "binary": "event", "multiclass": "class", "multilabel": "labels", "regression": "number", "segmentation": "mask",
    "language_model": "text",
}  # fmt: skip
# What a class of the contract may be: JSON keeps these apart.
ClassValue = str | int
# Bytes of a document: 256 probabilities of 4 bytes at each are 4 MiB a row.
MOST_LENGTH = 4096
Quantile = Annotated[float, Field(gt=0, lt=1)]


class TaskSpec(Frozen):
    """What the label is and what the model answers."""

    kind: KindName = Field(
        description="binary: the probability of label 1. multiclass: a probability of each class, of which a row "
        "has one. multilabel: a probability of each label, of which a row has any number. regression: a number, or "
        "declared quantiles of it. segmentation: a probability of each class at each pixel. "
        "language_model: a probability of each byte that a text may go on with, at each place."
    )
    quantiles: tuple[Quantile, ...] = Field(
        default=(),
        description="Of a regression: the quantiles that the model answers instead of one number, rising, for example "
        "[0.1, 0.5, 0.9].",
    )
    length: int | None = Field(
        default=None, ge=2, le=MOST_LENGTH,
        description="Of a language_model: how many bytes of each document are predicted, the first ones; longer "
        "documents are cut into pieces where the dataset is made.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _quantiles(self) -> TaskSpec:
        if self.quantiles and self.kind != "regression":
            raise ValueError(f"quantiles belong to kind: regression, and the kind is {self.kind}: remove them")
        if list(self.quantiles) != sorted(set(self.quantiles)):
            raise ValueError(f"quantiles must rise: write {sorted(set(self.quantiles))}")
        return self

    @model_validator(mode="after")
    def _length(self) -> TaskSpec:
        if self.kind == "language_model" and self.length is None:
            raise ValueError("a language_model needs how many bytes of a document are predicted: write length: 256")
        if self.kind != "language_model" and self.length is not None:
            raise ValueError(f"length belongs to kind: language_model, and the kind is {self.kind}: remove it")
        return self


class Target(Frozen):
    """A task as the worker is told of it: the kind, the classes of its label, or its labels, in order, its quantiles,
    how many bytes of a text are predicted (0: not said).

    Jobs and artifacts of before there were kinds hold none: they were binary.
    """

    kind: KindName = "binary"
    classes: tuple[ClassValue, ...] = ()
    quantiles: tuple[float, ...] = ()
    length: int = 0


KIND_OF_LABEL: dict[str, KindName] = {label: kind for kind, label in LABEL_TYPES.items()}


def target_of(spec: TaskSpec, classes: tuple[Any, ...] = ()) -> Target:
    """The target of a declared task whose contract names these classes."""
    return Target(kind=spec.kind, classes=classes, quantiles=spec.quantiles, length=spec.length or 0)
