"""Does the exchange of parts name the part that was planted? Generated and real tables, one mistake each.

Hosts: 5,764 generated rows with a number, the same with two classes, and scikit-learn's digits (1,198 pictures of ten
classes to train on). Each has a small network that learns it. A mistake is planted in one part; all parts are then
exchanged (`trainworthy diagnose --all`). Right is a part that holds the mistake: decay is a part of the recipe as well
as of regularization. A network without a mistake must be told no part. Who planted the mistakes wrote the exchanges.

    make bench NAME=diagnosis                      about 10 minutes on 2 idle cores
    python -m benchmarks.diagnosis digits          one host
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.engine.substitution.diagnose import run_diagnosis
from trainworthy.lifecycle.gates.diagnosis import ORDER
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob, Rows, TrainJob
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Part
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec, StagesSpec, TrainingSpec

MODEL = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

TARGET = {}


def fit_preprocessing(training, hyperparameters):
    return {"mean": training.mean().tolist(), "spread": (training.std() + 1e-9).tolist()}


def to_tensors(rows, preprocessing):
    x = (rows.to_numpy("float32") - np.float32(preprocessing["mean"])) / np.float32(preprocessing["spread"])
    # TENSORS
    return {"x": torch.from_numpy(x.astype("float32"))}


class Network(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)
        # LAYERS

    def forward(self, inputs):
        x = F.relu(self.first(inputs["x"]))
        x = F.relu(self.second(x))
        # FORWARD
        return self.last(x).squeeze(1)


def build_model(preprocessing, hyperparameters):
    TARGET.update(preprocessing.get("target", {}))
    return Network(len(preprocessing["mean"]), len(TARGET.get("classes", [1])) if "classes" in TARGET else 1)


# OPTIMIZERS
"""
NUMBER = """
def loss_fn(outputs, targets):
    losses = (outputs - (targets - TARGET["mean"]) / TARGET["standard_deviation"]) ** 2
    # LOSS
    return losses


def predict(outputs):
    return outputs * TARGET["standard_deviation"] + TARGET["mean"]
"""
BINARY = """
def loss_fn(outputs, targets):
    losses = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    # LOSS
    return losses


def predict(outputs):
    return torch.sigmoid(outputs)
"""
CLASSES = """
def loss_fn(outputs, targets):
    losses = F.cross_entropy(outputs, targets, reduction="none")
    # LOSS
    return losses


def predict(outputs):
    return outputs.softmax(dim=1)
"""
OWN = "def build_optimizers(model, optimizer):\n    return [{}]\n"


@dataclass(frozen=True)
class Host:
    """A table with a column `day` of groups and one `label`, the share of rows to train on, and its loss."""

    made: Callable[[], pd.DataFrame]
    target: Target
    losses: str
    training_share: float = 2 / 3


@dataclass(frozen=True)
class Mistake:
    """What is exchanged in model.py, declared otherwise, or done to the training rows; and the parts that hold it."""

    parts: tuple[Part, ...]
    changes: tuple[tuple[str, str], ...] = ()
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float = 1e-2
    decay: float = 0.01
    rows: Callable[[pd.DataFrame], pd.DataFrame] = field(default=lambda rows: rows)


