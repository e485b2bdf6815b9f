"""What decisions cost where rows have costs of their own: the threshold, the figures, and what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from pydantic import ValidationError

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.compare import compared
from trainworthy.lifecycle.evaluation.comparison import comparison, measured_by
from trainworthy.lifecycle.evaluation.decision import decision_column, threshold_for
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.kept_answers import renamed_models, side_by_side
from trainworthy.lifecycle.evaluation.operating_point import frozen_threshold, operating_point, point_tags
from trainworthy.lifecycle.evaluation.row_costs import (
    COST_COLUMN,
    cheapest_threshold,
    cost_problems,
    refuse_split_costs,
    row_costs,
)
from trainworthy.lifecycle.lineage import declared_sections
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.report.decision_costs import costs_text
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, CostsSpec
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.spec_problems import spec_problem
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.metric import estimate
from trainworthy.lifecycle.use_case import UseCase, load_use_case

TOY = Path(__file__).parents[1] / "toy" / "use_cases" / "toy"
CONTRACT = load_contract(TOY / "contract.yaml")
WINDOW = CheckResult(name="benchmark_window", status="pass", required=True)
FRAUD = {"false_positive": 5, "false_negative": "amount"}
MODELS = ("candidate", "linear", "prior")


def benchmark(costs=FRAUD, **changes) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "primary": {"metric": "decision_cost", "margin": 0.01},
            "baselines": ["prior", "linear"],
            "decision": {"costs": costs},
            "latency_ms": 1,
            "size_mb": 1,
        }
        | changes
    )


def payments(rows: int, seed: int) -> pd.DataFrame:
    """What looks suspicious is large; `truth` is the probability of a fraud."""
    random = np.random.default_rng(seed)
    score = random.normal(size=rows)
    truth = 1 / (1 + np.exp(3.5 - 1.5 * score))
    amount = np.exp(3.5 + 0.8 * score + 0.9 * random.normal(size=rows))
    label = (random.random(rows) < truth).astype(int)
    return pd.DataFrame({"truth": truth, "label": label, "amount": np.where(label == 1, amount, np.nan)})


def costs_in(rows: pd.DataFrame) -> np.ndarray:
    return row_costs(CostsSpec.model_validate(FRAUD), rows["label"].to_numpy(), rows)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Answers of three models to 6,000 payments of 60 days, each decided by its own threshold of other payments."""
    calibration, rows = payments(5000, 1), payments(6000, 2)
    frame = pd.DataFrame({"row": np.arange(6000), "group": np.arange(6000) // 100, "label": rows["label"]})
    frame[COST_COLUMN] = costs_in(rows)
    spec, labels, costs = benchmark(), calibration["label"].to_numpy(), costs_in(calibration)
    assert spec.decision is not None
    answers = {
        "candidate": lambda truth: truth, "linear": lambda truth: 0.05 + 0.3 * np.sqrt(truth),
        "prior": lambda truth: np.full(len(truth), 0.07),
    }  # fmt: skip
    for model, answer in answers.items():
        threshold = threshold_for(spec.decision, answer(calibration["truth"].to_numpy()), labels, costs)
        frame[model] = answer(rows["truth"].to_numpy())
        frame[decision_column(model)] = (frame[model] >= threshold).astype(float)
    return frame


def spent(table: pd.DataFrame, model: str) -> pd.Series:
    return table[COST_COLUMN].where(table[decision_column(model)] != table["label"], 0.0)


def test_cheapest_threshold_is_that_of_trying_them_all():
    random = np.random.default_rng(3)
    for rows in (2, 5, 40):
        for _ in range(20):
            answers = random.integers(0, 8, rows) / 8
            labels, costs = random.integers(0, 2, rows), random.integers(0, 4, rows).astype(float)
            total = {at: costs[(answers >= at) != (labels == 1)].sum() for at in (*answers, 2.0)}
            cheapest = [at for at, cost in total.items() if cost == min(total.values())]
            found = cheapest_threshold(answers, labels, costs)
            # Of those that cost the same the greatest; above all answers is one number, whichever.
            assert found == (max(cheapest) if max(cheapest) < 2 else np.nextafter(answers.max(), 2.0))


@pytest.mark.parametrize(
    ("costs", "acted"),
    [([1.0, 9.0], 2), ([9.0, 1.0], 0), ([0.1 + 0.2, 0.3], 0)],
)
def test_answers_that_are_all_alike_are_acted_on_together_and_none_of_them_where_it_costs_the_same(costs, acted):
    answers = np.array([0.4, 0.4])
    assert (answers >= cheapest_threshold(answers, np.array([0, 1]), np.array(costs))).sum() == acted


def test_threshold_by_amounts_is_cheaper_than_one_half_and_than_one_by_the_mean_amount():
    calibration, rows = payments(5000, 1), payments(20_000, 2)
    truth, labels, costs = rows["truth"].to_numpy(), rows["label"].to_numpy(), costs_in(rows)

    def total(at: float) -> float:
        return float(costs[(truth >= at) != (labels == 1)].sum())

    chosen = cheapest_threshold(calibration["truth"].to_numpy(), calibration["label"].to_numpy(), costs_in(calibration))
    by_mean = 5 / (5 + float(calibration["amount"].mean()))
    assert total(chosen) < 0.95 * total(by_mean) < 0.95 * total(0.5)


def test_two_numbers_are_the_threshold_and_the_metric_that_they_were(table):
    spec = benchmark({"false_positive": 1, "false_negative": 9})
    assert spec.decision is not None
    assert spec.cost_columns == {}
    assert spec.decision.model_dump(mode="json")["costs"] == {"false_positive": 1.0, "false_negative": 9.0}
    assert threshold_for(spec.decision, np.zeros(3)) == 0.1
    metric, decided = measured_by(spec, BINARY, "decision_cost", "candidate", table)
    assert (metric.high, decided.tolist()) == (9.0, table[decision_column("candidate")].tolist())


def test_figures_gains_and_slices_are_of_the_rows_own_costs(table):
    slices = [{"column": "day", "metric": "decision_cost", "at_most": 100}]
    frame = table.assign(**{"slice:day": np.where(table["group"] % 2, "odd", "even")})
    body = evaluate(frame, benchmark(slices=slices), BINARY, benchmark_rows=len(frame), window=WINDOW)
    assert not [check for check in body.checks if check.stops]
    found = {one.model: one.estimate for one in body.metrics if one.metric == "decision_cost" and not one.slice}
    for model in MODELS:
        assert found[model].value == pytest.approx(spent(table, model).mean(), rel=1e-12)
        assert 0 < found[model].low < found[model].value < found[model].high
    gains = {one.reference: one.gain for one in body.comparisons}
    assert gains["prior"].value == pytest.approx(found["prior"].value - found["candidate"].value, rel=1e-9)
    assert gains["prior"].shows_gain


def test_weights_weigh_the_costs(table):
    weighed = table.assign(weight=np.where(table["group"] < 30, 0.0, 1.0))
    metric, figures = measured_by(benchmark(), BINARY, "decision_cost", "candidate", weighed)
    found = estimate(metric, table["label"], figures, table["group"], weighed["weight"].to_numpy())
    assert found.value == pytest.approx(spent(table[table["group"] >= 30], "candidate").mean(), rel=1e-12)


def test_champion_beside_the_candidate_is_measured_by_the_same_costs(table):
    theirs = renamed_models(table[["row", "group", "label", COST_COLUMN, "linear", "decision:linear"]], {"linear": "x"})
    theirs = renamed_models(theirs, {"x": "candidate"})
    both = side_by_side(table, theirs, pd.DataFrame())
    assert list(both.columns).count(COST_COLUMN) == 1
    apart = comparison(benchmark(), BINARY, ("candidate", table), ("candidate", theirs), "champion")
    one = next(one for one in compared(both, benchmark(), BINARY, {}) if one.metric == "decision_cost")
    assert one.gain == apart.gain
    assert apart.gain.value == pytest.approx((spent(table, "linear") - spent(table, "candidate")).mean(), rel=1e-9)


def test_no_interval_goes_beyond_the_greatest_cost(table):
    # All decided wrongly, and one day dear: by the rows alone the interval would end above any cost.
    frame = table.iloc[:800].assign(**{COST_COLUMN: 1.0, "decision:candidate": 1.0 - table["label"]})
    frame.loc[frame["group"] == 0, COST_COLUMN] = 3.0
    metric, figures = measured_by(benchmark(), BINARY, "decision_cost", "candidate", frame)
    assert metric.high == 3.0
    groups = np.minimum(frame["group"], 7)
    assert estimate(metric, frame["label"], figures, groups).high <= 3.0
    free = estimate(metric, frame["label"], figures * 0.0, groups)
    # Of days without a wrong decision so many allow a bound, by what a row may cost at most.
    assert (free.value, free.method) == (0.0, "all_alike")
    assert 0 < free.high < 3.0


def test_answers_without_costs_are_incomplete_and_no_figure_is_made_of_them(table):
    plain = table.drop(columns=COST_COLUMN)
    body = evaluate(plain, benchmark(), BINARY, benchmark_rows=len(plain), window=WINDOW)
    assert (
        f"the column {COST_COLUMN} is missing" in {check.name: check.evidence for check in body.checks}["predictions"]
    )
    with pytest.raises(EvaluationError, match="kept without the costs"):
        measured_by(benchmark(), BINARY, "decision_cost", "candidate", plain)


def test_rows_that_all_cost_nothing_have_no_figure_in_place_of_a_sure_zero(table):
    with pytest.raises(EvaluationError, match="no row of these costs anything"):
        measured_by(benchmark(), BINARY, "decision_cost", "candidate", table.assign(**{COST_COLUMN: 0.0}))


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ([2.0, 3.0, 0.0], None),
        ([np.nan, 3.0, 4.0], "of 3 rows of label 1 1 missing"),
        ([-1.0, np.inf, np.nan], "of 3 rows of label 1 1 missing, 1 infinite, 1 below 0"),
        ([-np.inf, 3.0, 4.0], "of 3 rows of label 1 1 infinite"),
        ([0.0, 0.0, 0.0], "all 3 rows of label 1 cost 0"),
    ],
)
def test_costs_that_are_none_are_told_with_their_column(amounts, told):
    spec, labels = CostsSpec.model_validate(FRAUD), np.array([1, 1, 1, 0, 0])
    # What a row of the other label would cost is never asked.
    rows = pd.DataFrame({"amount": [*amounts, np.nan, -7.0]})
    found = cost_problems(spec, labels, row_costs(spec, labels, rows), chosen_on=True)
    assert found == ([] if told is None else [f"costs.false_negative (amount): {told}"])


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_wrong_cost_in_a_table_of_answers_fails_the_check_of_predictions(table, wrong):
    planted = table.copy()
    planted.loc[planted.index[planted["label"] == 1][0], COST_COLUMN] = wrong
    body = evaluate(planted, benchmark(), BINARY, benchmark_rows=len(planted), window=WINDOW)
    (check,) = [check for check in body.checks if check.name == "predictions"]
    assert check.status == "fail"
    assert "benchmark.decision.costs.false_negative (amount)" in check.evidence
    assert body.metrics == ()


