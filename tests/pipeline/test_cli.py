"""The command `trainworthy` on real state."""

import os
import shutil
import subprocess

import pytest
from toy_project import ROOT


def test_cli_verdict_of_a_trained_use_case_tells_decision_reasons_cost_and_links(trained):
    done = trained.toy.call("-m", "pipeline.cli", "verdict", "toy")
    assert done.code == 0, done.out
    assert "toy: PROMOTE (model version 1)" in done.out
    for reason in trained.toy.verdict(trained.done.run_id).reasons:
        assert reason in done.out
    assert f"{trained.done.run_id}.html" in done.out
    assert f"/runs/{trained.done.run_id}" in done.out


def test_cli_verdict_of_an_unknown_use_case_offers_the_near_one(fresh):
    done = fresh.call("-m", "pipeline.cli", "verdict", "toi")
    assert (done.code, "did you mean 'toy'?" in done.out, "Traceback" in done.out) == (1, True, False)


def test_cli_verdict_before_any_run_says_what_to_run_and_writes_nothing(fresh):
    done = fresh.call("-m", "pipeline.cli", "verdict", "toy")
    assert (done.code, "-j train_toy" in done.out, "Traceback" in done.out) == (1, True, False)
    assert not fresh.var.exists()


def test_cli_champion_prints_the_version_of_the_log_without_mlflow(trained):
    done = trained.toy.call("-X", "importtime", "-m", "pipeline.cli", "champion", "toy")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1")
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "pipeline.show" in imported
    assert not {"mlflow", "dagster", "torch"} & imported


def test_cli_champion_that_does_not_exist_or_cannot_be_known_exits_with_1(fresh):
    done = fresh.call("-m", "pipeline.cli", "champion", "toy")
    assert (done.code, done.out) == (1, "toy has no champion yet\n")
    assert not fresh.var.exists()
    wrong = fresh.call("-m", "pipeline.cli", "champion", "toi")
    assert (wrong.code, "did you mean 'toy'?" in wrong.out) == (1, True)
    (fresh.var / "verdicts").mkdir(parents=True)
    (fresh.var / "verdicts" / "toy.jsonl").write_text("{")
    broken = fresh.call("-m", "pipeline.cli", "champion", "toy")
    assert (broken.code, "verdict log" in broken.out, "Traceback" in broken.out) == (1, True, False)


def test_cli_history_of_a_trained_use_case_is_read_without_mlflow(trained):
    done = trained.toy.call("-X", "importtime", "-m", "pipeline.cli", "history", "toy")
    assert done.code == 0, done.out
    assert "version 1  toy_rows@v1  promote" in done.out.splitlines()[-1]
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "pipeline.history" in imported
    assert not {"mlflow", "dagster", "torch", "pandas"} & imported


def test_cli_history_before_any_verdict_or_of_an_unknown_use_case_is_told(fresh):
    done = fresh.call("-m", "pipeline.cli", "history", "toy")
    assert (done.code, "toy was never judged" in done.out, "-j train_toy" in done.out) == (0, True, True)
    assert not fresh.var.exists()
    wrong = fresh.call("-m", "pipeline.cli", "history", "toi")
    assert (wrong.code, "did you mean 'toy'?" in wrong.out, "Traceback" in wrong.out) == (1, True, False)


@pytest.mark.parametrize("champion", [0, 1])
def test_make_demo_declares_the_first_model_only_while_there_is_no_champion(tmp_path, champion):
    (tmp_path / "trainworthy").write_text(f'#!/bin/sh\ntest "$1" = verdict && exit 0\nexit {champion}\n')
    (tmp_path / "dagster").write_text('#!/bin/sh\necho "told: $*"\n')
    for name in ("trainworthy", "dagster"):
        (tmp_path / name).chmod(0o755)
    make = [
        "make",
        "--directory",
        str(ROOT),
        "demo",
        "READY=",
        f"BIN={tmp_path}",
        f"PATH={tmp_path}:{os.environ['PATH']}",
    ]
    out = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    (told,) = [line for line in out.splitlines() if line.startswith("told:")]
    assert told.endswith("-c use_cases/flight_delays/first_model.yaml") is (champion == 1)


def test_cli_datasets_lists_the_versions_of_the_project_of_the_use_cases(fresh):
    done = fresh.call("-m", "pipeline.cli", "datasets")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["toy_rows@v1", "toy_rows@v2"]
    assert "9,600 rows" in lines[0]
    assert "days=120, seed=1" in lines[0]


def test_cli_datasets_publish_writes_to_the_project_of_the_use_cases(toy):
    publish = ("-m", "pipeline.cli", "datasets", "publish", "toy_rows")
    done = toy.call(*publish, "v3", "days=160", "seed=1")
    assert done.code == 0, done.out
    assert "toy_rows@v3" in done.out
    assert "v3" in (toy.root / "data" / "versions.yaml").read_text()
    again = toy.call(*publish, "v3", "days=160", "seed=1")
    assert (again.code, "already has this version" in again.out, "Traceback" in again.out) == (1, True, False)
    wrong = toy.call(*publish, "v4", "days")
    assert (wrong.code, "NAME=VALUE" in wrong.out, "Traceback" in wrong.out) == (1, True, False)


def test_cli_datasets_without_a_published_version_says_so(fresh):
    shutil.rmtree(fresh.root / "data")
    done = fresh.call("-m", "pipeline.cli", "datasets")
    assert (done.code, "no dataset version is published yet" in done.out) == (0, True)