def _generated() -> pd.DataFrame:
    generator, rows = np.random.default_rng(0), 5764 * 3 // 2
    x = generator.normal(size=(rows, 8))
    x[:, 3], x[:, 5] = np.exp(x[:, 3]), x[:, 5] > 0
    label = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 2 * x[:, 5] + 0.3 * generator.normal(size=rows)
    return pd.DataFrame(x, columns=list("abcdefgh")).assign(day=np.arange(rows) // 20, label=40 * label + 300)


def _two_classes() -> pd.DataFrame:
    found = _generated()
    return found.assign(label=(found["label"] > 360).astype(int))


def _digits() -> pd.DataFrame:
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    pictures, labels = digits.data, digits.target
    frame = pd.DataFrame(pictures, columns=[f"p{number}" for number in range(64)])
    return frame.assign(day=np.arange(len(frame)) // 20, label=labels)


def _labels_of_the_row_before(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(label=np.roll(rows["label"].to_numpy(), 1))


def _labels_in_random_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(label=np.random.default_rng(1).permutation(rows["label"].to_numpy()))


def _columns_exchanged(rows: pd.DataFrame) -> pd.DataFrame:
    """A join that gives columns the values of others, in the training rows alone."""
    features = [str(name) for name in rows if name not in ("day", "label")]
    half = len(features) // 2
    moved = dict(zip(features, (*features[half:], *features[:half]), strict=True))
    return pd.DataFrame({name: rows[moved.get(str(name), str(name))].to_numpy() for name in rows})


HOSTS: dict[str, Host] = {
    "number": Host(_generated, Target(kind="regression"), NUMBER),
    "two classes": Host(_two_classes, Target(kind="binary"), BINARY),
    "digits": Host(_digits, Target(kind="multiclass", classes=tuple(range(10))), CLASSES),
}
MISTAKES: dict[str, Mistake] = {
    "none": Mistake(()),
    "decay of 5": Mistake(("recipe", "regularization"), decay=5.0),
    "rate x 0.0001": Mistake(("recipe",), rate=1e-6),
    "rate x 100": Mistake(("recipe",), rate=1.0),
    "SGD at a rate of Adam": Mistake(("recipe",), optimizer="sgd", rate=1e-4),
    "eps of 1": Mistake(
        ("recipe",),
        (("# OPTIMIZERS", OWN.format("torch.optim.Adam(model.parameters(), optimizer['learning_rate'], eps=1.0)")),),
    ),
    "only the first layer trains": Mistake(
        ("recipe",), (("# OPTIMIZERS", OWN.format("torch.optim.Adam(model.first.parameters(), 1e-4)")),)
    ),
    "a penalty that outweighs the loss": Mistake(
        ("loss",), (("# LOSS", "losses = losses + 30 * outputs.reshape(len(outputs), -1).square().mean(1)"),)
    ),
    "targets of other rows in the loss": Mistake(
        ("loss",),
        (("def loss_fn(outputs, targets):\n", "def loss_fn(outputs, targets):\n    targets = targets.roll(1, 0)\n"),),
    ),
    "loss with the wrong sign": Mistake(("loss",), (("# LOSS", "losses = -losses.clamp(max=5)"),)),
    "one unit in the middle": Mistake(
        ("network",), (("nn.Linear(64, 64), nn.Linear(64, outputs)", "nn.Linear(64, 1), nn.Linear(1, outputs)"),)
    ),
    "softmax between layers": Mistake(
        ("network",), (("x = F.relu(self.second(x))", "x = F.softmax(self.second(x), 0)"),)
    ),
    "dead units": Mistake(("network",), (("# LAYERS", "nn.init.constant_(self.first.bias, -30.0)"),)),
    "dropout of 0.95": Mistake(
        ("regularization", "network"), (("# LAYERS", "self.drop = nn.Dropout(0.95)"), ("# FORWARD", "x = self.drop(x)"))
    ),
    "inputs scaled twice": Mistake(("inputs",), (("# TENSORS", "x = x * 1e-3"),)),
    "columns that are left out": Mistake(("inputs",), (("# TENSORS", "x[:, : x.shape[1] * 3 // 4] = 0"),)),
    "columns of the batch, not of the row": Mistake(("inputs",), (("# TENSORS", "x = np.roll(x, 1, axis=0)"),)),
    "a join that slipped by one row": Mistake(("rows",), rows=_labels_of_the_row_before),
    "labels in random order": Mistake(("rows",), rows=_labels_in_random_order),
    "columns exchanged in training rows": Mistake(("rows",), rows=_columns_exchanged),
}


def diagnosed(host: Host, mistake: Mistake) -> Diagnosis:
    """All parts exchanged in a training of the host with the mistake."""
    with tempfile.TemporaryDirectory() as made:
        training = job_of(host, mistake, Path(made))
        asked = DiagnoseJob(
            use_case_folder=made, out=training.out, device="cpu", training=training, parts=ORDER, most=len(ORDER)
        )
        return run_diagnosis(asked).diagnosis


def job_of(host: Host, mistake: Mistake, folder: Path) -> TrainJob:
    """The whole training of the host with the mistake, whose files are written into the folder."""
    frame, text = host.made(), MODEL + host.losses
    for before, after in mistake.changes:
        assert before in text, before
        text = text.replace(before, after)
    if host.target.classes:
        text = text.replace("self.last(x).squeeze(1)", "self.last(x)")
    rows = int(len(frame) * host.training_share)
    (folder / "model.py").write_text(text)
    mistake.rows(frame.iloc[:rows].reset_index(drop=True)).to_parquet(folder / "training.parquet")
    frame.iloc[rows:].to_parquet(folder / "validation.parquet")
    validation = str(folder / "validation.parquet")
    features = tuple(str(name) for name in frame if name not in ("day", "label"))
    return TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", identity="diagnosis", stage="full",
        rows=Rows(features=features, label="label", group="day", target=host.target),
        stages=StagesSpec(smoke=0.1, pilot=0.5, full=1.0),
        training=TrainingSpec(
            optimizer=OptimizerSpec(name=mistake.optimizer, learning_rate=mistake.rate, weight_decay=mistake.decay),
            schedule=ScheduleSpec(warmup=0.1, decay="cosine"), batch_size=64, epochs=3 if rows > 2000 else 12,
            precision="fp32", clip_norm=5.0, seed=0,
        ),
        hyperparameters={}, training_file=str(folder / "training.parquet"), validation_file=validation,
        calibration_file=validation,
    )  # fmt: skip


def main() -> None:
    """A row for each mistake on each host, then how many of them were told the right part."""
    parser = arguments(__doc__)
    parser.add_argument("hosts", nargs="*", help=f"of {', '.join(HOSTS)}; all of them without it")
    asked = parser.parse_args()
    begin(asked.short)
    counts = {"planted": 0, "right": 0, "none_named": 0, "healthy": 0, "healthy_named": 0}
    print("| host | mistake | loss | best constant | named | exchanges: loss with each, * recovers | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in asked.hosts or (["digits"] if asked.short else HOSTS):
        for words, mistake in MISTAKES.items():
            if asked.short and words not in ("none", "rate x 0.0001"):
                continue
            began = time.process_time()
            found = diagnosed(HOSTS[name], mistake)
            print(_row(name, words, mistake, found, time.process_time() - began), flush=True)
            if mistake.parts:
                counts["planted"] += 1
                counts["right"] += found.at_fault in mistake.parts
                counts["none_named"] += found.at_fault is None
            else:
                counts["healthy"] += 1
                counts["healthy_named"] += found.at_fault is not None
    figures = counts | {"wrong_share": 1 - counts["right"] / counts["planted"]}
    targets = {"healthy_named": 0, "wrong_share": 0.25}
    finish("diagnosis", figures, targets, short=asked.short, zero_allowed=tuple(figures))


def _row(host: str, words: str, mistake: Mistake, found: Diagnosis, seconds: float) -> str:
    named = found.at_fault or "none"
    right = found.at_fault in mistake.parts if mistake.parts else found.at_fault is None
    told = named if right else f"**{named}**, not {' or '.join(mistake.parts) or 'any'}"
    exchanges = ", ".join(
        f"{one.part} {one.loss:.4g}{'*' if one.status == 'recovers' else ''}"
        for one in found.exchanges if one.loss is not None
    )  # fmt: skip
    return f"| {host} | {words} | {found.loss:.4g} | {found.prior_loss:.4g} | {told} | {exchanges} | {seconds:.1f} |"


if __name__ == "__main__":
    main()
