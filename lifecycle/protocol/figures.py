"""What answers to a benchmark measure, as records keep it: figures with their intervals, of models, parts of the rows,
claims, protected columns and changed inputs.
"""

from __future__ import annotations

import math
from typing import Literal

from trainworthy.lifecycle.spec.benchmark import BehaviourSpec, SliceSpec
from trainworthy.lifecycle.spec.frozen import Frozen

# A width that is smaller, relative to the value, is what rounding leaves of none.
ROUNDING = 1e-9
# How an interval is made: by t over groups (tasks/interval.py), from effective rows (few_rows.py: exact of a share,
# score of a difference), from groups without a difference, with the spread of seeds, or not at all where nothing moves.
Method = Literal["t_by_group", "exact", "score", "all_alike", "with_seeds", "unmoved", "log_scale"]
BY_GROUP: Method = "t_by_group"


class Estimate(Frozen):
    """A value with its 95 % interval; whole groups (for example days) are the units of resampling.

    `method` is how the interval was made, `made` says so in words where it is not the usual way.
    """

    value: float
    low: float
    high: float
    standard_error: float
    groups: int
    method: Method = BY_GROUP
    made: str = ""

    @property
    def has_width(self) -> bool:
        """False of an interval of width 0, but for rounding: it says that the groups are alike, and no certainty."""
        return self.high - self.low > ROUNDING * abs(self.value)

    @property
    def method_told(self) -> str:
        """The method in brackets, to stand behind the interval; empty for the usual one."""
        return f" ({self.made})" if self.made else ""

    @property
    def shows_gain(self) -> bool:
        """Whether the interval, if it has a width, lies above 0."""
        return self.has_width and self.low > 0

    @property
    def shows_loss(self) -> bool:
        """Whether the interval, if it has a width, lies below 0."""
        return self.has_width and self.high < 0

    @property
    def detectable(self) -> float:
        """The smallest difference that so many groups would show in four of five benchmarks like this one."""
        from scipy.special import stdtrit

        degrees = self.groups - 1
        most, least = float(stdtrit(degrees, 0.975)), float(stdtrit(degrees, 0.8))
        if self.method == BY_GROUP:
            return (most + least) * self.standard_error
        return (1 + least / most) * max(self.high - self.value, self.value - self.low)


# The judged model and the registered one that it meets, by the names that they have in tables of answers and here.
CANDIDATE, CHAMPION = "candidate", "champion"


class Metric(Frozen):
    """One model's metric on the benchmark, over all rows or one slice."""

    model: str
    metric: str
    estimate: Estimate
    rows: int
    slice: str | None = None


class SeedSpread(Frozen):
    """How far other trainings of the candidate, which differ by the seed, lie apart in the primary metric.

    `sd` is their standard deviation on the validation rows, of the calibrated answers of `seeds` trainings, None where
    it is not known for the reason `told`. `by_rows` is the gain by the chance of the benchmark's rows alone.
    """

    seeds: int
    sd: float | None
    by_rows: Estimate
    told: str = ""


class Comparison(Frozen):
    """Paired gain of the candidate over a reference, above 0 is better whichever way the metric points.

    Where several seeds were trained, the interval of `gain` has their spread in it, and `seeds` says how much that is.
    """

    reference: str
    metric: str
    gain: Estimate
    seeds: SeedSpread | None = None

    @property
    def by_rows(self) -> Estimate:
        """The gain of the model at hand, by the chance of the benchmark's rows alone."""
        return self.gain if self.seeds is None else self.seeds.by_rows


class Compared(Frozen):
    """One metric of two models over some rows, `part` of them or all; `gain` is the first's over the second.

    `told` says why there is no figure, empty where there is one.
    """

    part: str
    metric: str
    rows: int
    groups: int
    first: Estimate | None = None
    second: Estimate | None = None
    gain: Estimate | None = None
    told: str = ""


class ReliabilityBin(Frozen):
    """Mean answer against what is observed, in bins of equal mass by the answer: a probability against a share of rows,
    a number against the mean label.
    """

    predicted: float
    observed: float
    rows: int


# How a slice stands to what is declared for it: `not_shown` where the rows can't tell.
Standing = Literal["not_asked", "kept", "not_shown", "broken"]


class SliceResult(Frozen):
    """A slice that decides: what is declared for it, and what was measured.

    `estimate` is the candidate's `metric`, which the bound is about, `gain` that over the champion in the primary
    metric, both over the slice's rows. Each is None where it is not asked for, or was not measured; `told` says why.
    `unmatched` keys of a slice's file are no rows of the benchmark. The verdict says how the slice stands to its bound
    and to the champion.
    """

    slice: str
    declared: SliceSpec
    rows: int
    groups: int
    metric: str
    estimate: Estimate | None = None
    gain: Estimate | None = None
    told: str = ""
    unmatched: int = 0
    bound: Standing = "not_asked"
    champion: Standing = "not_asked"


