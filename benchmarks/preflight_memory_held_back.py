"""Networks of families that were not looked at before the forecast was done: run once, before any fix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.preflight_memory_networks import IMAGE, LENGTH, VOCABULARY, Network


class Perceiver(nn.Module):
    """Few learned latents look at a long input by cross-attention, twice with the same weights."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(12, width) / 8)
        self.inputs, self.head = nn.Linear(6, width), nn.Linear(width, 1)
        self.across = nn.MultiheadAttention(width, 4, batch_first=True)
        self.within = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        seen, latents = self.inputs(x), self.latents.expand(len(x), -1, -1)
        for _ in range(2):
            latents = latents + self.across(latents, seen, seen, need_weights=False)[0]
            latents = latents + self.within(latents)
        return self.head(latents.mean(1))


class Messages(nn.Module):
    """Message passing: each edge's message is added to its end by index_add; a graph is a row of 40 nodes."""

    def __init__(self, width: int = 48, nodes: int = 40) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(7, width), nn.Linear(width, 1)
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.update = nn.GRUCell(width, width)
        self.edges: Tensor
        self.register_buffer("edges", torch.randint(0, nodes, (2, 160)))

    def forward(self, x: Tensor) -> Tensor:
        rows, nodes, _ = x.shape
        first = nodes * torch.arange(rows, device=x.device).unsqueeze(1)
        start, end = (first + self.edges[0]).flatten(), (first + self.edges[1]).flatten()
        held = self.enter(x).flatten(0, 1)
        for layer in self.message:
            sent = functional.relu(layer(torch.cat([held[start], held[end]], 1)))
            held = self.update(torch.zeros_like(held).index_add(0, end, sent.to(held.dtype)), held)
        return self.head(held.view(rows, nodes, -1).mean(1))


class Gate(nn.Module):
    """Attention U-Net's gate: the coarse level says where the fine one counts."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.fine, self.coarse, self.both = nn.Conv2d(fine, 16, 1), nn.Conv2d(coarse, 16, 1), nn.Conv2d(16, 1, 1)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        above = functional.interpolate(self.coarse(coarse), scale_factor=2)
        return fine * self.both(functional.relu(self.fine(fine) + above)).sigmoid()


class GatedUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = self._twice(3, 16), self._twice(16, 32), self._twice(32, 64)
        self.gates = nn.ModuleList((Gate(32, 64), Gate(16, 32)))
        self.lift = nn.ModuleList((nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)))
        self.up = nn.ModuleList((self._twice(64, 32), self._twice(32, 16)))

    @staticmethod
    def _twice(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        x = self.third(functional.max_pool2d(second, 2))
        for beside, gate, lift, up in zip((second, first), self.gates, self.lift, self.up, strict=True):
            x = up(torch.cat([lift(x), gate(beside, x)], 1))
        return x


class Attending(nn.Module):
    """A GRU reads, another one writes and looks back at every step, cell by cell."""

    def __init__(self, width: int = 56) -> None:
        super().__init__()
        self.tokens, self.width = nn.Embedding(VOCABULARY, width), width
        self.reads, self.writes = nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.head = nn.Linear(2 * width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        memory, last = self.reads(x)
        held, told = last[0], []
        for at in range(tokens.shape[1]):
            shares = (memory @ held.to(memory.dtype).unsqueeze(2)).softmax(1)
            looked = (shares * memory).sum(1).to(x.dtype)
            held = self.writes(torch.cat([x[:, at], looked], 1), held.to(x.dtype))
            told.append(self.head(torch.cat([held, looked], 1)))
        return torch.stack(told, 1)


class Hyper(nn.Module):
    """A network that writes the weights of another, for each row its own."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.writes = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 2 * width * width + width))
        self.enter = nn.Linear(20, width)

    def forward(self, x: Tensor) -> Tensor:
        written, width = self.writes(x[:, :10]), self.width
        first, second, last = written.split([width * width, width * width, width], 1)
        held = self.enter(x[:, 10:]).unsqueeze(1)
        for weights in (first, second):
            held = functional.gelu(torch.bmm(held.to(weights.dtype), weights.view(-1, width, width)))
        return (held.squeeze(1) * last).sum(1, keepdim=True)


class Window(nn.Module):
    """Swin's block: attention within windows of 4 × 4, shifted by half a window in every second block."""

    def __init__(self, width: int, shift: int, heads: int = 4) -> None:
        super().__init__()
        self.shift, self.heads = shift, heads
        self.bias = nn.Parameter(torch.zeros(heads, 16, 16))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.within = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        rows, side, _, width = x.shape
        cut = torch.roll(self.first(x), (-self.shift, -self.shift), (1, 2))
        cut = cut.view(rows, side // 4, 4, side // 4, 4, width).transpose(2, 3).reshape(-1, 16, width)
        query, key, value = self.qkv(cut).view(-1, 16, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-2, -1)) / (width // self.heads) ** 0.5 + self.bias
        seen = (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).reshape(-1, 16, width)
        seen = self.out(seen).view(rows, side // 4, side // 4, 4, 4, width).transpose(2, 3)
        x = x + torch.roll(seen.reshape(rows, side, side, width), (self.shift, self.shift), (1, 2))
        return x + self.within(self.second(x))


class Swin(nn.Module):
    """Two stages, with patches merged in between."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.enter, self.merge = nn.Conv2d(3, width, 2, 2), nn.Linear(4 * width, 2 * width)
        self.fine = nn.Sequential(Window(width, 0), Window(width, 2))
        self.coarse = nn.Sequential(Window(2 * width, 0), Window(2 * width, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.fine(self.enter(x).permute(0, 2, 3, 1))
        corners = [x[:, at::2, beside::2] for at in (0, 1) for beside in (0, 1)]
        return self.coarse(self.merge(torch.cat(corners, -1)))


HELD_BACK = (
    Network("Perceiver", Perceiver, (90, 6), 40, "held_back"),
    Network("messages on a graph", Messages, (40, 7), 36, "held_back"),
    Network("U-Net with attention gates", GatedUNet, IMAGE, 18, "held_back"),
    Network("GRU, sequence to sequence", Attending, (LENGTH // 4,), 40, "held_back", tokens=True),
    Network("hypernetwork", Hyper, (20 + 10,), 160, "held_back"),
    Network("Transformer of windows (Swin)", Swin, (3, 32, 32), 20, "held_back"),
)
