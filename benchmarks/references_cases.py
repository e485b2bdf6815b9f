"""Tables that are no example of this project, a small network for each, and what is planted in it.

Four come with scikit-learn; the others are drawn. What is planted here was chosen before the check `references` was
tried on it, and none of it is a case of the other benchmarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

GROUPS = 60
NUMBERS = """
import numpy as np
import torch
from torch import nn

CATEGORIES = CATEGORY_COLUMNS


def fit_preprocessing(training, hyperparameters):
    names = [name for name in training.columns if name not in CATEGORIES]
    known = {name: sorted(training[name].astype(str).unique()) for name in CATEGORIES}
    return {"mean": training[names].mean().to_dict(), "spread": (training[names].std() + 1e-9).to_dict(),
            "known": known}


def to_tensors(rows, preprocessing):
    names = list(preprocessing["mean"])
    mean, spread = (np.array([preprocessing[part][name] for name in names]) for part in ("mean", "spread"))
    numbers = torch.tensor(((rows[names].to_numpy(dtype=float) - mean) / spread).astype("float32"))
    codes = [[1 + known.index(value) if value in known else 0 for value in rows[name].astype(str)]
             for name, known in preprocessing["known"].items()]
    found = {"numbers": numbers}
    return found | ({"codes": torch.tensor(codes, dtype=torch.int64).T.contiguous()} if codes else {})


class Network(nn.Module):
    def __init__(self, numbers, known, outputs, start=0.0, scale=1.0):
        super().__init__()
        self.codes = nn.ModuleList([nn.Embedding(1 + len(values), 8) for values in known.values()])
        wide = numbers + 8 * len(self.codes)
        self.layers = nn.Sequential(
            nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)
        )
        self.start, self.scale = start, scale

    def forward(self, inputs):
        parts = [inputs["numbers"], *(codes(inputs["codes"][:, n]) for n, codes in enumerate(self.codes))]
        found = self.layers(torch.cat(parts, dim=1))
        return self.start + self.scale * (found.squeeze(1) if found.shape[1] == 1 else found)
"""
HEADS = {
    "binary": """

def build_model(preprocessing, hyperparameters):
    return Network(len(preprocessing["mean"]), preprocessing["known"], 1)


