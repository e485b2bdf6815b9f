"""Whether a model saw nothing of the benchmark: the candidate by its written rows, a champion by its tags."""

import pandas as pd
import pytest
import yaml
from pydantic import TypeAdapter

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.data.split import SPLITS
from trainworthy.lifecycle.evaluation.disjoint import candidate_overlap, champion_overlap, trained_on_tags
from trainworthy.lifecycle.protocol.records import Snapshot, Split
from trainworthy.lifecycle.spec.split import SplitSpec

SHARES = {"validation": 0.15, "calibration": 0.1, "benchmark": 0.2}
HASHED = {"salt": "v1", "shares": SHARES, "resample_by": "day"}
WINDOWS = {
    "column": "day", "embargo": "1d", "validation": "14d", "calibration": "10d", "resample_by": "day",
    "benchmark": {"window": "20d", "roll": "each_version"},
}  # fmt: skip
KINDS = {
    "time": WINDOWS,
    "time_and_group": {**WINDOWS, "group": "shop"},
    "group": {**HASHED, "group": "shop"},
    "stratified": HASHED,
    "hash": HASHED,
}
ENDS = {
    "training": ("2024-01-01", "2024-01-31"),
    "validation": ("2024-02-02", "2024-02-10"),
    "calibration": ("2024-02-12", "2024-02-20"),
    "benchmark": ("2024-02-22", "2024-03-10"),
}


def spec(by: str, **changes):
    return TypeAdapter(SplitSpec).validate_python({"by": by, **KINDS[by], **changes})


def snapshot(content: str = "a" * 64, **ends: tuple[str, str]) -> Snapshot:
    splits = {name: Split.model_construct(start=start, end=end) for name, (start, end) in (ENDS | ends).items()}
    return Snapshot.model_construct(content_hash=content, splits=splits)


@pytest.fixture(scope="module")
def contract(tmp_path_factory):
    """A contract of a key, a group and a label; `changed` writes another type."""
    return written(tmp_path_factory.mktemp("contract"))


def written(folder, key_type: str = "integer"):
    def column(name, kind, role, **rest):
        return {"name": name, "logicalType": kind, "customProperties": [{"property": "role", "value": role}], **rest}

    columns = [
        column("row_id", key_type, "key", primaryKey=True, required=True),
        column("shop", "string", "feature"),
        column("day", "date", "event_time"),
        column("score", "number", "target_source"),
    ]
    label = {"name": "late", "version": 1, "column": "score", "greaterThan": 0}
    values = {
        "apiVersion": "v3.1.0", "kind": "DataContract", "id": "rows", "version": "1.0.0", "status": "active",
        "schema": [{"name": "rows", "logicalType": "object", "properties": columns}],
        "customProperties": [{"property": "label", "value": label}],
    }  # fmt: skip
    (folder / "contract.yaml").write_text(yaml.safe_dump(values))
    return load_contract(folder / "contract.yaml")


@pytest.fixture
def files(tmp_path) -> SplitFiles:
    """Ten rows and two shops of its own for each split."""
    for number, name in enumerate(SPLITS):
        ids = range(10 * number, 10 * number + 10)
        pd.DataFrame({"row_id": ids, "shop": [f"{name}-{place % 2}" for place in ids]}).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    return SplitFiles(tmp_path)


@pytest.mark.parametrize("by", KINDS)
def test_candidate_whose_written_rows_are_apart_passes(by, files):
    check = candidate_overlap(snapshot(), spec(by), files, ("row_id",))
    assert (check.name, check.status, check.required) == ("benchmark_window", "pass", True)


@pytest.mark.parametrize("by", ["time_and_group", "group", "stratified", "hash"])
@pytest.mark.parametrize("split", ["training", "validation", "calibration"])
def test_candidate_that_saw_a_row_or_group_of_the_benchmark_is_found_in_the_files(by, split, files):
    benchmark = files.read("benchmark", ("row_id", "shop"))
    rows = files.read(split, ("row_id", "shop"))
    pd.concat([rows, benchmark.head(1)]).to_parquet(files.path(split))
    check = candidate_overlap(snapshot(), spec(by), files, ("row_id",))
    assert check.stops
    assert f"{split} and benchmark share 1 values of" in check.evidence


@pytest.mark.parametrize("by", ["time", "time_and_group"])
@pytest.mark.parametrize("split", ["training", "calibration"])
def test_candidate_that_ends_inside_the_embargo_is_found(by, split, files):
    late = snapshot(**{split: ("2024-01-01", "2024-02-21")})
    assert candidate_overlap(late, spec(by), files, ("row_id",)).stops


@pytest.mark.parametrize("by", ["time", "time_and_group"])
def test_champion_that_ends_before_the_benchmark_passes_whatever_kind_it_was_split_by(by, contract):
    for other in KINDS:
        tags = trained_on_tags(snapshot(), spec(other), contract)
        assert champion_overlap(tags, snapshot("b" * 64), spec(by), contract).status == "pass"
        later = trained_on_tags(snapshot(training=("2024-01-01", "2024-02-21")), spec(other), contract)
        assert champion_overlap(later, snapshot("b" * 64), spec(by), contract).status == "fail"


@pytest.mark.parametrize("by", ["group", "hash"])
def test_champion_of_another_version_with_the_same_rule_passes(by, contract):
    tags = trained_on_tags(snapshot(), spec(by), contract)
    check = champion_overlap(tags, snapshot("b" * 64), spec(by), contract)
    assert check.status == "pass"
    assert "same rule" in check.evidence


@pytest.mark.parametrize("by", ["group", "hash"])
@pytest.mark.parametrize(
    "changes",
    [{"salt": "v2"}, {"shares": SHARES | {"benchmark": 0.25}}, {"shares": SHARES | {"validation": 0.2}}],
)
def test_champion_of_another_rule_is_refused(by, changes, contract):
    tags = trained_on_tags(snapshot(), spec(by, **changes), contract)
    check = champion_overlap(tags, snapshot("b" * 64), spec(by), contract)
    assert check.stops
    assert "salt" in check.evidence
    assert check.fix


def test_champion_of_other_columns_or_another_type_of_them_is_refused(contract, tmp_path):
    tags = trained_on_tags(snapshot(), spec("hash"), contract)
    assert champion_overlap(tags, snapshot("b" * 64), spec("hash", columns=["shop"]), contract).stops
    assert champion_overlap(tags, snapshot("b" * 64), spec("hash"), written(tmp_path, "string")).stops


@pytest.mark.parametrize("by", ["group", "hash", "stratified"])
@pytest.mark.parametrize("other", ["time", "stratified", None])
def test_champion_of_another_kind_or_without_tags_is_refused(by, other, contract):
    tags = {} if other is None else trained_on_tags(snapshot(), spec(other), contract)
    check = champion_overlap(tags, snapshot("b" * 64), spec(by), contract)
    assert check.stops
    assert check.fix


def test_champion_of_exact_shares_is_compared_on_its_own_snapshot_only(contract):
    tags = trained_on_tags(snapshot(), spec("stratified"), contract)
    assert champion_overlap(tags, snapshot(), spec("stratified"), contract).status == "pass"
    check = champion_overlap(tags, snapshot("b" * 64), spec("stratified"), contract)
    assert check.stops
    assert "by: hash" in check.fix
