"""Later positions of a sequence: of the targets, which the loss must look at, and of an input."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import GPT, LENGTH, WORDS, bce, cross_entropy, draws, gpt, subject, table, texts, trial, word_loss

from trainworthy.lifecycle.engine.training.state import TrainData


def of_positions(first: int, stop: int):
    return lambda outputs, targets: word_loss(outputs[:, first:stop], targets[:, first:stop])


def without_padding(outputs, targets):
    return functional.cross_entropy(outputs.movedim(2, 1), targets, reduction="none", ignore_index=-1).sum(1)


def padded(longest: int) -> TrainData:
    """Rows of 1 to `longest` words; what follows is word 0, and no target."""
    data = texts()
    empty = torch.arange(LENGTH) >= torch.randint(1, longest + 1, (len(data.targets), 1), generator=draws())
    return TrainData({"words": data.inputs["words"].masked_fill(empty, 0)}, data.targets.masked_fill(empty, -1))


@pytest.mark.parametrize("stop", [1, 2, LENGTH // 2])
def test_loss_of_the_first_positions_alone_is_a_warning(stop):
    told = trial(gpt(loss_fn=of_positions(0, stop)), "uses_labels")
    assert (told.status, told.severity, told.observed) == ("fail", "warning", LENGTH // 2)
    assert "first positions" in told.cause


@pytest.mark.parametrize(
    "one",
    [
        gpt(loss_fn=of_positions(LENGTH // 2, LENGTH)), gpt(loss_fn=of_positions(LENGTH - 1, LENGTH)),
        gpt(loss_fn=of_positions(2, LENGTH - 2)), gpt(data=padded(LENGTH), loss_fn=without_padding),
        gpt(data=padded(2), loss_fn=without_padding),
    ],
    ids=["second half", "last", "middle", "padded", "much padding"],
)  # fmt: skip
def test_losses_of_other_positions_and_padding_raise_no_word(one):
    assert trial(one, "uses_labels").status == "pass"


class Reads(nn.Module):
    """A class by the state at one step of the signal (N, T, 3)."""

    def __init__(self, step: int, until: int = LENGTH):
        super().__init__()
        self.read, self.head = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 1)
        self.step, self.until = step, until

    def forward(self, inputs):
        return self.head(self.read(inputs["signal"][:, : self.until])[0][:, self.step]).squeeze(1)


def signals(empty_from: int = LENGTH) -> TrainData:
    signal = torch.randn(96, LENGTH, 3, generator=draws())
    signal[:, empty_from:] = 0
    return TrainData({"signal": signal}, (signal[:, 0, 0] > 0).float())


def recurrent(step: int, until: int = LENGTH, empty_from: int = LENGTH):
    return subject(lambda: Reads(step, until), signals(empty_from), bce)


class FrontToken(GPT):
    """A class by the first position, which a causal mask keeps from all others."""

    def forward(self, inputs):
        return super().forward(inputs)[:, 0, :3]


class SeenByAll(FrontToken):
    def weights(self, scores):
        return scores.softmax(2)


def classed(network):
    words = texts().inputs["words"]
    return subject(network, TrainData({"words": words}, words[:, 0] % 3), cross_entropy)


@pytest.mark.parametrize("one", [recurrent(0), recurrent(1), classed(FrontToken)])
def test_answer_at_the_first_step_is_a_warning(one):
    told = trial(one, "uses_inputs")
    assert (told.status, told.severity) == ("fail", "warning")
    assert f"from place {LENGTH // 4} on" in told.evidence


@pytest.mark.parametrize(
    "one",
    [
        recurrent(-1), recurrent(-1, until=LENGTH // 2), recurrent(0, empty_from=1), classed(SeenByAll),
        gpt(), gpt(data=padded(2), loss_fn=without_padding),
    ],
    ids=["last step", "cut in half", "padded signal", "class token", "causal", "padded words"],
)  # fmt: skip
def test_networks_that_see_later_positions_or_padding_raise_no_word(one):
    assert trial(one, "uses_inputs").status == "pass"


class FirstColumn(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 1)

    def forward(self, inputs):
        return self.head(inputs["x"][:, :1]).squeeze(1)


def test_columns_of_a_table_are_told_as_columns_and_not_as_positions():
    wide = torch.cat([table().inputs["x"], torch.randn(96, WORDS, generator=draws())], 1)
    found = trial(subject(FirstColumn, TrainData({"x": wide}, table().targets), bce), "uses_inputs")
    assert (found.severity, found.code, found.observed) == ("warning", "columns_unread", wide.shape[1] - 1)
