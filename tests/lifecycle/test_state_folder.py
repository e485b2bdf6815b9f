"""The state folder: what it refuses before anything is written."""

import pytest

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.storage import state
from trainworthy.lifecycle.storage.state import StateFolder


def test_state_folder_with_room_is_accepted_and_a_nearly_full_disk_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "LEAST_FREE_BYTES", 1)
    StateFolder(tmp_path).check_room()
    monkeypatch.setattr(state, "LEAST_FREE_BYTES", 10**18)
    with pytest.raises(SettingsError, match="nearly full") as caught:
        StateFolder(tmp_path).check_room()
    assert str(tmp_path) in str(caught.value.value)
    assert "TRAINWORTHY_VAR" in caught.value.fix


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden"])
def test_state_folder_name_that_leads_out_is_refused(tmp_path, name):
    with pytest.raises(SettingsError, match="leave the state folder"):
        StateFolder(tmp_path).folder("records", name)