class CalibrationBand(Frozen):
    """Rows of about equal probabilities: their mean, and the share that came true with its interval by group.

    `observed` is None where the groups are too few for an interval, and `reason` says so; `share` is there always.
    """

    predicted: float
    share: float
    rows: int
    groups: int
    observed: Estimate | None = None
    reason: str = ""


class Calibration(Frozen):
    """How far a model's probabilities of one claim are from what came true.

    `error` is the root mean square distance of probability and share over bins of equal mass, without what chance adds
    (0 or more). `intercept` and `slope` are those of a logistic regression of what came true on the claimed log-odds:
    0 with the slope held at 1, and 1, where the model is calibrated. `reasons` say what could not be measured and why.
    """

    model: str
    claim: str
    rows: int
    groups: int
    error: Estimate | None = None
    intercept: Estimate | None = None
    slope: Estimate | None = None
    bands: tuple[CalibrationBand, ...] = ()
    reasons: tuple[str, ...] = ()


class RateOfValue(Frozen):
    """One rate of the rows that have one value of a protected column; `rows` and `groups` are those that it is of."""

    value: str
    rows: int
    groups: int
    rate: Estimate | None = None
    reason: str = ""


class PairDifference(Frozen):
    """By how much the rate of the value `highest` lies above that of `lowest`, with the interval of those two."""

    highest: str
    lowest: str
    difference: Estimate


class Disparity(Frozen):
    """One rate of a model's decisions by the values of a protected column.

    `difference` is the highest rate less the lowest, `ratio` the lowest over the highest, each with the interval of
    those two values. None where fewer than two values have a rate, and `reason` says so. Of all pairs of values with a
    rate `widest` is the one whose interval reaches farthest, None where one pair has none; `surest` is the one whose
    difference is sure to be the greatest (evaluation/fairness.py: sure_of). Of a column of many values the greatest are
    in `values`, and `other_values` with `other_rows` are the rest, which are in no difference.
    """

    model: str
    column: str
    claim: str
    rate: Literal["selection_rate", "true_positive_rate", "false_positive_rate", "mean_error", "mean_loss"]
    values: tuple[RateOfValue, ...]
    other_values: int = 0
    other_rows: int = 0
    highest: str = ""
    lowest: str = ""
    difference: Estimate | None = None
    ratio: Estimate | None = None
    widest: PairDifference | None = None
    surest: PairDifference | None = None
    reason: str = ""


class LossPart(Frozen):
    """Some rows of the benchmark: the candidate's mean loss, and its gain over the best baseline, above 0 is better."""

    name: str
    rows: int
    groups: int
    loss: Estimate | None = None
    gain: Estimate | None = None
    reason: str = ""


class LossAxis(Frozen):
    """The benchmark in parts by one thing: `groups` in their order, `answer`, or a feature."""

    by: str
    parts: tuple[LossPart, ...]


class GroupLoss(Frozen):
    """One group, or neighbouring ones where there are many: mean loss, and mean gain over the best baseline."""

    name: str
    rows: int
    loss: float
    gain: float


class Autocorrelation(Frozen):
    """How the mean gain of a group resembles that of the group before, and the gain's interval that reckons with it.

    `factor` is what the standard error is multiplied by; 1 where groups do not resemble their neighbours.
    """

    lag_one: float
    factor: float
    gain: Estimate
    widened: Estimate


class WorstRow(Frozen):
    """A row of the benchmark by its number in the table of predictions, with its loss."""

    row: int
    loss: float


class Residuals(Frozen):
    """Where the candidate's loss lies: over groups, by its answer, by feature, and in single rows.

    Of many features those are in `axes` by which the loss differs most, and `other_features` counts the rest.
    """

    loss: str
    baseline: str
    axes: tuple[LossAxis, ...] = ()
    by_group: tuple[GroupLoss, ...] = ()
    autocorrelation: Autocorrelation | None = None
    worst: tuple[WorstRow, ...] = ()
    other_features: int = 0
    reasons: tuple[str, ...] = ()


class BlindSpot(Frozen):
    """Rows of which a model's loss is higher than simple models' losses on them let expect, by more than elsewhere.

    `rule` is a predicate (lifecycle/evaluation/predicate.py) that selects them. It was found in some of the groups; all
    differences are those of the others: mean inside less mean outside, of rows that no spot before it has.
    `excess` is that of the loss above the expected one, `expected` that of the expected loss, which is high where rows
    are hard for simple models, too; both together are that of the loss. `champion` is the champion's excess.
    `p` is that of an excess no larger than what matters; `confirmed` counts how many spots were tried.
    `examples` are the numbers of the rows with the highest excess in the benchmark.
    """

    rule: str
    rows: int
    groups: int
    share: float
    excess: Estimate
    expected: float
    champion: Estimate | None = None
    p: float
    confirmed: bool
    examples: tuple[int, ...]


