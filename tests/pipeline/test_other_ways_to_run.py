"""Experiments, preflight alone, and steps that are materialized alone."""

import pytest
from toy_project import FIRST

from trainworthy.lifecycle.protocol.records import STEPS

MATERIALIZE = ("-m", "dagster", "asset", "materialize", "-m", "trainworthy.pipeline.definitions", "--select")


def test_experiment_with_a_trained_model_ends_after_full_and_leaves_the_benchmark_alone(toy):
    before = files(toy, "evaluation", "verdicts", "mlflow/artifacts/toy/models/*")
    done = toy.run("experiment_toy")
    assert done.code == 0, done.out
    assert f"report: {toy.var / 'reports' / 'toy' / done.run_id}.html" in done.out
    # The figures that it was run for come right before that, and once.
    (told,) = (line for line in done.out.splitlines() if "validation: loss" in line)
    metrics = toy.record(done.run_id, "full").metrics
    assert f"loss {metrics['val_loss']:.4f} (always saying the label prior: {metrics['val_loss_of_prior']:.4f})" in told
    assert f"AUC {metrics['val_auc']:.4f}" in told
    assert done.out.index(told) < done.out.index("report: ")
    assert list(toy.materialized(done.run_id)) == list(STEPS[:6])
    assert toy.records.of_run("toy", "evaluation", done.run_id) is None
    assert toy.records.of_run("toy", "promotion", done.run_id) is None
    assert files(toy, "evaluation", "verdicts", "mlflow/artifacts/toy/models/*") == before
    found = toy.mlflow_run(done.run_id)
    assert (found.info.status, found.data.tags["intent"]) == ("FINISHED", "experiment")
    assert (toy.var / "reports" / "toy" / f"{done.run_id}.html").is_file()


def files(toy, *patterns):
    found = [path for pattern in patterns for folder in toy.var.glob(pattern) for path in folder.rglob("*")]
    return {path: path.stat().st_mtime_ns for path in found if path.is_file()}


def test_lone_step_reads_the_newest_upstream_and_reuses(toy, trained):
    done = toy.call(*MATERIALIZE, "toy/full")
    assert done.code == 0, done.out
    shown = toy.materialized(done.run_id)
    assert list(shown) == ["full"]
    assert shown["full"]["lineage/reused"] == "true"
    assert toy.record(done.run_id, "full") == trained.toy.record(trained.done.run_id, "full")
    assert toy.mlflow_run(done.run_id).info.status == "FINISHED"


@pytest.mark.parametrize(
    ("name", "old", "new", "step", "stale"),
    [
        ("use_case.yaml", "learning_rate: 0.01", "learning_rate: 0.02", "evaluation", "full"),
        # The nearest records' own sections stay as they were: the dataset is three steps up.
        ("use_case.yaml", "version: v1", "version: v2", "smoke", "dataset"),
        ("contract.yaml", "maximum: 10", "maximum: 11", "preflight", "snapshot"),
        ("model.py", "Dropout(0.1)", "Dropout(0.2)", "evaluation", "full"),
    ],
)
def test_lone_step_after_an_edit_refuses_the_stale_upstream(toy, name, old, new, step, stale):
    toy.edit(name, old, new)
    done = toy.materialize(step)
    assert done.code == 1, done.out
    assert f"the newest {stale} is stale" in done.out, done.out[-3000:]
    assert toy.materialized(done.run_id) == {}
    assert toy.records.of_run("toy", step, done.run_id) is None


def test_lone_step_without_upstream_says_what_to_materialize_first(fresh):
    done = fresh.materialize("smoke")
    assert done.code == 1
    assert "materialize toy/preflight first" in done.out


def test_run_without_a_job_is_an_experiment_unless_it_says_that_it_is_a_candidate(toy):
    done = toy.materialize("evaluation")
    assert done.code == 1
    assert "this run is an experiment, which ends before evaluation" in done.out
    assert "fix: launch the job train_toy, or write candidate: true" in done.out
    assert toy.records.of_run("toy", "evaluation", done.run_id) is None
    candidate = toy.materialize("evaluation", {"candidate": True})
    assert candidate.code == 0, candidate.out
    assert toy.mlflow_run(candidate.run_id).data.tags["intent"] == "candidate"


@pytest.mark.slow
def test_preflight_job_on_a_fresh_state_ends_after_preflight(fresh):
    done = fresh.run("preflight_toy")
    assert done.code == 0, done.out
    assert list(fresh.materialized(done.run_id)) == list(STEPS[:3])
    assert not (fresh.var / "training").exists()
    assert fresh.mlflow_run(done.run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_experiment_first_does_not_hide_the_question_for_the_first_model(fresh):
    experiment = fresh.run("experiment_toy")
    assert experiment.code == 0, experiment.out
    assert not (fresh.var / "evaluation").exists()
    undeclared = fresh.run()
    assert undeclared.code == 1
    assert '"first_model": true' in undeclared.out
    assert not (fresh.var / "evaluation").exists()
    declared = fresh.run(intent=FIRST)
    assert declared.code == 0, declared.out
    assert fresh.verdict(declared.run_id).decision == "promote"
    shown = fresh.materialized(declared.run_id)
    assert all(shown[step]["lineage/reused"] == "true" for step in STEPS[:6])
