"""With which columns the champion is scored, and what it must still say about itself."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from trainworthy.assets import scoring
from trainworthy.assets.champion_evidence import champion_evidence, own_features
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.errors import ChampionError, DatasetError, WorkerError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.resources.mlflow_model import RegisteredModel


@pytest.fixture
def champion(tmp_path):
    """A registered version whose artifact names the columns of its own time."""
    folder = tmp_path / "artifacts" / "artifact"
    folder.mkdir(parents=True)
    (folder / "features.json").write_text(json.dumps(["old", "dropped"]))
    return RegisteredModel("toy", "1", tmp_path.as_uri(), {"artifact_sha256": "a" * 64})


def test_champion_is_scored_on_its_own_columns_and_not_on_the_candidates(champion, tmp_path, monkeypatch):
    jobs = []

    def launch(job: object) -> None:
        jobs.append(job)
        raise WorkerError("a column is missing", fix="", exit_code=EXIT_BAD_INPUT)

    split = SimpleNamespace(file=SimpleNamespace(path="rows.parquet"))
    record = SimpleNamespace(
        feature_columns=("old", "new"),
        splits={"benchmark": split, "calibration": split},
        suite=None,
        slices=(),
        content_hash="c",
    )
    state = SimpleNamespace(folder=lambda *parts: tmp_path.joinpath(*parts), absolute=lambda path: tmp_path / path)
    benchmark = SimpleNamespace(metrics={}, slices=(), weight=None, decision=None)
    run = SimpleNamespace(
        workspace=SimpleNamespace(state=state), run_id="1",
        use_case=SimpleNamespace(name="toy", spec=SimpleNamespace(benchmark=benchmark)),
        record=lambda *_: record, context=SimpleNamespace(log=SimpleNamespace(error=lambda _: None)),
    )  # fmt: skip
    base = {"use_case_folder": "u", "out": "o", "device": "cpu"}
    rows = Rows(features=("old", "new"), label="y", group="g")
    monkeypatch.setattr(scoring, "job_base", lambda *_: {**base, "rows": rows})
    run.in_worker = launch
    found = champion_evidence(cast(Any, run), champion)
    assert (found.comparison, found.error, found.answers) == (None, "a column is missing", None)
    (job,) = jobs
    assert job.rows == Rows(features=("old", "dropped"), label="y", group="g")
    assert Path(job.artifact) == champion.artifact


def test_rows_without_a_column_that_the_champion_needs_name_it(tmp_path):
    pd.DataFrame({"old": [1.0], "y": [1], "g": ["a"]}).to_parquet(tmp_path / "rows.parquet")
    rows = Rows(features=("old", "dropped"), label="y", group="g")
    with pytest.raises(DatasetError, match="the rows lack columns: dropped"):
        read_rows(str(tmp_path / "rows.parquet"), rows)


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", "[1]"])
def test_own_features_that_cannot_be_read_are_refused(champion, content):
    path = champion.artifact / "features.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ChampionError, match=r"features\.json"):
        own_features(champion)


def test_own_features_without_the_hash_of_the_artifact_are_refused(champion):
    untagged = RegisteredModel("toy", "1", champion.source, {})
    with pytest.raises(ChampionError, match="artifact_sha256"):
        own_features(untagged)
