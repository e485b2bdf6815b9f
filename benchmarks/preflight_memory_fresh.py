"""Networks written after what is held only when looked at was taken off the forecast: run once, no fix after."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.preflight_memory_networks import IMAGE, Network


class ConvNeXt(nn.Module):
    """Depthwise 7 × 7, layer norm with the channels last, four times as wide within; two stages."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 1e-2))

        def forward(self, x: Tensor) -> Tensor:
            within = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            return x + (self.scale * self.narrow(functional.gelu(self.wide(within)))).permute(0, 3, 1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 24, 4, 4), self.Block(24), self.Block(24))
        self.coarse = nn.Sequential(nn.Conv2d(24, 48, 2, 2), self.Block(48), self.Block(48))

    def forward(self, x: Tensor) -> Tensor:
        return self.coarse(self.fine(x))


class Slots(nn.Module):
    """Slot attention: slots compete for the inputs, three rounds with the same weights."""

    def __init__(self, width: int = 48, slots: int = 7) -> None:
        super().__init__()
        self.middle, self.enter = nn.Parameter(torch.randn(slots, width) / 7), nn.Linear(5, width)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.query, self.update = nn.Linear(width, width), nn.GRUCell(width, width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.enter(x).relu()
        key, value = self.key(seen), self.value(seen)
        slots = self.middle.expand(len(x), -1, -1)
        for _ in range(3):
            shares = (self.query(self.norm(slots)) @ key.transpose(1, 2)).softmax(1).to(value.dtype) + 1e-6
            found = (shares / shares.sum(-1, keepdim=True)) @ value
            flat = self.update(found.flatten(0, 1).float(), slots.flatten(0, 1).float())
            slots = flat.view_as(slots)
        return self.out(slots)


class Fourier(nn.Module):
    """A Fourier neural operator in one dimension: the lowest frequencies are mixed by complex weights."""

    def __init__(self, width: int = 24, lowest: int = 12, layers: int = 3) -> None:
        super().__init__()
        self.lowest, self.enter, self.out = lowest, nn.Linear(2, width), nn.Linear(width, 1)
        self.spectral = nn.ParameterList(
            nn.Parameter(torch.randn(width, width, lowest, 2) / width) for _ in range(layers)
        )
        self.beside = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x).transpose(1, 2)
        for weights, beside in zip(self.spectral, self.beside, strict=True):
            spectrum = torch.fft.rfft(x.float())
            mixed = torch.einsum("bif,iof->bof", spectrum[..., : self.lowest], torch.view_as_complex(weights))
            filled = functional.pad(mixed, (0, spectrum.shape[-1] - self.lowest))
            x = functional.gelu(torch.fft.irfft(filled, n=x.shape[-1]) + beside(x))
        return self.out(x.transpose(1, 2))


class Routed(nn.Module):
    """Each token goes through its two best experts, whose weights are gathered; the shares are of these two."""

    def __init__(self, width: int = 32, experts: int = 6) -> None:
        super().__init__()
        self.enter, self.gate, self.out = nn.Linear(8, width), nn.Linear(width, experts), nn.Linear(width, 1)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(experts)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        best, which = self.gate(x).topk(2, -1)
        told = torch.stack([expert(x) for expert in self.experts], -2)
        chosen = told.gather(-2, which.unsqueeze(-1).expand(*which.shape, x.shape[-1]))
        return self.out(x + (best.softmax(-1).unsqueeze(-1) * chosen).sum(-2))


class Recommender(nn.Module):
    """DLRM: bags of categories, and every product of two of their vectors."""

    def __init__(self, width: int = 16, bags: int = 6) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(800, width, mode="sum") for _ in range(bags))
        self.numbers = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, width))
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tril_indices(bags + 1, bags + 1, -1))
        self.top = nn.Sequential(nn.Linear(width + self.pairs.shape[1], 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x: Tensor) -> Tensor:
        chosen = (x[:, 10:].abs() * 300).long().clamp(max=799).unflatten(1, (len(self.bags), -1))
        numbers = self.numbers(x[:, :10])
        vectors = torch.stack([numbers, *(bag(chosen[:, at]) for at, bag in enumerate(self.bags))], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([numbers, products.to(numbers.dtype)], 1))


class Capsules(nn.Module):
    """Capsules: what votes for the same vector gets more weight, three rounds of routing."""

    def __init__(self, width: int = 8, above: int = 5) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8 * width, 9, stride=4)
        self.votes = nn.Parameter(torch.randn(8 * 36, above, width, 12) / 6)

    def forward(self, x: Tensor) -> Tensor:
        below = self.convolution(x).unflatten(1, (8, -1)).flatten(3).permute(0, 1, 3, 2).flatten(1, 2)
        votes = torch.einsum("bnw,naws->bnas", below, self.votes[: below.shape[1]])
        agreed = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            middle = (agreed.softmax(-1).unsqueeze(-1) * votes).sum(1)
            size = middle.square().sum(-1, keepdim=True)
            above = middle * size.sqrt() / (1 + size)
            agreed = agreed + (votes * above.unsqueeze(1)).sum(-1)
        return above.norm(dim=-1)


class Flow(nn.Module):
    """A normalising flow of affine couplings with mixing by a matrix, whose volume is counted; gives log densities."""

    def __init__(self, size: int = 24, width: int = 96, layers: int = 5) -> None:
        super().__init__()
        self.mix = nn.ParameterList(nn.Parameter(torch.linalg.qr(torch.randn(size, size))[0]) for _ in range(layers))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(size // 2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                          nn.Linear(width, size)) for _ in range(layers)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        volume = x.new_zeros(len(x))
        for mix, inner in zip(self.mix, self.inner, strict=True):
            kept, changed = (x.float() @ mix.float()).float().chunk(2, 1)
            shift, scale = inner(kept).float().chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([kept, changed * scale.exp() + shift], 1)
            volume = volume + scale.sum(1) + torch.linalg.slogdet(mix.float())[1]
        return (volume - x.square().sum(1) / 2).unsqueeze(1) / 10


class Selective(nn.Module):
    """A state that forgets by its input, in chunks: decay as cumulative sums, no loop over time."""

    def __init__(self, width: int = 40, state: int = 6) -> None:
        super().__init__()
        self.enter, self.out = nn.Linear(9, width), nn.Linear(width, 1)
        self.conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.step, self.into, self.read = nn.Linear(width, width), nn.Linear(width, state), nn.Linear(width, state)
        self.decay = nn.Parameter(torch.rand(width, state))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        held = functional.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step = functional.softplus(self.step(held))
        logs = torch.cumsum(-step.unsqueeze(-1).float() * self.decay, 1).clamp(min=-20)
        written = (step * held).unsqueeze(-1) * self.into(held).unsqueeze(2)
        state = torch.cumsum(written * torch.exp(-logs), 1) * torch.exp(logs)
        return self.out((state * self.read(held).unsqueeze(2)).sum(-1) + held)


FRESH = (
    Network("ConvNeXt", ConvNeXt, IMAGE, 24, "fresh"),
    Network("slot attention", Slots, (80, 5), 40, "fresh"),
    Network("Fourier neural operator", Fourier, (96, 2), 48, "fresh"),
    Network("experts, the two best", Routed, (24, 8), 48, "fresh"),
    Network("DLRM with bags", Recommender, (10 + 6 * 5,), 400, "fresh"),
    Network("capsules", Capsules, (3, 32, 32), 24, "fresh"),
    Network("normalising flow", Flow, (24,), 400, "fresh"),
    Network("selective state space", Selective, (64, 9), 24, "fresh"),
)
