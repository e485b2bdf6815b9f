"""The contract for flights, on January as it is built from the real package."""

from pathlib import Path

import pytest

from trainworthy.lifecycle.contract.availability import availability_check
from trainworthy.lifecycle.contract.read import load_contract

FOLDER = Path(__file__).parents[2] / "use_cases" / "flight_delays"


@pytest.fixture(scope="module")
def contract():
    return load_contract(FOLDER / "contract.yaml")


def test_flights_contract_loads_with_key_label_and_known_features(contract):
    assert contract.primary_key == ("year", "month", "day", "sched_dep_time", "carrier", "flight", "origin")
    assert (contract.label.name, contract.label.column, contract.label.greater_than) == ("late", "arr_delay", 15)
    assert len(contract.rules) > 30
    assert availability_check(contract, contract.feature_columns).status == "pass"


@pytest.mark.parametrize("name", ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"])
def test_flights_contract_outcome_as_feature_fails(contract, name):
    assert availability_check(contract, (*contract.feature_columns, name)).status == "fail"


@pytest.fixture(scope="module")
def january(tmp_path_factory):
    """January as the use case's dataset.py builds it."""
    if not (FOLDER / "dataset.py").is_file():
        pytest.skip("dataset.py of flight_delays is not there")
    import pandas as pd

    from use_cases.flight_delays import dataset

    folder = tmp_path_factory.mktemp("flights") / "january"
    dataset.build(folder, 1, "0.0.3")
    return pd.read_parquet(folder / "2013-01.parquet")


def checked(rows, contract):
    from trainworthy.expectations.validate import validate_frame
    from trainworthy.lifecycle.contract.result import contract_check

    check = contract_check(validate_frame(rows, contract))
    return check, {item["rule"] for item in check.details if item["status"] != "pass"}


def test_flights_contract_real_january_passes(contract, january):
    check, broken = checked(january, contract)
    assert broken == set()
    assert check.status == "pass"
    assert set(january.columns) == {column.name for column in contract.columns}


def test_flights_contract_local_time_labelled_utc_is_caught(contract, january):
    local = january["time_hour"].dt.tz_convert("America/New_York").dt.tz_localize(None).dt.tz_localize("UTC")
    check, broken = checked(january.assign(time_hour=local), contract)
    assert check.stops
    assert "time_hour_is_utc" in broken


def test_flights_contract_repeated_rows_and_new_carrier_are_caught(contract, january):
    import pandas as pd

    rows = pd.concat([january, january.head(2)])
    rows["carrier"] = rows["carrier"].where(rows["carrier"] != "UA", "NK")
    check, broken = checked(rows, contract)
    assert check.status == "fail"
    assert broken == {"primary_key", "carrier.allowed"}
