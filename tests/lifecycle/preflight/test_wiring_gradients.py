"""Gradients and frozen parameters: each mechanism that keeps a parameter from learning, and what is healthy."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from wiring_subjects import CNN, GPT, MLP, adam, alarms, cnn, gpt, mlp, table, trial

from trainworthy.lifecycle.engine.training.state import TrainData


class Unused(MLP):
    def __init__(self):
        super().__init__()
        self.third = nn.Linear(16, 16)


class Detached(MLP):
    def hidden(self, x):
        return functional.relu(self.second(functional.relu(self.first(x)).detach()))


class DetachedBranch(CNN):
    def hidden(self, x):
        with torch.no_grad():
            x = self.norm(self.first(x))
        return functional.relu(self.second(x)).mean((2, 3))


class NoGraph(MLP):
    def forward(self, inputs):
        with torch.no_grad():
            return super().forward(inputs)


class InAList(MLP):
    def __init__(self):
        super().__init__()
        self.more = [nn.Linear(16, 16)]

    def hidden(self, x):
        return self.more[0](super().hidden(x))


class InADict(GPT):
    def __init__(self):
        super().__init__()
        self.scales = {"out": torch.ones(16, requires_grad=True)}

    def attention(self, x):
        return super().attention(x) * self.scales["out"]


class FrozenByAccident(CNN):
    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)


class TimesZero(GPT):
    def attention(self, x):
        return super().attention(x) * 0


class AllDead(MLP):
    """No unit of the second layer ever fires."""

    def hidden(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))) - 1e6)


class LastForgotten(MLP):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def hidden(self, x):
        x = super().hidden(x)
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return x


class TwoZeros(MLP):
    """Both factors of an adapter begin at zero."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.up.weight)

    def hidden(self, x):
        return super().hidden(x) + self.up(self.down(super().hidden(x)))


class FrozenClone(MLP):
    """Two layers that begin equal, as clones do; one was frozen by accident."""

    def __init__(self):
        super().__init__()
        self.clone = copy.deepcopy(self.second).requires_grad_(False)

    def hidden(self, x):
        return functional.relu(self.clone(super().hidden(x)))


