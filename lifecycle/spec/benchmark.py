"""benchmark of use_case.yaml: what a candidate is measured by, and against, and which limits decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    model_serializer,
    model_validator,
)

from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.names import Name

# In a folder of their own, which no step reads but the evaluation: an edited one trains nothing anew.
SLICE_FILES = "slices"


ROWS_PATTERN = rf"^{SLICE_FILES}/[A-Za-z0-9_-]+\.csv$"


class PrimarySpec(Frozen):
    """The metric that decides."""

    metric: str = Field(
        description="A metric of the task's kind that ranks models, for example log_loss, auc, accuracy, macro_f1, "
        "rmse, mae, r2 or pinball; docs/how-to/tasks.md lists them."
    )
    margin: float = Field(
        gt=0, allow_inf_nan=False, description="By how much a model may be worse and still count as no worse."
    )


class Guardrail(Frozen):
    """What a model must keep; the unfavourable end of the interval decides. Exactly one of the two bounds."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["at_most"]}, {"required": ["at_least"]}]})

    metric: str = Field(description="A metric of the task's kind; of one class or quantile as recall[name].")
    at_most: float | None = Field(default=None, allow_inf_nan=False, description="Upper bound.")
    at_least: float | None = Field(default=None, allow_inf_nan=False, description="Lower bound.")

    @model_validator(mode="after")
    def _one_bound(self) -> Guardrail:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("give exactly one of at_most and at_least")
        return self


# What follows where the rows cannot show that something declared is kept.
OnUnderpowered = Literal["block", "shadow", "warn"]


class SliceSpec(Frozen):
    """Rows of the benchmark that are measured by themselves: exactly one of `column`, `where` and `rows` says which.

    With a bound or a margin to the champion they decide as well. A column has a slice a value, and a column's name
    alone stands for it.
    """

    column: str | None = Field(default=None, description="A column: each of its values is a slice.")
    where: str | None = Field(
        default=None,
        description='A condition on columns, such as origin == "EWR" and wind_speed > 20; the rows that meet it.',
    )
    rows: Annotated[str, StringConstraints(pattern=ROWS_PATTERN)] | None = Field(
        default=None,
        description="A CSV file, slices/<name>.csv in the use case's folder: the primary keys of the rows.",
    )
    name: Annotated[str, StringConstraints(pattern=r"^[^\n\r\t]{1,60}$")] | None = Field(
        default=None, description="What to call it; left out, what says which rows."
    )
    metric: str | None = Field(default=None, description="The metric of the bound; left out, the primary one.")
    at_most: float | None = Field(default=None, allow_inf_nan=False, description="Upper bound.")
    at_least: float | None = Field(default=None, allow_inf_nan=False, description="Lower bound.")
    champion_margin: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="By how much the primary metric may be worse here than the champion's and count as no worse.",
    )
    on_underpowered: OnUnderpowered = Field(
        default="shadow",
        description="What follows where the rows cannot show that bound or margin is kept: no promotion and no "
        "shadow, shadow at most, or a warning beside the verdict.",
    )

    @property
    def rule(self) -> str:
        """What says which rows are in it."""
        return self.column or self.where or self.rows or ""

    @property
    def title(self) -> str:
        """What it is called."""
        return self.name or self.rule

    @property
    def bounded(self) -> bool:
        """Whether a metric has a bound here."""
        return self.at_most is not None or self.at_least is not None

    @property
    def decides(self) -> bool:
        """Whether a verdict hangs on it."""
        return self.bounded or self.champion_margin is not None

    @model_validator(mode="after")
    def _whole(self) -> SliceSpec:
        if sum(value is not None for value in (self.column, self.where, self.rows)) != 1:
            raise ValueError("give exactly one of column, where and rows")
        if self.at_most is not None and self.at_least is not None:
            raise ValueError("give one of at_most and at_least, or two slices of two names")
        if self.metric is not None and not self.bounded:
            raise ValueError("metric has no effect without at_most or at_least: give a bound, or leave metric out")
        if "on_underpowered" in self.model_fields_set and not self.decides:
            raise ValueError("on_underpowered has no effect: nothing decides here without a bound or champion_margin")
        return self

    @model_serializer(mode="wrap")
    def _short(self, form: SerializerFunctionWrapHandler) -> Any:
        """A column alone is its name, as it is written in most files, and was in all that were written before."""
        fields = type(self).model_fields
        said = {name: value for name, value in form(self).items() if value != fields[name].default}
        return self.column if set(said) == {"column"} else said


