import shutil
from pathlib import Path

import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.artifact import load_artifact
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.task import line_of, load_task


def two_modules(folder: Path, shops: str = '["north", "south", "west"]') -> Path:
    """The toy with its list of shops in a module beside model.py."""
    toy_jobs.changed_use_case(folder, ('SHOPS = ["north", "south", "west"]', "from .shops import SHOPS, fail"))
    (folder / "shops.py").write_text(f"SHOPS = {shops}\n\n\ndef fail():\n    raise RuntimeError('boom')\n")
    return folder


def test_task_of_two_modules_is_trained_and_scored_from_its_artifact(splits, tmp_path):
    use_case = two_modules(tmp_path / "toy")
    trained = run_stage(toy_jobs.train_job(splits, tmp_path / "out", "full", use_case=use_case))
    shutil.rmtree(use_case)
    score = load_artifact(Path(trained.artifact or ""), trained.artifact_sha256 or "")
    assert len(score(pd.read_parquet(splits / "benchmark.parquet").head(9))) == 9


def test_task_with_modules_of_the_same_name_in_two_folders_does_not_mix_them(tmp_path):
    first, second = two_modules(tmp_path / "one"), two_modules(tmp_path / "two", '["east"]')
    tasks = [load_task(first), load_task(second), load_task(first)]
    assert [len(task.SHOPS) for task in tasks] == [3, 1, 3]  # pyright: ignore[reportAttributeAccessIssue]


def test_task_loaded_anew_after_a_change_is_the_changed_one(tmp_path):
    folder = two_modules(tmp_path / "toy")
    load_task(folder)
    (folder / "shops.py").write_text("SHOPS, fail = ['north'], None\n")
    assert load_task(folder).SHOPS == ["north"]  # pyright: ignore[reportAttributeAccessIssue]


def test_line_of_an_error_beside_the_model_is_found_in_the_copy_that_ran(tmp_path):
    for name in ("one", "two"):
        folder = two_modules(tmp_path / name)
        task = load_task(folder)
        with pytest.raises(RuntimeError) as caught:
            task.fail()  # pyright: ignore[reportAttributeAccessIssue]
        assert line_of(caught.value, folder) == "shops.py:5 in fail"


def test_task_without_a_model_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.py"):
        load_task(tmp_path)
