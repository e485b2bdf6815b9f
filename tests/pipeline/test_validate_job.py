"""validate_toy on real rows: healthy data is silent, each planted fault fails the run and is told once."""

import asyncio
import contextlib
import datetime as dt
import gc
import json
import shutil

import dagster as dg
import pytest
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.defs_state.base import set_defs_state_storage
from dagster._core.test_utils import freeze_time
from toy_project import Toy, git, new_toy
from webhook_receiver import receiving

from trainworthy.lifecycle.alert import read_alerts
from trainworthy.lifecycle.files.versions import versions_path
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.build import build_defs
from trainworthy.pipeline.validation import daily_schedule, validating_sensor

LATENCY = "slaProperties: [{property: latency, value: 50, unit: y, element: toy_rows.when}]\n"


@contextlib.contextmanager
def no_closed_instance():
    """Without the storage of an instance that an earlier test closed: Dagster asks it while definitions load.

    A sensor's context of a test gives it back when it is collected, at any later time.
    """
    gc.collect()
    with set_defs_state_storage(None):
        yield


@pytest.fixture(scope="module", autouse=True)
def clean_module():
    with no_closed_instance():
        yield


@pytest.fixture(autouse=True)
def clean_test():
    with no_closed_instance():
        yield


@pytest.fixture
def receiver(monkeypatch):
    with receiving() as server:
        monkeypatch.setenv("TRAINWORTHY_WEBHOOK", server.url)
        yield server


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """A project whose v1 was validated, with a latency that it keeps."""
    toy = new_toy(tmp_path_factory.mktemp("validated"))
    with (toy.folder / "contract.yaml").open("a") as file:
        file.write(LATENCY)
    toy.commit()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRAINWORTHY_WEBHOOK", raising=False)
        in_place(toy, patch)
        result = validate(toy)
    assert result.success
    return toy, result


@pytest.fixture
def place(validated, tmp_path, monkeypatch) -> Toy:
    """A copy of it as this process's settings."""
    toy = validated[0].copied(tmp_path)
    in_place(toy, monkeypatch)
    return toy


def in_place(toy, patch):
    patch.setenv("TRAINWORTHY_VAR", str(toy.var))
    patch.setenv("TRAINWORTHY_USE_CASES", str(toy.root / "use_cases"))


def validate(toy, version=None, instance=None):
    """The job in this process."""
    job = build_defs([load_use_case(toy.folder)]).resolve_job_def("validate_toy")
    intent = {"dataset_version": version} if version else {}
    config = {"resources": {"intent": {"config": intent}}, "loggers": {"console": {}}}
    return job.execute_in_process(config, instance=instance, raise_on_error=False)


def checks_of(result):
    """Whether each check passed, by name."""
    return {check.check_name: check.passed for check in result.get_asset_check_evaluations()}


def reused(result):
    return [
        event.step_materialization_data.materialization.metadata["lineage/reused"].value
        for event in result.get_asset_materialization_events()
    ]


def test_validate_healthy_data_passes_every_check_and_tells_nothing(place, receiver, validated):
    found = checks_of(validated[1])
    assert found["freshness"] is True
    assert set(found) >= {"content_hash", "contract", "availability", "splits", "freshness"}
    assert all(found.values())
    again = validate(place)
    assert again.success
    assert reused(again) == ["true", "true"]
    assert "freshness" in checks_of(again)
    assert receiver.taken == []


def test_validate_of_a_second_use_case_on_the_dataset_takes_over_its_snapshot(place, receiver):
    folder = place.root / "use_cases" / "other"
    shutil.copytree(place.folder, folder)
    # Its dataset is built by the first one's.
    (folder / "dataset.py").unlink()
    values = (folder / "use_case.yaml").read_text()
    (folder / "use_case.yaml").write_text(values.replace("name: toy\n", "name: other\n"))
    job = build_defs([load_use_case(folder)]).resolve_job_def("validate_other")
    result = job.execute_in_process({"loggers": {"console": {}}}, raise_on_error=False)
    assert result.success
    assert reused(result) == ["false", "false"]
    first = place.records.of_run("toy", "snapshot", validate(place).run_id)
    second = place.records.of_run("other", "snapshot", result.run_id)
    assert second.content_hash == first.content_hash
    assert "Taken over from the snapshot of use case toy" in second.checks[0].evidence
    assert second.cost.cpu_seconds < first.cost.cpu_seconds
    assert receiver.taken == []


