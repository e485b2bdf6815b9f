"""An untouched draft of a table with few positives: it begins at the base rate, and says what is meant of classes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from toy_project import ROOT, committed

from trainworthy.lifecycle.data.class_balance import class_balance_check
from trainworthy.lifecycle.task import load_task
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main


def table(share: float, rows: int = 3_000) -> pd.DataFrame:
    """Three numbers and a category that tell of an event of that share, every two hours."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(rows, 3))
    score = 1.5 * numbers[:, 0] - numbers[:, 1] + random.normal(size=rows)
    columns = {name: numbers[:, place].round(3) for place, name in enumerate(("amount", "score", "age"))}
    return pd.DataFrame(
        {
            "when": pd.date_range("2025-01-01", periods=rows, freq="2h"), **columns,
            "kind": random.choice(list("abcd"), rows), "bad": (score > np.quantile(score, 1 - share)).astype(int),
        }
    )  # fmt: skip


def drafted(folder: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> Path:
    project = folder / "project"
    (project / "use_cases").mkdir(parents=True)
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(project / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(folder / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    table(share).to_csv(folder / "rows.csv", index=False)
    assert main(["new", "rare", "--data", str(folder / "rows.csv"), "--target", "bad", "--time", "when"]) == 0
    return project / "use_cases" / "rare"


@pytest.mark.parametrize("share", [0.01, 0.03, 0.3])
def test_draft_begins_at_the_base_rate_and_declares_its_classes(tmp_path, monkeypatch, share):
    folder = drafted(tmp_path, monkeypatch, share)
    spec = load_use_case(folder).spec
    assert spec.hyperparameters["base_rate"] == share
    task, rows = load_task(folder), table(share).drop(columns="bad")
    rows = rows.assign(hour=rows["when"].dt.hour, weekday=rows["when"].dt.day_of_week).drop(columns="when")
    state = task.fit_preprocessing(rows, spec.hyperparameters)
    torch.manual_seed(0)
    model = task.build_model(state, spec.hyperparameters).eval()
    with torch.no_grad():
        answers = task.predict(model(task.to_tensors(rows, state)))
    assert float(answers.mean()) == pytest.approx(share, rel=0.4)
    labels = table(share)["bad"]
    check = class_balance_check(labels, spec.training.imbalance, BINARY)
    assert check.status == "pass"
    # Without the declaration the rare ones are told.
    assert class_balance_check(labels, "", BINARY).status == ("pass" if share > 0.05 else "fail")


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("share", [0.01, 0.03, 0.3])
def test_untouched_draft_passes_preflight_without_a_failed_check(tmp_path, monkeypatch, share):
    folder = drafted(tmp_path, monkeypatch, share)
    committed(folder.parents[1])
    command = [sys.executable, "-m", "trainworthy.pipeline.cli", "train", "rare", "--preflight"]
    done = subprocess.run(command, cwd=folder.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in (done.stdout + done.stderr).splitlines() if "checks of dataset, snapshot" in line)
    assert "failed" not in line
    assert "broke" not in line
