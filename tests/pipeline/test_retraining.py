"""The sensor and the schedule on the state that a real training of v1 left, where v2 is published."""

import json
import socket
import sys
import urllib.request

import dagster as dg
import pytest
import yaml
from toy_project import product, until
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.records import DatasetVersion, Verdict
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.build import build_defs
from trainworthy.pipeline.retraining import new_version_sensor, weekly_schedule


@pytest.fixture
def here(toy, monkeypatch):
    """The trained toy as this process's settings."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(toy.var))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(toy.root / "use_cases"))
    return toy


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def on_disk(tmp_path):
    """A schedule's context wants an instance on disk."""
    (tmp_path / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:
        yield instance


def sensor_tick(toy, instance):
    context = dg.build_sensor_context(instance=instance)
    return new_version_sensor(load_use_case(toy.folder)).evaluate_tick(context)


def schedule_tick(toy, instance):
    context = dg.build_schedule_context(instance=instance)
    return weekly_schedule(load_use_case(toy.folder)).evaluate_tick(context)


def launched(instance, request):
    """The run that the daemon makes of a request."""
    tags = {**request.tags, "dagster/run_key": request.run_key or ""}
    run = dg.DagsterRun(job_name="train_toy", tags=tags, status=dg.DagsterRunStatus.STARTED)
    instance.add_run(run)
    return run


def ended(instance, run, kind):
    message = dg.DagsterEvent(event_type_value=kind.value, job_name="train_toy")
    instance.handle_new_event(
        dg.EventLogEntry(None, 10, "", run.run_id, 1.0, job_name="train_toy", dagster_event=message)
    )


def judge_next(toy, version):
    """A verdict on the version, as a run leaves it: the newest one's records with another dataset."""
    path = log_in(toy.var)
    newest = log.read(path)[-1]
    verdict = toy.records.get("toy", "promotion", newest.verdict_sha256)
    assert isinstance(verdict, Verdict)
    dataset = toy.records.get("toy", "dataset", verdict.parents["dataset"])
    assert isinstance(dataset, DatasetVersion)
    sha256 = toy.records.put(dataset.model_copy(update={"revision": version, "identity": version}), version)
    parents = verdict.parents | {"dataset": sha256}
    judged = verdict.model_copy(update={"parents": parents, "identity": version, "decision": "shadow"})
    toy.records.put(judged, version)
    logged(
        path, action="shadow", model_version="2", verdict_sha256=record_sha256(judged),
        previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip


def publish(toy, version):
    path = toy.root / "data" / "versions.yaml"
    entries = yaml.safe_load(path.read_text())
    entries["toy_rows"][version] = entries["toy_rows"]["v2"] | {"content_hash": "a" * 64}
    path.write_text(yaml.safe_dump(entries, sort_keys=False))


def reason(tick):
    assert tick.run_requests == []
    assert tick.skip_message is not None
    return tick.skip_message


def test_sensor_and_schedule_are_off_until_switched_on_and_start_the_train_job(here):
    definitions = build_defs([load_use_case(here.folder)])
    sensor, checker, _ = definitions.sensors
    schedule, daily = definitions.schedules
    assert (sensor.name, schedule.name) == ("toy_new_version", "toy_weekly")
    assert (checker.name, daily.name) == ("toy_validate_new_version", "toy_validate_daily")
    assert sensor.default_status == checker.default_status == dg.DefaultSensorStatus.STOPPED
    assert schedule.default_status == daily.default_status == dg.DefaultScheduleStatus.STOPPED
    assert sensor.job_name == schedule.job_name == "train_toy"
    assert checker.job_name == daily.job_name == "validate_toy"  # pyright: ignore[reportAttributeAccessIssue]


def test_sensor_requests_one_run_of_the_newest_version_with_a_valid_config(here, instance):
    (request,) = sensor_tick(here, instance).run_requests
    assert request.run_config["resources"] == {"intent": {"config": {"dataset_version": "v2"}}}
    assert request.run_key == "toy:toy_rows@v2:ef69a6762f5f88c1"
    assert request.tags["trainworthy/dataset"] == "toy_rows@v2"
    job = build_defs([load_use_case(here.folder)]).resolve_job_def("train_toy")
    assert dg.validate_run_config(job, request.run_config)


def test_sensor_ticks_while_a_run_is_on_and_after_its_verdict_start_no_other(here, instance):
    (request,) = sensor_tick(here, instance).run_requests
    run = launched(instance, request)
    skipped = reason(sensor_tick(here, instance))
    assert f"run {run.run_id[:8]} is STARTED" in skipped
    assert "trainworthy doctor --fix" in skipped
    judge_next(here, "v2")
    ended(instance, run, dg.DagsterEventType.RUN_SUCCESS)
    assert "v2, has its verdict" in reason(sensor_tick(here, instance))


def test_sensor_version_published_while_a_run_is_on_starts_when_it_ended(here, instance):
    run = launched(instance, sensor_tick(here, instance).run_requests[0])
    publish(here, "v3")
    assert "is STARTED" in reason(sensor_tick(here, instance))
    judge_next(here, "v2")
    ended(instance, run, dg.DagsterEventType.RUN_SUCCESS)
    (request,) = sensor_tick(here, instance).run_requests
    assert request.run_config["resources"]["intent"]["config"] == {"dataset_version": "v3"}


def test_run_that_failed_is_tried_again_by_the_schedule_and_not_by_the_sensor(here, on_disk):
    run = launched(on_disk, sensor_tick(here, on_disk).run_requests[0])
    ended(on_disk, run, dg.DagsterEventType.RUN_FAILURE)
    told = reason(sensor_tick(here, on_disk))
    assert f"run {run.run_id[:8]} of v2 ended as FAILURE without a verdict" in told
    assert "trainworthy next toy" in told
    (request,) = schedule_tick(here, on_disk).run_requests
    assert request.run_key is None
    assert request.run_config["resources"]["intent"]["config"] == {"dataset_version": "v2"}


def test_schedule_skips_with_the_reason_once_the_newest_version_has_its_verdict(here, on_disk):
    judge_next(here, "v2")
    assert "v2, has its verdict" in reason(schedule_tick(here, on_disk))
    publish(here, "v3")
    assert len(schedule_tick(here, on_disk).run_requests) == 1


def test_tick_without_a_champion_says_how_to_train_the_first_model(here, on_disk):
    (here.var / "verdicts" / "toy.jsonl").unlink()
    for tick in (sensor_tick, schedule_tick):
        told = reason(tick(here, on_disk))
        assert "no champion" in told
        assert "trainworthy train toy" in told
        assert '"first_model": true' in told


def test_tick_with_a_broken_log_fails_with_its_message(here, on_disk):
    path = here.var / "verdicts" / "toy.jsonl"
    path.write_text(path.read_text().replace("promote", "shadow"))
    with pytest.raises(RecordError, match="was changed after it was written"):
        sensor_tick(here, on_disk)
    with pytest.raises(dg.DagsterError) as caught:
        schedule_tick(here, on_disk)
    assert isinstance(caught.value.__cause__, RecordError)


@pytest.mark.slow
def test_sensor_that_is_switched_on_launches_the_run_under_the_ui_that_make_starts(toy):
    start = ("-m", "dagster", "sensor", "start", "toy_new_version", "-w", "workspace.yaml")
    switched = toy.call(*start, DAGSTER_HOME=str(product()))
    assert switched.code == 0, switched.out
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    dev = ("-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", port)
    server = toy.start([sys.executable, *dev])
    try:
        (run_id,) = until(lambda: runs_on(toy, "v2"), 200, "until the sensor's run has its dataset")
        with toy.instance() as instance:
            assert instance.get_run_by_id(run_id).tags["dagster/sensor_name"] == "toy_new_version"
            terminate(port, run_id)
            until(lambda: instance.get_run_by_id(run_id).is_finished, 60, "until the run is cancelled")
    finally:
        server.terminate()
        server.communicate(timeout=60)


def runs_on(toy, version):
    """Runs that have fetched that dataset version."""
    names = [path.name for path in (toy.var / "records" / "toy" / "runs").iterdir()]
    found = {name: toy.records.of_run("toy", "dataset", name) for name in names}
    return [name for name, record in found.items() if record is not None and record.revision == version]


def terminate(port, run_id):
    """What the UI's button does."""
    query = f'mutation {{ terminateRun(runId: "{run_id}") {{ __typename }} }}'
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert b"TerminateRunSuccess" in answer.read()
