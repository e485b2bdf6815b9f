"""What an incident holds, what it may weigh, and which incidents of a stage are kept."""

import stat
from pathlib import Path

import pytest
import stages
from toy_jobs import DEVICE

from trainworthy.lifecycle.engine.incidents import record
from trainworthy.lifecycle.errors import IncidentError
from trainworthy.lifecycle.incidents.find import find_incident, known_incidents
from trainworthy.lifecycle.incidents.incident import (
    FOLDER,
    as_kept,
    incident_name,
    is_incident,
    read_incident,
    write_manifest,
)

# Of ten digits, exact in float32: "1000000" was once met in the digits of a signal.
ODD_VALUE = 9876543488.0


@pytest.fixture(scope="module")
def met(splits: Path, tmp_path_factory: pytest.TempPathFactory):
    """A training that met a log of 0 in one row, and its incident."""
    folder = tmp_path_factory.mktemp("met")
    result, found = stages.train(splits, folder, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", ODD_VALUE))
    return folder / "var", result, found


def test_alarm_leaves_a_private_incident_with_what_led_to_it(met):
    _, result, found = met
    incident = read_incident(found)
    assert (result.alarm.action, result.alarm.incident) == ("stop", f"toy/0123/full/{found.name}")
    assert stat.S_IMODE(found.stat().st_mode) == stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert found.stat().st_mode & 0o077 == 0
    assert [seen.step for seen in incident.signals] == list(range(incident.step + 1))
    assert incident.samples[-1].step <= incident.step
    assert len(incident.batch_rows) == len(incident.row_keys) == 128
    assert 1234 in incident.batch_rows
    assert incident.row_keys[incident.batch_rows.index(1234)] == {"row_id": incident.alarm.row_keys[0]["row_id"]}
    assert incident.checkpoint is not None
    assert incident.checkpoint.path.endswith("step-00000025")
    assert incident.environment.made_with["device"] == DEVICE
    assert set(incident.random) == {"torch"} | ({DEVICE} - {"cpu"})


def test_incident_holds_no_value_of_a_feature(met):
    _, _, found = met
    text = (found / "incident.json").read_text()
    assert f"{ODD_VALUE:.0f}" not in text
    assert "north" not in text


def test_incident_is_found_by_the_end_of_its_id_and_by_its_folder(met):
    var, _, found = met
    (name,) = known_incidents(var)
    assert name == f"toy/0123/full/{found.name}"
    assert (
        find_incident(var, found.name) == find_incident(var, f"full/{found.name}") == find_incident(var, name) == found
    )
    assert find_incident(var, str(found)) == found


@pytest.mark.parametrize("asked", ["../../../etc", "/etc/passwd", "full/../full/43-non_finite_loss", "..", ""])
def test_id_that_would_lead_elsewhere_is_no_incident(met, asked: str):
    with pytest.raises(IncidentError, match="no such incident"):
        find_incident(met[0], asked)


def test_mistyped_incident_is_answered_with_the_nearest(met):
    var, _, found = met
    with pytest.raises(IncidentError, match=f"did you mean '{found.name}'"):
        find_incident(var, found.name.replace("finite", "finit"))


def test_incident_whose_bytes_were_changed_is_refused(met, tmp_path: Path):
    folder = tmp_path / met[2].name
    folder.mkdir()
    for path in met[2].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    content = (folder / "incident.json").read_text()
    (folder / "incident.json").write_text(content.replace('"rate_factor":0.5', '"rate_factor":0.4'))
    with pytest.raises(IncidentError, match="were changed") as refused:
        read_incident(folder)
    assert refused.value.value == ["incident.json"]
    (folder / "incident.json").write_text(content)
    assert read_incident(folder).step == int(folder.name.partition("-")[0])
    (folder / "more.txt").write_text("x")
    with pytest.raises(IncidentError, match="were changed"):
        read_incident(folder)


def test_link_in_an_incident_counts_as_changed(met, tmp_path: Path):
    folder = tmp_path / met[2].name
    folder.mkdir()
    (folder / "incident.json").symlink_to(met[2] / "incident.json")
    write_manifest(folder)
    with pytest.raises(IncidentError, match="were changed"):
        read_incident(folder)


def test_folder_without_a_manifest_is_no_incident(tmp_path: Path):
    with pytest.raises(IncidentError, match="holds no incident"):
        read_incident(tmp_path)


def test_incident_above_the_size_cap_says_what_was_left_out(met):
    incident = read_incident(met[2])
    small = record._within(incident, 7_000)
    whole = record._within(incident, 10**7)
    assert len(small) < len(whole)
    kept = type(incident).model_validate_json(small)
    assert kept.left_out[0] == "closer looks before the last one"
    assert type(incident).model_validate_json(whole).left_out == ()
    assert kept.signals[-1].step == incident.step


def test_monitor_s_name_can_not_lead_out_of_the_folder():
    assert incident_name(3, "../../x") == "3-______x"


def test_full_folder_keeps_the_first_of_each_monitor(tmp_path: Path):
    def kept(name: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "incident.json").write_text("{}")
        assert is_incident(tmp_path / name)

    for step in range(record.MOST_INCIDENTS):
        kept(f"{step}-loss_spike")
    assert not record._make_room(tmp_path / "99-loss_spike")
    assert record._make_room(tmp_path / "99-plateau")
    assert not (tmp_path / f"{record.MOST_INCIDENTS - 1}-loss_spike").exists()
    assert (tmp_path / "0-loss_spike").exists()


def test_alarm_whose_incident_gave_way_to_another_names_none(met, tmp_path: Path):
    alarm = read_incident(met[2]).alarm.model_copy(update={"monitor": "loss_spike"})
    for name in ("3-loss_spike", "99-plateau"):
        (tmp_path / FOLDER / name).mkdir(parents=True)
        (tmp_path / FOLDER / name / "incident.json").write_text("{}")
    alarms = [
        alarm.model_copy(update={"incident": f"toy/0123/full/{name}"})
        for name in ("3-loss_spike", "8-loss_spike", "99-plateau")
    ]
    kept = as_kept([*alarms, alarm], tmp_path)
    assert [one.incident for one in kept] == ["toy/0123/full/3-loss_spike", None, "toy/0123/full/99-plateau", None]


def test_full_disk_costs_the_incident_and_not_the_training(met, tmp_path: Path, monkeypatch, capsys, splits: Path):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "write_atomic", full)
    result, found = stages.train(splits, tmp_path, stages.LOG, stages.PLAIN, rows=stages.one_row("x1", 1e6))
    assert result.alarm.incident is None
    assert found == Path()
    assert "could not be kept" in capsys.readouterr().err
