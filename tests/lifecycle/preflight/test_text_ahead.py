"""The two mistakes of language models, planted in the model of `docstrings`: it sees ahead, or learns its padding."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from wiring_subjects import subject

from trainworthy.lifecycle.engine.preflight.one_batch.ahead import blind_ahead
from trainworthy.lifecycle.engine.preflight.wiring.padding import padding
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of
from use_cases.docstrings import model as sound

TARGET = Target(kind="language_model", length=24)
KIND = kind_of(TARGET)
STATE = {"target": {"length": 24, "bytes": 256}}
SMALL = {"channels": 8, "entries": 64, "width": 4, "dropout": 0.1, "gaps": [1, 2]}
TEXTS = [f"the {name} of row {at} is 'ä'" for at, name in enumerate(["mean", "median of it", "mode"] * 4)]


class Unmasked(sound.Causal):
    def forward(self, values):
        return super().forward(values.flip(2)).flip(2)


def seen(forward: Any = None, to_tensors: Any = sound.to_tensors) -> Any:
    """A job and a sample as blind_ahead is given them, of the sound model but for what is given."""

    def build() -> nn.Module:
        model = sound.build_model(STATE, SMALL)
        if forward is not None:
            model.blocks = nn.Sequential(*(forward(8, gap) for gap in SMALL["gaps"]))
        return model

    rows = pd.DataFrame({"text": TEXTS, "next_bytes": TEXTS, "pages": range(len(TEXTS))})
    inputs = to_tensors(rows, STATE)
    data = TrainData(inputs, torch.from_numpy(KIND.targets(KIND.truth(rows["next_bytes"].to_numpy()))))
    task = SimpleNamespace(to_tensors=to_tensors, predict=sound.predict)
    made = replace(subject(build, data, sound.loss_fn, predict=sound.predict), kind=KIND)
    job = SimpleNamespace(
        rows=Rows(features=("pages", "text"), label="next_bytes", group="pages", target=TARGET),
        training=SimpleNamespace(batch_size=8),
    )
    return job, SimpleNamespace(rows=rows, task=task, preprocessing=STATE, subject=made)


def not_shifted(rows: pd.DataFrame, preprocessing: Any) -> dict[str, torch.Tensor]:
    return {"before": sound.to_tensors(rows, preprocessing)["before"].roll(-1, 1)}


def length_told(rows: pd.DataFrame, preprocessing: Any) -> dict[str, torch.Tensor]:
    """What is behind the end is another symbol than the one before the first byte: the text's length, told at once."""
    before = sound.to_tensors(rows, preprocessing)["before"]
    before[:, 0] = torch.tensor([min(len(text), 255) for text in rows["text"]])
    return {"before": before}


def test_sound_language_model_is_blind_ahead_and_leaves_padding_out():
    found = blind_ahead(seen())
    assert (found.status, found.evidence) == (
        "pass",
        "8 rows: probabilities of a byte do not change with text from that byte on",
    )
    assert padding(seen()[1].subject).status == "pass"


@pytest.mark.parametrize(
    ("forward", "to_tensors"),
    [(Unmasked, sound.to_tensors), (None, not_shifted), (None, length_told)],
    ids=["reads_backwards", "not_shifted", "length_told"],
)
def test_language_model_that_sees_what_it_predicts_fails(forward, to_tensors):
    found = blind_ahead(seen(forward, to_tensors))
    assert found.status == "fail"
    assert "with other bytes of text from a place on" in found.evidence


def padded_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Places beyond the end count as byte 0."""
    return nn.functional.cross_entropy(outputs.transpose(1, 2), targets.clamp(min=0), reduction="none").mean(dim=1)


def diluted_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A mean over all places."""
    return nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)


@pytest.mark.parametrize(
    ("loss_fn", "severity", "told"),
    [
        (padded_loss, "error", "outputs behind it change the loss"),
        (diluted_loss, "warning", "not the mean over its bytes"),
    ],
)
def test_loss_that_counts_what_is_behind_the_end_is_told(loss_fn, severity, told):
    sample = seen()[1]
    planted = subject(lambda: sound.build_model(STATE, SMALL), sample.subject.training, loss_fn)
    found = padding(replace(planted, kind=KIND))
    assert (found.status, found.severity or "error") == ("fail", severity)
    assert told in found.evidence


def test_padding_is_no_question_of_a_label_without_places():
    data = TrainData({"x": torch.randn(8, 2)}, torch.zeros(8))
    assert padding(subject(lambda: nn.Linear(2, 1), data, nn.functional.mse_loss)).status == "not_applicable"
