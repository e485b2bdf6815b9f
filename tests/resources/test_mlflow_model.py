"""A registered model's signature is the contract's, whatever fifty golden rows happen to hold."""

import base64
import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models.utils import _enforce_schema

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.spec.task import Target
from trainworthy.resources import mlflow_model
from trainworthy.resources.mlflow_model import example_of, signature_of

COLUMNS = """
      - {name: row, logicalType: integer, required: true, primaryKey: true, KEY}
      - {name: kind, logicalType: string, required: true, CUSTOM}
      - {name: stops, logicalType: integer, required: true, CUSTOM}
      - {name: late, logicalType: integer, required: false, CUSTOM}
      - {name: open, logicalType: boolean, required: false, CUSTOM}
      - {name: at, logicalType: timestamp, required: true, CUSTOM}
      - {name: size, logicalType: number, required: false, CUSTOM}
      - {name: y, logicalType: number, required: true, TARGET}
"""
KEY = "customProperties: [{property: role, value: key}]"
TARGET = "customProperties: [{property: role, value: target}, {property: availableAt, value: P1D}]"
CUSTOM = "customProperties: [{property: role, value: feature}, {property: availableAt, value: PT0S}]"
CONTRACT = f"""
apiVersion: v3.1.0
kind: DataContract
id: c
name: c
version: 1.0.0
status: active
schema:
  - name: c
    logicalType: object
    properties:{COLUMNS.replace("CUSTOM", CUSTOM).replace("KEY", KEY).replace("TARGET", TARGET)}
customProperties:
  - property: label
    value: {{name: y, version: 1, column: y}}
"""
FEATURES = ("size", "kind", "stops", "late", "open", "at")


@pytest.fixture
def artifact(tmp_path) -> Path:
    """As much of an artifact as a signature is read from."""
    (tmp_path / "features.json").write_text(json.dumps(FEATURES))
    return tmp_path


@pytest.fixture
def contract(tmp_path):
    (tmp_path / "contract.yaml").write_text(CONTRACT)
    return load_contract(tmp_path / "contract.yaml")


def row(**changed):
    sound = {"size": 1.5, "kind": "a", "stops": 2, "late": 1.0, "open": True, "at": pd.Timestamp("2024-01-01")}
    return pd.DataFrame([sound | changed])


def test_signature_has_the_contract_s_types_in_the_artifact_s_order(artifact, contract):
    signature = signature_of(artifact, contract)
    assert signature is not None
    found = {column.name: (str(column.type), column.required) for column in signature.inputs}
    assert list(found) == list(FEATURES)
    assert found == {
        "size": ("DataType.double", False), "kind": ("DataType.string", True), "stops": ("DataType.long", True),
        # An integer of MLflow holds no null, so one that may be null is a number.
        "late": ("DataType.double", False), "open": ("Any", False), "at": ("DataType.datetime", True),
    } | {"open": found["open"]}  # fmt: skip
    assert "Any" in found["open"][0]


@pytest.mark.parametrize("changed", [{}, {"late": None}, {"open": None}, {"size": None}])
def test_signature_takes_every_row_that_keeps_the_contract(artifact, contract, changed):
    signature = signature_of(artifact, contract)
    assert signature is not None
    assert len(_enforce_schema(row(**changed), signature.inputs)) == 1


@pytest.mark.parametrize("changed", [{"stops": "two"}, {"size": "large"}, {"kind": 3}])
def test_signature_refuses_another_type_in_words(artifact, contract, changed):
    signature = signature_of(artifact, contract)
    assert signature is not None
    with pytest.raises(MlflowException, match=f"column {next(iter(changed))}"):
        _enforce_schema(row(**changed), signature.inputs)


def test_signature_takes_a_request_without_an_optional_column_and_refuses_one_without_a_required_one(
    artifact, contract
):
    signature = signature_of(artifact, contract)
    assert signature is not None
    assert "late" not in _enforce_schema(row().drop(columns="late"), signature.inputs)
    with pytest.raises(MlflowException, match=r"missing inputs .*stops"):
        _enforce_schema(row().drop(columns="stops"), signature.inputs)


def test_artifact_with_a_feature_that_the_contract_lacks_has_no_signature(artifact, contract):
    (artifact / "features.json").write_text('["size", "unheard_of"]')
    assert signature_of(artifact, contract) is None


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (Target(kind="binary"), [None]),
        (Target(kind="multiclass", classes=("a", "b")), ["a", "b"]),
        (Target(kind="regression", quantiles=(0.1, 0.9)), ["0.1", "0.9"]),
    ],
)
def test_signature_names_the_answers(artifact, contract, target, names):
    (artifact / "target.json").write_text(target.model_dump_json())
    signature = signature_of(artifact, contract)
    assert signature is not None
    assert [column.name for column in signature.outputs] == names


@pytest.mark.parametrize(
    ("target", "point", "types"),
    [
        (
            Target(kind="binary"),
            OperatingPoint(decision=DecisionSpec(threshold=0.3), threshold=0.3),
            {"probability": "double", "decision": "long"},
        ),
        (
            Target(kind="multiclass", classes=("a", "b")),
            OperatingPoint(decision=DecisionSpec(cost_matrix={"a": {"b": 5}})),
            {"a": "double", "b": "double", "decision": "string"},
        ),
    ],
)
def test_signature_names_what_is_decided(artifact, contract, target, point, types):
    (artifact / "target.json").write_text(target.model_dump_json())
    signature = signature_of(artifact, contract, point)
    assert signature is not None
    assert {column.name: str(column.type) for column in signature.outputs} == {
        name: f"DataType.{kind}" for name, kind in types.items()
    }


@pytest.mark.parametrize("size", [3, mlflow_model.MOST_EXAMPLE + 1])
def test_example_holds_its_files_unless_they_are_large(tmp_path, monkeypatch, size):
    (tmp_path / "a.png").write_bytes(b"x" * size)
    requests = pd.DataFrame({"x": [1.0, 2.0], "picture": [tmp_path / "a.png"] * 2})
    monkeypatch.setattr(mlflow_model, "read_golden", lambda folder, kind: SimpleNamespace(requests=requests))
    monkeypatch.setattr(mlflow_model, "file_columns", lambda folder: {"picture": None})
    found = example_of(tmp_path)
    if size > mlflow_model.MOST_EXAMPLE:
        assert found is None
        return
    assert found is not None
    assert found.to_dict("records") == [
        {"x": 1.0, "picture": f"data:image/png;base64,{base64.b64encode(b'xxx').decode()}"}
    ]
