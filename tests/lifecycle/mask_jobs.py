"""A small use case of masks: bright squares on grey ground, most of them at the left; with jobs of its pilot."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from trainworthy.lifecycle.protocol.jobs import Rows, TrainJob
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec
from trainworthy.lifecycle.tasks.segmentation import Segmentation

SIDE, ROWS, GROUP_ROWS = 16, 576, 12
CLASSES = ("ground", "square")
MODEL = """
import numpy as np
import torch
from PIL import Image
from torch import nn


def fit_preprocessing(training, hyperparameters):
    return {}


def to_tensors(rows, preprocessing):
    pictures = np.stack([np.asarray(Image.open(path), dtype=np.float32) / 255 for path in rows["picture"]])
    return {"picture": torch.from_numpy(pictures - 0.5)[:, None]}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
        self.place = nn.Parameter(torch.zeros(2, 16, 16))

    def forward(self, inputs):
        return SEEN * self.layers(inputs["picture"]) + self.place


def build_model(preprocessing, hyperparameters):
    return Network()


def loss_fn(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none").mean(dim=(1, 2))


def predict(outputs):
    return outputs.softmax(dim=1)
"""


def write_files(folder: Path) -> Path:
    """Write pictures with a bright square, mostly at the left, with their masks, and the rows of three splits."""
    kind = Segmentation(CLASSES)
    (folder / "files").mkdir()
    random, rows = np.random.default_rng(0), []
    for row in range(ROWS):
        mask = np.zeros((SIDE, SIDE), dtype=np.uint8)
        top, left, side = int(random.integers(0, 10)), int(random.integers(0, 10) ** 2 / 9), int(random.integers(4, 7))
        mask[top : top + side, left : left + side] = 1
        picture = random.normal(90, 25, (SIDE, SIDE)) + 60 * mask
        names = {"picture": f"files/{row}.png", "mask": f"files/{row}m.png"}
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / names["picture"])
        Image.fromarray(mask).save(folder / names["mask"])
        rows.append(names | {"place": row // GROUP_ROWS, "squares": kind.column(mask[None])[0]})
    table = pd.DataFrame(rows)
    for number, split in enumerate(("training", "training", "validation", "calibration")):
        of_split = table[table["place"] % 4 == number] if split != "training" else table[table["place"] % 4 < 2]
        of_split.to_parquet(folder / f"{split}.parquet", index=False)
    return folder


def shuffled(files: Path) -> str:
    """Training rows with the masks of others; the name of their file."""
    rows = pd.read_parquet(files / "training.parquet")
    order = np.random.default_rng(0).permutation(len(rows))
    rows[["mask", "squares"]] = rows[["mask", "squares"]].iloc[order].to_numpy()
    rows.to_parquet(files / "shuffled.parquet", index=False)
    return "shuffled.parquet"


def job(
    files: Path, folder: Path, *changed: tuple[str, str], seen: int = 1, training: str = "training.parquet", **settings
) -> TrainJob:
    """The pilot's job; each old text of model.py is replaced by the new one."""
    folder.mkdir()
    source = MODEL
    for old, new in (("SEEN", str(seen)), *changed):
        assert old in source, old
        source = source.replace(old, new)
    (folder / "model.py").write_text(source)
    splits: dict[str, Any] = {f"{name}_file": str(files / f"{name}.parquet") for name in ("validation", "calibration")}
    return TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", identity="masks", stage="pilot",
        rows=Rows(
            features=("picture",), label="squares", group="place", target=Target(kind="segmentation", classes=CLASSES),
            files=("picture", "mask"), files_root=str(files), label_file="mask",
        ),
        stages=StagesSpec.model_validate({"smoke": 0.1, "pilot": 0.8, "full": 1.0}),
        training=TrainingSpec.model_validate(
            {"optimizer": {"name": "adamw", "learning_rate": 0.02, "weight_decay": 0.0}, "batch_size": 16, "epochs": 8,
             "schedule": {"warmup": 0.1, "decay": "cosine"}, "precision": "fp32", "clip_norm": 1.0, "seed": 0}
            | settings
        ),
        hyperparameters={}, training_file=str(files / training),
        **splits,
    )  # fmt: skip
