"""The data contract: what a dataset must hold, what its columns mean to a model, and how its label is defined.

Read from contract.yaml in the form of the Open Data Contract Standard v3.1 (odcs.py), compiled into rules (rules.py).
What a model must know of a column stands in its customProperties: role, unit, availableAt, reviewed …; the contract's
own customProperties hold the label and, if wanted, the timeline and the tables that rules refer to.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainworthy.lifecycle.contract.freshness import Freshness
from trainworthy.lifecycle.contract.rule import LogicalType, Rule
from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.task import KIND_OF_LABEL, Target
from trainworthy.lifecycle.tasks import Kind, kind_of

Role = Literal["feature", "target_source", "target", "event_time", "entity", "key", "weight", "other"]


class Column(Frozen):
    """One column. `available_at` is an ISO 8601 duration relative to the prediction time, or a name in the timeline.

    `allowed_drift` is the PSI beyond which the newest window stops a run, `decides_label` the reason why a feature may
    decide the label alone without being a leak. `reviewed` is False while `available_at` is the guess of a draft; a
    text is the reason for which somebody accepted the guess without being asked about this column. Values of a column
    with a `file` are paths of files of that kind; all of one `size`, if it is declared: (height, width) of a picture or
    mask, the shape of an array.
    """

    name: str
    logical_type: LogicalType
    role: Role
    unit: str | None = None
    available_at: str | None = None
    sensitive: bool = False
    allowed_drift: float | None = None
    decides_label: str | None = None
    reviewed: bool | str = True
    file: FileKind | None = None
    size: tuple[int, ...] | None = None


LabelType = Literal["event", "class", "labels", "number", "mask", "text"]
_WITH_CLASSES = ("class", "labels", "mask")
# Strict, or 1 and True and "1" would be one class.
ClassValue = Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True, min_length=1)]


class Label(Frozen):
    """The label's definition. A row whose column is null has no label.

    An event is column > greater_than or, without greater_than, the column's own 0/1 value. A class is one of `classes`,
    stored as its place among them. Labels are any number of `classes`, whose names the column holds with `separator`
    between them, an empty text for none of them; stored as a text of 0 and 1, one character a class. A number is the
    column's own. A mask is a file whose pixels hold places among `classes`. A text is the column's own, of which
    each byte is predicted by those before it: input and label at once.
    """

    name: str = Field(min_length=1)
    version: int = Field(ge=1, strict=True)
    column: str
    greater_than: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    type: LabelType = "event"
    classes: tuple[ClassValue, ...] = ()
    separator: str | None = Field(default=None, min_length=1, strict=True)

    @model_validator(mode="after")
    def _of_one_type(self) -> Label:
        if self.type != "event" and self.greater_than is not None:
            raise ValueError(
                f"greaterThan makes an event of a number, and the type is {self.type}: remove one of the two"
            )
        if self.classes and self.type not in _WITH_CLASSES:
            raise ValueError(
                f"classes belong to type: class, labels or mask, and the type is {self.type}: write type: class"
            )
        if self.type in _WITH_CLASSES and len(self.classes) < 2:
            raise ValueError(
                f"a label of type {self.type} needs at least two classes: write classes: [first, second, …]"
            )
        self._separated()
        if len(set(map(str, self.classes))) < len(self.classes):
            raise ValueError("a class is named twice: name each once")
        return self

    def _separated(self) -> None:
        """Raises ValueError unless labels have a separator that texts can be cut at, and nothing else has one."""
        if self.type != "labels":
            if self.separator is not None:
                raise ValueError(
                    f"a separator belongs to a label of type labels, and the type is {self.type}: remove it"
                )
            return
        if self.separator is None:
            raise ValueError(
                'a label of type labels needs what stands between its names in the column: write separator: "|"'
            )
        numbers = [class_name for class_name in self.classes if not isinstance(class_name, str)]
        if numbers:
            raise ValueError(
                f"the classes of a label of type labels are names, and {numbers[0]} is a number: write '{numbers[0]}'"
            )
        holding = [class_name for class_name in self.classes if self.separator in str(class_name)]
        if holding:
            raise ValueError(f"the class {holding[0]!r} holds the separator {self.separator!r}: rename one of the two")
        # Of a- and b with -- between them, a---b is cut after a, where the separator is found first.
        begun = tuple(self.separator[:end] for end in range(1, len(self.separator)))
        early = [class_name for class_name in self.classes if str(class_name).endswith(begun)]
        if early:
            raise ValueError(
                f"the class {early[0]!r} ends as the separator {self.separator!r} begins, so that texts can't be taken "
                "apart: rename one of the two"
            )

    @property
    def target(self) -> Target:
        """What a task that predicts such a label answers; a number by one number."""
        return Target(kind=KIND_OF_LABEL[self.type], classes=self.classes)

    @property
    def kind(self) -> Kind:
        """The kind of that task."""
        return kind_of(self.target)

    @property
    def definition(self) -> dict[str, Any]:
        """All that says what a label is; each type keeps the form of before there were others."""
        without = {"event": {"type", "classes", "separator"}, "labels": set()}.get(self.type, {"separator"})
        return self.model_dump(mode="json", exclude=without)


class Contract(Frozen):
    """A contract that could be read without a problem."""

    name: str
    version: str
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    label: Label
    primary_key: tuple[str, ...]
    timeline: tuple[str, ...] = ()
    freshness: Freshness | None = None

    @cached_property
    def sha256(self) -> str:
        """Hash of all that decides what is accepted; name, version, freshness, owners and words do not count."""
        values: dict[str, Any] = self.model_dump(mode="json", exclude={"name", "version", "freshness"})
        values["label"] = self.label.definition
        for column in values["columns"]:
            # Contracts that say nothing of a review keep the hash that they had before there was one.
            if column["reviewed"] is True:
                del column["reviewed"]
            # The same for those without files.
            for name in ("file", "size"):
                if column[name] is None:
                    del column[name]
        return sha256_json(values)

    @cached_property
    def label_sha256(self) -> str:
        """Hash of the label's definition, with the unit of its column: 15 minutes are not 15 hours."""
        return sha256_json({"label": self.label.definition, "unit": self.column(self.label.column).unit})

    @property
    def label_values(self) -> dict[str, tuple[Any, ...]]:
        """Of the label's column, where rows hold the label's numbers in its place: the value that each stands for."""
        label = self.label
        if label.name != label.column or label.greater_than is not None:
            return {}
        if label.type == "class":
            return {label.column: label.classes}
        of_booleans = label.type == "event" and self.column(label.column).logical_type == "boolean"
        return {label.column: (False, True)} if of_booleans else {}

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Names of the columns that a model may read, in order of writing."""
        return tuple(column.name for column in self.columns if column.role == "feature")

    @property
    def file_columns(self) -> tuple[Column, ...]:
        """The columns whose files a model reads or learns from."""
        return tuple(column for column in self.columns if column.file and column.role in ("feature", "target"))

    @property
    def unreviewed_features(self) -> tuple[str, ...]:
        """Names of the features of which nobody has said when they are known."""
        return tuple(column.name for column in self.columns if column.role == "feature" and column.reviewed is False)

    @property
    def accepted_features(self) -> dict[str, str]:
        """Features that were accepted without a question about each, with the reason."""
        return {
            column.name: column.reviewed
            for column in self.columns
            if column.role == "feature" and isinstance(column.reviewed, str)
        }

    @property
    def weight_column(self) -> str | None:
        """Name of the column that weighs training rows; None without one."""
        return next((column.name for column in self.columns if column.role == "weight"), None)

    @property
    def sensitive_columns(self) -> tuple[str, ...]:
        """Names of the columns whose values never appear row by row."""
        return tuple(column.name for column in self.columns if column.sensitive)

    def column(self, name: str) -> Column:
        """The column of that name. Raises KeyError."""
        return {column.name: column for column in self.columns}[name]