def test_cost_that_is_missing_in_a_row_of_weight_0_is_asked_of_nobody(table):
    planted, missed = table.assign(weight=1.0), table.index[table["label"] == 1][0]
    planted.loc[missed, [COST_COLUMN, "weight"]] = [np.nan, 0.0]
    body = evaluate(planted, benchmark(weight="weight"), BINARY, benchmark_rows=len(planted), window=WINDOW)
    assert {check.name: check.status for check in body.checks}["predictions"] == "pass"
    without = evaluate(
        table.drop(index=missed).assign(row=range(len(table) - 1)), benchmark(), BINARY, benchmark_rows=len(table) - 1,
        window=WINDOW,
    )  # fmt: skip

    def cost(of):
        (one,) = [m for m in of.metrics if (m.model, m.metric, m.slice) == ("candidate", "decision_cost", None)]
        return one.estimate.value, one.estimate.high

    assert cost(body) == pytest.approx(cost(without))


def test_costs_of_splits_are_asked_before_anything_is_trained_and_all_is_told_at_once(tmp_path):
    rows = Rows(features=("gone",), label="label", group="day", keys=("gone",))
    whole = pd.DataFrame({"label": [0, 1] * 4, "day": range(8), "amount": [np.nan, 3.0] * 4, "weight": 1.0})

    def asked(**frames: pd.DataFrame) -> None:
        paths = {name: str(tmp_path / f"{name}.parquet") for name in frames}
        for name, frame in frames.items():
            frame.to_parquet(paths[name])
        refuse_split_costs(CostsSpec.model_validate(FRAUD), rows, paths, "weight")

    missing, negative = whole.copy(), whole.copy()
    missing.loc[1, "amount"], negative.loc[3, "amount"] = np.nan, -2.0
    asked(benchmark=whole, calibration=whole)
    asked(benchmark=missing.assign(weight=[1.0, 0.0] + [1.0] * 6), calibration=whole)
    with pytest.raises(EvaluationError) as told:
        asked(benchmark=missing, calibration=negative)
    assert "benchmark rows: costs.false_negative (amount): of 4 rows of label 1 1 missing" in str(told.value)
    assert "calibration rows: costs.false_negative (amount): of 4 rows of label 1 1 below 0" in str(told.value)
    # The benchmark's weight weighs no row that a threshold is chosen on.
    with pytest.raises(EvaluationError, match="calibration rows"):
        asked(benchmark=whole, calibration=missing.assign(weight=0.0))


