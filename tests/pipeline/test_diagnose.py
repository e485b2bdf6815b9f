"""trainworthy diagnose: what it is asked for, and what it says where there is nothing to diagnose."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import report_records

from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.pipeline import diagnose
from trainworthy.pipeline.diagnose import named_parts, stage_of_run


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
    assert diagnose._newest_stage(records, pilot.use_case) == pilot
    # A pointer and its record.
    assert len(read) == 2
    with pytest.raises(RecordError, match="several runs begin so"):
        diagnose._newest_stage(records, "run-")
    assert len(read) == 2