def test_validate_newer_version_leaves_mlflow_newest_records_and_report_alone(place, receiver):
    """A step that is materialized alone later takes the newest records: they must stay a training's."""
    assert place.records.newest("toy", "dataset") is None
    trained = validate(place).run_id
    for step in ("dataset", "snapshot"):
        place.records.reuse(place.records.of_run("toy", step, trained), "trained")
    result = validate(place, "v2")
    assert result.success
    assert place.records.of_run("toy", "dataset", result.run_id).revision == "v2"
    for step in ("dataset", "snapshot"):
        assert place.records.newest("toy", step) == place.records.of_run("toy", step, trained)
    assert not (place.var / "mlflow").exists()
    assert not (place.var / "reports").exists()
    assert receiver.taken == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("mustBeGreaterOrEqualTo: 1000", "mustBeGreaterOrEqualTo: 9601", "volume"),
        ("- name: x2\n", "- name: x3\n", "schema change"),
        ("minimum: -10, maximum: 10", "minimum: 0, maximum: 10", "contract broken"),
    ],
)
def test_validate_broken_contract_fails_the_run_and_is_told_by_its_kind(place, receiver, old, new, what):
    place.edit("contract.yaml", old, new, commit=False)
    result = validate(place)
    assert not result.success
    found = checks_of(result)
    assert found.pop("contract") is False
    assert found["freshness"] is True
    assert all(found.values())
    assert receiver.told() == [("error", what, "toy_rows@v1")]


def test_validate_late_data_is_told_once_and_its_recovery_once(place, receiver):
    """Freshness is of the newest published version, v2, whichever the run is about."""
    place.edit("contract.yaml", "value: 50, unit: y", "value: 2, unit: d", commit=False)
    result = validate(place)
    assert not result.success
    found = checks_of(result)
    assert found.pop("freshness") is False
    assert all(found.values())
    assert receiver.told() == [("error", "late data", "toy_rows@v2")]
    assert not validate(place).success
    assert receiver.told() == []
    git(place.root, "checkout", "--quiet", ".")
    assert validate(place).success
    assert receiver.told() == [("recovered", "late data", "toy_rows@v2")]
    assert validate(place).success
    assert receiver.told() == []


def test_validate_late_data_with_a_broken_contract_tells_both(place, receiver):
    place.edit("contract.yaml", "value: 50, unit: y", "value: 2, unit: d", commit=False)
    place.edit("contract.yaml", "minimum: -10", "minimum: 0", commit=False)
    validate(place)
    assert sorted(what for _, what, _ in receiver.told()) == ["contract broken", "late data"]


def test_validate_warning_rule_is_told_and_the_run_passes(place, receiver):
    place.edit("contract.yaml", "mustBeGreaterOrEqualTo: 1000", "mustBeGreaterOrEqualTo: 9601, severity: warning")
    assert validate(place).success
    assert receiver.told() == [("warning", "volume", "toy_rows@v1")]


def test_validate_version_that_is_not_published_fails_and_is_told_without_a_record(place, receiver):
    result = validate(place, "v9")
    assert not result.success
    (alert,) = receiver.taken
    assert alert["what"] == "data not judged"
    assert "no such published version" in alert["evidence"]
    assert alert["run_id"] == result.run_id


def test_validate_without_a_published_version_is_told_as_an_error_of_freshness(place, receiver, monkeypatch):
    monkeypatch.setattr("trainworthy.assets.freshness.published_versions", lambda use_case: ())
    result = validate(place)
    assert checks_of(result)["freshness"] is False
    (alert,) = receiver.taken
    assert (alert["check"], "no version of this dataset is published" in alert["evidence"]) == ("freshness", True)
    assert "datasets publish toy_rows" in alert["fix"]


@pytest.mark.parametrize("text", ["{}\n", "toy_rows: [\n"])
def test_validate_without_readable_versions_fails_and_is_told(place, receiver, text):
    versions_path(place.root).write_text(text)
    assert not validate(place).success
    (alert,) = receiver.taken
    assert (alert["check"], "versions.yaml" in alert["evidence"]) == ("completed", True)


def test_validate_bug_in_freshness_is_told_by_its_kind_alone(place, receiver, monkeypatch):
    def broken(*given):
        raise ValueError("row Ada")

    monkeypatch.setattr("trainworthy.assets.freshness.newest_value", broken)
    result = validate(place)
    assert checks_of(result)["freshness"] is False
    assert [(alert["check"], alert["evidence"]) for alert in receiver.taken] == [
        ("freshness", "ValueError, see the log of the run")
    ]
    assert "Ada" not in json.dumps(receiver.taken)


@pytest.mark.parametrize(("error", "told"), [(ValueError("row Ada"), True), (SystemExit("cancelled"), False)])
def test_validate_bug_is_told_by_its_kind_alone_and_a_cancel_is_not(place, receiver, monkeypatch, error, told):
    def broken(*given):
        raise error

    monkeypatch.setattr("trainworthy.lifecycle.snapshot.make_snapshot", broken)
    place.edit("contract.yaml", "maximum: 10", "maximum: 11", commit=False)
    with contextlib.suppress(SystemExit):
        assert not validate(place).success
    assert [alert["evidence"] for alert in receiver.taken] == ["ValueError, see the log of the run"] * told