def _slice_of(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


Slice = Annotated[SliceSpec, BeforeValidator(_slice_of, json_schema_input_type=str | SliceSpec)]


DecisionRate = Literal["selection_rate", "true_positive_rate", "false_positive_rate"]


class FairnessSpec(Frozen):
    """Whose decisions are held against each other: docs/how-to/evaluation.md."""

    columns: tuple[str, ...] = Field(
        min_length=1, description="Protected columns, by whose values rates of decisions are told."
    )
    minimum_rows: int = Field(
        default=100, ge=20, description="Fewest rows that a rate is told of; 20 at least. Smaller ones are listed."
    )
    at_most_difference: dict[DecisionRate, Annotated[float, Field(gt=0, lt=1)]] = Field(
        default_factory=dict,
        description="By how much a rate may differ between two values of a column; what is not named decides nothing.",
    )
    on_underpowered: OnUnderpowered = Field(
        default="shadow",
        description="What follows where the rows cannot show that a limit is kept, or a value has too few of them: no "
        "promotion and no shadow, shadow at most, or a warning beside the verdict.",
    )

    @model_validator(mode="after")
    def _decides(self) -> FairnessSpec:
        if "on_underpowered" in self.model_fields_set and not self.at_most_difference:
            raise ValueError("on_underpowered has no effect: nothing decides here without at_most_difference")
        return self

    @model_serializer(mode="wrap")
    def _short(self, form: SerializerFunctionWrapHandler) -> Any:
        """Without a default that is younger than suites which were judged by this: they stay equal."""
        said = form(self)
        if self.on_underpowered == "shadow":
            said.pop("on_underpowered", None)
        return said

    @model_validator(mode="after")
    def _columns_once(self) -> FairnessSpec:
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise ValueError(f"columns are named twice: {', '.join(twice)}")
        return self


class BehaviourSpec(Frozen):
    """What the model's answers must or must not do if one input changes: exactly one of `invariant_to` and `direction`.

    An invariance test and a directional expectation test (Ribeiro et al. 2020): docs/how-to/evaluation.md.
    """

    column: str = Field(description="A feature.")
    invariant_to: Literal["swapped", "jitter", "missing"] | None = Field(
        default=None,
        description="The answer must stay where the value is swapped for another one of the training rows, moved by a "
        "tenth of the training rows' spread (jitter), or left out (missing).",
    )
    direction: Literal["rises", "falls"] | None = Field(
        default=None, description="The answer must go this way where the number rises, and never the other."
    )
    claim: str | None = Field(
        default=None,
        description="Whose probability has a direction, where an answer holds several, as reports name it: class late, "
        "label sky.",
    )
    tolerance: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="Of a direction: by how much an answer may go the other way and not fail, in its unit; not at all "
        "if left out.",
    )
    at_most: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="Share of rows that may fail: whose decision flips, or whose answer goes the other way. Invariance "
        "of a kind of numbers: the mean absolute change of the answer, in its unit.",
    )

    @property
    def title(self) -> str:
        """The test in words."""
        if self.invariant_to is not None:
            how = "moved a little" if self.invariant_to == "jitter" else self.invariant_to
            return f"unchanged when {self.column} is {how}"
        return f"{self.claim or 'the answer'} {self.direction} as {self.column} rises"

    @model_validator(mode="after")
    def _exactly_one(self) -> BehaviourSpec:
        if (self.invariant_to is None) == (self.direction is None):
            raise ValueError("give exactly one of invariant_to and direction")
        if self.claim is not None and self.direction is None:
            raise ValueError("claim has no effect without direction: an invariance is of all that is answered")
        if self.tolerance and self.direction is None:
            raise ValueError("tolerance has no effect without direction: at_most is the limit of an invariance")
        return self

    @model_serializer(mode="wrap")
    def _said(self, form: SerializerFunctionWrapHandler) -> Any:
        return {name: value for name, value in form(self).items() if value not in (None, 0.0)}


