"""Training and validation prepared alike: drift passes, another preparation fails."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks.networks import cnn, digits, gpt, mlp, split, unet
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.inputs.alike import same_preprocessing
from trainworthy.lifecycle.gates.check import Outcome

UNITS = torch.tensor([1.0, 5, 10, 50, 100, 3, 20, 7, 2, 30, 60, 15])


def look(setup: Setup) -> Outcome:
    torch.manual_seed(0)
    return same_preprocessing(setup.subject())


def held_out(setup: Setup, name: str, change) -> Setup:
    inputs = setup.held_out.inputs | {name: change(setup.held_out.inputs[name].clone())}
    return replace(setup, held_out=replace(setup.held_out, inputs=inputs))


def both(setup: Setup, name: str, change) -> Setup:
    parts = {}
    for part in ("training", "held_out"):
        data = getattr(setup, part)
        parts[part] = replace(data, inputs=data.inputs | {name: change(data.inputs[name].clone())})
    return replace(setup, **parts)


def different(x):
    """Columns of different forms, as tables have them: skewed, of two values, with a share of zeros."""
    x[:, 0] = x[:, 0].exp()
    x[:, 1] = -x[:, 1].square()
    x[:, 2] = (x[:, 2] > 1).float()
    x[:, 3] = x[:, 3].relu()
    x[:, 4] = x[:, 4] + 2
    return x


def colours(seed: int) -> Setup:
    """Images of three channels that differ as photographs' do."""
    base = cnn(seed)

    def coloured(x):
        noise = torch.randn(len(x), 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        return 0.6 * x + 0.3 * noise + torch.tensor([0.3, 0.0, -0.3]).view(1, 3, 1, 1)

    return both(replace(base, network=lambda: ForwardOf("image", nn.Flatten(), squeeze=False)), "image", coloured)


class Shops(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4), nn.Linear(16, 1)

    def forward(self, inputs):
        return self.head(torch.cat([inputs["numbers"], self.embed(inputs["shop"])], dim=1)).squeeze(1)


def shops(seed: int) -> Setup:
    """A category of eight values, the first ones frequent."""
    base = replace(mlp(seed), network=Shops)
    parts = {}
    for part in ("training", "held_out"):
        data = getattr(base, part)
        drawn = torch.rand(len(data.targets), generator=torch.Generator().manual_seed(seed))
        parts[part] = replace(data, inputs=data.inputs | {"shop": (drawn.square() * 8).long()})
    return replace(base, **parts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt, colours, shops])
def test_alike_healthy_hosts_pass(host, seed):
    found = look(host(seed))
    assert found.status == "pass", found.evidence


def swapped(x):
    x[:, [0, 4]] = x[:, [4, 0]]
    return x


def sentinel(x):
    x[:, 5] = x[:, 5].where(torch.arange(len(x)) % 10 != 0, -999.0)
    return x


@pytest.mark.parametrize(
    "setup",
    [
        held_out(cnn(0), "image", lambda x: x / 255),
        held_out(cnn(0), "image", lambda x: x * 0.3 + 0.5),
        held_out(mlp(0), "numbers", lambda x: x * UNITS + 3 * UNITS),
        held_out(mlp(0), "numbers", lambda x: (x - 3 * UNITS) / UNITS),
        held_out(both(mlp(0), "numbers", different), "numbers", lambda x: x.roll(1, 1)),
        held_out(both(mlp(0), "numbers", different), "numbers", swapped),
        held_out(colours(0), "image", lambda x: x.flip(1)),
        held_out(cnn(0), "image", lambda x: x.transpose(2, 3)),
        held_out(cnn(0), "image", lambda x: x.flip(2)),
        held_out(shops(0), "shop", lambda x: 7 - x),
        held_out(shops(0), "shop", lambda x: (x + 3) % 8),
        held_out(shops(0), "shop", lambda x: x + 4),
        held_out(gpt(0), "tokens", lambda x: torch.randperm(48, generator=torch.Generator().manual_seed(1))[x]),
        held_out(mlp(0), "numbers", sentinel),
        held_out(mlp(0), "numbers", lambda x: x * 0),
        held_out(mlp(0), "numbers", lambda x: x.double()),
        held_out(both(cnn(0), "image", lambda x: x[:, :, :6]), "image", lambda x: x.transpose(2, 3)),
        replace(mlp(0), held_out=replace(mlp(0).held_out, inputs={"values": mlp(0).held_out.inputs["numbers"]})),
    ],
    ids=[
        "divided", "not_normalised", "raw_training", "normalised_twice", "columns_moved", "columns_swapped",
        "channels_swapped", "transposed", "upside_down", "codes_reversed", "codes_moved", "codes_beyond", "vocabulary",
        "sentinel", "zeroed", "type", "dimensions", "names",
    ],
)  # fmt: skip
def test_alike_another_preparation_fails(setup):
    assert look(setup).status == "fail"


def drifted(x):
    """A warmer season: some columns move by a deviation, one becomes wider."""
    x[:, :4] += torch.tensor([1.0, -0.8, 0.5, 0.3])
    x[:, 5] *= 1.6
    return x


def season(x):
    """A column that moves through the file, as temperature does through the year."""
    x[:, 0] = x[:, 0] * 0.3 + torch.linspace(0, 3, len(x))
    return x


@pytest.mark.parametrize(
    "setup",
    [
        held_out(mlp(0), "numbers", drifted),
        held_out(both(mlp(0), "numbers", season), "numbers", lambda x: x + torch.tensor([3.0] + [0.0] * 11)),
        held_out(shops(0), "shop", lambda x: x.where(x != 0, 1)),
        held_out(gpt(0), "tokens", lambda x: x[:, :16]),
        both(mlp(0), "numbers", lambda x: (x > 2.5).float()),
    ],
    ids=["drift", "season", "shop_closed", "shorter_texts", "rare"],
)
def test_alike_drift_passes(setup):
    found = look(setup)
    assert found.status == "pass", found.evidence


def test_alike_few_rows_are_held_to_their_form():
    base = mlp(0)
    few = replace(base.held_out, inputs={"numbers": base.held_out.inputs["numbers"][:6]}, targets=torch.zeros(6))
    assert look(replace(base, held_out=few)).status == "pass"
    assert digits(0)[0]["image"].shape[1:] == (1, 8, 8)


class Registered(nn.Module):
    """Refuses what it does not know, with the value in its message."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(2000, 4), nn.Linear(4, 1)

    def forward(self, inputs):
        unknown = inputs["person"][inputs["person"] > 1000]
        if len(unknown):
            raise RuntimeError(f"unknown person {int(unknown[0])}")
        return self.head(self.embed(inputs["person"])).squeeze(-1)


def test_alike_values_of_single_rows_are_not_told():
    people = torch.randint(0, 1000, (1500,), generator=torch.Generator().manual_seed(0))
    people[700] = 1234
    found = look(replace(mlp(0), network=Registered, **split(({"person": people}, (people % 2).float()))))
    assert found.status == "fail"
    assert "RuntimeError" in found.evidence
    assert "1234" not in found.evidence
    replaced = look(held_out(mlp(0), "numbers", sentinel))
    assert replaced.status == "fail"
    assert "999" not in replaced.evidence
