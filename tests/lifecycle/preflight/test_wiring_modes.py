"""Outputs that are squashed, and modes: each mechanism, and what is healthy."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from wiring_subjects import (
    CNN,
    GPT,
    MLP,
    TrainData,
    alarms,
    bce,
    cnn,
    draws,
    gpt,
    mlp,
    table,
    trial,
)  # fmt: skip


def headed(base, last):
    """A network whose outputs go through one more function."""

    class Headed(base):
        def forward(self, inputs):
            return last(super().forward(inputs))

    return Headed


def two(outputs, targets):
    """Cross-entropy over two classes that the one output stands for."""
    return functional.cross_entropy(torch.stack([-outputs, outputs], 1), targets.long(), reduction="none")


def probability_loss(outputs, targets):
    return functional.binary_cross_entropy(outputs, targets, reduction="none")


def by_hand(outputs, targets):
    return -(targets * outputs.log() + (1 - targets) * (1 - outputs).log())


def squared(outputs, targets):
    return (outputs - targets).square()


def chosen_log(outputs, targets):
    return -outputs.gather(1, targets[:, None]).squeeze(1).log()


def negative(outputs, targets):
    return functional.nll_loss(outputs, targets, reduction="none")


def numbers(low, high):
    data = table()
    return TrainData(data.inputs, torch.rand(len(data.targets), generator=draws()) * (high - low) + low)


def masks():
    image = torch.randn(96, 1, 8, 8, generator=draws())
    return TrainData({"image": image}, (image[:, 0] > 0.3).float())


class Pixels(nn.Module):
    """A value for each pixel."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, inputs):
        return self.up(functional.relu(self.down(inputs["image"])))[:, 0]


def pixel_loss(outputs, targets):
    return bce(outputs, targets).mean((1, 2))


def softmax(outputs):
    return outputs.softmax(1)


def word_softmax(outputs):
    return outputs.softmax(2)


@pytest.mark.parametrize(
    "one",
    [
        mlp(headed(MLP, torch.sigmoid)),
        mlp(headed(MLP, torch.sigmoid), predict=None),
        mlp(headed(MLP, torch.sigmoid), loss_fn=probability_loss),
        mlp(headed(MLP, lambda x: 1 / (1 + (-x).exp())), predict=None),
        mlp(headed(MLP, torch.relu)),
        mlp(headed(MLP, torch.tanh), predict=None, loss_fn=two),
        mlp(headed(MLP, lambda x: x.clamp(0, 1)), predict=None),
        cnn(headed(CNN, softmax)),
        cnn(headed(CNN, torch.sigmoid)),
        gpt(headed(GPT, word_softmax)),
        mlp(headed(MLP, torch.tanh), predict=None, loss_fn=squared, data=numbers(-5, 5)),
        mlp(headed(MLP, torch.relu), predict=None, loss_fn=squared, data=numbers(-2, 1)),
        mlp(headed(MLP, torch.sigmoid), predict=None, loss_fn=squared, data=numbers(0, 100)),
        cnn(headed(Pixels, torch.sigmoid), data=masks(), loss_fn=pixel_loss),
    ],
)
def test_outputs_that_cannot_go_where_the_loss_wants_them_fail(one):
    assert trial(one, "logits").status == "fail"


def smoothed(outputs, targets):
    return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def poisson(outputs, targets):
    return functional.poisson_nll_loss(outputs, targets, log_input=False, reduction="none")


def gaussian(outputs, targets):
    return outputs.log() + (targets / outputs.clamp(min=1e-3)).square() / 2


