"""The folders that the environment names."""

import pytest

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.resources.settings import read_settings, require_durable


def test_folder_for_copies_of_checkpoints_is_none_unless_named(monkeypatch, tmp_path):
    monkeypatch.delenv("TRAINWORTHY_DURABLE", raising=False)
    assert read_settings().durable is None
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path))
    assert require_durable(read_settings()) == tmp_path.resolve()


def test_folder_for_copies_of_checkpoints_that_is_not_there_is_refused_and_not_made(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(tmp_path / "unmounted"))
    with pytest.raises(SettingsError, match="does not exist"):
        require_durable(read_settings())
    assert not (tmp_path / "unmounted").exists()
