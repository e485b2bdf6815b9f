"""Metadata as columns: which there are, that rules and blind spots use them, and that a file is decoded once."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from tests.refusals import refused
from trainworthy.lifecycle.contract.model import Column, Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation import metadata_columns as module
from trainworthy.lifecycle.evaluation.blind_spots import blind_spots
from trainworthy.lifecycle.evaluation.metadata_columns import (
    DescribedRows,
    holds_free_text,
    metadata_columns,
)
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.files import tree
from trainworthy.lifecycle.files.metadata import OF_FILES, OF_TEXTS
from trainworthy.lifecycle.use_case import UseCase, load_use_case

PICTURES = 6
COLUMNS = (
    Column(name="photo", logical_type="string", role="feature", file="picture"),
    Column(name="face", logical_type="string", role="feature", file="picture", sensitive=True),
    Column(name="review", logical_type="string", role="feature"),
    Column(name="diary", logical_type="string", role="feature", sensitive=True),
    Column(name="note", logical_type="string", role="other"),
    Column(name="price", logical_type="number", role="feature"),
    Column(name="review.words", logical_type="number", role="other"),
    Column(name="late", logical_type="integer", role="target"),
)
CONTRACT = Contract(
    name="c", version="1", columns=COLUMNS, rules=(), label=Label(name="l", version=1, column="late"), primary_key=()
)


@pytest.fixture
def rows(tmp_path) -> DescribedRows:
    """Pictures from black to white, two rows each, one row without; beside them texts."""
    folder = tmp_path / "dataset" / "files"
    folder.mkdir(parents=True)
    names, hashes = [], []
    for number in range(PICTURES):
        path = folder / f"{number}.png"
        Image.new("RGB", (4, 3), (51 * number,) * 3).save(path)
        names.append(f"files/{path.name}")
        hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
    table = pd.DataFrame({
        "photo": [*names, *names, None], sha_column("photo"): [*hashes, *hashes, None],
        "review": [*(f"{'A' * number} 1" for number in range(2 * PICTURES)), None],
        "review.words": np.arange(2.0 * PICTURES + 1),
    })  # fmt: skip
    table.to_parquet(tmp_path / "benchmark.parquet", index=False)
    return DescribedRows(
        SplitFiles(tmp_path), metadata_columns(CONTRACT), tmp_path / "dataset", tmp_path / "file_metadata"
    )


def test_features_of_files_and_text_have_metadata_and_sensitive_ones_have_none():
    found = set(metadata_columns(CONTRACT))
    of_photo = {f"photo.{name}" for name in OF_FILES["picture"]}
    # A column of the contract that has the name is itself.
    assert found == of_photo | {f"review.{name}" for name in OF_TEXTS} - {"review.words"}


def test_metadata_is_read_beside_the_splits_own_columns_in_their_order(rows):
    found = rows.read("benchmark", ["review.words", "photo.brightness", "photo.mode", "review.characters"])
    assert [*found.columns] == ["review.words", "photo.brightness", "photo.mode", "review.characters"]
    assert [*found.index] == [*range(2 * PICTURES + 1)]
    assert found["review.words"].tolist() == list(range(2 * PICTURES + 1))
    wanted = [*(np.arange(PICTURES) / 5), *(np.arange(PICTURES) / 5), np.nan]
    assert found["photo.brightness"].to_numpy() == pytest.approx(wanted, nan_ok=True)
    assert found["photo.mode"].isna().tolist() == [False] * 2 * PICTURES + [True]
    assert found["review.characters"].tolist() == [*(2 + number for number in range(2 * PICTURES)), pd.NA]
    some = rows.read("benchmark", ["photo.brightness"], np.array([1, 7, 12]))
    assert some["photo.brightness"].to_numpy() == pytest.approx([0.2, 0.2, np.nan], nan_ok=True)


def test_rules_hold_for_metadata_and_for_no_row_without_a_file(rows):
    rule = parse('`photo.brightness` < 0.3 and `photo.mode` == "RGB" and `review.characters` > 3')
    mask = rule.mask(rows.read("benchmark", rule.columns))
    assert np.flatnonzero(mask).tolist() == [PICTURES, PICTURES + 1]
    missing = parse("`photo.width` is None")
    assert np.flatnonzero(missing.mask(rows.read("benchmark", missing.columns))).tolist() == [2 * PICTURES]


def test_a_file_is_decoded_once_whatever_names_it(rows, monkeypatch):
    seen: list[Path] = []
    real = module.file_metadata
    monkeypatch.setattr(module, "file_metadata", lambda path, kind: seen.append(path) or real(path, kind))
    first = rows.read("benchmark", ["photo.brightness", "photo.format"])
    assert len(seen) == PICTURES
    pd.testing.assert_frame_equal(rows.read("benchmark", ["photo.brightness", "photo.format"]), first)
    assert len(seen) == PICTURES
    # What cannot be read is made again.
    (kept,) = rows.kept.iterdir()
    kept.write_bytes(b"cut short")
    pd.testing.assert_frame_equal(rows.read("benchmark", ["photo.brightness", "photo.format"]), first)
    assert len(seen) == 2 * PICTURES


def test_what_was_decoded_before_an_interruption_is_kept(rows, monkeypatch):
    seen: list[Path] = []
    real, part = module.file_metadata, PICTURES // 2

    def interrupted(path, kind):
        seen.append(path)
        if len(seen) > part:
            raise KeyboardInterrupt
        return real(path, kind)

    monkeypatch.setattr(tree, "_AT_ONCE", part)
    monkeypatch.setattr(module, "file_metadata", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rows.read("benchmark", ["photo.brightness"])
    seen.clear()
    monkeypatch.setattr(module, "file_metadata", lambda path, kind: seen.append(path) or real(path, kind))
    found = rows.read("benchmark", ["photo.brightness"])
    assert len(seen) == PICTURES - part
    # What was kept and what was added are each row's own.
    for kept in rows.kept.iterdir():
        kept.unlink()
    pd.testing.assert_frame_equal(rows.read("benchmark", ["photo.brightness"]), found)


@pytest.mark.parametrize("decodable", [True, False])
def test_a_file_that_is_another_one_or_cannot_be_decoded_is_an_error_and_nothing_of_it_is_kept(rows, decodable):
    path, table = rows.root / "files" / "3.png", pd.read_parquet(rows.root.parent / "benchmark.parquet")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    if decodable:
        Image.new("RGB", (4, 3)).save(path)
    else:
        path.write_bytes(path.read_bytes()[:40])
        now = hashlib.sha256(path.read_bytes()).hexdigest()
        table = table.replace({sha_column("photo"): {before: now}})
        table.to_parquet(rows.root.parent / "benchmark.parquet", index=False)
    with refused(EvaluationError, "metadata.other_file" if decodable else "metadata.file"):
        rows.read("benchmark", ["photo.brightness"])
    assert not rows.kept.exists()


def test_where_files_are_gone_texts_can_still_be_told(rows):
    gone = DescribedRows(rows.files, rows.columns, rows.root / "gone", rows.kept)
    assert rows.can_tell(["photo.mode", "price"])
    assert gone.can_tell(["review.digits", "price"])
    assert not gone.can_tell(["review.digits", "photo.mode"])


def test_free_text_is_what_hardly_comes_back():
    assert holds_free_text(pd.Series(["a", "b", "c", "c", None]))
    assert not holds_free_text(pd.Series(["a", "b"] * 10))
    assert not holds_free_text(pd.Series([None, None], dtype="str"))


def test_a_model_that_fails_on_long_texts_is_found_by_a_rule_that_can_be_declared(tmp_path):
    random, count = np.random.default_rng(0), 3_000
    texts = pd.Series([f"{'word ' * size}{number}" for number, size in enumerate(random.integers(1, 60, count))])
    pd.DataFrame({"review": texts}).to_parquet(tmp_path / "training.parquet")
    described = DescribedRows(SplitFiles(tmp_path), metadata_columns(CONTRACT), tmp_path, tmp_path)
    frame = described.read("training", [f"review.{name}" for name in OF_TEXTS if name != "words"])
    long, losses = (texts.str.len() > 280).to_numpy(), random.exponential(1, count)
    groups = np.arange(count) % 40
    found = blind_spots(frame, np.where(long, 2, 1) * losses, groups, training_cuts(frame))
    spot = next(spot for spot in found.spots if spot.confirmed)
    assert "`review." in spot.rule
    mask = parse(spot.rule).mask(frame)
    # At least half of each in the other: what benchmarks call found.
    assert min(long[mask].mean(), mask[long].mean()) > 0.5
    assert not any(one.confirmed for one in blind_spots(frame, losses, groups, training_cuts(frame)).spots)


SCENES = Path(__file__).parents[2] / "use_cases" / "scenes"


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("`picture.brightness` < 0.2 and `picture.mode` == 'RGB'", None),
        ("`picture.brightnes` < 0.2", "known: picture.bytes, picture.width"),
        ("`mask.bytes` < 20", "mask is no feature of files or text, and has no metadata"),
        ("`place.words` < 20", "place is no feature of files or text, and has no metadata"),
        ("`picture.brightness` == 'dark'", "write a number"),
        ("`nothing.words` > 3", "names no column of contract.yaml"),
        ("picture.brightness < 3", "a name with a dot"),
    ],
)
def test_check_refuses_metadata_that_there_is_not(where, told):
    use_case = load_use_case(SCENES)
    spec = use_case.spec.model_dump(mode="json")
    spec["benchmark"]["slices"] = [{"where": where, "at_least": 0.5}]
    changed = UseCase(spec=type(use_case.spec).model_validate(spec), folder=SCENES)
    problems = [str(problem) for problem in agreement_problems(changed, load_contract(use_case.contract_path))]
    assert len(problems) == (told is not None)
    assert told is None or told in problems[0]


def test_check_says_of_a_sensitive_column_that_its_metadata_is_sensitive_too(tmp_path):
    use_case = load_use_case(SCENES)
    contract = yaml.safe_load(use_case.contract_path.read_text())
    (picture,) = [one for one in contract["schema"][0]["properties"] if one["name"] == "picture"]
    picture["customProperties"].append({"property": "sensitive", "value": True})
    (tmp_path / "contract.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))
    spec = use_case.spec.model_dump(mode="json")
    spec["benchmark"]["slices"] = [{"where": "`picture.width` > 2", "at_least": 0.5}]
    changed = UseCase(spec=type(use_case.spec).model_validate(spec), folder=SCENES)
    (problem,) = agreement_problems(changed, load_contract(tmp_path / "contract.yaml"))
    assert "picture is sensitive, and so is what its values are like" in str(problem)
