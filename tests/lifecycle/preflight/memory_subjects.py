"""Small networks with their training, what torch's CPU allocator holds in an update of them, and its forecast."""

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from trainworthy.lifecycle.engine.preflight.memory.fake_step import Precision
from trainworthy.lifecycle.engine.preflight.memory.real_step import memory_levels
from trainworthy.lifecycle.engine.preflight.memory.step_memory import follow, with_real_steps
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.plan import Plan


class Of(nn.Module):
    """A network of the input x, with one logit a row."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, inputs):
        return self.layers(inputs["x"]).flatten(1).mean(1)


class Checkpointed(nn.Sequential):
    def forward(self, input):
        for block in self:
            input = checkpoint(block, input, use_reentrant=False)
        return input


def residual(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def mlp():
    return Of(nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.Linear(512, 1)))


# Each operation is followed several times over: three blocks have all kinds of them.
BLOCKS = 3


def deep():
    return Of(nn.Sequential(*(residual(64) for _ in range(BLOCKS))))


def deep_checkpointed():
    return Of(Checkpointed(*(residual(64) for _ in range(BLOCKS))))


def upsampling():
    """Its peak lies in a convolution's backward pass, where oneDNN holds reordered copies."""
    return Of(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        )
    )  # fmt: skip


def loss_fn(outputs, targets):
    return functional.binary_cross_entropy_with_logits(outputs.float(), targets, reduction="none")


def subject(network, shape=(32,), batch=64, accumulate=1, precision: Precision = "fp32", **recipe) -> Subject:
    def build():
        torch.manual_seed(0)
        return network()

    torch.manual_seed(0)
    data = TrainData({"x": torch.randn(48, *shape)}, torch.ones(48))
    return Subject(
        build=build,
        optimizers=lambda model: (torch.optim.AdamW(model.parameters(), lr=1e-3),),
        recipe=Recipe(
            loss_fn=recipe.pop("loss_fn", loss_fn), learning_rate=lambda step: 1e-3, clip_norm=1.0,
            precision=precision, accumulate=accumulate, **recipe,
        ),
        training=data, held_out=data,
        plan=Plan(
            rows=1000, batch_size=batch, steps_per_epoch=10, horizon_steps=20, first_step=0, last_step=20, seed=0
        ),
    )  # fmt: skip


def allocated(of: Subject) -> int:
    """The allocator's peak over two updates of the whole batch."""
    rows = of.plan.batch_size
    data = of.training.take(torch.arange(rows) % len(of.training.targets))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        state = of.state()
        for state.step in range(2):
            train_step(state, data, torch.arange(rows), of.recipe)
    return max(memory_levels(profiled)[1])


def forecast(of: Subject):
    return with_real_steps(of, follow(of, repr))


class ReadsValues(nn.Module):
    """How much of its layer it uses depends on the values of the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 512)

    def forward(self, inputs):
        x = self.layer(inputs["x"])
        return x[:, : int(256 + inputs["x"].mean().clamp(-1, 1).item())].mean(1)