def loss_fn(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none")


def predict(outputs):
    return outputs.sigmoid()
""",
    "regression": """

def build_model(preprocessing, hyperparameters):
    target = preprocessing["target"]
    return Network(len(preprocessing["mean"]), preprocessing["known"], 1, target["mean"], target["standard_deviation"])


def loss_fn(outputs, targets):
    return (outputs - targets) ** 2


def predict(outputs):
    return outputs
""",
    "multiclass": """

def build_model(preprocessing, hyperparameters):
    return Network(len(preprocessing["mean"]), preprocessing["known"], len(preprocessing["target"]["classes"]))


def loss_fn(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predict(outputs):
    return outputs.softmax(dim=1)
""",
}
PICTURES = """
import torch
from torch import nn


def fit_preprocessing(training, hyperparameters):
    return {}


def to_tensors(rows, preprocessing):
    return {"picture": torch.tensor(rows.to_numpy(dtype="float32").reshape(-1, 1, 8, 8) / 16 - 0.3)}


class Network(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, outputs)
        )

    def forward(self, inputs):
        return self.layers(inputs["picture"])


def build_model(preprocessing, hyperparameters):
    return Network(len(preprocessing["target"]["classes"]))
""" + HEADS["multiclass"].partition('preprocessing["target"]["classes"]))')[2]
OPTIMIZER = """

def build_optimizers(model, optimizer):
    return [torch.optim.AdamW(model.parameters(), lr=optimizer["learning_rate"], eps=1.0)]
"""

Rows = Callable[[np.random.Generator], pd.DataFrame]
Changed = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True)
class Case:
    """A table with the label `y`, the kind of it, and what is declared; `model` is model.py.

    A planted one says what, by changes of the model, of the training rows or of the validation rows.
    """

    name: str
    rows: Rows
    kind: str
    categories: tuple[str, ...] = ()
    model: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[tuple[str, str], ...] = ()
    of_training: Changed | None = None
    of_validation: Changed | None = None

    def source(self) -> str:
        """The text of model.py."""
        text = self.model or NUMBERS.replace("CATEGORY_COLUMNS", repr(list(self.categories))) + HEADS[self.kind]
        for old, new in self.changed:
            if old and old not in text:
                raise ValueError(f"{self.name}: {old!r} is not in the model")
            text = text.replace(old, new) if old else text + new
        return text


def _bundled(name: str) -> Rows:
    def rows(generator: np.random.Generator) -> pd.DataFrame:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        table = pd.DataFrame(found.data, columns=[f"x{place:02}" for place in range(found.data.shape[1])])
        return table.assign(y=found.target).iloc[generator.permutation(len(table))]

    return rows


def _drawn(label: Callable[[pd.DataFrame, np.random.Generator], Any], rows: int = 3000, columns: int = 6) -> Rows:
    def made(generator: np.random.Generator) -> pd.DataFrame:
        table = pd.DataFrame(generator.normal(size=(rows, columns)), columns=[f"x{n}" for n in range(columns)])
        return table.assign(y=label(table, generator))

    return made


def _yes(logits: Any, generator: np.random.Generator) -> np.ndarray:
    return (generator.random(len(logits)) < 1 / (1 + np.exp(-np.asarray(logits)))).astype(int)


def _tables(generator: np.random.Generator) -> pd.DataFrame:
    """Categories that tell, beside numbers that tell less."""
    names = np.array(["red", "green", "blue", "black", "white", "grey", "pink", "brown"])
    colour, shape = generator.integers(0, 8, 3000), generator.integers(0, 5, 3000)
    weight = np.array([2.0, -2, 1, -1, 3, -3, 0, 0.5])
    table = pd.DataFrame({"colour": names[colour], "shape": np.array(list("abcde"))[shape]})
    table["size"] = generator.normal(size=3000)
    return table.assign(y=_yes(weight[colour] + 0.5 * (shape - 2) + 0.5 * table["size"], generator))


def _shifting(generator: np.random.Generator) -> pd.DataFrame:
    """A share of positives that goes up and down from group to group."""
    table = pd.DataFrame(generator.normal(size=(3000, 5)), columns=[f"x{n}" for n in range(5)])
    level = np.repeat(2 * np.sin(np.arange(GROUPS)), 3000 // GROUPS)
    return table.assign(y=_yes(1.2 * table["x0"] - table["x1"] + level - 1, generator))


def _units(generator: np.random.Generator) -> pd.DataFrame:
    """Columns in units from thousandths to millions, one of them with a heavy tail."""
    table = pd.DataFrame(generator.normal(size=(3000, 6)), columns=[f"x{n}" for n in range(6)])
    y = 30 * table["x0"] + 20 * table["x1"] ** 2 - 10 * table["x2"] + 15 * generator.normal(size=3000)
    scaled = table * [1e-3, 1.0, 1e6, 50.0, 1.0, 1.0]
    return scaled.assign(x3=np.exp(1.5 * table["x3"]), y=y)


XOR = _drawn(lambda t, g: _yes(4 * np.sign(t["x0"] * t["x1"]), g))
HEAVY = _drawn(lambda t, g: 10 * t["x0"] - 6 * t["x1"] + 5 * g.standard_t(2.5, len(t)))
RARE = _drawn(lambda t, g: _yes(2.2 * t["x0"] + 1.2 * t["x1"] - 4.2, g))
LINEAR = _drawn(lambda t, g: _yes(1.5 * t["x0"] - t["x1"] + 0.5 * t["x2"], g))
WAVES = _drawn(lambda t, g: 5 * np.sin(2 * t["x0"]) + 3 * t["x1"] * t["x2"] + g.normal(size=len(t)))
COUNTS = _drawn(lambda t, g: g.poisson(np.exp(0.8 * t["x0"] + 0.4 * t["x1"])))
FEW = _drawn(lambda t, g: _yes(2 * t["x0"] - t["x1"], g), rows=300)
MANY = _drawn(lambda t, g: _yes(1.5 * t["x0"] - t["x7"], g), columns=60)
NOISE = _drawn(lambda t, g: _yes(np.zeros(len(t)), g))
BATCH = {"batch_size": 16}

HEALTHY = (
    Case("diabetes", _bundled("diabetes"), "regression", training=BATCH),
    Case("breast cancer", _bundled("breast_cancer"), "binary", training=BATCH),
    Case("wine", _bundled("wine"), "multiclass", training={"batch_size": 8}),
    Case("digits as numbers", _bundled("digits"), "multiclass"),
    Case("digits as pictures", _bundled("digits"), "multiclass", model=PICTURES),
    Case("signs that differ (XOR)", XOR, "binary", training={"epochs": 40}),
    Case("heavy tail", HEAVY, "regression"),
    Case("6 % positives", RARE, "binary"),
    Case("6 % positives, weighed", RARE, "binary", training={"class_weights": "balanced"}),
    Case("linear by nature", LINEAR, "binary"),
    Case("waves and products", WAVES, "regression", training={"epochs": 40}),
    Case("counts", COUNTS, "regression"),
    Case("300 rows", FEW, "binary", training=BATCH),
    Case("60 columns", MANY, "binary", training={"epochs": 3}),
    Case("categories", _tables, "binary", ("colour", "shape")),
    Case("a base rate that shifts", _shifting, "binary"),
    Case("units from 1e-3 to 1e6", _units, "regression", training={"epochs": 40}),
    Case("one linear layer", LINEAR, "binary",
         changed=(("nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)",
                   "nn.Linear(wide, outputs)"),)),
    Case("much dropout", LINEAR, "binary", changed=(("nn.Linear(32, 32), nn.ReLU()",
                                                     "nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.5)"),)),
    Case("a short training", LINEAR, "binary", training={"epochs": 2}),
)  # fmt: skip


def _slipped(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(y=np.roll(rows["y"].to_numpy(), 1))


def _half_random(rows: pd.DataFrame) -> pd.DataFrame:
    generator, labels = np.random.default_rng(5), rows["y"].to_numpy().copy()
    some = generator.random(len(rows)) < 0.9
    labels[some] = generator.permutation(labels[some])
    return rows.assign(y=labels)


def _other_column(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(y=(rows["x3"] > 0).astype(int))


def _recoded(rows: pd.DataFrame) -> pd.DataFrame:
    names = sorted(rows["colour"].unique())
    other = dict(zip(names, [*names[3:], *names[:3]], strict=True))
    return rows.assign(colour=rows["colour"].map(other))


def _exchanged(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.rename(columns={"x0": "x4", "x4": "x0", "x1": "x5", "x5": "x1"})[list(rows.columns)]


def _turned(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(y=rows["y"].max() - rows["y"])


DECAY = {"optimizer": {"name": "adamw", "learning_rate": 0.01, "weight_decay": 30.0}}
SLOW = {"optimizer": {"name": "adamw", "learning_rate": 1e-5, "weight_decay": 0.0}}
ONE = ("nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs)",
       "nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, 1), nn.ReLU(), nn.Linear(1, outputs)")  # fmt: skip
TWICE = ("mean) / spread)", "mean) / spread - mean) / spread)")
TWICE_FROM = ("((rows[names]", "(((rows[names]")
PLANTED = (
    Case("inputs scaled twice", _units, "regression", training={"epochs": 40}, changed=(TWICE_FROM, TWICE)),
    Case("half of the columns never read", WAVES, "regression", training={"epochs": 40},
         changed=(('found = {"numbers": numbers}', 'found = {"numbers": numbers * torch.tensor([0.0, 1.0] * 3)}'),)),
    Case("columns read as one", LINEAR, "binary",
         changed=(('found = {"numbers": numbers}', 'found = {"numbers": numbers[:, :1].expand(-1, 6).clone()}'),)),
    Case("labels slipped by a row", LINEAR, "binary", of_training=_slipped),
    Case("labels of heavy tail slipped", HEAVY, "regression", of_training=_slipped),
    Case("nine of ten labels random", LINEAR, "binary", of_training=_half_random),
    Case("labels of another column", LINEAR, "binary", of_training=_other_column),
    Case("labels turned round", RARE, "binary", of_training=_turned),
    Case("XOR with slipped labels", XOR, "binary", of_training=_slipped, training={"epochs": 40}),
    Case("categories re-coded in validation", _tables, "binary", ("colour", "shape"), of_validation=_recoded),
    Case("columns exchanged in training", LINEAR, "binary", of_training=_exchanged),
    Case("one unit in the middle", WAVES, "regression", training={"epochs": 40}, changed=(ONE,)),
    Case("decay far too strong", LINEAR, "binary", training=DECAY),
    Case("eps of 1", WAVES, "regression", training={"epochs": 40}, changed=(("", OPTIMIZER),)),
    Case("rate / 1000", HEAVY, "regression", training=SLOW),
    Case("loss on the targets' size", HEAVY, "regression",
         changed=(("(outputs - targets) ** 2", "(outputs - targets.abs()) ** 2"),)),
    Case("loss on the batch's mean", LINEAR, "binary",
         changed=(("(outputs, targets.float(),", "(outputs, targets.float().mean().expand(len(targets)),"),)),
    Case("targets of the next row of a batch", LINEAR, "binary",
         changed=(("targets.float()", "targets.float().roll(1)"),)),
    Case("outputs cut at 0", HEAVY, "regression",
         changed=(("(outputs - targets) ** 2", "(outputs.clamp(-1, 1) - targets) ** 2"),)),
    Case("dropout of 0.95", WAVES, "regression", training={"epochs": 40},
         changed=(("nn.Linear(32, 32), nn.ReLU()", "nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.95)"),)),
    Case("categories all unknown", _tables, "binary", ("colour", "shape"),
         changed=(("value in known else 0 for value in rows[name].astype(str)",
                   "value in known else 0 for value in rows[name].astype(str).str.upper() + '.'"),)),
    Case("rows and channels of pictures exchanged", _bundled("digits"), "multiclass", model=PICTURES,
         changed=(("reshape(-1, 1, 8, 8)", "reshape(-1, 8, 8, 1)"), ("nn.Conv2d(1, 16", "nn.Conv2d(8, 16"),
                  ("nn.MaxPool2d(2)", "nn.MaxPool2d((2, 1))"), ("nn.Linear(256", "nn.Linear(64"))),
    Case("pictures of rows in random order", _bundled("digits"), "multiclass", model=PICTURES,
         changed=(("/ 16 - 0.3)", "/ 16 - 0.3)[:, :, torch.randperm(8)]"),)),
    Case("inputs as whole numbers", LINEAR, "binary",
         changed=((".astype(\"float32\"))", ".astype(\"int64\") // 3).float()"),)),
    Case("nothing to learn", NOISE, "binary"),
)  # fmt: skip
