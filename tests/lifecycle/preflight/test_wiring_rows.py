"""Rows, time, labels and inputs: what depends on what, and what only looks like it."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import (
    CLASSES,
    CNN,
    GPT,
    LENGTH,
    MLP,
    WORDS,
    TrainData,
    alarms,
    bce,
    cnn,
    draws,
    gpt,
    mlp,
    pictures,
    table,
    texts,
    trial,
    word_loss,
)  # fmt: skip


class SoftmaxOverRows(MLP):
    def hidden(self, x):
        return super().hidden(x).softmax(0)


class MeanOfRows(CNN):
    def hidden(self, x):
        hidden = super().hidden(x)
        return hidden - hidden.mean(0)


class NormOverRows(MLP):
    def hidden(self, x):
        return functional.normalize(super().hidden(x), dim=0)


class CumulatedRows(MLP):
    def forward(self, inputs):
        return super().forward(inputs).cumsum(0)


class DetachedRows(MLP):
    """The batch's mean gives no gradient; its value still reaches every row."""

    def hidden(self, x):
        return super().hidden(x - x.detach().mean(0))


class OnlyInTraining(MLP):
    def hidden(self, x):
        hidden = super().hidden(x)
        return hidden / hidden.std(0).clamp(min=0.1) if self.training else hidden


class RowsInstead(GPT):
    """Attention between the rows: batch and time are swapped."""

    def attention(self, x):
        q, k, v = self.qkv(x.transpose(0, 1)).chunk(3, 2)
        return self.out((q @ k.mT / 4).softmax(2) @ v).transpose(0, 1)


class SwappedReshape(GPT):
    def attention(self, x):
        return super().attention(x.transpose(0, 1).reshape(x.shape))


def every_pair(outputs, targets):
    """(N, 1) against (N,) makes (N, N)."""
    return (outputs.unsqueeze(1) - targets).square().mean(1)


def mean_for_all(outputs, targets):
    return bce(outputs, targets).mean().expand(len(targets))


def sorted_rows(outputs, targets):
    return (outputs.sort().values - targets).square()


@pytest.mark.parametrize(
    "one",
    [
        mlp(SoftmaxOverRows), cnn(MeanOfRows), mlp(NormOverRows), mlp(CumulatedRows), mlp(DetachedRows),
        mlp(OnlyInTraining), gpt(RowsInstead, causal=()), gpt(SwappedReshape, causal=()),
        mlp(loss_fn=every_pair), mlp(loss_fn=mean_for_all), mlp(loss_fn=sorted_rows),
    ],
)  # fmt: skip
def test_rows_that_meet_fail(one):
    assert trial(one, "rows_apart").status == "fail"


class OwnNorm(nn.Module):
    """Batch norm by hand, with running statistics."""

    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, width, 1, 1))
        self.register_buffer("variance", torch.ones(1, width, 1, 1))
        self.momentum, self.weight = momentum, nn.Parameter(torch.ones(1, width, 1, 1))

    def forward(self, x):
        if not self.training:
            return (x - self.mean) / (self.variance + 1e-5).sqrt() * self.weight
        mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True)
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance, self.momentum)
        return (x - mean) / (variance + 1e-5).sqrt() * self.weight


class NormedMLP(MLP):
    def __init__(self, **norm):
        super().__init__()
        self.norm = nn.BatchNorm1d(16, **norm)
        self.dropout = nn.Dropout(0.2)

    def hidden(self, x):
        return self.dropout(functional.relu(self.second(functional.relu(self.norm(self.first(x))))))


class AlwaysBatchStatistics(NormedMLP):
    def train(self, mode=True):
        super().train(mode)
        self.norm.train()
        return self


@pytest.mark.parametrize(
    "one",
    [
        mlp(), cnn(), gpt(), mlp(NormedMLP), mlp(lambda: NormedMLP(momentum=0.0)), cnn(lambda: CNN(OwnNorm)),
        mlp(lambda: NormedMLP(track_running_stats=False)), mlp(AlwaysBatchStatistics),
        cnn(lambda: CNN(lambda width: nn.GroupNorm(2, width))), cnn(lambda: CNN(nn.InstanceNorm2d)),
        mlp(batch=1), mlp(recipe={"precision": "bf16", "accumulate": 4}),
    ],
)  # fmt: skip
def test_sound_networks_raise_no_word(one):
    assert alarms(one) == {}


def test_batch_statistics_are_told_and_pass():
    told = trial(mlp(AlwaysBatchStatistics), "rows_apart")
    assert (told.status, "batch statistics in evaluation and training mode" in told.evidence) == ("pass", True)


def test_rows_declared_together_are_not_judged():
    assert trial(mlp(CumulatedRows, rows="together"), "rows_apart").status == "not_applicable"


class NoMask(GPT):
    def weights(self, scores):
        return scores.softmax(2)