@pytest.mark.parametrize(
    "one",
    [
        mlp(headed(MLP, torch.sigmoid), loss_fn=probability_loss, predict=lambda outputs: outputs),
        mlp(headed(MLP, torch.sigmoid), loss_fn=by_hand, predict=lambda outputs: outputs),
        cnn(headed(CNN, lambda x: x.log_softmax(1))),
        cnn(headed(CNN, lambda x: x.log_softmax(1)), loss_fn=negative),
        cnn(headed(CNN, softmax), loss_fn=chosen_log),
        cnn(loss_fn=smoothed),
        mlp(headed(MLP, lambda x: x.clamp(-12, 12))),
        mlp(headed(MLP, torch.tanh), predict=None, loss_fn=squared, data=numbers(-0.9, 0.9)),
        mlp(headed(MLP, torch.relu), predict=None, loss_fn=squared, data=numbers(0.5, 30)),
        mlp(headed(MLP, functional.softplus), predict=None, loss_fn=squared, data=numbers(0.5, 30)),
        mlp(headed(MLP, functional.softplus), predict=None, loss_fn=poisson, data=numbers(1, 9)),
        mlp(headed(MLP, functional.softplus), predict=None, loss_fn=gaussian, data=numbers(1, 9)),
        mlp(headed(MLP, lambda x: 100 * x.sigmoid()), predict=None, loss_fn=squared, data=numbers(0, 100)),
        mlp(predict=None, loss_fn=squared, data=numbers(1e5, 3e5)),
        cnn(Pixels, data=masks(), loss_fn=pixel_loss),
    ],
)
def test_outputs_that_may_be_confined_raise_no_word(one):
    assert trial(one, "logits").status == "pass"


def of_sigmoid(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs.sigmoid(), targets, reduction="none")


def of_softmax(outputs, targets):
    return functional.cross_entropy(outputs.softmax(1), targets, reduction="none")


@pytest.mark.parametrize(
    "one",
    [
        mlp(loss_fn=of_sigmoid),
        mlp(headed(MLP, torch.sigmoid), loss_fn=of_sigmoid, predict=None),
        mlp(headed(MLP, torch.sigmoid), loss_fn=lambda o, t: probability_loss(o.sigmoid(), t), predict=None),
        mlp(loss_fn=lambda o, t: of_sigmoid(o.clamp(-1, 1), t)),
        cnn(loss_fn=of_softmax),
        cnn(headed(CNN, softmax), loss_fn=of_softmax),
        cnn(Pixels, data=masks(), loss_fn=lambda o, t: of_sigmoid(o, t).mean((1, 2))),
    ],
)
def test_loss_that_squashes_its_outputs_twice_fails(one):
    assert trial(one, "logits").status == "fail"


def corrected(share):
    """The loss of labels of which a share is wrong, known beforehand."""
    return lambda outputs, targets: probability_loss(share + (1 - 2 * share) * outputs.sigmoid(), targets)


def focal(outputs, targets):
    found = functional.cross_entropy(outputs, targets, reduction="none")
    return (1 - (-found).exp()).square() * found


def generalised(outputs, targets):
    return (1 - chosen(outputs, targets) ** 0.7) / 0.7


def chosen(outputs, targets):
    return outputs.softmax(1).gather(1, targets[:, None])[:, 0]


def smoothed_kept_from_zero(outputs, targets):
    found = -(outputs.softmax(1) + 1e-6).log()
    return 0.6 * found.gather(1, targets[:, None])[:, 0] + 0.4 * found.mean(1)


@pytest.mark.parametrize(
    "one",
    [
        mlp(loss_fn=lambda o, t: (o.sigmoid() - t).square()),
        mlp(loss_fn=lambda o, t: (1 - (2 * t - 1) * o).clamp(min=0)),
        mlp(loss_fn=corrected(0.1)),
        cnn(loss_fn=focal),
        cnn(loss_fn=generalised),
        cnn(loss_fn=lambda o, t: 1 - chosen(o, t)),
        cnn(loss_fn=smoothed_kept_from_zero),
        cnn(Pixels, data=masks(), loss_fn=lambda o, t: (o.sigmoid() - t).abs().mean((1, 2))),
    ],
)
def test_loss_with_two_ends_or_a_floor_of_its_own_raises_no_word(one):
    assert trial(one, "logits").status == "pass"


def test_loss_that_expects_many_wrong_labels_can_not_be_told():
    assert trial(mlp(loss_fn=corrected(0.2)), "logits").status == "insufficient"


class Noise(MLP):
    """Dropout without a word about the mode."""

    def hidden(self, x):
        return functional.dropout(super().hidden(x), 0.3)


