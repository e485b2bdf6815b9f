"""The toy as use cases of the other kinds: an amount, quantiles of it, one of four grades, three tags; with jobs.

The columns are those of the toy. `amount` is its score in another unit, `grade` the place of the largest of four noisy
scores; of `tags` the inputs tell two, each on its own, and the third is rare. `price` is an amount whose logarithm the
inputs tell, with a heavy tail.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import toy_jobs
import yaml

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.data.split import split_rows
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, PreflightJob, Rows, TrainJob
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.use_case import load_use_case

GRADES = ("low", "middle", "high", "top")
TAGS = ("cheap", "new", "rare")
LEVELS = (0.1, 0.5, 0.9)
LABELS: dict[str, dict[str, Any]] = {
    "amount": {"name": "amount", "version": 1, "column": "amount", "type": "number"},
    "price": {"name": "price", "version": 1, "column": "price", "type": "number"},
    "grade": {"name": "grade", "version": 1, "column": "grade", "type": "class", "classes": list(GRADES)},
    "tags": {
        "name": "tags", "version": 1, "column": "tags", "type": "labels", "classes": list(TAGS), "separator": "|",
    },
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "regression": {"kind": "regression"},
    "quantiles": {"kind": "regression", "quantiles": list(LEVELS)},
    "multiclass": {"kind": "multiclass"},
    "multilabel": {"kind": "multilabel"},
}
PRIMARY = {"regression": "rmse", "quantiles": "pinball", "multiclass": "log_loss", "multilabel": "log_loss"}

_SHARED = '''"""The toy's network for {what}; it has dropout, so that resuming needs the random state."""

import torch
from torch import nn

SHOPS = ["north", "south", "west"]


def fit_preprocessing(training, hyperparameters):
    return {{name: [float(training[name].mean()), float(training[name].std())] for name in ("x1", "x2")}}


def to_tensors(rows, preprocessing):
    numbers = [(rows[n].to_numpy(dtype="float32") - m) / s for n, (m, s) in
               ((n, preprocessing[n]) for n in ("x1", "x2"))]
    shops = rows["shop"].map({{name: i + 1 for i, name in enumerate(SHOPS)}}).fillna(0)
    return {{
        "numbers": torch.stack([torch.tensor(n, dtype=torch.float32) for n in numbers], dim=1),
        "shop": torch.tensor(shops.to_numpy(), dtype=torch.int64),
    }}


class Network(nn.Module):
    def __init__(self, width: int, outputs: int, start, scale: float):
        super().__init__()
        self.shop = nn.Embedding(len(SHOPS) + 1, 2)
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, outputs))
        self.register_buffer("start", torch.tensor(start))
        self.scale = scale

    def forward(self, inputs):
        found = self.layers(torch.cat([inputs["numbers"], self.shop(inputs["shop"])], dim=1))
        return {forward}