def test_rows_to_choose_on_need_both_labels():
    spec, labels, rows = CostsSpec.model_validate(FRAUD), np.zeros(3, dtype=int), pd.DataFrame({"amount": [1.0] * 3})
    (found,) = cost_problems(spec, labels, row_costs(spec, labels, rows), chosen_on=True)
    assert found == "costs.false_negative (amount): there is no row of label 1"
    assert cost_problems(spec, labels, row_costs(spec, labels, rows), chosen_on=False) == []


def test_integers_with_missing_values_are_costs():
    rows = pd.DataFrame({"amount": pd.array([3, None, 4], dtype="Int64")})
    found = row_costs(CostsSpec.model_validate(FRAUD), np.array([1, 0, 1]), rows)
    assert found.tolist() == [3.0, 5.0, 4.0]


@pytest.mark.parametrize(("written", "read"), [("1e3", 1000.0), ("5", 5.0), (5, 5.0), ("amount", "amount")])
def test_text_that_is_a_number_is_one(written, read):
    assert CostsSpec.model_validate({"false_positive": written, "false_negative": 1}).false_positive == read


@pytest.mark.parametrize("wrong", [0, -1, "-1", float("inf"), "", [1], None])
def test_what_is_neither_a_cost_nor_a_column_is_told_once_with_its_place(wrong):
    values = yaml.safe_load((TOY / "use_case.yaml").read_text())
    values["benchmark"]["decision"] = {"costs": {"false_positive": wrong, "false_negative": 5}}
    with pytest.raises(ValidationError) as caught:
        UseCaseSpec.model_validate(values)
    (problem,) = [spec_problem(item, UseCaseSpec) for item in caught.value.errors()]
    assert problem.where == "use_case.yaml: benchmark.decision.costs.false_positive"