class NoiseInPictures(CNN):
    def hidden(self, x):
        return super().hidden(x) + torch.randn(x.shape[0], 8) * 0.1


class HiddenDropout(GPT):
    """eval() does not reach a layer in a plain list."""

    def __init__(self):
        super().__init__()
        self.extra = [nn.Dropout(0.2)]

    def attention(self, x):
        return self.extra[0](super().attention(x))


@pytest.mark.parametrize("one", [mlp(Noise), cnn(NoiseInPictures), gpt(HiddenDropout)])
def test_randomness_in_evaluation_fails_unless_it_is_declared(one):
    found = {name: trial(one, name).status for name in ("modes", "evaluation_repeats")}
    assert found == {"modes": "fail", "evaluation_repeats": "fail"}


def test_declared_randomness_in_evaluation_raises_no_word():
    assert alarms(mlp(Noise, evaluation="stochastic")) == {}


class EvalInForward(CNN):
    def hidden(self, x):
        self.norm.eval()
        return super().hidden(x)


class TrainForgetsItsLayers(CNN):
    def __init__(self):
        super().__init__()
        self.norm.eval()

    def train(self, mode=True):
        self.training = mode
        return self


class StaleNorm(CNN):
    """Batch norm by hand that never updates what evaluation uses."""

    def __init__(self):
        super().__init__(nn.Identity)
        self.register_buffer("mean", torch.zeros(8, 1, 1))
        self.register_buffer("scale", torch.ones(8, 1, 1))

    def hidden(self, x):
        x = self.first(x)
        mean, scale = (x.mean((0, 2, 3)), x.std((0, 2, 3))) if self.training else (self.mean, self.scale)
        return functional.relu((x - mean.reshape(8, 1, 1)) / scale.reshape(8, 1, 1)).mean((2, 3))


class CopiedStatistics(CNN):
    """Updates copies of the running statistics."""

    def __init__(self):
        super().__init__(nn.Identity)
        self.kept = nn.BatchNorm2d(8)

    def hidden(self, x):
        x, kept = self.first(x), self.kept
        x = functional.batch_norm(
            x, kept.running_mean.clone(), kept.running_var.clone(), kept.weight, kept.bias, self.training
        )
        return functional.relu(self.second(functional.relu(x))).mean((2, 3))


@pytest.mark.parametrize("network", [EvalInForward, TrainForgetsItsLayers, StaleNorm, CopiedStatistics])
def test_modes_that_do_not_do_what_they_should_fail(network):
    assert trial(cnn(network), "modes").status == "fail"


class FrozenBackbone(CNN):
    """The first layers are frozen, and stay in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)
        self.norm.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


class FrozenInForward(FrozenBackbone):
    def hidden(self, x):
        self.norm.eval()
        return super().hidden(x)


@pytest.mark.parametrize("network", [FrozenBackbone, FrozenInForward])
def test_frozen_backbone_in_evaluation_mode_raises_no_word(network):
    found = {name: trial(cnn(network, frozen=("first.*", "norm.*")), name).status for name in ("modes", "frozen")}
    assert found == {"modes": "pass", "frozen": "pass"}


class Remembers(GPT):
    """The last call's mean goes into the next."""

    def __init__(self):
        super().__init__()
        self.register_buffer("memory", torch.zeros(16))

    def attention(self, x):
        x = super().attention(x) + self.memory
        self.memory = x.detach().mean((0, 1))
        return x


