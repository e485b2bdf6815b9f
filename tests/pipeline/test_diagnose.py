"""trainworthy diagnose: what it is asked for, and what it says where there is nothing to diagnose."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import report_records

from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.gates.host import NOT_STARTED
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.jobs import JobFile, PreflightJob, Rows
from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Exchange
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.split import HashSplit, Shares
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec, StagesSpec, TrainingSpec
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.pipeline import diagnose
from trainworthy.pipeline.diagnose import diagnosis_text, named_parts, stage_of_run


def test_parts_are_those_that_are_named_in_this_order():
    assert named_parts([]) == ()
    assert named_parts(["rows", "loss"]) == ("rows", "loss")
    with pytest.raises(SettingsError) as raised:
        named_parts(["recipes"])
    assert "recipe" in raised.value.fix


def test_run_that_nobody_made_is_refused_with_the_use_cases_that_there_are(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    for asked in ("1f0c", "flight_delays"):
        with pytest.raises(RecordError) as raised:
            stage_of_run(asked)
        assert "flight_delays" in raised.value.fix


def test_newest_run_is_found_without_reading_those_before_it(tmp_path, monkeypatch):
    store, read = FolderState(tmp_path), list[str]()
    records, get = StateRecords(store), FolderState.get
    pilot = report_records.stage("pilot", 100, 10, 0.5)
    for number in range(20):
        records.put(pilot, f"run-{number:02d}")
    monkeypatch.setattr(diagnose, "use_case_folders", lambda settings: [tmp_path / pilot.use_case])
    monkeypatch.setattr(FolderState, "get", lambda self, key: (read.append(key), get(self, key))[1])
    assert diagnose._newest_report(records, pilot.use_case) == pilot
    # A pointer and its record.
    assert len(read) == 2
    with pytest.raises(RecordError, match="several runs begin so"):
        diagnose._newest_report(records, "run-")
    assert len(read) == 2


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    monkeypatch.setattr(diagnose, "use_case_folders", lambda settings: [tmp_path / report_records.preflight().use_case])
    made = StateRecords(FolderState(tmp_path))
    monkeypatch.setattr(diagnose, "records_of", lambda settings: made)
    return made


def preflight(run_id, *checks):
    report = report_records.preflight()
    return report.model_copy(
        update={
            "checks": checks or report.checks,
            "provenance": report.provenance.model_copy(update={"run_id": run_id}),
        }
    )


def pilot(run_id):
    report = report_records.stage("pilot", 100, 10, 0.5)
    return report.model_copy(update={"provenance": report.provenance.model_copy(update={"run_id": run_id})})


STOPPED = CheckResult(name="overfit", status="fail", evidence="ten batches are not learned", fix="look at the rate")


def test_run_that_preflight_stopped_is_diagnosed_by_the_pilot_that_it_did_not_come_to(records, tmp_path):
    report, rows = preflight("run-1", STOPPED), tmp_path / "rows.parquet"
    rows.write_bytes(b"")
    records.put(report, report.provenance.run_id)
    job = _preflight_job(str(rows))
    folder = tmp_path / "preflight" / report.use_case / report.provenance.run_id
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(JobFile(job=job).model_dump_json())
    found, training = stage_of_run(report.use_case)
    assert found == report
    assert (training.stage, training.training, training.rows) == ("pilot", job.training, job.rows)
    assert (training.training_file, training.validation_file) == (str(rows), str(rows))
    diagnosis = Diagnosis(rows=60, updates=12, loss=0.7, prior_loss=0.69, exchanges=(), at_fault=None)
    assert "the pilot that it did not come to, 12 updates on 60 rows" in diagnosis_text(found, training, diagnosis)
    # What did train tells more than what was to be trained.
    records.put(report_records.stage("pilot", 100, 10, 0.5), report.provenance.run_id)
    assert isinstance(diagnose._newest_report(records, report.use_case), StageReport)
    (folder / "job.json").unlink()
    records.put(preflight("run-2", STOPPED), "run-2")
    with pytest.raises(RecordError, match="files of this run's preflight are gone"):
        stage_of_run("run-2")


def test_run_whose_preflight_started_no_worker_is_refused_with_what_its_host_checks_say(records):
    stopped_by = Trial(
        check="configuration.steps", status="fail", evidence="smoke makes no update", fix="raise stages.smoke"
    )
    untried = Trial(check="one_batch.train", status="insufficient", required=True, evidence=NOT_STARTED)
    checks = (
        CheckResult(name="configuration", status="fail", details=(stopped_by.model_dump(mode="json"),)),
        CheckResult(name="one_batch", status="insufficient", required=True, details=(untried.model_dump(mode="json"),)),
    )
    records.put(preflight("run-1", *checks), "run-1")
    for asked in ("run-1", report_records.preflight().use_case):
        with pytest.raises(RecordError, match="preflight stopped before anything could be made") as raised:
            stage_of_run(asked)
        assert "fix what its host checks say" in raised.value.fix
        assert "raise stages.smoke" in raised.value.fix
        assert "one_batch" not in raised.value.fix


def test_older_pilot_is_diagnosed_before_a_newer_runs_preflight_unless_that_run_is_named(records):
    records.put(pilot("run-1"), "run-1")
    records.put(preflight("run-2"), "run-2")
    use_case = pilot("").use_case
    assert diagnose._newest_report(records, use_case) == pilot("run-1")
    with pytest.raises(RecordError, match="trained nothing"):
        diagnose._newest_report(records, "run-2")
    stopped = preflight("run-3", STOPPED)
    records.put(stopped, "run-3")
    assert diagnose._newest_report(records, use_case) == pilot("run-1")
    assert diagnose._newest_report(records, "run-3") == stopped


def test_preflight_that_passed_is_no_reason_to_diagnose(records):
    records.put(preflight("run-1"), "run-1")
    with pytest.raises(RecordError, match="trained nothing"):
        diagnose._newest_report(records, pilot("").use_case)


def test_columns_of_the_table_stay_apart_however_long_a_gain_is(records, tmp_path):
    def exchanged(part, gain):
        estimate = Estimate(value=gain, low=gain, high=gain, standard_error=1.2e-6, groups=30)
        return Exchange(part=part, status="recovers", loss=0.5, gain=estimate, told="log loss")

    exchanges = (exchanged("loss", 0.5887), exchanged("recipe", -1.234e-5))
    found = Diagnosis(rows=60, updates=12, loss=0.7, prior_loss=0.69, exchanges=exchanges, at_fault=None)
    training = diagnose.pilot_of(_preflight_job(str(tmp_path)))
    lines = [line for line in diagnosis_text(pilot("run-1"), training, found).splitlines() if "recovers" in line]
    assert len({line.index("log loss") for line in lines}) == 1
    assert all("recovers  " in line for line in lines)


def test_note_says_that_other_code_is_trained_than_the_runs(records, tmp_path, monkeypatch):
    """What ended at a loss of 0.5 may end at another by the code of today."""
    training, report = diagnose.pilot_of(_preflight_job(str(tmp_path))), pilot("run-1")
    records.put(report, "run-1")
    told = "the code is another since that run, and today's is trained here"
    monkeypatch.setattr(diagnose, "step_code_sha256", lambda folder, step: "another")
    assert f"{told}: it ended at a validation loss of 0.5" in " ".join(diagnose.notes(records, report, training))
    monkeypatch.setattr(diagnose, "step_code_sha256", lambda folder, step: report.provenance.code_sha256)
    assert told not in " ".join(diagnose.notes(records, report, training))


def test_note_tells_a_reused_report_from_a_newer_run_that_trained_nothing(records, tmp_path):
    training = diagnose.pilot_of(_preflight_job(str(tmp_path)))
    notes = lambda report: " ".join(diagnose.notes(records, report, training))
    stopped = preflight("run-1", STOPPED)
    records.put(stopped, "run-1")
    assert "run-" not in notes(stopped)
    records.reuse(stopped, "run-2")
    assert "run run-2 reuses the preflight of run run-1" in notes(stopped)
    records.put(preflight("run-3", STOPPED), "run-3")
    assert "run run-3 is newer and trained nothing" in notes(stopped)
    # Whoever names an older run knows that it is not the newest.
    records.put(pilot("run-4"), "run-4")
    assert "run-" not in notes(stopped)


def _preflight_job(rows: str) -> PreflightJob:
    spec = TrainingSpec(
        optimizer=OptimizerSpec(name="adamw", learning_rate=0.01, weight_decay=0.0),
        schedule=ScheduleSpec(warmup=0.1, decay="cosine"), batch_size=8, epochs=1, precision="fp32", clip_norm=1.0,
        seed=0,
    )  # fmt: skip
    shares = Shares(validation=0.2, calibration=0.2, benchmark=0.2)
    return PreflightJob(
        use_case_folder="toy", out="out", device="cpu", rows=Rows(features=("a",), label="y", group="day"),
        training=spec, stages=StagesSpec(smoke=0.1, pilot=0.5, full=1.0), hyperparameters={}, training_file=rows,
        validation_file=rows, claims=PreflightSpec(), prediction_time=None, data_folders=(), memory_limit_bytes=2**30,
        split=HashSplit(by="hash", resample_by="day", salt="a", shares=shares),
    )  # fmt: skip