def of_toy(**costs) -> UseCase:
    spec = load_use_case(TOY).spec
    declared = spec.benchmark.model_copy(update={"decision": benchmark(costs).decision})
    return UseCase(spec=spec.model_copy(update={"benchmark": declared}), folder=TOY)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("scroe", "not a column of contract.yaml"),
        ("shop", "is no column of numbers"),
        ("day", "is no column of numbers"),
        ("x2", "is a sensitive column"),
        ("x1", None),
        ("score", None),
    ],
)
def test_column_that_can_be_no_cost_is_told_before_any_row_is_read(name, told):
    columns = tuple(one.model_copy(update={"sensitive": one.name == "x2"}) for one in CONTRACT.columns)
    found = agreement_problems(
        of_toy(false_positive=1, false_negative=name), CONTRACT.model_copy(update={"columns": columns})
    )
    places = [(one.where, one.problem) for one in found if "decision" in one.where]
    assert places == ([] if told is None else [("use_case.yaml: benchmark.decision.costs.false_negative", told)])


def test_label_is_no_cost_and_all_is_told_at_once():
    label = CONTRACT.label.model_copy(update={"greater_than": None})
    found = agreement_problems(
        of_toy(false_positive="shpo", false_negative="score"), CONTRACT.model_copy(update={"label": label})
    )
    told = {one.where.rpartition(".")[2]: one for one in found if "decision" in one.where}
    assert "did you mean 'shop'" in told["false_positive"].fix
    assert told["false_negative"].problem.startswith("is the label")


def test_another_column_is_another_identity_and_another_operating_point():
    ways = [{"false_positive": 1, "false_negative": one} for one in (5, 6, "x1", "score")]
    sections = [declared_sections(of_toy(**costs), step) for costs in ways for step in ("evaluation", "promotion")]
    assert all(one != other for at, one in enumerate(sections) for other in sections[at + 1 :])
    tags = point_tags(operating_point(benchmark(ways[2]), {"candidate": 0.3}))
    assert [frozen_threshold(benchmark(costs), tags) for costs in ways] == [None, None, 0.3, None]


def test_costs_are_told_with_their_column():
    assert costs_text(benchmark().model_dump(mode="json")) == (
        "Decision cost is a row's mean: acting on a row of label 0 costs 5, not acting on a row of label 1 costs what "
        "its column amount says."
    )
    assert costs_text({"decision": {"cost_matrix": {"late": {"early": 5}}}}).startswith(
        "Decided is the class of the least expected cost: decision cost, accuracy, recall"
    )
    assert costs_text({"decision": None}) == costs_text({}) == costs_text({"decision": {"capacity": 0.1}}) == ""