class MaskOfNumbers(GPT):
    """nn.MultiheadAttention adds a mask of numbers: a triangle of ones hides nothing (benchmarks/published_mask.py)."""

    def __init__(self):
        super().__init__()
        self.attend = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.hidden = torch.ones(LENGTH, LENGTH).tril()

    def attention(self, x):
        return self.attend(x, x, x, attn_mask=self.hidden, need_weights=False)[0]


class MaskOfBooleans(MaskOfNumbers):
    def __init__(self):
        super().__init__()
        self.hidden = self.hidden == 0


class OneTooFar(GPT):
    def __init__(self):
        super().__init__()
        self.mask = torch.ones(LENGTH, LENGTH).tril(1).bool()


class MaskOnlyInEvaluation(GPT):
    def weights(self, scores):
        return scores.softmax(2) if self.training else super().weights(scores)


class Backwards(GPT):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(16, 8, bidirectional=True, batch_first=True)

    def attention(self, x):
        return self.memory(x)[0]


class Centred(GPT):
    def __init__(self):
        super().__init__()
        self.filter = nn.Conv1d(16, 16, 3, padding=1)

    def attention(self, x):
        return self.filter(x.mT).mT


class Forecaster(nn.Module):
    """The next value of two series, at each position; `left`: padding on the left only."""

    def __init__(self, left):
        super().__init__()
        self.left, self.filter, self.head = left, nn.Conv1d(2, 8, 3), nn.Linear(8, 1)

    def forward(self, inputs):
        padded = functional.pad(inputs["series"].mT, (2, 0) if self.left else (1, 1))
        return self.head(functional.relu(self.filter(padded)).mT).squeeze(2)


def series():
    values = torch.randn(96, 9, 2, generator=draws())
    return TrainData({"series": values[:, :-1]}, values[:, 1:, 0])


def squared(outputs, targets):
    return (outputs - targets).square().mean(1)


def shifted_in_the_loss(outputs, targets):
    return word_loss(outputs[:, :-1], targets[:, 1:])