FAULTS = {
    "two zeros": (mlp(TwoZeros), "down.weight, up.weight"),
    "frozen clone": (mlp(FrozenClone), "clone.weight"),
    "unused layer": (mlp(Unused), "third.weight"),
    "detached": (mlp(Detached), "first.weight"),
    "no_grad": (cnn(DetachedBranch), "first.weight"),
    "no graph": (mlp(NoGraph), "first.weight"),
    "list": (mlp(InAList), "16×16"),
    "dict": (gpt(InADict), "16"),
    "requires_grad": (cnn(FrozenByAccident), "first.weight"),
    "times zero": (gpt(TimesZero), "qkv.weight"),
    "dead": (mlp(AllDead), "second.weight"),
    "last forgotten": (mlp(LastForgotten), "layers.2.weight"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_parameters_without_gradient_fail_by_name(name):
    one, named = FAULTS[name]
    told = trial(one, "gradients")
    assert told.status == "fail"
    assert named in told.evidence


def without_head(model):
    return (torch.optim.SGD([*model.first.parameters(), *model.second.parameters()], lr=0.1),)


def head_at_zero(model):
    rest = [*model.first.parameters(), *model.second.parameters()]
    return (torch.optim.SGD([{"params": rest}, {"params": model.head.parameters(), "lr": 0.0}], lr=0.1),)


@pytest.mark.parametrize("optimizers", [without_head, head_at_zero])
def test_parameters_that_no_optimizer_moves_fail(optimizers):
    told = trial(mlp(optimizers=optimizers), "gradients")
    assert (told.status, "head.weight" in told.evidence) == ("fail", True)


class LoRA(MLP):
    """The first layer stays; A and B are beside it, B at zero."""

    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.zeros(16, 2))

    def hidden(self, x):
        return functional.relu(self.second(functional.relu(self.first(x) + x @ self.a.T @ self.b.T)))


class Gates(MLP):
    """A branch behind a gate of zero, before a last layer of zeros."""

    def __init__(self):
        super().__init__()
        self.gate, self.branch = nn.Parameter(torch.zeros(1)), nn.Linear(16, 16)
        nn.init.zeros_(self.head.weight)

    def hidden(self, x):
        hidden = super().hidden(x)
        return hidden + self.gate * self.branch(hidden)


class Experts(MLP):
    """Each row goes to one of four experts; at the start one takes them all."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        nn.init.zeros_(self.router.weight)
        self.router.bias.data.copy_(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def hidden(self, x):
        x = super().hidden(x)
        share = self.router(x).softmax(1)
        best, result = share.argmax(1), torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            rows = (best == at).nonzero().squeeze(1)
            if len(rows):
                result = result.index_add(0, rows, expert(x[rows]) * share[rows, at : at + 1])
        return result


class LayerDrop(MLP):
    """In training a layer is left out half of the time."""

    def __init__(self):
        super().__init__()
        self.extra = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def hidden(self, x):
        x = super().hidden(x)
        for layer in self.extra:
            if not self.training or torch.rand(()) < 0.5:
                x = x + layer(x)
        return x


class Checkpointed(MLP):
    def hidden(self, x):
        return checkpoint(super().hidden, x, use_reentrant=False)


class Teacher(MLP):
    """A network that is kept out of parameters() on purpose, and gives no gradient."""

    def __init__(self):
        super().__init__()
        self.teacher = [nn.Linear(4, 16)]

    def hidden(self, x):
        with torch.no_grad():
            known = self.teacher[0](x)
        return super().hidden(x) + known


class MomentumTeacher(MLP):
    """A slow copy of the first layers that forward moves in training."""

    def __init__(self):
        super().__init__()
        self.slow = copy.deepcopy(self.first).requires_grad_(False)

    def follow(self):
        if self.training:
            for own, its in zip(self.slow.parameters(), self.first.parameters(), strict=True):
                own.data.lerp_(its.data, 0.01)

    def forward(self, inputs):
        self.follow()
        x = self.joined(inputs)
        with torch.no_grad():
            target = self.slow(x)
        return torch.cat([super().forward(inputs)[:, None], self.first(x), target], 1)


class HardCopy(MomentumTeacher):
    """The copy is made anew every thousand steps, which no check sees."""

    def follow(self):
        pass


class Waiting(MLP):
    """Three layers of zeros behind one another: they begin one by one, from the last on."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.head.weight)

    def hidden(self, x):
        return super().hidden(x) + self.up(self.down(super().hidden(x)))


class ZeroExperts(Experts):
    """Adapters of zeros beside experts, most of which no row chooses."""

    def __init__(self):
        super().__init__()
        for expert in self.experts:
            nn.init.zeros_(expert.weight)


def consistency(outputs, targets):
    apart = (outputs[:, 1:17] - outputs[:, 17:].detach()).square().mean(1)
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none") + apart


class Positions(GPT):
    """A fixed table of positions, kept as a parameter."""

    def __init__(self):
        super().__init__()
        self.place.requires_grad_(False)


class BiasBeforeNorm(CNN):
    def __init__(self):
        super().__init__(lambda width: nn.BatchNorm2d(width, track_running_stats=False))


class Sparse(MLP):
    """Nine of ten units are dead, and a row's embedding is used by few rows."""

    def __init__(self):
        super().__init__()
        self.second.bias.data[:14] = -1e6
        self.ids = nn.Embedding(1000, 4, sparse=False)

    def joined(self, inputs):
        return super().joined(inputs) + self.ids((inputs["x"][:, 0].abs() * 10).long())


def split_optimizers(model):
    return (
        torch.optim.SGD(model.head.parameters(), lr=0.01),
        torch.optim.AdamW([*model.first.parameters(), *model.second.parameters()], lr=1e-3),
    )


HEALTHY = {
    "LoRA": mlp(LoRA, frozen=("first.*",), start="trained"),
    "gates": mlp(Gates),
    "experts": mlp(Experts),
    "layer drop": mlp(LayerDrop),
    "checkpointed": mlp(Checkpointed),
    "teacher": mlp(Teacher),
    "momentum teacher": mlp(MomentumTeacher, loss_fn=consistency, predict=None),
    "momentum teacher as claimed": mlp(MomentumTeacher, loss_fn=consistency, predict=None, frozen=("slow.*",)),
    "hard copy": mlp(HardCopy, loss_fn=consistency, predict=None),
    "waiting": mlp(Waiting),
    "zero experts": mlp(ZeroExperts),
    "positions": gpt(Positions),
    "bias before norm": cnn(BiasBeforeNorm),
    "sparse": mlp(Sparse),
    "optimizers": mlp(optimizers=split_optimizers),
    "frozen": cnn(FrozenByAccident, frozen=("first.*",)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_sound_odd_networks_raise_no_word(name):
    assert alarms(HEALTHY[name]) == {}


def decayed(model):
    return (torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1),)


class MovedByRule(MLP):
    """Frozen, and held by an optimizer that needs no gradient."""

    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)


class Shrinking(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.mul_(0.99)


def follower(model):
    return (*adam(model), Shrinking(model.first.parameters(), lr=0.1))


@pytest.mark.parametrize(
    "one",
    [
        mlp(frozen=("first.*",)),
        mlp(frozen=("first.*",), optimizers=decayed),
        mlp(MovedByRule, frozen=("first.*",), optimizers=follower),
        cnn(FrozenByAccident, frozen=("firsst.*",)),
    ],
    ids=["requires_grad", "decay", "by rule", "misspelt"],
)
def test_frozen_parameters_that_move_fail(one):
    assert trial(one, "frozen").status == "fail"


class FrozenNorm(CNN):
    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)
        self.norm.requires_grad_(False)


def test_running_statistics_of_frozen_layers_are_told_and_pass():
    told = trial(cnn(FrozenNorm, frozen=("first.*", "norm.*")), "frozen")
    assert (told.status, "buffers" in told.evidence) == ("pass", True)


def test_teacher_that_no_optimizer_moves_is_told_and_passes():
    told = trial(mlp(MomentumTeacher, loss_fn=consistency, frozen=("slow.*",)), "frozen")
    assert (told.status, "moved, and by no optimizer" in told.evidence) == ("pass", True)
    told = trial(mlp(MomentumTeacher, loss_fn=consistency), "gradients")
    assert (told.status, "kept by the network itself" in told.evidence) == ("pass", True)


def test_looks_leave_few_updates_and_no_trace():
    one = mlp()
    before = {name: value.clone() for name, value in one.model().state_dict().items()}
    assert trial(one, "gradients").optimizer_steps <= 2
    assert all(value.equal(before[name]) for name, value in one.model().state_dict().items())
    assert one.training.inputs["x"].equal(table().inputs["x"])


class WithSlope(MLP):
    """Adds how fast its output changes with its input, by a derivative in the forward pass."""

    def forward(self, inputs):
        with torch.enable_grad():
            x = inputs["x"].detach().clone().requires_grad_()
            outputs = super().forward(inputs | {"x": x})
            (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        return outputs + 0.1 * slope.square().sum(1)


def test_input_whose_derivative_is_a_part_of_the_output_is_no_parameter():
    told = trial(mlp(WithSlope), "gradients")
    assert told.status == "pass", told.evidence


class Slope(nn.Module):
    """Gives the derivative of an energy, from which the last bias drops out."""

    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, inputs):
        with torch.enable_grad():
            x = inputs["x"].detach().clone().requires_grad_()
            return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


class HalfUsed(nn.Module):
    """A layer of its own of which one weight is used."""

    def __init__(self):
        super().__init__()
        self.used, self.other = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

    def forward(self, inputs):
        return inputs["x"] @ self.used


def test_derivative_as_the_output_passes_though_its_last_bias_has_no_gradient():
    data = TrainData({"x": table().inputs["x"]}, table().inputs["x"].sin())
    loss = lambda outputs, targets: (outputs - targets).square().mean(1)
    told = trial(mlp(Slope, data=data, loss_fn=loss, predict=None), "gradients")
    assert told.status == "pass", told.evidence


def test_weight_of_an_own_layer_that_is_not_used_fails_beside_one_that_is():
    told = trial(mlp(HalfUsed), "gradients")
    assert (told.status, "other" in told.evidence) == ("fail", True)