class OwnMetric(Frozen):
    """A metric of the use case's own: docs/how-to/tasks.md."""

    better: Literal["more", "less"] = Field(description="Which way is better.")


def _form_of_cost(value: Any) -> str:
    """A text that is a number is that number, as pydantic and YAML (1e3) have it; every other text names a column."""
    if not isinstance(value, str):
        return "number"
    try:
        float(value)
    except ValueError:
        return "column"
    return "number"


# Above 0, or the name of a column of numbers from 0 on.
Cost = Annotated[
    Annotated[float, Field(gt=0, allow_inf_nan=False), Tag("number")]
    | Annotated[str, StringConstraints(min_length=1), Tag("column")],
    Discriminator(_form_of_cost),
]


class CostsSpec(Frozen):
    """What a wrong decision costs, in any unit; right ones cost nothing.

    A cost is a number above 0, the same for all rows, or the name of a column of the contract that has each row's, a
    number from 0 on. Of a row's two costs only that of its label counts, so the other one may be missing.
    """

    false_positive: Cost = Field(
        description="Acting on a row of label 0: a number above 0, or a column whose numbers from 0 on are the rows' "
        "own costs."
    )
    false_negative: Cost = Field(
        description="Not acting on a row of label 1: a number above 0, or a column whose numbers from 0 on are the "
        "rows' own costs, such as the amount that is lost."
    )

    @property
    def columns(self) -> dict[str, str]:
        """Columns that hold rows' own costs, by the key that names them; empty where both costs are numbers."""
        return {key: cost for key, cost in self if isinstance(cost, str)}


