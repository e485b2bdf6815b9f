"""The flights network: inputs without surprises, an exportable program, and it learns."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "use_cases" / "flight_delays" / "model.py"
SMALL = {"bins": 8, "min_category_rows": 20, "embedding_dim": 4, "width": 16, "depth": 2, "dropout": 0.1}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors this small lose more by waiting for a second thread on a busy machine than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flight_delays_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(model: ModuleType) -> pd.DataFrame:
    """2,000 made-up rows in which a busy origin makes flights late; some nulls, no label column."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({name: random.normal(size=2_000) for name in model.NUMERIC})
    table = table.mask(random.random(table.shape) < 0.1)
    for name in model.CATEGORICAL:
        table[name] = random.choice(["A", "B", "C"], 2_000)
    table.loc[:99, "model"] = None
    return table


@pytest.fixture(scope="module")
def preprocessing(model: ModuleType, rows: pd.DataFrame) -> dict[str, Any]:
    return model.fit_preprocessing(rows, SMALL)


def test_fit_preprocessing_state_survives_json_exactly(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any]
) -> None:
    again = json.loads(json.dumps(preprocessing, allow_nan=False))
    assert again == preprocessing
    before, after = model.to_tensors(rows, preprocessing), model.to_tensors(rows, again)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_fit_preprocessing_rare_category_shares_the_unseen_index(model: ModuleType, rows: pd.DataFrame) -> None:
    table = rows.copy()
    table.loc[:4, "carrier"] = "rare"
    state = model.fit_preprocessing(table, SMALL)
    assert state["categories"]["carrier"] == ["A", "B", "C"]
    column = list(model.CATEGORICAL).index("carrier")
    assert model.to_tensors(table.head(5), state)["categorical"][:, column].tolist() == [0] * 5


def test_fit_preprocessing_misspelt_hyperparameter_is_refused(model: ModuleType, rows: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"missing \['width'\], unknown \['widht'\]"):
        model.fit_preprocessing(rows, {**{k: v for k, v in SMALL.items() if k != "width"}, "widht": 16})


def test_fit_preprocessing_constant_or_empty_column_gives_one_bin(model: ModuleType, rows: pd.DataFrame) -> None:
    state = model.fit_preprocessing(rows.assign(temp=3.0, dewp=np.nan), SMALL)
    assert state["edges"]["temp"] == [3.0, 4.0]
    assert state["edges"]["dewp"] == [0.0, 1.0]


def test_to_tensors_outcome_columns_present_or_absent_gives_the_same(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any]
) -> None:
    with_outcomes = rows.assign(arr_delay=1.0, dep_delay=2.0, late=1.0)
    before, after = model.to_tensors(rows, preprocessing), model.to_tensors(with_outcomes, preprocessing)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_features_name_no_outcome(model: ModuleType) -> None:
    outcomes = {"dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"}
    assert not outcomes & {*model.NUMERIC, *model.CATEGORICAL}


@pytest.mark.parametrize("change", ["none", "unseen categories", "all null", "wide strings", "infinite reach"])
def test_model_single_odd_row_gives_a_finite_probability(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any], change: str
) -> None:
    row = rows.head(1).copy()
    if change == "unseen categories":
        row = row.assign(**dict.fromkeys(model.CATEGORICAL, "never seen"))
    elif change == "all null":
        row = row.assign(**dict.fromkeys((*model.NUMERIC, *model.CATEGORICAL), None))
    elif change == "wide strings":
        row = row.astype(dict.fromkeys(model.CATEGORICAL, "object"))
    elif change == "infinite reach":
        row = row.assign(**dict.fromkeys(model.NUMERIC, 1e30))
    network = model.build_model(preprocessing, SMALL).eval()
    probability = model.predict(network(model.to_tensors(row, preprocessing)))
    assert probability.shape == (1,)
    assert 0 < probability.item() < 1


def test_model_one_row_or_many_gives_the_same_prediction(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any]
) -> None:
    network = model.build_model(preprocessing, SMALL).eval()
    together = network(model.to_tensors(rows.head(50), preprocessing))
    alone = torch.cat([network(model.to_tensors(rows.iloc[[i]], preprocessing)) for i in range(50)])
    torch.testing.assert_close(alone, together)


def test_model_same_seed_builds_equal_weights(model: ModuleType, preprocessing: dict[str, Any]) -> None:
    built: list[dict[str, torch.Tensor]] = []
    for _ in range(2):
        torch.manual_seed(3)
        built.append(model.build_model(preprocessing, SMALL).state_dict())
    assert all(torch.equal(built[0][name], built[1][name]) for name in built[0])


def test_encoding_value_between_edges_is_piecewise_linear(model: ModuleType) -> None:
    encode = model.PiecewiseLinear([[0.0, 2.0, 4.0], [0.0, 1.0]])
    numeric = torch.tensor([[3.0, 5.0], [-1.0, 0.25], [0.0, 0.0]])
    missing = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    expected = [[1.0, 0.5, 1.0, 0.0, 0, 0], [0.0, 0.0, 0.25, 0.0, 0, 0], [0.0, 0.0, 0.0, 0.0, 1, 0]]
    assert encode(numeric, missing).tolist() == expected


def test_loss_fn_per_sample_equals_the_formula(model: ModuleType) -> None:
    outputs, targets = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 1.0])
    p = model.predict(outputs)
    expected = -(targets * p.log() + (1 - targets) * (1 - p).log())
    torch.testing.assert_close(model.loss_fn(outputs, targets), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_model_exported_with_dynamic_batch_agrees_for_one_and_a_thousand_rows(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any]
) -> None:
    network = model.build_model(preprocessing, SMALL).eval()
    example = model.to_tensors(rows.head(4), preprocessing)
    batch = torch.export.Dim("batch", min=1)
    shapes = {"inputs": {name: {0: batch} for name in example}}
    program = torch.export.export(network, (example,), dynamic_shapes=shapes).module()
    for count in (1, 2, 1_000):
        inputs = model.to_tensors(rows.head(count), preprocessing)
        torch.testing.assert_close(program(inputs), network(inputs))


def test_training_planted_signal_is_learned(
    model: ModuleType, rows: pd.DataFrame, preprocessing: dict[str, Any]
) -> None:
    signal = rows["origin_late_share_1h"].fillna(0) + (rows["carrier"] == "A")
    targets = torch.tensor((signal > 0.4).to_numpy(np.float32))
    torch.manual_seed(0)
    network = model.build_model(preprocessing, SMALL)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    inputs = model.to_tensors(rows, preprocessing)
    for _ in range(200):
        optimizer.zero_grad()
        model.loss_fn(network(inputs), targets).mean().backward()
        optimizer.step()
    correct = (model.predict(network.eval()(inputs)) > 0.5) == (targets > 0.5)
    assert correct.float().mean() > 0.95
