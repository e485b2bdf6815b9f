"""A table of several labels a row, from `trainworthy new` to a verdict, and its model in another process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_project import FIRST, Toy, committed, product

from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState

ROWS, NAMES = 3_000, ("jazz", "live", "loud", "rare")
# What a service does with the files: loads them by their hash, and answers the requests that lie beside them.
ANSWERS = """
import json, sys
from pathlib import Path
from trainworthy.lifecycle.artifact import artifact_kind, artifact_sha256, load_artifact
from trainworthy.lifecycle.golden import answer_golden, read_golden

folder = Path(sys.argv[1])
kind, score = artifact_kind(folder), load_artifact(folder, artifact_sha256(folder))
golden = read_golden(folder, kind)
found = answer_golden(golden, score, kind)
print(json.dumps([found.requests, found.difference, list(golden.answers.shape), kind.name]))
"""


def songs() -> pd.DataFrame:
    """Inputs that tell each label something of its own; an empty text has none of them."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(ROWS, 3))
    studio = random.choice(["north", "south", "west"], ROWS)
    logits = np.stack(
        [
            2 * numbers[:, 0], 1.5 * numbers[:, 1] - 1 + (studio == "north"), numbers[:, 0] * numbers[:, 2],
            1.5 * numbers[:, 2] - 3,
        ],
        axis=1,
    )  # fmt: skip
    held = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    return pd.DataFrame(
        {
            "song_id": np.arange(ROWS), "tempo": numbers[:, 0], "length": numbers[:, 1], "volume": numbers[:, 2],
            "studio": studio, "tags": ["|".join(np.array(NAMES)[row]) for row in held],
        }
    )  # fmt: skip


@pytest.mark.slow
def test_table_of_several_labels_ends_in_a_verdict_and_its_artifact_answers_in_a_fresh_process(tmp_path: Path):
    (root := tmp_path / "project").mkdir()
    (root / "use_cases").mkdir()
    songs().to_parquet(tmp_path / "songs.parquet", index=False)
    toy = Toy(root, tmp_path / "state")
    made = toy.call(
        "-m", "trainworthy.pipeline.cli", "new", "songs", "--data", str(tmp_path / "songs.parquet"), "--target", "tags"
    )
    assert made.code == 0, made.out
    assert "made of 4 names with '|' between them: kind multilabel" in made.out
    committed(root)
    checked = toy.call("-m", "trainworthy.pipeline.cli", "check", "songs")
    assert checked.code == 0, checked.out
    done = toy.run("train_songs", FIRST)
    assert done.run_id, done.out
    records = StateRecords(FolderState(toy.var))
    verdict, evaluation = (records.of_run("songs", step, done.run_id) for step in ("promotion", "evaluation"))
    assert isinstance(verdict, Verdict), done.out
    # Nobody has reviewed when the inputs are known: that alone keeps the model from serving.
    assert verdict.decision == "shadow", verdict.reasons
    assert isinstance(evaluation, EvaluationReport)
    gains = {one.reference: one.gain for one in evaluation.comparisons if one.metric == "log_loss"}
    assert gains["prior"].low > 0
    answered = subprocess.run(
        [sys.executable, "-c", ANSWERS, str(toy.var / evaluation.artifact)],
        capture_output=True, text=True, check=True, cwd=product(), env=toy.environment(),
    )  # fmt: skip
    requests, difference, shape, kind = json.loads(answered.stdout.splitlines()[-1])
    assert (requests, shape, kind) == (50, [50, 4], "multilabel")
    assert difference < 1e-6
