"""Two runs at once on one state folder: never mixed, never both at the one GPU, never judged past each other."""

import itertools
import shutil

import dagster as dg
import pytest
from toy_project import FIRST, Toy

from trainworthy.lifecycle.protocol.records import PARENTS, STAGES, STEPS
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.resources.settings import Settings, claim_state


def two_projects(toy: Toy, tmp_path) -> tuple[Toy, Toy]:
    """Two copies of the project, as two people have them, with one state folder, which names both."""
    root = tmp_path / "second" / "project"
    shutil.copytree(toy.root, root)
    toy.var.mkdir(exist_ok=True)
    both = (toy.root / "use_cases", root / "use_cases")
    claim_state(Settings(project=toy.root, var=toy.var, use_cases=both, prices=toy.root / "prices.yaml"))
    return toy, Toy(root, toy.var)


def at_once(first: Toy, second: Toy, job: str, intent=None):
    started = [toy.start(toy.command(job, intent)) for toy in (first, second)]
    return [toy.finish(process) for toy, process in zip((first, second), started, strict=True)]


@pytest.mark.slow
def test_two_different_runs_at_once_never_mix_their_records(toy, tmp_path):
    first, second = two_projects(toy, tmp_path)
    first.edit("use_case.yaml", "{width: 32}", "{width: 16}")
    second.edit("use_case.yaml", "{width: 32}", "{width: 48}")
    done = at_once(first, second, "train_toy")
    assert [run.code for run in done] == [0, 0], [run.out[-3000:] for run in done]
    for run in done:
        records = {step: toy.record(run.run_id, step) for step in STEPS}
        for step in STEPS:
            assert records[step].parents == {name: record_sha256(records[name]) for name in PARENTS[step]}, step
        assert len({records[step].training_run for step in STAGES}) == 1
        assert toy.verdict(run.run_id).binds["model"] == records["full"].artifact_sha256
    trained = {toy.record(run.run_id, "full").training_run for run in done}
    parameters = {toy.record(run.run_id, "full").parameters for run in done}
    assert (len(trained), len(parameters)) == (2, 2)
    log = toy.verdict_log()
    assert len(log) == 3
    assert [entry["previous_verdict_sha256"] for entry in log[1:]] == [entry["verdict_sha256"] for entry in log[:-1]]


@pytest.mark.slow
def test_two_identical_first_runs_at_once_end_with_one_model_and_one_verdict(fresh, tmp_path):
    done = at_once(*two_projects(fresh, tmp_path), "train_toy", FIRST)
    assert [run.code for run in done] == [0, 0], [run.out[-3000:] for run in done]
    verdicts = [fresh.verdict(run.run_id) for run in done]
    assert [verdict.decision for verdict in verdicts] == ["promote", "promote"], [v.held_back_by for v in verdicts]
    assert len(fresh.verdict_log()) == 1
    assert len({fresh.record(run.run_id, "full").artifact_sha256 for run in done}) == 1
    with fresh.tracking() as tracking:
        assert [model.version for model in tracking.versions("toy")] == ["1"]
    assert [fresh.status(run.run_id) for run in done] == ["SUCCESS", "SUCCESS"]


@pytest.mark.slow
def test_two_runs_that_need_the_gpu_train_one_after_the_other(toy, tmp_path):
    first, second = two_projects(toy, tmp_path)
    for project, width in ((first, 16), (second, 48)):
        project.edit("use_case.yaml", "{width: 32}", f"{{width: {width}}}")
        project.edit("use_case.yaml", "{device: cpu, sku", "{device: cpu, gpus: 1, sku")
    done = at_once(first, second, "experiment_toy")
    assert [run.code for run in done] == [0, 0], [run.out[-3000:] for run in done]
    spans = sorted(span for run in done for span in stage_spans(toy, run.run_id))
    assert len(spans) == 6
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start >= end


def stage_spans(toy: Toy, run_id: str) -> list[tuple[float, float]]:
    """Start and end of each stage of a run, in seconds."""
    with toy.instance() as instance:
        stats = {step.step_key: step for step in instance.get_run_step_stats(run_id)}
        starts = {
            entry.step_key: entry.timestamp
            for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_START)
        }
    found = [stats[f"toy__{stage}"] for stage in STAGES]
    return [(starts[step.step_key], step.end_time) for step in found]
