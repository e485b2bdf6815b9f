"""Alarms of a training by a script leave an incident, and replaying it tells what cannot be known without the loop."""

import math
from pathlib import Path

import own_trainers
import pytest
import toy_jobs

from trainworthy.lifecycle.engine.incidents import record
from trainworthy.lifecycle.engine.incidents.portable import pack
from trainworthy.lifecycle.engine.incidents.replay import run_replay
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.incidents.find import known_incidents
from trainworthy.lifecycle.incidents.incident import Incident, read_incident, write_manifest
from trainworthy.lifecycle.incidents.text import replay_text
from trainworthy.lifecycle.protocol.jobs import PackJob, ReplayJob
from trainworthy.lifecycle.protocol.results import ReplayResult, TrainResult

HAND = own_trainers.documented("hand")
AT = 43
ZERO = "        optimizer.zero_grad()\n"
DIVIDED = (ZERO, f"{ZERO}        loss = loss / (step != {AT})\n")
STEP = "        session.step(loss=loss, rows=rows, model=model, optimizer=optimizer)\n"


def train(splits: Path, folder: Path, *replacements: tuple[str, str], script: str = HAND, **fields) -> TrainResult:
    """A pilot in a state folder of its own, with a checkpoint every 25 updates."""
    spec = toy_jobs.spec_with(training={"checkpoint_every_steps": 25})
    code = own_trainers.use_case(folder / "toy", script, *replacements)
    out = folder / "var" / "training" / "toy" / "0123" / "pilot"
    return run_stage(own_trainers.job(splits, code, out, "pilot", spec=spec, **fields))


def only_incident(folder: Path) -> Path:
    (path,) = known_incidents(folder / "var").values()
    return path


def replayed(folder: Path, found: Path) -> tuple[Incident, ReplayResult]:
    job = ReplayJob(use_case_folder=str(folder / "toy"), out=str(folder / "replay"), device="cpu", incident=str(found))
    return read_incident(found), run_replay(job)


@pytest.mark.parametrize("way", own_trainers.NEEDS)
def test_healthy_script_leaves_no_incident(splits, tmp_path, way):
    own_trainers.needs(way)
    result = train(splits, tmp_path, script=own_trainers.documented(way))
    assert result.alarms == ()
    assert result.trainer is not None
    assert result.trainer.closer
    assert known_incidents(tmp_path / "var") == {}


def test_loss_that_is_not_finite_leaves_an_incident_whose_replay_is_insufficient(splits, tmp_path):
    result = train(splits, tmp_path, DIVIDED)
    found = only_incident(tmp_path)
    assert result.alarm is not None
    assert result.alarm.incident == f"toy/0123/pilot/{AT}-non_finite_loss"
    incident, answer = replayed(tmp_path, found)
    assert [seen.step for seen in incident.signals] == list(range(AT + 1))
    assert math.isinf(incident.signals[-1].loss)
    assert len(incident.batch_rows) == len(incident.row_keys) > 20
    assert incident.row_keys[:20] == result.alarm.row_keys
    assert set(incident.random) == {"torch"}
    assert incident.checkpoint is not None
    assert incident.checkpoint.path.endswith("step-00000025")
    assert [sample.step for sample in incident.samples] == [0, 20, 40]
    assert answer.reproduced == "insufficient"
    assert (answer.first_bad, answer.compared, answer.from_step) == (None, (), 25)
    text = replay_text(incident, answer)
    assert "insufficient, NOT reproduced: train.py makes its updates itself" in text
    assert "first bad operation: not known" in text
    assert "which of the others did it is not known" in text
    assert "loss inf" in text


