"""A folder of pictures in three classes, from `trainworthy new` to a verdict."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from toy_project import FIRST, Toy, committed

from trainworthy.lifecycle.protocol.records import EvaluationReport, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState

EACH, SIDE = 350, 12


def stripes(folder: Path) -> Path:
    """Noise with a brighter line: upright, lying or leaning, at any place."""
    generator = np.random.default_rng(0)
    for name in ("leaning", "lying", "upright"):
        (folder / name).mkdir(parents=True)
        for one in range(EACH):
            values, at = generator.integers(0, 160, (SIDE, SIDE)), int(generator.integers(0, SIDE))
            rows = np.arange(SIDE)
            place = {"upright": (rows, at), "lying": (at, rows), "leaning": (rows, (rows + at) % SIDE)}[name]
            values[place] = 255
            Image.fromarray(values.astype(np.uint8)).save(folder / name / f"{one:04}.png")
    return folder


@pytest.mark.slow
def test_folder_of_pictures_ends_in_a_verdict_on_a_network_that_sees_what_thumbnails_do_not(tmp_path: Path):
    root = tmp_path / "project"
    (root / "use_cases").mkdir(parents=True)
    toy = Toy(root, tmp_path / "state")
    made = toy.call("-m", "trainworthy.pipeline.cli", "new", "stripes", "--data", str(stripes(tmp_path / "data")))
    assert made.code == 0, made.out
    committed(root)
    checked = toy.call("-m", "trainworthy.pipeline.cli", "check", "stripes")
    assert checked.code == 0, checked.out
    done = toy.run("train_stripes", FIRST)
    assert done.run_id, done.out
    records = StateRecords(FolderState(toy.var))
    verdict, evaluation = (records.of_run("stripes", step, done.run_id) for step in ("promotion", "evaluation"))
    assert isinstance(verdict, Verdict), done.out
    # Nobody has said that the picture is known when the model is asked: that alone keeps it from serving.
    assert verdict.decision == "shadow", verdict.reasons
    assert isinstance(evaluation, EvaluationReport)
    gains = {one.reference: one.gain for one in evaluation.comparisons if one.metric == "log_loss"}
    assert gains["prior"].low > 0.5
    assert gains["linear"].low > 0
