"""A registry in a real MLflow on SQLite, for tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainworthy.resources.mlflow import TrackedRun, Tracking
from trainworthy.resources.mlflow_model import RegisteredModel


def used(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The state folder is this one, and its own registry is asked."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(folder))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return folder


def register(tracking: Tracking, run: TrackedRun, folder: Path, sha256: str, point=None) -> RegisteredModel:
    """A version of the model `toy`, whose artifact has this hash."""
    artifact = folder / "artifact"
    artifact.mkdir(parents=True, exist_ok=True)
    (artifact / "model.txt").write_text(sha256)
    return tracking.register(run, "toy", artifact, sha256, tags={"trained_until": "2024-01-31"}, point=point)
