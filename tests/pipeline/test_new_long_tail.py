"""`trainworthy new` on a number with a long right tail: the choices of loss and metric stand in the draft."""

import numpy as np
import pytest
from shop_rows import table
from test_new import new, set_up

from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.scaffold.long_tail import remarks, share_of_largest

ROWS = len(table())
GENERATOR = np.random.default_rng(3)
SYMMETRIC = {
    "normal": GENERATOR.normal(100, 15, ROWS),
    "even": GENERATOR.uniform(0, 1, ROWS),
    "two heaps": np.where(np.arange(ROWS) % 2, 1.0, 9.0) + GENERATOR.normal(0, 0.5, ROWS),
    "heavy on both sides": GENERATOR.standard_t(4, ROWS),
    "a long left tail": -GENERATOR.lognormal(3, 1, ROWS),
    "one value": np.ones(ROWS),
}
SKEWED = {"prices": GENERATOR.lognormal(5, 1, ROWS), "waits": GENERATOR.exponential(20, ROWS)}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_number_without_a_long_right_tail_gets_no_word(name):
    assert remarks("x", SYMMETRIC[name]) == ()


@pytest.mark.parametrize("name", SKEWED)
def test_number_with_a_long_right_tail_is_told_with_its_share_and_the_choices(name):
    told = " ".join(remarks("price", SKEWED[name]))
    assert f"makes {share_of_largest(SKEWED[name]):.0%} of the squared error" in told
    assert "torch.log(targets)" in told
    # Whatever the unit: the share is that of the shape.
    assert share_of_largest(SKEWED[name] * 1e6) == pytest.approx(share_of_largest(SKEWED[name]))
    assert "torch.log1p(targets)" in " ".join(remarks("price", np.append(SKEWED[name], 0.0)))
    assert "have no logarithm" in " ".join(remarks("price", np.append(SKEWED[name], -1.0)))


def test_shares_of_known_shapes_are_as_written():
    generator = np.random.default_rng(0)
    shapes = (generator.normal(size=200_000), generator.uniform(size=200_000), generator.exponential(size=200_000))
    assert [round(share_of_largest(shape), 2) for shape in shapes] == [0.32, 0.24, 0.63]
    assert share_of_largest(generator.lognormal(size=200_000)) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("skewed", [True, False])
def test_drafted_use_case_has_the_choices_as_comments_and_loads(tmp_path, monkeypatch, skewed):
    project = set_up(tmp_path, monkeypatch)
    rows = table().assign(**{"a price": SKEWED["prices"] if skewed else SYMMETRIC["normal"]})
    assert new(project, rows, "--target", "a price", "--time", "at", suffix=".parquet") == 0
    folder = project / "use_cases" / "shop"
    text = (folder / "use_case.yaml").read_text()
    assert ("  # 'a price' has a long right tail: the tenth" in text) == skewed
    assert load_use_case(folder).spec.benchmark.primary.metric == "rmse"
