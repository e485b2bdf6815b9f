"""Golden requests: no row of the data among them, and an artifact is known by its answers to them."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.artifact import artifact_sha256
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.golden import FILE, REQUESTS, draw_requests, read_golden
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.predict import run_predict, run_verify
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.tasks.binary import BINARY

FEATURES = list(toy_jobs.ROWS.features)


def rows_of(splits: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(splits / f"{name}.parquet")


@pytest.fixture(scope="module")
def trained(splits, tmp_path_factory) -> TrainResult:
    """Trained with x2 declared sensitive."""
    rows = toy_jobs.ROWS.model_copy(update={"sensitive": ("x2", "customer")})
    return run_stage(toy_jobs.train_job(splits, tmp_path_factory.mktemp("full"), "full", rows=rows))


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained.artifact, tmp_path / "artifact"))


def requests_of(artifact: Path) -> pd.DataFrame:
    golden = read_golden(artifact, BINARY)
    assert golden is not None
    return golden.requests


def sealed(artifact: Path) -> str:
    """The artifact's hash after a change that its manifest covers: what its writer could have written."""
    names = [path for path in sorted(artifact.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    files = {p.relative_to(artifact).as_posix(): sha256_file(p) for p in names if p.name != "manifest.json"}
    write_atomic(artifact / "manifest.json", canonical_json(files))
    return artifact_sha256(artifact)


def verify(artifact: Path, sha256: str, out: Path):
    return run_verify(
        VerifyJob(
            use_case_folder=str(artifact / "code"), out=str(out), device="cpu", artifact=str(artifact),
            artifact_sha256=sha256,
        )
    )  # fmt: skip


def test_golden_requests_of_an_artifact_are_none_of_the_rows_and_hide_what_is_sensitive(trained, splits):
    requests = requests_of(Path(trained.artifact))
    assert (list(requests), len(requests)) == (FEATURES, REQUESTS)
    assert (requests["x2"] == 0).all()
    for name in ("training", "validation", "calibration", "benchmark"):
        rows = rows_of(splits, name)
        assert requests.merge(rows[FEATURES], on=FEATURES).empty
    validation = rows_of(splits, "validation")
    nothing_hidden = draw_requests(validation[FEATURES], (), seed=7)
    assert len(nothing_hidden) == REQUESTS
    assert nothing_hidden.merge(validation[FEATURES], on=FEATURES).empty
    assert requests["x1"].isin(validation["x1"]).all()
    assert requests["shop"].isin(validation["shop"]).all()


@pytest.mark.parametrize("others", [{}, {"x": np.arange(400.0)}], ids=["alone", "beside numbers"])
def test_golden_requests_hold_no_sentence_of_the_rows_but_words_of_them(others):
    generator = np.random.default_rng(0)
    words = np.array(["the", "shop", "was", "open", "and", "we", "went", "there", "again", "today", "by", "bus"])
    texts = [" ".join(generator.choice(words, size=generator.integers(4, 12))) for _ in range(399)]
    rows = pd.DataFrame({"told": [*texts, None], **others})
    requests = draw_requests(rows, (), seed=7)
    assert len(requests) == REQUESTS
    assert not requests["told"].isin(rows["told"]).any()
    assert {word for text in requests["told"] for word in text.split()} <= {*words.tolist(), "blank"}
    assert (draw_requests(rows, ("told",), seed=7)["told"] == "").all()


def test_golden_requests_hold_no_sentence_without_blanks_but_pairs_of_its_letters():
    generator = np.random.default_rng(0)
    letters = list("送的早餐很棒房间离墙只有几公分其它都可以")
    texts = ["".join(generator.choice(letters, size=generator.integers(20, 40))) for _ in range(400)]
    requests = draw_requests(pd.DataFrame({"told": texts}), (), seed=7)["told"]
    pairs = {text[place : place + 2] for text in texts for place in range(0, len(text), 2)}
    assert len(requests) == REQUESTS
    assert not any(text[place : place + 6] in known for text in requests[:5] for place in (0, 8) for known in texts)
    assert {piece for text in requests for piece in (text[place : place + 2] for place in range(0, 8, 2))} <= pairs


def test_golden_requests_are_no_rows_either_once_the_sensitive_columns_are_left_out():
    rows = pd.DataFrame({"age": np.arange(60) % 6, "zip": np.arange(60) % 10, "mail": [f"m{n}" for n in range(60)]})
    requests = draw_requests(rows, ("mail",), seed=0)
    assert len(requests) > 1
    assert (requests["mail"] == "").all()
    assert requests.merge(rows, on=["age", "zip"]).empty


def test_golden_requests_of_equal_trainings_are_equal_bytes(trained, splits, tmp_path):
    rows = toy_jobs.ROWS.model_copy(update={"sensitive": ("x2", "customer")})
    again = run_stage(toy_jobs.train_job(splits, tmp_path, "full", rows=rows))
    assert again.artifact_sha256 == trained.artifact_sha256
    assert sha256_file(Path(again.artifact or "") / FILE) == sha256_file(Path(trained.artifact) / FILE)


def test_draw_requests_leaves_out_what_happens_to_be_a_row():
    generator = np.random.default_rng(0)
    rows = pd.DataFrame({"a": generator.integers(4, size=40), "b": generator.integers(4, size=40)}).drop_duplicates()
    assert 4 < len(rows) < 16
    # A null is a value like others: it equals itself.
    rows["a"] = rows["a"].where(rows["a"] > 0)
    requests = draw_requests(rows, (), seed=1)
    assert 0 < len(requests) < REQUESTS
    assert requests.merge(rows, on=["a", "b"]).empty
    known = draw_requests(rows, (), seed=1, known=[requests.head(1)])
    assert known.merge(requests.head(1), on=["a", "b"]).empty


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"x": np.arange(100) + 0.5}),
        pd.DataFrame({"x": [1.5], "shop": ["north"], "open": [True], "when": [pd.Timestamp("2024-01-01", tz="UTC")]}),
    ],
)
def test_draw_requests_where_every_combination_is_a_row_gives_one_blank_request(rows):
    requests = draw_requests(rows, (), seed=1)
    assert (len(requests), list(requests)) == (1, list(rows))
    assert requests["x"].tolist() == [0.0]
    if "shop" in requests:
        assert (requests["shop"].tolist(), requests["open"].tolist()) == ([""], [False])
        assert requests["when"].tolist() == [pd.Timestamp(0, tz="UTC")]


