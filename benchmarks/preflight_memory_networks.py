"""Networks on which the memory forecast was made: its interval was chosen with the sight of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.plan import Plan

VOCABULARY, LENGTH = 512, 64


class Network(NamedTuple):
    """`shape` is a row's; `batch` the rows of an update. `tokens`: rows are token numbers."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int
    use: Literal["known", "unseen", "held_back", "fresh"]
    tokens: bool = False

    @property
    def transformer(self) -> bool:
        return self.name.startswith(("GPT", "ViT", "Transformer"))

    def subject(self, precision: Literal["fp32", "bf16"], accumulate: int) -> Subject:
        def build() -> nn.Module:
            torch.manual_seed(0)
            return Of(self.make())

        torch.manual_seed(0)
        rows = torch.randint(0, VOCABULARY, (64, *self.shape)) if self.tokens else torch.randn(64, *self.shape)
        data = TrainData({"x": rows}, rows if self.tokens else torch.ones(64))
        return Subject(
            build=build,
            optimizers=lambda model: (torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True),),
            recipe=Recipe(
                loss_fn=token_loss if self.tokens else row_loss,
                learning_rate=lambda step: 1e-3, clip_norm=1.0, precision=precision, accumulate=accumulate,
            ),
            training=data, held_out=data,
            plan=Plan(
                rows=10_000, batch_size=self.batch, steps_per_epoch=10, horizon_steps=20, first_step=0, last_step=20,
                seed=0,
            ),
        )  # fmt: skip


class Of(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.layers(inputs["x"])


def row_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs.flatten(1).mean(1).float(), targets, reduction="none")


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return losses.view(targets.shape).mean(1)


def mlp(width: int, *, norm: bool = False) -> nn.Module:
    def layer() -> tuple[nn.Module, ...]:
        between = (nn.BatchNorm1d(width), nn.GELU()) if norm else (nn.ReLU(),)
        return nn.Linear(width, width), *between, nn.Dropout(0.1)

    return nn.Sequential(nn.Linear(64, width), *layer(), *layer(), nn.Linear(width, 1))


def cnn(width: int) -> nn.Module:
    def stage(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
        return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

    return nn.Sequential(*stage(3, width), *stage(width, 2 * width), nn.Flatten(), nn.Linear(128 * width, 10))


class Skip(nn.Module):
    """Two convolutions beside a skip connection; `groups` makes them depthwise."""

    def __init__(self, width: int, groups: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=groups), nn.BatchNorm2d(width), nn.SiLU(),
            nn.Conv2d(width, width, 1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.layers(x))


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.bottom = self._double(3, width), self._double(width, 2 * width)
        self.up, self.join = nn.ConvTranspose2d(2 * width, width, 2, 2), self._double(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    @staticmethod
    def _double(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        kept = self.down(x)
        return self.head(self.join(torch.cat([self.up(self.bottom(functional.max_pool2d(kept, 2))), kept], 1)))


class Block(nn.Module):
    def __init__(self, width: int, causal: bool = True) -> None:
        super().__init__()
        self.causal, self.heads = causal, 4
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.attend(self.first(x)).view(rows, length, 3, self.heads, width // self.heads)
        seen = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=self.causal)
        x = x + self.project(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.feed(self.second(x))


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


class Patches(nn.Module):
    """Patches of an image as a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.cut(x).flatten(2).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(32, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])


def image_coder(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.GroupNorm(4, width), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1),
        nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1),
    )  # fmt: skip


IMAGE, SEQUENCE = (3, 32, 32), (LENGTH,)
NETWORKS = (
    Network("MLP", lambda: mlp(512), (64,), 256, "known"),
    Network("CNN", lambda: cnn(16), IMAGE, 32, "known"),
    Network("U-Net", lambda: UNet(16), IMAGE, 16, "known"),
    Network("GPT", lambda: GPT(64, 2), SEQUENCE, 16, "known", tokens=True),
    Network("depthwise", lambda: nn.Sequential(nn.Conv2d(3, 32, 3), Skip(32, 32)), IMAGE, 16, "known"),
    Network("MLP, batch norm", lambda: mlp(384, norm=True), (64,), 512, "known"),
    Network("CNN, residual", lambda: nn.Sequential(nn.Conv2d(3, 24, 3), Skip(24), Skip(24)), IMAGE, 32, "known"),
    Network("U-Net, wide", lambda: UNet(24), (3, 24, 24), 24, "known"),
    Network("GPT, deeper", lambda: GPT(96, 4), SEQUENCE, 8, "known", tokens=True),
    Network("GPT, checkpointed", lambda: GPT(96, 4, checkpointed=True), SEQUENCE, 8, "known", tokens=True),
    Network("ViT", lambda: nn.Sequential(Patches(64), *(Block(64, False) for _ in range(3))), IMAGE, 16, "known"),
    Network("autoencoder", lambda: image_coder(16), IMAGE, 32, "known"),
    Network("GRU", lambda: Recurrent(96), (24, 32), 32, "known"),
)  # fmt: skip
