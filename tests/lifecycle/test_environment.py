"""The environment's hash is that of all installed distributions."""

from importlib import metadata
from pathlib import Path

from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.provenance import environment_sha256


def test_environment_hash_equals_that_of_fully_parsed_metadata():
    parsed = {f"{found.name.lower()}=={found.version}" for found in metadata.distributions()}
    assert environment_sha256() == sha256_json(sorted(parsed))


def test_environment_hash_with_another_or_broken_distribution_differs(tmp_path: Path, monkeypatch):
    before = environment_sha256.__wrapped__()
    (tmp_path / "added-1.0.dist-info").mkdir()
    (tmp_path / "added-1.0.dist-info" / "METADATA").write_text("Name: Added\nVersion: 1.0\n\nVersion: 2 in the text\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    added = environment_sha256.__wrapped__()
    (tmp_path / "broken-1.0.dist-info").mkdir()
    assert len({before, added, environment_sha256.__wrapped__()}) == 3