def build_model(preprocessing, hyperparameters):
    target = preprocessing["target"]
{built}    return Network(hyperparameters["width"], {network})
'''
MODELS = {
    "regression": _SHARED.format(
        built="",
        what="a number",
        forward="self.start + self.scale * found.squeeze(1)",
        network='1, target["mean"], target["standard_deviation"]',
    )
    + """

def loss_fn(outputs, targets):
    return (outputs - targets) ** 2


def predict(outputs):
    return outputs
""",
    "quantiles": _SHARED.format(
        what="three quantiles of a number",
        forward="self.start + self.scale * found",
        network="3, start, (start[2] - start[0]) / 2.56",
        built='    start = list(target["quantiles"].values())\n',
    )
    + """

LEVELS = (0.1, 0.5, 0.9)


def loss_fn(outputs, targets):
    levels = torch.tensor(LEVELS, device=outputs.device)
    off = targets[:, None] - outputs
    return torch.maximum(levels * off, (levels - 1) * off).mean(dim=1)


def predict(outputs):
    return outputs.sort(dim=1).values
""",
    "multiclass": _SHARED.format(
        built="", what="one of four classes", forward="found", network='len(target["classes"]), 0.0, 1.0'
    )
    + """

def loss_fn(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predict(outputs):
    return outputs.softmax(dim=1)
""",
    "multilabel": _SHARED.format(
        built="", what="any of three tags", forward="found", network='len(target["classes"]), 0.0, 1.0'
    )
    + """

def loss_fn(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)


def predict(outputs):
    return outputs.sigmoid()
""",
}


@dataclass(frozen=True)
class KindCase:
    """A use case of a kind: its folder, its split files, its declarations, and what its columns mean."""

    folder: Path
    splits: Path
    spec: UseCaseSpec
    rows: Rows

    @property
    def contract(self) -> Contract:
        return load_contract(self.folder / "contract.yaml")

    def changed(self, folder: Path, *replacements: tuple[str, str]) -> "KindCase":
        """A copy whose model.py has each old text replaced by the new one; the old one has to be there."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        source = (folder / "model.py").read_text()
        for old, new in replacements:
            assert old in source, old
            source = source.replace(old, new)
        (folder / "model.py").write_text(source)
        return replace(self, folder=folder)

    def declared(self, **sections: Any) -> "KindCase":
        """The same with values of use_case.yaml replaced: training={"epochs": 1}."""
        values = toy_jobs.merged(self.spec.model_dump(mode="json"), sections)
        return replace(self, spec=UseCaseSpec.model_validate(values))

    def train_job(self, out: Path, stage: str = "smoke", **fields: Any) -> TrainJob:
        fields = {"spec": self.spec, "use_case": self.folder, "rows": self.rows} | fields
        return toy_jobs.train_job(self.splits, out, stage, **fields)

    def preflight_job(self, out: Path, **fields: Any) -> PreflightJob:
        fields = {"spec": self.spec, "use_case": self.folder, "rows": self.rows} | fields
        return toy_jobs.preflight_job(self.splits, out, **fields)

    def train(self, out: Path, stage: str = "smoke", **fields: Any) -> Any:
        """What the stage's training gave, made in this process."""
        job = self.train_job(out, stage, **fields)
        Path(job.out).mkdir(parents=True, exist_ok=True)
        (Path(job.out) / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
        return run_stage(job)


def kind_case(kind: str, root: Path, label: str = "") -> KindCase:
    """The use case of a kind of TASKS below `root`; `label` is another one of LABELS than the kind's usual one."""
    label = label or {"multiclass": "grade", "multilabel": "tags"}.get(kind, "amount")
    folder, splits = root / "use_case", root / "splits"
    shutil.copytree(toy_jobs.TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "model.py").write_text(MODELS[kind])
    _declare(folder, kind, LABELS[label])
    spec, contract = load_use_case(folder).spec, load_contract(folder / "contract.yaml")
    splits.mkdir(parents=True)
    for name, rows in split_rows(with_label(_frame(), contract.label), spec.split, contract).items():
        rows.to_parquet(splits / f"{name}.parquet", index=False)
    target = target_of(spec.task, contract.label.classes)
    rows = toy_jobs.ROWS.model_copy(update={"label": label, "target": target})
    return KindCase(folder, splits, spec, rows)


def _declare(folder: Path, kind: str, label: dict[str, Any]) -> None:
    """use_case.yaml and contract.yaml of the kind and its label."""
    declared = yaml.safe_load((folder / "use_case.yaml").read_text())
    primary = {"metric": PRIMARY[kind], "margin": 0.01}
    declared |= {"name": folder.name, "target": label["name"], "task": TASKS[kind]}
    declared["benchmark"] |= {"primary": primary, "guardrails": []}
    (folder / "use_case.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    contract = yaml.safe_load((folder / "contract.yaml").read_text())
    source = contract["schema"][0]["properties"][-1]
    source |= {"name": label["column"], "logicalType": "string" if "classes" in label else "number"}
    source["customProperties"][0]["value"] = "target"
    contract["customProperties"][0]["value"] = label
    (folder / "contract.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))


def _frame() -> pd.DataFrame:
    """The toy's first 120 days with the columns that labels are made of."""
    frame = toy_jobs.days(120)
    generator = np.random.default_rng(3)
    score = frame["score"].to_numpy()
    scores = np.stack([1.2 * frame["x1"], -1.2 * frame["x1"], 1.2 * frame["x2"], 0.8 * np.ones(len(frame))], axis=1)
    places = (scores + generator.gumbel(size=scores.shape)).argmax(axis=1)
    grades = pd.Series(np.array(GRADES)[places]).where(frame["score"].notna())
    return frame.drop(columns="score").assign(
        amount=40 + 12 * score, price=np.exp(5 + 0.5 * score), grade=grades, tags=_tags(frame, generator)
    )


def _tags(frame: pd.DataFrame, generator: np.random.Generator) -> pd.Series:
    """Names with a separator between them; an empty text has none of them."""
    logits = np.stack([1.5 * frame["x1"], 1.5 * frame["x2"] - 0.5, frame["x1"] - 3.5], axis=1)
    held = generator.random(logits.shape) < 1 / (1 + np.exp(-logits))
    texts = ["|".join(name for name, has in zip(TAGS, row, strict=True) if has) for row in held]
    return pd.Series(texts, index=frame.index).where(frame["score"].notna())