class Repainted(nn.Module):
    """Pictures of three colours, each of which is made of all three."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, inputs):
        return self.layers(inputs["picture"])


def given_back(length=3):
    pictures = torch.randn(96, length, 8, 8, generator=draws())
    return TrainData({"picture": pictures}, pictures)


# Each feature is made of all colours, and least of the second one: what that changes meets the others most.
MIX = torch.tensor([[2.0, 0.5, 1.9], [1.9, 0.5, 2.0], [2.0, 0.1, 2.0]])


def features_apart(outputs, targets):
    return (torch.einsum("ck,nk...->nc...", MIX, outputs - targets)).square().flatten(1).mean(1)


def next_frame(outputs, targets):
    return (outputs[:, :-1] - targets[:, 1:]).square().flatten(1).mean(1)


@pytest.mark.parametrize("claims", [{"causal": ("words",)}, {"causal": ()}])
@pytest.mark.parametrize("network", [NoMask, MaskOfNumbers, OneTooFar, MaskOnlyInEvaluation, Backwards, Centred])
def test_words_that_see_what_they_predict_fail_claimed_or_not(network, claims):
    assert trial(gpt(network, **claims), "causal").status == "fail"


@pytest.mark.parametrize(
    "one",
    [
        mlp(lambda: Forecaster(False), data=series(), loss_fn=squared, predict=None),
        gpt(NoMask, data=texts(0), loss_fn=shifted_in_the_loss, causal=()),
        gpt(data=texts(0)),
        gpt(causal=("word",)),
        cnn(Repainted, data=given_back(), loss_fn=next_frame),
    ],
    ids=["series", "shifted in the loss", "not shifted at all", "misspelt", "frames"],
)
def test_other_ways_to_see_the_target_fail(one):
    assert trial(one, "causal").status == "fail"


def masked_words():
    """Half of the words are hidden, and only those are asked for."""
    words = torch.randint(1, WORDS, (96, LENGTH), generator=draws())
    hidden = torch.rand(words.shape, generator=draws(1)) < 0.5
    return TrainData({"words": words.masked_fill(hidden, 0)}, words.masked_fill(~hidden, -100))


def tagged_words():
    data = texts(0)
    return TrainData(data.inputs, (data.inputs["words"] + data.inputs["words"].roll(1, 1)) % WORDS)


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (gpt(), "pass"),
        (gpt(causal=()), "pass"),
        (gpt(MaskOfBooleans), "pass"),
        (gpt(data=texts(0), loss_fn=shifted_in_the_loss), "pass"),
        (gpt(data=texts(2)), "pass"),
        (mlp(lambda: Forecaster(True), data=series(), loss_fn=squared, predict=None), "pass"),
        (gpt(NoMask, data=masked_words(), causal=()), "not_applicable"),
        (gpt(NoMask, data=texts(0), causal=()), "not_applicable"),
        (gpt(NoMask, data=tagged_words(), causal=()), "not_applicable"),
        (mlp(), "not_applicable"),
        (cnn(Repainted, data=given_back(), loss_fn=features_apart), "not_applicable"),
    ],
    ids=[
        "claimed",
        "found",
        "booleans",
        "shifted in the loss",
        "two ahead",
        "series",
        "masked",
        "given back",
        "tags",
        "table",
        "features of pictures",
    ],
)
def test_sound_sequences_pass_and_others_are_not_judged(one, status):
    assert trial(one, "causal").status == status


def test_two_words_ahead_may_see_the_next_one():
    assert trial(gpt(OneTooFar, data=texts(2), causal=()), "causal").status == "pass"
    assert trial(gpt(NoMask, data=texts(2), causal=()), "causal").status == "fail"


def own_labels(outputs, targets):
    return bce(outputs, (outputs > 0).float())


def detached_labels(outputs, targets):
    return outputs.square() + bce(outputs.detach(), targets)


def emptied_labels(outputs, targets):
    return functional.cross_entropy(outputs, targets * 0, reduction="none")


@pytest.mark.parametrize("one", [mlp(loss_fn=own_labels), mlp(loss_fn=detached_labels), cnn(loss_fn=emptied_labels)])
def test_labels_without_effect_fail(one):
    assert trial(one, "uses_labels").status == "fail"


class TwoHeads(MLP):
    def forward(self, inputs):
        x = self.joined(inputs)
        return torch.stack([self.head(self.hidden(x)).squeeze(1), self.head(self.hidden(-x)).squeeze(1)], 1)


def both_heads(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)


def first_head(outputs, targets):
    return bce(outputs[:, 0], targets[:, 0])


@pytest.mark.parametrize(("loss_fn", "status"), [(both_heads, "pass"), (first_head, "fail")])
def test_column_of_labels_without_effect_is_a_warning(loss_fn, status):
    data = table()
    two = TrainData(data.inputs, torch.stack([data.targets, (data.inputs["x"][:, 1] > 0).float()], 1))
    told = trial(mlp(TwoHeads, data=two, loss_fn=loss_fn, predict=None), "uses_labels")
    assert told.status == status
    assert status == "pass" or (told.severity, told.evidence[:16]) == ("warning", "columns [1] of 2")


def settled(outputs, targets):
    return functional.cross_entropy(outputs[:, 2:].movedim(2, 1), targets[:, 2:], reduction="none").mean(1)


def test_positions_that_the_loss_leaves_out_are_no_columns():
    assert trial(gpt(loss_fn=settled), "uses_labels").status == "pass"


def reconstruction(outputs, targets):
    return outputs.square()


def test_labels_declared_unused_are_not_judged():
    assert trial(mlp(loss_fn=reconstruction, labels="unused"), "uses_labels").status == "not_applicable"


def test_labels_that_are_all_equal_tell_nothing():
    data = pictures()
    same = TrainData(data.inputs, torch.zeros_like(data.targets))
    assert trial(cnn(data=same), "uses_labels").status == "insufficient"


def test_one_rare_label_is_enough_to_tell():
    data = pictures()
    rare = torch.zeros_like(data.targets)
    rare[-1] = CLASSES - 1
    assert trial(cnn(data=TrainData(data.inputs, rare)), "uses_labels").status == "pass"


class OneInput(MLP):
    def joined(self, inputs):
        return torch.cat([inputs["x"], inputs["z"] * 0], 1)


class NoInput(MLP):
    def joined(self, inputs):
        return torch.zeros(len(inputs["x"]), 4)


class NoWords(GPT):
    def forward(self, inputs):
        return super().forward({"words": torch.zeros_like(inputs["words"])})


def test_input_without_effect_beside_others_is_a_warning():
    told = trial(mlp(OneInput), "uses_inputs")
    assert (told.status, told.severity, "z" in told.evidence) == ("fail", "warning", True)


@pytest.mark.parametrize("one", [mlp(NoInput), gpt(NoWords)])
def test_inputs_without_any_effect_fail(one):
    told = trial(one, "uses_inputs")
    assert (told.status, told.severity) == ("fail", "error")


class ZeroHead(MLP):
    """A last layer of zeros gives the same for all rows, until its first update."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


def test_head_of_zeros_hides_nothing():
    assert alarms(mlp(ZeroHead)) == {}
    assert trial(mlp(lambda: zeroed(CumulatedRows())), "rows_apart").status == "fail"


def zeroed(model):
    nn.init.zeros_(model.head.weight)
    return model


def test_mask_that_is_equal_in_all_rows_is_told_and_passes():
    data = texts()
    with_mask = TrainData({**data.inputs, "mask": torch.ones(96, LENGTH, dtype=torch.bool)}, data.targets)
    told = trial(gpt(data=with_mask), "uses_inputs")
    assert (told.status, "mask" in told.evidence) == ("pass", True)