class Counts(MLP):
    """A counter in the network's own attribute decides."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def hidden(self, x):
        self.calls += 1
        return super().hidden(x) * (1 + 0.1 * self.calls)


@pytest.mark.parametrize("one", [gpt(Remembers), mlp(Counts)])
def test_memory_between_calls_fails(one):
    found = {name: trial(one, name).status for name in ("evaluation_repeats", "evaluation_changes_nothing")}
    assert found == {"evaluation_repeats": "fail", "evaluation_changes_nothing": "fail"}


class Squeezed(MLP):
    def forward(self, inputs):
        return torch.stack([super().forward(inputs)] * 2, 1).squeeze()


class FixedSize(MLP):
    def forward(self, inputs):
        return super().forward(inputs).reshape(2, -1).reshape(-1)


@pytest.mark.parametrize("network", [Squeezed, FixedSize])
def test_row_that_cannot_be_evaluated_alone_fails(network):
    told = trial(
        mlp(network, loss_fn=lambda outputs, targets: outputs.reshape(len(targets), -1).mean(1)), "evaluation_repeats"
    )
    assert (told.status, "a row alone" in told.evidence) == ("fail", True)


class UpdatesAlways(CNN):
    """Running statistics that evaluation moves as well."""

    def hidden(self, x):
        x = self.first(x)
        norm = self.norm
        if not self.training:
            norm.running_mean.lerp_(x.mean((0, 2, 3)), 0.1)
        return functional.relu(self.second(functional.relu(norm(x)))).mean((2, 3))


class Drifts(MLP):
    def forward(self, inputs):
        if not self.training:
            self.head.weight.data.mul_(1.001)
        return super().forward(inputs)


class TurnsToTraining(MLP):
    def forward(self, inputs):
        outputs = super().forward(inputs)
        self.train()
        return outputs


@pytest.mark.parametrize("one", [cnn(UpdatesAlways), mlp(Drifts), mlp(TurnsToTraining)])
def test_evaluation_that_changes_something_fails(one):
    assert trial(one, "evaluation_changes_nothing").status == "fail"


class CountsForTheLog(MLP):
    """A counter that no output depends on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def hidden(self, x):
        self.calls += 1
        return super().hidden(x)


def test_changed_buffer_without_effect_is_told_and_passes():
    assert alarms(mlp(CountsForTheLog)) == {}
    assert "calls changed" in trial(mlp(CountsForTheLog), "evaluation_changes_nothing").evidence


class Heads(MLP):
    """A head for the task that ends early, three layers for another output after it, and what is no row's."""

    squash = staticmethod(lambda x: x)

    def __init__(self):
        super().__init__()
        self.later = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, inputs):
        x = self.joined(inputs)
        hidden = self.hidden(x)
        return self.squash(self.head(hidden).squeeze(1)), self.later(hidden), x, self.log_scale


class SquashedHead(Heads):
    squash = staticmethod(torch.sigmoid)


def heads_loss(outputs, targets):
    logits, rebuilt, inputs, log_scale = outputs
    return bce(logits * log_scale.exp(), targets) + (rebuilt - inputs).square().mean(1)


@pytest.mark.parametrize(("network", "status"), [(Heads, "pass"), (SquashedHead, "fail")])
def test_head_that_ends_early_is_confined_only_if_it_is_squashed(network, status):
    found = trial(mlp(network, loss_fn=heads_loss, predict=None), "logits")
    assert (found.status, found.check) == (status, "wiring.logits"), found.evidence


class Distance(MLP):
    """How far apart a row's two halves lie in an embedding: grows with the weights, and can be small."""

    def forward(self, inputs):
        x = self.joined(inputs)
        return (self.hidden(x) - self.hidden(x.flip(1))).square().sum(1).add(1e-6).sqrt()


def test_distance_that_draws_back_from_its_end_is_not_confined():
    contrast = lambda far, same: same * far.square() + (1 - same) * (1 - far).clamp(min=0).square()
    found = trial(mlp(Distance, loss_fn=contrast, predict=None), "logits")
    assert found.status == "pass", found.evidence


class Seeded(MLP):
    """Sets the seed in each pass, so that every dropout mask is the first one."""

    def forward(self, inputs):
        torch.manual_seed(0)
        return self.head(functional.dropout(self.hidden(self.joined(inputs)), 0.5, self.training)).squeeze(1)


class Forked(Seeded):
    """Draws a noise of its own, and leaves the random numbers as they were."""

    def forward(self, inputs):
        with torch.random.fork_rng(devices=[]):
            return super().forward(inputs)


@pytest.mark.parametrize(("network", "status"), [(Seeded, "fail"), (Forked, "pass"), (MLP, "pass")])
def test_seed_that_forward_sets_fails_and_a_forked_one_passes(network, status):
    found = trial(mlp(network), "modes")
    assert found.status == status, found.evidence
    assert status == "pass" or "manual_seed" in found.cause
