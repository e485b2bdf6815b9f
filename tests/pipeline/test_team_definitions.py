"""trainworthy.definitions: a project's use cases beside a team's own assets, jobs and resources."""

import subprocess
import sys

import click
import dagster as dg
import pytest
from toy_project import ROOT

import trainworthy
from trainworthy.lifecycle.protocol.records import STEPS

TOY = ROOT / "tests" / "toy"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv("TRAINWORTHY_USE_CASES", raising=False)
    # Set first, so that it is put back whatever a test sets.
    monkeypatch.setenv("TRAINWORTHY_PROJECT", "")


@dg.asset
def visits(shop: dg.ResourceParam[str]) -> str:
    return f"visits of {shop}"


def own(**resources) -> dg.Definitions:
    jobs = [dg.define_asset_job("count_visits", selection=[visits], executor_def=dg.in_process_executor)]
    return dg.Definitions(assets=[visits], jobs=jobs, resources={"shop": "the corner shop", **resources})


def test_definitions_merge_with_a_team_s_own():
    merged = dg.Definitions.merge(trainworthy.definitions(project=TOY), own())
    dg.Definitions.validate_loadable(merged)
    assert set(merged.resolve_all_asset_keys()) >= {visits.key, *(dg.AssetKey(["toy", step]) for step in STEPS)}
    assert merged.resolve_job_def("train_toy").executor_def is dg.in_process_executor
    done = merged.resolve_job_def("count_visits").execute_in_process()
    assert done.output_for_node("visits") == "visits of the corner shop"


def test_definitions_leave_the_executor_to_the_team():
    team = dg.Definitions(executor=dg.multiprocess_executor)
    merged = dg.Definitions.merge(trainworthy.definitions(project=TOY), team)
    assert merged.executor is dg.multiprocess_executor


def test_definitions_name_a_resource_that_the_team_calls_the_same():
    with pytest.raises(dg.DagsterInvariantViolationError, match="different resources with same key 'tracking'"):
        dg.Definitions.merge(trainworthy.definitions(project=TOY), own(tracking="theirs"))


def test_definitions_take_another_resource_by_name():
    made = trainworthy.definitions(project=TOY, resources={"shop": "the corner shop"})
    assert made.resources is not None
    assert made.resources["shop"] == "the corner shop"


@pytest.mark.parametrize(("second", "told"), [("gone", "does not exist"), (".", "two projects in one process")])
def test_definitions_of_a_project_that_cannot_be_are_refused_in_one_message(tmp_path, monkeypatch, second, told):
    monkeypatch.chdir(tmp_path)
    trainworthy.definitions(project=TOY)
    with pytest.raises(click.ClickException, match=told):
        trainworthy.definitions(project=second)


def test_importing_trainworthy_imports_no_dagster():
    code = "import sys, trainworthy; trainworthy.definitions; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