class ModelFigures(Frozen):
    """What one model's answers measure on the benchmark, over all rows and slices, as BenchmarkFigures has it of the
    candidate. `not_defined` are metrics without a value, each with the reason.
    """

    metrics: tuple[Metric, ...]
    not_defined: tuple[str, ...] = ()
    calibration: tuple[Calibration, ...] = ()
    fairness: tuple[Disparity, ...] = ()
    residuals: Residuals | None = None


class Importance(Frozen):
    """By how much the mean loss rises when a feature's values are exchanged between rows; 0 where it is not used."""

    column: str
    loss: Estimate


class DependencePoint(Frozen):
    """The mean answer if all rows had this value of a feature; `at` is it where it is a number."""

    value: str
    at: float | None = None
    answer: Estimate


class Dependence(Frozen):
    """Partial dependence of what is answered (`claim`) on a feature, at values that training rows have."""

    column: str
    claim: str
    points: tuple[DependencePoint, ...]


Change = Literal["jitter", "missing", "thousandfold", "thousandth", "swapped", "unknown"]


class Perturbation(Frozen):
    """What is answered if one feature is changed in all rows.

    `moved` is as ChangedInputs.measure says, `loss` by how much the mean loss rises. `refused` is the share of rows
    that the contract refuses with the changed value, `altered` the share that has another value than before, None in
    records of before it was counted. Both figures are None where the model was not `asked`, since the change cannot be
    made or the contract refuses it, and where it has no answer; `reason` says why.
    """

    column: str
    change: Change
    refused: float
    asked: bool = True
    altered: float | None = None
    moved: Estimate | None = None
    loss: Estimate | None = None
    reason: str = ""


class ChangedInputs(Frozen):
    """What a model answers to some rows of the benchmark if one input is changed at a time.

    `rows` of `groups`, each row as likely as any other. `measure` is the share of rows whose decision changes, or how
    far a number moves on average, in its unit; None for kinds with neither. `left_out` says which features were not
    changed and why; `reason` why none was.
    """

    rows: int = 0
    groups: int = 0
    loss: str = ""
    measure: Literal["flip_rate", "mean_absolute_change"] | None = None
    importance: tuple[Importance, ...] = ()
    dependence: tuple[Dependence, ...] = ()
    perturbations: tuple[Perturbation, ...] = ()
    left_out: tuple[str, ...] = ()
    reason: str = ""


class BehaviourResult(Frozen):
    """A declared test of behaviour: the share of rows that fail, or the mean absolute change of a number.

    `estimate` is None where it was not measured, and `told` says why.
    """

    declared: BehaviourSpec
    measure: Literal["flip_rate", "mean_absolute_change", "violation_rate"]
    rows: int = 0
    estimate: Estimate | None = None
    told: str = ""

    @property
    def standing(self) -> Standing:
        """How the whole interval stands to the limit, also one of width 0: nothing moves then, or all moves alike."""
        if self.estimate is None or not math.isfinite(self.estimate.low + self.estimate.high):
            return "not_shown"
        if self.estimate.low > self.declared.at_most:
            return "broken"
        return "not_shown" if self.estimate.high > self.declared.at_most else "kept"


class Behaviour(Frozen):
    """What the candidate does if its inputs change; None and empty in records of before it was asked."""

    changed_inputs: ChangedInputs | None = None
    behaviour: tuple[BehaviourResult, ...] = ()


class BenchmarkFigures(Frozen):
    """What the answers of the candidate and its baselines measure on the benchmark.

    `comparisons` are the candidate's gains, `baseline_gains` those of each baseline over the prior, empty in
    records of before they were measured; so are `calibration`, `fairness`, `residuals` and
    `blind_spots`. `slices` are those that decide; their gains are promotion's to measure.
    """

    rows: int
    groups: int
    primary: str
    metrics: tuple[Metric, ...]
    comparisons: tuple[Comparison, ...]
    baseline_gains: tuple[Comparison, ...] = ()
    reliability: tuple[ReliabilityBin, ...]
    slices: tuple[SliceResult, ...] = ()
    calibration: tuple[Calibration, ...] = ()
    fairness: tuple[Disparity, ...] = ()
    residuals: Residuals | None = None
    blind_spots: tuple[BlindSpot, ...] = ()
