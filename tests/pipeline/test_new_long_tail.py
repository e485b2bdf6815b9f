"""`trainworthy new` on a number with a long right tail: what it means, and that a median can be drafted."""

import numpy as np
import pytest
from shop_rows import table
from test_new import new, set_up

from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.scaffold.long_tail import has_long_right_tail, remarks, share_of_largest

ROWS, SEEDS = len(table()), range(40)
# Each with the most samples of 40 that may be told: what is near the boundary may be on either side of it.
OTHERS = {
    "normal": lambda generator: generator.normal(100, 15, ROWS),
    "even": lambda generator: generator.uniform(0, 1, ROWS),
    "two heaps": lambda generator: generator.choice([1.0, 9.0], ROWS) + generator.normal(0, 0.5, ROWS),
    "t of 2": lambda generator: generator.standard_t(2, ROWS),
    "t of 3": lambda generator: generator.standard_t(3, ROWS),
    "Cauchy": lambda generator: generator.standard_cauchy(ROWS),
    "Cauchy of few rows": lambda generator: generator.standard_cauchy(120),
    "a rare event": lambda generator: (generator.random(ROWS) < 0.05).astype(float),
    "mostly zero": lambda generator: (generator.random(ROWS) < 0.3) * generator.normal(100, 15, ROWS),
    "a long left tail": lambda generator: -generator.lognormal(3, 1, ROWS),
    "Weibull of 1.5": lambda generator: generator.weibull(1.5, ROWS),
    "one value": lambda generator: np.ones(ROWS),
    "a handful": lambda generator: generator.lognormal(3, 1, 20),
}
SKEWED = {
    "prices": lambda generator: generator.lognormal(5, 1, ROWS),
    "prices in whole units": lambda generator: np.round(generator.lognormal(5, 1, ROWS)) - 0.01,
    "waits": lambda generator: generator.exponential(20, ROWS),
    "sizes": lambda generator: generator.lognormal(2, 2, ROWS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_number_without_a_long_right_tail_gets_no_word(name):
    told = sum(bool(remarks("x", OTHERS[name](np.random.default_rng(seed)))) for seed in SEEDS)
    assert told <= 0.05 * len(SEEDS)


@pytest.mark.parametrize("name", SKEWED)
def test_number_with_a_long_right_tail_is_told_with_its_share(name):
    for seed in SEEDS:
        values = SKEWED[name](np.random.default_rng(seed))
        assert f"makes {share_of_largest(values):.0%} of the squared error" in " ".join(remarks("price", values))
        # Whatever the unit: the share is that of the shape.
        assert share_of_largest(values * 1e6) == pytest.approx(share_of_largest(values))


@pytest.mark.filterwarnings("error")
def test_values_that_are_not_finite_are_left_out():
    values = SKEWED["prices"](np.random.default_rng(0))
    assert remarks("x", np.append(values, [np.inf, -np.inf, np.nan])) == remarks("x", values) != ()
    assert not any(has_long_right_tail(values) for values in ([], [np.nan], [np.inf] * ROWS))


def test_shares_of_known_shapes_are_as_written():
    generator = np.random.default_rng(0)
    shapes = (generator.normal(size=200_000), generator.uniform(size=200_000), generator.exponential(size=200_000))
    assert [round(share_of_largest(shape), 2) for shape in shapes] == [0.32, 0.24, 0.63]
    assert share_of_largest(generator.lognormal(size=200_000)) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("skewed", [True, False])
def test_drafted_use_case_has_the_choice_as_comments_and_loads(tmp_path, monkeypatch, skewed):
    project = set_up(tmp_path, monkeypatch)
    values = (SKEWED["prices"] if skewed else OTHERS["normal"])(np.random.default_rng(3))
    rows = table().assign(**{"a price": values})
    assert new(project, rows, "--target", "a price", "--time", "at", suffix=".parquet") == 0
    folder = project / "use_cases" / "shop"
    text = (folder / "use_case.yaml").read_text()
    assert ("  # 'a price' has a long right tail: the tenth" in text) == skewed
    assert ("--quantiles 0.5." in text) == skewed
    assert load_use_case(folder).spec.benchmark.primary.metric == "rmse"


def test_draft_for_the_median_that_is_offered_passes_its_own_check(tmp_path, monkeypatch, capsys):
    project = set_up(tmp_path, monkeypatch)
    rows = table().assign(**{"a price": SKEWED["prices"](np.random.default_rng(3))})
    assert new(project, rows, "--target", "a price", "--time", "at", "--quantiles", "0.5", suffix=".parquet") == 0
    folder = project / "use_cases" / "shop"
    spec = load_use_case(folder).spec
    assert (spec.benchmark.primary.metric, spec.task.quantiles) == ("pinball", (0.5,))
    assert "long right tail" not in (folder / "use_case.yaml").read_text()
    capsys.readouterr()
    assert main(["check", "--quick", "shop"]) == 0, capsys.readouterr().out