def test_draw_requests_of_a_sensitive_category_keeps_none_of_its_names(tmp_path):
    rows = pd.DataFrame({"who": pd.Categorical(["Ada Byron", "Alan T."] * 5), "x": np.arange(10.0)})
    draw_requests(rows, ("who",), seed=1).to_parquet(tmp_path / "requests.parquet")
    assert b"Ada Byron" not in (tmp_path / "requests.parquet").read_bytes()


def test_verify_of_an_artifact_answers_as_on_record(trained, tmp_path):
    found = verify(Path(trained.artifact), trained.artifact_sha256, tmp_path)
    assert (found.golden.requests, found.golden.difference <= ANSWER_TOLERANCE) == (REQUESTS, True)
    assert found.latency.most_ms > 0


def test_verify_of_a_changed_golden_file_is_refused(trained, copied, tmp_path):
    (copied / FILE).write_bytes((copied / FILE).read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="files of the artifact were changed"):
        verify(copied, trained.artifact_sha256, tmp_path)


@pytest.mark.parametrize(("answer", "difference"), [(0.25, 0.25), (np.nan, 2.0)])
def test_verify_of_other_answers_tells_the_difference(copied, tmp_path, answer, difference):
    table = pd.read_parquet(copied / FILE)
    table.iloc[-1, -1] += answer
    table.to_parquet(copied / FILE, index=False)
    assert verify(copied, sealed(copied), tmp_path).golden.difference == pytest.approx(difference)


def test_verify_of_an_artifact_without_golden_requests_is_refused_and_it_can_still_predict(copied, splits, tmp_path):
    (copied / FILE).unlink()
    sha256 = sealed(copied)
    with pytest.raises(CheckpointError, match="has no golden requests"):
        verify(copied, sha256, tmp_path)
    job = toy_jobs.predict_job(str(copied), sha256, splits / "benchmark.parquet", tmp_path, limit=5)
    assert run_predict(job).golden is None
