"""A process that lives on must notice code that changes on disk."""

from trainworthy.lifecycle.identity import step_code_sha256


def test_code_changed_while_the_process_lives_is_noticed(tmp_path):
    (tmp_path / "model.py").write_text("WIDTH = 1\n")
    before = step_code_sha256(tmp_path)
    assert step_code_sha256(tmp_path) == before
    (tmp_path / "model.py").write_text("WIDTH = 2\n")
    assert step_code_sha256(tmp_path) != before
