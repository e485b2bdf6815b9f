"""trainworthy doctor and the sensor look after runs whose process is gone, in SQLite and in a real PostgreSQL."""

import os
import shutil
import sys
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy
import yaml
from dagster._core.events import EngineEventData
from doctor_checks import bad, dead_pid, only
from toy_project import ROOT

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from postgres_server import postgres_server

from trainworthy.pipeline.doctor import examine, runs
from trainworthy.pipeline.stuck_runs import stuck_runs_sensor
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import read_settings
from trainworthy.resources.stuck_runs import MACHINE_TAG, this_machine


def started_run(instance: dg.DagsterInstance, run_id: str, pid: int) -> None:
    """A run that this process says it executes, holding the one slot of the pool gpu."""
    run = dg.DagsterRun(job_name="train_toy", run_id=run_id, status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    instance.report_engine_event("Executing steps", run, EngineEventData.in_process(pid))
    instance.event_log_storage.set_concurrency_slots("gpu", 1)
    instance.event_log_storage.claim_concurrency_slot("gpu", run_id, "toy__smoke")


@pytest.fixture
def instance(place):
    """Dagster's instance on the state folder."""
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        yield instance


def test_doctor_run_in_progress_is_not_stuck_and_keeps_its_slot(instance):
    started_run(instance, "1" * 32, os.getpid())
    assert bad(runs.stuck) == []
    assert bad(runs.pools) == []
    assert list(runs.repair_runs(read_settings())) == []


def test_doctor_run_whose_process_is_gone_is_told_and_ended_only_by_mend(instance):
    started_run(instance, "2" * 32, dead_pid())
    only(runs.stuck, "! stuck runs", "train_toy 22222222", "--fix", "training resumes")
    only(runs.pools, "✗ pool slots", "gpu by run 22222222", "--fix")
    assert instance.get_run_by_id("2" * 32).status == dg.DagsterRunStatus.STARTED
    assert list(runs.repair_runs(read_settings())) == ["run 22222222 (train_toy) is marked as failed"]
    assert instance.get_run_by_id("2" * 32).status == dg.DagsterRunStatus.FAILURE
    assert instance.event_log_storage.get_concurrency_info("gpu").claimed_slots == []
    assert bad(runs.stuck) == bad(runs.pools) == []


def test_doctor_mend_of_a_stuck_run_ends_it_in_mlflow_too(place, trained):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        started_run(instance, "5" * 32, dead_pid())
    tracked = Tracking().run("toy", "5" * 32, {})
    assert Tracking().client.get_run(tracked.run_id).info.status == "RUNNING"
    assert len(list(runs.repair_runs(read_settings()))) == 1
    assert Tracking().client.get_run(tracked.run_id).info.status == "KILLED"


def test_doctor_process_with_the_number_of_a_dead_one_is_another(instance, monkeypatch):
    started_run(instance, "3" * 32, os.getpid())
    monkeypatch.setattr("psutil.Process.create_time", lambda process: 9e9)
    only(runs.stuck, "33333333")


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING"])
def test_doctor_run_that_never_named_a_process_is_stuck_only_a_while_after_its_last_change(
    instance, monkeypatch, status
):
    run = dg.DagsterRun(job_name="train_toy", run_id="6" * 32, status=dg.DagsterRunStatus[status])
    instance.add_run(run)
    with instance.run_storage.connect() as connection:  # It waited in the queue.
        connection.execute(sqlalchemy.text("UPDATE runs SET create_timestamp = '2020-01-01 00:00:00'"))
    assert bad(runs.stuck) == []
    monkeypatch.setattr("trainworthy.resources.stuck_runs.STARTING_SECONDS", 0)
    only(runs.stuck, "train_toy 66666666 (it named none)")
    assert list(runs.repair_runs(read_settings())) == ["run 66666666 (train_toy) is marked as failed"]
    assert instance.get_run_by_id("6" * 32).status == dg.DagsterRunStatus.FAILURE


def test_doctor_slot_of_a_deleted_run_is_freed(instance):
    started_run(instance, "4" * 32, os.getpid())
    instance.run_storage.delete_run("4" * 32)
    only(runs.pools, "gpu by run 44444444")
    assert list(runs.repair_runs(read_settings())) == ["a slot of the pool gpu that run 44444444 held is free"]
    assert bad(runs.pools) == []


def test_doctor_leaves_runs_of_other_machines_alone_and_names_them(instance):
    started_run(instance, "7" * 32, dead_pid())
    instance.add_run_tags("7" * 32, {MACHINE_TAG: "gpu-3 another-machine another-boot pid:[1]"})
    (result,) = examine.examined(runs.stuck, read_settings())
    assert (result.status, result.evidence) == ("pass", "none; on gpu-3, not looked at: 1")
    assert bad(runs.pools) == []
    assert list(runs.repair_runs(read_settings())) == []
    # A container of this machine has processes of its own, too.
    host, machine, boot, pids = this_machine().split()
    instance.add_run_tags("7" * 32, {MACHINE_TAG: f"{host} {machine} {boot} pid:[1]"})
    assert bad(runs.stuck) == []
    # A process from before a power cut is gone, whatever has its number now.
    instance.add_run_tags("7" * 32, {MACHINE_TAG: f"{host} {machine} an-earlier-boot {pids}"})
    only(runs.stuck, "train_toy 77777777")
    instance.add_run_tags("7" * 32, {MACHINE_TAG: this_machine()})
    only(runs.stuck, "train_toy 77777777")


def test_sensor_ends_stuck_runs_as_doctor_does_and_says_what_it_did(instance):
    started_run(instance, "8" * 32, dead_pid())
    sensor = stuck_runs_sensor()
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    ticks = [sensor.evaluate_tick(dg.build_sensor_context(instance)) for _ in range(2)]
    assert [tick.skip_message for tick in ticks] == [
        "run 88888888 (train_toy) is marked as failed", "no run is stuck"
    ]  # fmt: skip
    assert instance.event_log_storage.get_concurrency_info("gpu").claimed_slots == []


def test_doctor_looks_into_postgresql_at_runs_that_name_this_machine(place, tmp_path, monkeypatch):
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed: make setup")
    home = tmp_path / "home"
    home.mkdir()
    declared = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    declared["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
    (home / "dagster.yaml").write_text(yaml.safe_dump(declared))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with postgres_server() as server:
        url = server.url("postgres").replace("postgresql:", "postgresql+psycopg2:")
        monkeypatch.setenv("DAGSTER_DATABASE", url)
        with dg.DagsterInstance.from_config(str(home)) as instance:
            started_run(instance, "9" * 32, dead_pid())
            # Before its first step nobody knows on which of the machines that share the database it is.
            (result,) = examine.examined(runs.stuck, read_settings())
            assert result.evidence == "none; on a machine that they do not name, not looked at: 1"
            # Two machines of one name are told apart, also after a restart of one.
            host, _, _, pids = this_machine().split()
            instance.add_run_tags("9" * 32, {MACHINE_TAG: f"{host} another-machine an-earlier-boot {pids}"})
            assert bad(runs.stuck) == []
            instance.add_run_tags("9" * 32, {MACHINE_TAG: this_machine()})
            only(runs.stuck, "train_toy 99999999")
            assert list(runs.repair_runs(read_settings())) == ["run 99999999 (train_toy) is marked as failed"]
            found = instance.get_run_by_id("9" * 32)
            assert found is not None
            assert found.status == dg.DagsterRunStatus.FAILURE
        server.crash()
        only(runs.stuck, "✗ stuck: Dagster's storage does not answer: ", str(home), "start the database")
        assert "s3cret" not in "".join(bad(runs.stuck))
