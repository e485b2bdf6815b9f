"""The planted faults: each changes its month and nothing else, and which of them the contract can see."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.flights_faults import COPY_OF_TARGET, FAULTS, offer_as_features, plant, plant_copy_of_target
from trainworthy.expectations.validate import validate_frame
from trainworthy.lifecycle.contract.availability import availability_check
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.result import contract_check
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import combined, content_hash
from trainworthy.lifecycle.files.versions import refuse_changes
from use_cases.flight_delays import dataset

CONTRACT = Path(__file__).parents[2] / "use_cases" / "flight_delays" / "contract.yaml"


@pytest.fixture(scope="module")
def april(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """March and April 2013 as published, but only the key and the columns that a fault touches."""
    built, folder = (tmp_path_factory.mktemp("flights") / name for name in ("built", "april"))
    dataset.build(built, 4, "0.0.3")
    columns = [
        *dataset.FLIGHT_KEY,
        *sorted({name for fault in FAULTS.values() for name in fault.columns} - {"carrier"}),
    ]
    folder.mkdir()
    for month in ("2013-03.parquet", "2013-04.parquet"):
        pd.read_parquet(built / month, columns=columns).to_parquet(folder / month)
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_plant_changes_the_named_month_alone(april, tmp_path, name):
    fault = FAULTS[name]
    before, after = (content_hash(folder).files for folder in (april, plant(name, april, tmp_path / "planted")))
    changed = [old.name for old, new in zip(before, after, strict=True) if old.sha256 != new.sha256]
    assert changed == ([f"{fault.month}.parquet"] if name != "healthy_april" else [])


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("miles_as_kilometres", {"distance.range"}),
        ("nulls", {"temp.nulls"}),
        ("lost_carrier", set()),
        ("clipped_delays", set()),
        ("backfill", set()),
        ("healthy_april", set()),
    ],
)
def test_contract_sees_a_fault_only_where_a_bound_is_crossed(april, tmp_path, name, broken):
    """What passes here is for those who know the versions before: drift, history and the refusal to change files."""
    contract, touched = load_contract(CONTRACT), set(FAULTS[name].columns)
    rules = tuple(r for r in contract.rules if (r.columns and touched >= set(r.columns)) or r.kind == "row_count")
    rows = read_columns(plant(name, april, tmp_path / "planted"))
    check = contract_check(validate_frame(rows, contract.model_copy(update={"rules": rules})))
    assert {item["rule"] for item in check.details if item["status"] != "pass"} == broken
    assert check.stops == bool(broken)


def test_publish_refuses_the_backfill_and_no_fault_of_the_new_month(april, tmp_path):
    of_march = combined(content_hash(april).files[:1])
    with pytest.raises(DatasetError, match=r"2013-03\.parquet"):
        refuse_changes("v4", content_hash(plant("backfill", april, tmp_path / "backfill")), "v3", of_march)
    for name in FAULTS.keys() - {"backfill"}:
        refuse_changes("v4", content_hash(plant(name, april, tmp_path / name)), "v3", of_march)


def test_copy_of_target_keeps_every_rule_and_claims_to_be_known(april, tmp_path):
    """Neither contract nor availability can know better: the column is 0 or 1 and says that it is known."""
    folder = plant_copy_of_target(april, tmp_path / "hint")
    contract = load_contract(offer_as_features(CONTRACT, tmp_path / "contract.yaml", COPY_OF_TARGET))
    rows = read_columns(folder)
    wrong = rows[COPY_OF_TARGET] != (rows["arr_delay"] > 15)
    assert wrong.mean() == pytest.approx(0.05, abs=0.002)
    own = contract.model_copy(update={"rules": tuple(r for r in contract.rules if COPY_OF_TARGET in r.columns)})
    assert contract_check(validate_frame(rows, own)).status == "pass"
    assert availability_check(contract, contract.feature_columns).status == "pass"
    assert list(pd.unique(rows[COPY_OF_TARGET].sort_values())) == [0, 1]


def test_outcomes_offered_as_features_are_refused_by_name(tmp_path):
    names = ("dep_delay", "arr_time", "air_time")
    contract = load_contract(offer_as_features(CONTRACT, tmp_path / "contract.yaml", *names))
    check = availability_check(contract, contract.feature_columns)
    assert check.stops
    assert [item["column"] for item in check.details if item["status"] != "pass"] == list(names)
