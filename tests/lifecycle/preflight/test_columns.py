"""Columns that no output depends on are named; those that are constant, masked, gated or sparse are left alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import CLASSES, ROWS, bce, cross_entropy, draws, pictures, subject, trial

from trainworthy.lifecycle.engine.training.state import TrainData

X = torch.randn(ROWS, 8, generator=draws())
LABEL = (X[:, 0] > 0).float()


class Table(nn.Module):
    def __init__(self, columns=8):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, 1))

    def seen(self, x):
        return x

    def forward(self, inputs):
        return self.layers(self.seen(inputs["x"])).squeeze(1)


class Half(Table):
    def seen(self, x):
        return torch.cat([x[:, :4], torch.zeros_like(x[:, 4:])], 1)


class Rounded(Table):
    """No gradient reaches the input."""

    def seen(self, x):
        return x.sign()


class InputDropout(Table):
    def seen(self, x):
        return functional.dropout(x, 0.5, training=self.training)


class ClosedGate(Table):
    """A gate a column, which begins shut for half of them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor([1.0] * 4 + [-0.1] * 4))

    def seen(self, x):
        return x * self.gate.relu()


class Codes(nn.Module):
    """Categories by embeddings; `read` of them."""

    def __init__(self, read=4):
        super().__init__()
        self.read, self.embed, self.head = read, nn.Embedding(5, 4), nn.Linear(4 * read, 1)

    def forward(self, inputs):
        return self.head(self.embed(inputs["codes"][:, : self.read]).flatten(1)).squeeze(1)


class Masked(nn.Module):
    """A mean over the places that a mask keeps: the last one is kept in one row of all."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        mask = inputs["mask"].unsqueeze(2)
        return self.head((self.embed(inputs["codes"]) * mask).sum(1) / mask.sum(1)).squeeze(1)


class Channels(nn.Module):
    def __init__(self, read=3):
        super().__init__()
        self.read, self.first, self.head = read, nn.Conv2d(read, 8, 3), nn.Linear(8, CLASSES)

    def forward(self, inputs):
        return self.head(self.first(inputs["image"][:, : self.read]).relu().mean((2, 3)))


def table(network=Table, x=X, recipe=None):
    return subject(network, TrainData({"x": x}, LABEL), bce, recipe=recipe)


def codes(network):
    return subject(network, TrainData({"codes": torch.randint(0, 5, (ROWS, 4), generator=draws())}, LABEL), bce)


def masked():
    lengths = torch.full((ROWS, 1), 3)
    lengths[5] = 4
    mask = (torch.arange(4) < lengths).float()
    found = torch.randint(1, 5, (ROWS, 4), generator=draws()) * mask.long()
    return subject(Masked, TrainData({"codes": found, "mask": mask}, LABEL), bce)


def colours(network):
    data = pictures()
    image = torch.randn(ROWS, 3, 8, 8, generator=draws())
    return subject(network, TrainData({"image": image}, data.targets), cross_entropy)


def with_constants():
    x = X.clone()
    x[:, 2:5] = 1.5
    return table(KeepsFirst, x)


class Scaled(Table):
    """Its answers grow by a number of the row, as by an exposure."""

    def __init__(self):
        super().__init__(8)

    def forward(self, inputs):
        return super().forward({"x": inputs["x"]}) + inputs["hours"]


def with_one_number():
    hours = torch.where(torch.arange(ROWS) < ROWS - 1, 1.0, 2.0)
    return subject(Scaled, TrainData({"x": X, "hours": hours}, LABEL), bce)


class KeepsFirst(Table):
    """Leaves out what is constant."""

    def __init__(self):
        super().__init__(5)

    def seen(self, x):
        return torch.cat([x[:, :2], x[:, 5:]], 1)


def augmented(inputs, targets, generator):
    return {"x": torch.cat([torch.zeros_like(inputs["x"][:, :1]), inputs["x"][:, 1:]], 1)}, targets


@pytest.mark.parametrize(
    ("of", "shown", "count"),
    [
        (table(Half), "columns 4 to 7 of 8 of x", 4),
        (codes(lambda: Codes(2)), "columns 2 to 3 of 4 of codes", 2),
        (colours(lambda: Channels(2)), "column 2 of 3 of image", 1),
    ],
    ids=["half_of_a_table", "categories", "a_channel"],
)
def test_columns_that_no_output_depends_on_are_a_warning_that_names_them(of, shown, count):
    found = trial(of, "uses_inputs")
    assert (found.status, found.severity, found.code, found.observed) == ("fail", "warning", "columns_unread", count)
    assert shown in found.evidence


@pytest.mark.parametrize(
    "of",
    [
        table(), with_one_number(), table(Rounded), table(InputDropout), table(ClosedGate), with_constants(),
        codes(Codes), masked(), colours(Channels), table(recipe={"augment": augmented}),
    ],
    ids=["whole", "one_number", "rounded", "dropout", "gates", "constants", "codes", "masked", "channels", "augmented"],
)  # fmt: skip
def test_columns_that_are_read_somewhere_or_say_nothing_pass(of):
    assert trial(of, "uses_inputs").status == "pass"