def test_validate_alert_holds_no_row_and_no_address(place, receiver, capfd):
    place.edit("contract.yaml", "minimum: -10", "minimum: 0", commit=False)
    validate(place)
    (alert,) = receiver.taken
    assert set(alert) == {
        "text", "use_case", "subject", "dataset", "step", "check", "what", "severity", "evidence", "fix", "run_id",
        "key",
    }  # fmt: skip
    assert "row_id" not in json.dumps(alert)
    told = capfd.readouterr()
    assert "alert: contract broken: toy_rows@v1 of toy (error)" in told.out + told.err
    assert "s3cret" not in told.out + told.err
    assert "s3cret" not in (place.var / "alerts" / "toy.json").read_text()


@pytest.mark.parametrize("fault", ["refused", "down", "plain"])
def test_validate_webhook_that_fails_changes_no_result_is_said_and_tried_again(
    place, receiver, monkeypatch, capfd, fault
):
    receiver.answer = 500
    where = {"refused": receiver.url, "down": "http://127.0.0.1:9/s3cret", "plain": "http://example.org/s3cret"}
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", where[fault])
    assert validate(place).success
    place.edit("contract.yaml", "value: 50, unit: y", "value: 2, unit: d", commit=False)
    late = validate(place)
    assert not late.success
    assert checks_of(late)["contract"] is True
    told = capfd.readouterr()
    assert "alert: late data" in told.out + told.err
    assert "alert not delivered" in told.out + told.err
    assert "s3cret" not in told.out + told.err
    receiver.answer, receiver.taken = 200, []
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", receiver.url)
    validate(place)
    assert receiver.told() == [("error", "late data", "toy_rows@v2")]


def test_validate_fault_of_a_newer_version_is_not_recovered_by_an_older_one(place, receiver):
    """v2 has 12,000 rows and v1 has 9,600."""
    place.edit("contract.yaml", "mustBeGreaterOrEqualTo: 1000", "mustBeLessThan: 10000", commit=False)
    assert not validate(place, "v2").success
    assert receiver.told() == [("error", "volume", "toy_rows@v2")]
    assert validate(place, "v1").success
    assert receiver.told() == []
    assert [one.dataset for one in read_alerts(place.var / "alerts" / "toy.json").sent] == ["toy_rows@v2"]


def test_sensor_validates_the_newest_version_once_and_says_what_became_of_it(place):
    use_case = load_use_case(place.folder)
    with dg.DagsterInstance.ephemeral() as instance:
        tick = validating_sensor(use_case).evaluate_tick(dg.build_sensor_context(instance=instance))
        (request,) = tick.run_requests
        assert request.run_config["resources"] == {"intent": {"config": {"dataset_version": "v2"}}}
        tags = {**request.tags, "dagster/run_key": request.run_key}
        job = build_defs([use_case]).resolve_job_def("validate_toy")
        run = job.execute_in_process(request.run_config, instance=instance, tags=tags)
        again = validating_sensor(use_case).evaluate_tick(dg.build_sensor_context(instance=instance))
        assert not again.run_requests
        assert f"v2, was validated by run {run.run_id[:8]}, which ended as SUCCESS" in again.skip_message


def test_schedule_validates_again_each_day_and_waits_for_a_run_that_is_on(place, tmp_path):
    use_case = load_use_case(place.folder)
    (tmp_path / "instance").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "instance")) as instance:
        schedule = daily_schedule(use_case)
        (request,) = schedule.evaluate_tick(dg.build_schedule_context(instance=instance)).run_requests
        assert request.run_key is None
        instance.add_run(dg.DagsterRun(job_name="validate_toy", status=dg.DagsterRunStatus.STARTED))
        waiting = schedule.evaluate_tick(dg.build_schedule_context(instance=instance))
        assert not waiting.run_requests
        assert "is STARTED" in waiting.skip_message


@pytest.mark.parametrize(("hours", "state"), [(1, "PASS"), (47, "PASS"), (49, "FAIL")])
def test_dagster_shows_a_dataset_overdue_that_no_run_looked_at_for_two_days(place, hours, state):
    """Dagster's own evaluation of the policy on the events of a validation."""
    place.edit("contract.yaml", "value: 50, unit: y", "value: 3, unit: h", commit=False)
    key = dg.AssetKey(["toy", "dataset"])
    node = build_defs([load_use_case(place.folder)]).resolve_asset_graph().get(key)
    with dg.DagsterInstance.ephemeral() as instance:
        context = LoadingContextForTest(instance)
        evaluator = TimeWindowFreshnessPolicyEvaluator()
        validate(place, instance=instance)
        assert instance.get_latest_materialization_event(key) is not None
        with freeze_time(dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)):
            assert asyncio.run(evaluator.evaluate_freshness(context, node)).value == state


def test_dagster_has_no_policy_for_a_dataset_without_a_declared_latency(place):
    place.edit("contract.yaml", LATENCY, "", commit=False)
    node = build_defs([load_use_case(place.folder)]).resolve_asset_graph().get(dg.AssetKey(["toy", "dataset"]))
    assert node.freshness_policy is None
