"""trainworthy diagnose: what it is asked for, and what it says where there is nothing to diagnose."""

import pytest

from trainworthy.lifecycle.errors import RecordError, SettingsError
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