def test_rows_with_bad_inputs_are_named_although_the_step_is_not_made_again(splits, tmp_path):
    own_trainers.use_case(tmp_path / "toy", HAND)
    # The preprocessing of rows with a number that is not finite would not be finite either.
    model = tmp_path / "toy" / "model.py"
    plain = model.read_text().replace("float(training[name].mean()), float(training[name].std())", "0.0, 1.0")
    model.write_text(plain)

    def infinite(rows):
        rows = rows.copy()
        rows.loc[rows.index[0::40], "x1"] = math.inf
        return rows

    out = tmp_path / "var" / "training" / "toy" / "0123" / "full"
    changed = toy_jobs.copy_splits(splits, tmp_path / "splits", training=infinite)
    result = run_stage(own_trainers.job(changed, tmp_path / "toy", out, "full"))
    assert result.alarm is not None
    incident, answer = replayed(tmp_path, only_incident(tmp_path))
    assert answer.rows
    for row in answer.rows:
        assert row.row % 40 == 0
        assert row.told == "input numbers holds 1 numbers that are not finite"
        assert row.key == incident.row_keys[incident.batch_rows.index(row.row)]
    assert "that the script told have inputs that are not finite" in answer.rows_told


def test_script_that_tells_little_has_an_incident_with_as_much(splits, tmp_path):
    train(splits, tmp_path, DIVIDED, (STEP, "        session.step(loss=loss)\n"))
    incident, answer = replayed(tmp_path, only_incident(tmp_path))
    assert (incident.batch_rows, incident.row_keys, incident.parameters) == ((), (), ())
    assert len(incident.signals) == AT + 1
    assert "did not tell their numbers" in answer.rows_told
    assert "no gradient was seen" in answer.notes[0]


def test_checkpoint_that_was_changed_since_is_told(splits, tmp_path):
    train(splits, tmp_path, DIVIDED)
    found = only_incident(tmp_path)
    checkpoint = read_incident(found).checkpoint
    assert checkpoint is not None
    (Path(checkpoint.path) / "files" / "state.pt").write_bytes(b"x")
    _, answer = replayed(tmp_path, found)
    assert (answer.from_step, answer.reproduced) == (0, "insufficient")
    assert "no longer what it was" in answer.from_told


def test_portable_form_of_a_script_s_incident_is_refused(splits, tmp_path):
    train(splits, tmp_path, DIVIDED)
    found = only_incident(tmp_path)
    job = PackJob(
        use_case_folder=str(tmp_path / "toy"), out=str(tmp_path), device="cpu", incident=str(found),
        target=str(tmp_path / "packed"),
    )  # fmt: skip
    with pytest.raises(IncidentError, match="makes its updates itself"):
        pack(job)
    assert not (tmp_path / "packed").exists()


def test_rerun_that_shows_that_a_training_can_be_repeated_keeps_no_incident(splits, tmp_path):
    early = (ZERO, f"{ZERO}        loss = loss / (step != 5)\n")
    train(splits, tmp_path, early, stop_after_steps=20)
    assert known_incidents(tmp_path / "var") == {}


def test_alarm_whose_incident_gave_way_to_another_names_none(splits, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "MOST_INCIDENTS", 2)
    ends = (ZERO, f"{ZERO}        loss = loss / (step != 240)\n")
    jumps = (STEP, STEP.replace("loss=loss", "loss=loss * (1e4 if step in (70, 230) else 1.0)"))
    code = own_trainers.use_case(tmp_path / "toy", HAND, ends, jumps)
    out = tmp_path / "var" / "training" / "toy" / "0123" / "full"
    result = run_stage(own_trainers.job(splits, code, out, "full", spec=toy_jobs.spec_with(training={"epochs": 6})))
    named = [(alarm.monitor, alarm.step, alarm.incident is not None) for alarm in result.alarms]
    assert named == [("outlier_batch", 70, True), ("outlier_batch", 230, False), ("non_finite_loss", 240, True)]
    kept = known_incidents(tmp_path / "var")
    assert {alarm.incident for alarm in result.alarms if alarm.incident} == set(kept)


def test_incident_without_room_for_the_rows_says_so_and_blames_no_script(splits, tmp_path):
    train(splits, tmp_path, DIVIDED)
    found = only_incident(tmp_path)
    incident = read_incident(found)
    (found / "incident.json").write_bytes(record._within(incident, 1000))
    write_manifest(found)
    kept, answer = replayed(tmp_path, found)
    assert kept.batch_rows == ()
    assert "plan" not in " ".join(kept.left_out)
    assert answer.rows_told == "not known: they did not fit into the incident"
