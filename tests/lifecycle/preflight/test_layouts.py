"""Every check of the worker on inputs of every layout: none may break in Trainworthy's own code."""

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.preflight.catalogue import WORKER_CHECKS
from trainworthy.lifecycle.engine.preflight.run import run_preflight

# The drafted network's form: an input is there whether the table has such columns or not.
MODEL = """
import torch
from torch import nn

SHOPS = [f"shop{number}" for number in range(40)]


def fit_preprocessing(training, hyperparameters):
    return {"shops": sorted(training["shop"].unique()), **hyperparameters["layout"]}


def to_tensors(rows, preprocessing):
    numbers = torch.tensor(rows[preprocessing["numbers"]].to_numpy("float32"))
    if preprocessing["whole"]:
        numbers = (3 * numbers).round().long()
    codes = torch.zeros(len(rows), len(preprocessing["codes"]), dtype=torch.int64)
    for place, name in enumerate(preprocessing["codes"]):
        known = {shop: code for code, shop in enumerate(preprocessing["shops"], start=1)}
        codes[:, place] = torch.tensor([known.get(shop, 0) for shop in rows[name]])
    return {"numbers": numbers, "codes": codes}


class Network(nn.Module):
    def __init__(self, preprocessing, width):
        super().__init__()
        names = preprocessing["codes"]
        self.embeddings = nn.ModuleList(nn.Embedding(len(preprocessing["shops"]) + 1, 4) for _ in names)
        columns = len(preprocessing["numbers"]) + 4 * len(names)
        self.layers = nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, inputs):
        embedded = [embed(inputs["codes"][:, place]) for place, embed in enumerate(self.embeddings)]
        return self.layers(torch.cat([inputs["numbers"].float(), *embedded], dim=1)).squeeze(1)


def build_model(preprocessing, hyperparameters):
    return Network(preprocessing, 16)


def loss_fn(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def predict(outputs):
    return torch.sigmoid(outputs)
"""
LAYOUTS = {
    "no_codes": {"numbers": ["x1", "x2"], "codes": [], "whole": False},
    "one_column": {"numbers": ["x1"], "codes": [], "whole": False},
    "all_integer": {"numbers": ["x1", "x2"], "codes": [], "whole": True},
    "all_embedding": {"numbers": [], "codes": ["shop"], "whole": False},
}


@pytest.fixture(scope="module")
def few_rows(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few")
    return toy_jobs.copy_splits(splits, folder, training=lambda rows: rows.tail(900), validation=lambda r: r.head(300))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_check_breaks_on_the_layout_of_the_inputs(few_rows, tmp_path, layout):
    folder = toy_jobs.changed_use_case(tmp_path / "toy")
    (folder / "model.py").write_text(MODEL)
    spec = toy_jobs.SPEC.model_copy(update={"hyperparameters": {"layout": LAYOUTS[layout]}})
    job = toy_jobs.preflight_job(few_rows, tmp_path / "out", use_case=folder, spec=spec)
    result = run_preflight(job)
    assert {check.id for check in WORKER_CHECKS} <= {trial.check for trial in result.trials}
    assert result.untried == ""
    assert [trial for trial in result.trials if trial.status in ("error", "fail")] == []
