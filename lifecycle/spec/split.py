"""The typed form of `split` in use_case.yaml: five kinds, told apart by `by`."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, model_validator

from trainworthy.lifecycle.spec.frozen import Frozen

SPLITS = ("training", "validation", "calibration", "benchmark")
_DURATION = r"[1-9][0-9]*[dh]"


def _duration(value: str) -> str:
    if not re.fullmatch(_DURATION, value):
        raise ValueError("write a number of whole days or hours, for example 14d or 36h")
    return value


Duration = Annotated[str, AfterValidator(_duration), WithJsonSchema({"type": "string", "pattern": f"^{_DURATION}$"})]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


def hours(duration: str) -> int:
    """Number of hours in a duration such as `14d` or `36h`; a day has 24 here."""
    return int(duration[:-1]) * (24 if duration.endswith("d") else 1)


def days(duration: str) -> int:
    """Number of days in a duration of whole days, such as `14d`."""
    return int(duration.removesuffix("d"))


# The descriptions below are the only ones: `trainworthy schema` hands them to editors.
class RollEvery(Frozen):
    """The benchmark moves on when a whole further period of rows has arrived; it is the end of the newest one."""

    model_config = ConfigDict(populate_by_name=True)

    every: Duration = Field(description="Length of a period, for example 90d.")
    from_: date = Field(alias="from", description="The first day of the first period, for example 2013-06-01.")


Roll = Annotated[
    Annotated[Literal["each_version", "pinned"], Tag("name")] | Annotated[RollEvery, Tag("every")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "every"),
]


class BenchmarkWindow(Frozen):
    """The labelled rows that both a candidate and a champion are judged on, by a declared policy."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"roll": {"const": "pinned"}}},
            "then": {"required": ["start"]},
            "else": {"properties": {"start": {"type": "null"}}},
        }
    )

    window: Duration = Field(description="Length, for example 30d.")
    roll: Roll = Field(
        description="When it moves on. each_version: it is the newest rows of each dataset version. {every: 90d, from: "
        "2013-06-01}: when a whole further period has arrived. pinned: never; it begins at start."
    )
    start: date | None = Field(default=None, description="With roll: pinned, the first day of the window.")

    @model_validator(mode="after")
    def _start_if_pinned(self) -> BenchmarkWindow:
        if (self.roll == "pinned") != (self.start is not None):
            raise ValueError("give start with roll: pinned, and with no other")
        return self


class Shares(Frozen):
    """Shares of the rows, or of the groups; training gets the rest."""

    validation: Share = Field(description="Stages and experiments are judged on it, for example 0.15.")
    calibration: Share = Field(description="Probabilities are calibrated on it, for example 0.1.")
    benchmark: Share = Field(description="The verdict is made on it, for example 0.2.")

    @model_validator(mode="after")
    def _leave_something(self) -> Shares:
        if self.of("training") < 0.01:
            raise ValueError("the shares must leave at least 0.01 for training")
        return self

    def of(self, split: str) -> float:
        """The share of a split."""
        if split == "training":
            return 1 - self.validation - self.calibration - self.benchmark
        return float(getattr(self, split))


class _Split(Frozen):
    """What every kind has, and what the steps ask of it."""

    resample_by: str = Field(
        description="A column whose values are resampled as a whole for intervals, for example the day or the "
        "customer: rows that share one are not independent."
    )

    @property
    def time_column(self) -> str | None:
        """The column that puts the splits in an order; None where they are in none."""
        return None

    @property
    def group_column(self) -> str | None:
        """The column whose values lie in one split each; None where none is declared."""
        return None

    def columns_named(self) -> dict[str, str]:
        """The columns of the dataset that it names, by their key below `split`."""
        return {"resample_by": self.resample_by}


class _Windows(_Split):
    """Splits that follow each other in time."""

    column: str = Field(description="A date or timestamp column.")
    embargo: Duration = Field(description="Left out between the splits: until a label is known, for example 1d or 36h.")
    validation: Duration = Field(description="Length; stages and experiments are judged on it.")
    calibration: Duration = Field(description="Length; probabilities are calibrated on it.")
    benchmark: BenchmarkWindow

    @property
    def time_column(self) -> str | None:
        return self.column

    @property
    def whole_days(self) -> bool:
        """True if all lengths are in days: cuts lie between local days. With hours they lie between instants."""
        roll = self.benchmark.roll
        lengths = [self.embargo, self.validation, self.calibration, self.benchmark.window]
        lengths += [roll.every] if isinstance(roll, RollEvery) else []
        return all(length.endswith("d") for length in lengths)

    @property
    def gap(self) -> str:
        """The embargo in the unit of the cuts: whole days (`1d`) or hours between instants (`24h`)."""
        return self.embargo if self.whole_days else f"{hours(self.embargo)}h"

    def columns_named(self) -> dict[str, str]:
        return {"column": self.column, **super().columns_named()}


class TimeSplit(_Windows):
    """Training, validation, calibration and benchmark follow each other in time, `embargo` apart."""

    by: Literal["time"] = Field(description="Rows are split by time.")


class TimeAndGroupSplit(_Windows):
    """Splits that follow each other in time, and later ones hold groups only that occur for the first time in them."""

    by: Literal["time_and_group"] = Field(description="Rows are split by time, and a group has rows in one split only.")
    group: str = Field(description="A column whose values lie in one split each, for example the customer.")

    @property
    def group_column(self) -> str | None:
        return self.group

    def columns_named(self) -> dict[str, str]:
        return {**super().columns_named(), "group": self.group}


class _Hashed(_Split):
    """Splits by a hash of columns' values."""

    salt: str = Field(min_length=1, description="Any text; another salt gives another assignment.")
    shares: Shares


class GroupSplit(_Hashed):
    """Whole groups lie in one split each, by a salted hash of the group: new rows never move an old group."""

    by: Literal["group"] = Field(description="Whole groups are split, by a hash of the group.")
    group: str = Field(description="A column whose values lie in one split each, for example the patient.")

    @property
    def group_column(self) -> str | None:
        return self.group

    def columns_named(self) -> dict[str, str]:
        return {"group": self.group, **super().columns_named()}


class HashSplit(_Hashed):
    """Rows are split by a salted hash of their key: new rows never move an old one."""

    by: Literal["hash"] = Field(description="Rows are split by a hash of their key.")
    columns: tuple[str, ...] = Field(default=(), description="The columns that are hashed; default the primary key.")

    def columns_named(self) -> dict[str, str]:
        hashed = {f"columns.{number}": name for number, name in enumerate(self.columns)}
        return {**hashed, **super().columns_named()}


class StratifiedSplit(_Hashed):
    """The shares are exact in each stratum; which rows they are is decided by a salted hash of the primary key."""

    by: Literal["stratified"] = Field(description="Shares are exact within strata of the label.")
    strata: tuple[str, ...] = Field(default=(), description="Columns whose values are strata, beside the label's.")

    def columns_named(self) -> dict[str, str]:
        strata = {f"strata.{number}": name for number, name in enumerate(self.strata)}
        return {**strata, **super().columns_named()}


SplitSpec = Annotated[
    TimeSplit | GroupSplit | TimeAndGroupSplit | StratifiedSplit | HashSplit, Field(discriminator="by")
]
Windows = TimeSplit | TimeAndGroupSplit
