"""Own metrics are tried on few masks, since answers of all at their full size would fill the memory."""

import numpy as np
import pandas as pd
from PIL import Image

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks.own import TRIED_ROWS, try_own
from trainworthy.lifecycle.tasks.segmentation import Segmentation

CLASSES, SIDE = ("ground", "square"), 12
METRICS = """
from pathlib import Path


def share(labels, answers, rows):
    shapes = labels.shape, answers.shape, len(rows), rows.columns.tolist()
    Path(__file__).with_name("seen.txt").write_text(repr(shapes))
    return (labels == answers.argmax(-1)).mean(axis=(1, 2))
"""


def test_own_metric_is_tried_on_few_masks_in_their_size(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "metrics.py").write_text(METRICS)
    random, kind, rows = np.random.default_rng(0), Segmentation(CLASSES), []
    for row in range(TRIED_ROWS + 6):
        mask, name = random.integers(0, 2, (SIDE, SIDE)).astype(np.uint8), f"files/{row}.png"
        Image.fromarray(mask).save(tmp_path / name)
        rows.append({"picture": name, "mask": name, "squares": kind.column(mask[None])[0], "place": row // 4})
    pd.DataFrame(rows).to_parquet(tmp_path / "validation.parquet", index=False)
    columns = Rows(
        features=("picture",), label="squares", group="place", target=Target(kind="segmentation", classes=CLASSES),
        files=("picture", "mask"), files_root=str(tmp_path), label_file="mask",
    )  # fmt: skip
    validation = read_rows(str(tmp_path / "validation.parquet"), columns)
    try_own(tmp_path, ["share"], [], validation, columns, ["place"])
    seen = ((TRIED_ROWS, SIDE, SIDE), (TRIED_ROWS, SIDE, SIDE, 2), TRIED_ROWS, ["place"])
    assert (tmp_path / "seen.txt").read_text() == repr(seen)