class DecisionSpec(Frozen):
    """What is decided by an answer: exactly one key says so.

    Of kind binary `threshold`, `capacity` and `costs` say from which probability on a row counts as 1; of kind
    multiclass `cost_matrix` which class is answered.
    """

    threshold: float | None = Field(default=None, gt=0, lt=1, description="From this probability on.")
    capacity: float | None = Field(
        default=None, gt=0, lt=1, description="The share of rows that can be acted on; chosen on the calibration split."
    )
    costs: CostsSpec | None = Field(default=None, description="What wrong decisions cost: the cheapest threshold.")
    cost_matrix: dict[str, dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]] | None = Field(
        default=None,
        min_length=1,
        description="What it costs to answer another class, by the true class: {late: {early: 5}}; pairs left out cost "
        "1. The class of the least expected cost is answered.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> DecisionSpec:
        if sum(value is not None for value in (self.threshold, self.capacity, self.costs, self.cost_matrix)) != 1:
            raise ValueError("give exactly one of threshold, capacity, costs and cost_matrix")
        if any(costs.get(name) for name, costs in (self.cost_matrix or {}).items()):
            raise ValueError("answering the true class costs nothing: leave it out of its own row")
        return self

    @property
    def cost_columns(self) -> dict[str, str]:
        """Columns that hold rows' own costs, by the key of costs that names them."""
        return {} if self.costs is None else self.costs.columns

    @property
    def by_threshold(self) -> bool:
        """Whether a probability decides, and not what answering each class is expected to cost."""
        return self.cost_matrix is None


def _ratio_limit(what: str) -> Any:
    return Field(default=None, gt=0, allow_inf_nan=False, description=f"So many times the champion's {what}.")


class ChampionLimits(Frozen):
    """What a candidate may take to be served, as a multiple of what the champion takes: docs/how-to/evaluation.md."""

    latency: float | None = _ratio_limit("time to answer one row")
    batch_latency: float | None = _ratio_limit("time to answer a batch of 256 rows")
    cold_load: float | None = _ratio_limit("time from opening the artifact to the first answer")
    memory: float | None = _ratio_limit("memory for loading and answering a batch")
    size: float | None = _ratio_limit("artifact's size")

    @property
    def declared(self) -> dict[str, float]:
        """The limits that are set, by quantity."""
        return {name: limit for name, limit in self if limit is not None}

    @model_validator(mode="after")
    def _not_empty(self) -> ChampionLimits:
        if not self.declared:
            raise ValueError(f"it limits nothing: give one of {', '.join(type(self).model_fields)}, or leave it out")
        return self


class BenchmarkSpec(Frozen):
    """What a candidate is measured by, and against."""

    suite: Name | None = Field(
        default=None,
        description="The suite's name, under which use cases may share one; left out, the use case's. Of a file "
        "suites/<name>.yaml beside the folder of use cases all its keys are taken.",
    )
    version: int = Field(default=1, ge=1, description="The suite's version, raised by whoever changes it.")
    looks: int | None = Field(
        default=None, ge=1, description="Warn from so many different models on that were measured on the same rows."
    )
    primary: PrimarySpec
    baselines: tuple[Name, ...] = Field(
        description="prior and linear always, gradient_boosting if you like (a language_model has none), "
        "and your own: baseline_<name> in model.py."
    )
    metrics: dict[Name, OwnMetric] = Field(
        default_factory=dict, description="Metrics of your own, by name: functions of metrics.py."
    )
    decision: DecisionSpec | None = Field(
        default=None,
        description="Of kind binary: from which probability on a row counts as 1, for metrics of decisions (accuracy, "
        "precision, recall, f1, decision_cost); left out, from 0.5 on. Of kind multiclass: what mistakes cost, for "
        "decision_cost.",
    )
    guardrails: tuple[Guardrail, ...] = Field(default=(), description="What a model must keep whatever it gains.")
    slices: tuple[Slice, ...] = Field(
        default=(),
        description="Parts of the rows that are measured by themselves: columns by name, or mappings that say which "
        "rows, and what must hold there.",
    )
    fairness: FairnessSpec | None = Field(
        default=None, description="Protected columns: how decisions differ between their values."
    )
    behaviour: tuple[BehaviourSpec, ...] = Field(
        default=(), description="What must hold of the answers if one input changes; each test decides."
    )
    weight: str | None = Field(
        default=None,
        description="A column of numbers from 0 on that weighs the benchmark's rows in all its figures, for example "
        "their value; left out, rows count alike. Training rows are weighed by the contract's role weight.",
    )
    slice_rows: int = Field(default=200, ge=20, description="Fewest rows of a slice that is measured; 20 at least.")
    latency_ms: float = Field(gt=0, allow_inf_nan=False, description="Limit of the time to answer one row.")
    size_mb: float = Field(gt=0, allow_inf_nan=False, description="Limit of the artifact's size.")
    at_most_champion: ChampionLimits | None = Field(
        default=None,
        description="What a candidate may take to be served, as a multiple of the champion's, for example latency: "
        "1.2; asks nothing without a champion.",
    )

    @property
    def ratio_limits(self) -> dict[str, float]:
        """Of at_most_champion, by quantity; empty where nothing is declared."""
        return {} if self.at_most_champion is None else self.at_most_champion.declared

    @property
    def slice_columns(self) -> tuple[str, ...]:
        """Columns whose values are slices."""
        return tuple(dict.fromkeys(slice_spec.column for slice_spec in self.slices if slice_spec.column is not None))

    @property
    def cost_columns(self) -> dict[str, str]:
        """Columns that hold rows' own costs of wrong decisions, by the key of decision.costs that names them."""
        return {} if self.decision is None else self.decision.cost_columns

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """Columns that predictions keep beside answers: those of slices and protected ones."""
        protected = () if self.fairness is None else self.fairness.columns
        return tuple(dict.fromkeys((*self.slice_columns, *protected)))

    @model_validator(mode="after")
    def _slices(self) -> BenchmarkSpec:
        if twice := _twice([slice_spec.title for slice_spec in self.slices]):
            raise ValueError(f"two slices are called {', '.join(twice)}: give each a name of its own")
        return self

    @model_validator(mode="after")
    def _behaviour(self) -> BenchmarkSpec:
        if twice := _twice([test.title for test in self.behaviour]):
            raise ValueError(f"a test of behaviour is declared twice: {'; '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _baselines(self) -> BenchmarkSpec:
        missing = {"prior", "linear"} - set(self.baselines)
        if missing:
            raise ValueError(f"baselines must hold prior and linear; missing: {', '.join(sorted(missing))}")
        if len(set(self.baselines)) < len(self.baselines):
            raise ValueError(f"a baseline is named twice: {', '.join(self.baselines)}")
        return self


def _twice(titles: Sequence[str]) -> list[str]:
    return sorted({title for title in titles if titles.count(title) > 1})
