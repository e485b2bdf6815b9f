"""Networks of other families, written after the interval was chosen: only what it holds of them is reported as held."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.preflight_memory_networks import IMAGE, LENGTH, SEQUENCE, VOCABULARY, Network


class Mixing(nn.Module):
    """MLP-Mixer: a layer over the patches, then one over the channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.within = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.second(x))


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.unfold(x, 4, stride=4).transpose(1, 2)


class Residual(nn.Module):
    """ResNet's block, halving the image."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.layers(x) + self.short(x), inplace=True)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 28, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Residual(28, 56), Residual(56, 112),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(112, 9),
    )  # fmt: skip


class DeepUNet(nn.Module):
    """Three levels, batch norm, bilinear upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList((self._norm(3, 20), self._norm(20, 40), self._norm(40, 60)))
        self.up = nn.ModuleList((self._norm(100, 40), self._norm(60, 20)))

    @staticmethod
    def _norm(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(functional.avg_pool2d(x, 2) if kept else x)
            kept.append(x)
        for level, beside in zip(self.up, (kept[1], kept[0]), strict=True):
            x = level(torch.cat([functional.interpolate(x, scale_factor=2, mode="bilinear"), beside], 1))
        return x


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.LSTM(20, 72, num_layers=2, batch_first=True, dropout=0.1), nn.Linear(72, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)[0][:, -1])


class TiedGPT(nn.Module):
    """Attention by torch's own encoder layer; the head shares the embedding's weights."""

    def __init__(self, width: int, layers: int, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 6, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x, mask = self.tokens(tokens), nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if self.checkpointed else block(x, mask)
        return self.head(x)


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, 80), nn.Linear(80, VOCABULARY)
        self.both = nn.Transformer(80, 5, 2, 2, 200, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return self.head(self.both(x.flip(1), x))


class Experts(nn.Module):
    """Two of six experts a row; `gathered` looks their weights up, otherwise each takes its rows by a mask."""

    def __init__(self, *, gathered: bool) -> None:
        super().__init__()
        self.gathered, self.choose = gathered, nn.Linear(40, 6)
        self.weights = nn.Parameter(torch.randn(6, 40, 40) / 40**0.5)

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.choose(x).softmax(-1).topk(2, -1)
        if self.gathered:
            return torch.einsum("nk,nkio,ni->no", shares, self.weights[chosen].to(shares.dtype), x.to(shares.dtype))
        out = torch.zeros_like(x)
        for expert, weight in enumerate(self.weights):
            rows = (chosen == expert).any(-1)
            out[rows] = functional.gelu(x[rows] @ weight).to(out.dtype)
        return out * shares.sum(-1, keepdim=True)


class Inverted(nn.Module):
    """MobileNet's block: widen, depthwise, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(width, wide, 1), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, width, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(300, 128), nn.Linear(64, 300)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.encode(x).tanh().chunk(2, -1)
        return self.decode(mean + spread.exp() * torch.randn_like(mean))


class Categories(nn.Module):
    """Twelve columns of categories, each with an embedding of its own, then a small MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(4000, 24) for _ in range(12))
        self.layers = nn.Sequential(nn.Linear(288, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, x: Tensor) -> Tensor:
        numbers = (x.abs() * 1000).long().clamp(max=3999)
        return self.layers(torch.cat([column(numbers[:, at]) for at, column in enumerate(self.columns)], -1))


class Dilated(nn.Module):
    """WaveNet's gated, dilated convolutions over time."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.both = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.both(x).chunk(2, 1)
        return x + gate.sigmoid() * value.tanh()


class Dense(nn.Module):
    """DenseNet: each layer sees all earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 14 * at, 14, 3, padding=1) for at in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, functional.silu(layer(x))], 1)
        return x


class Sets(nn.Module):
    """A set of points: each alone, then the largest of all, then the pairs' distances."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 48)), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> Tensor:
        points = self.each(x)
        near = (points @ points.transpose(1, 2)).softmax(-1)
        return self.head((near @ points).amax(1))


def mixer() -> nn.Module:
    return nn.Sequential(Cut(), nn.Linear(48, 72), Mixing(64, 72), Mixing(64, 72))


def video() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 12, 3, padding=1), nn.BatchNorm3d(12), nn.ELU(), nn.Conv3d(12, 8, 3, stride=2))


UNSEEN = (
    Network("MLP-Mixer", mixer, IMAGE, 48, "unseen"),
    Network("ResNet", resnet, (3, 48, 48), 40, "unseen"),
    Network("U-Net, three levels", DeepUNet, (3, 28, 28), 20, "unseen"),
    Network("LSTM, two layers", LSTM, (16, 20), 48, "unseen"),
    Network("GPT, tied", lambda: TiedGPT(120, 3), SEQUENCE, 24, "unseen", tokens=True),
    Network("GPT, tied, checkpointed", lambda: TiedGPT(120, 3, checkpointed=True), SEQUENCE, 24, "unseen", tokens=True),
    Network("Transformer, encoder-decoder", Translator, (LENGTH // 2,), 28, "unseen", tokens=True),
    Network("experts, gathered", lambda: nn.Sequential(Experts(gathered=True), nn.ReLU()), (40,), 200, "unseen"),
    Network("experts, by mask", lambda: nn.Sequential(Experts(gathered=False), nn.ReLU()), (40,), 200, "unseen"),
    Network(
        "MobileNet", lambda: nn.Sequential(nn.Conv2d(3, 18, 3, 2), Inverted(18), Inverted(18)), IMAGE, 36, "unseen"
    ),
    Network("variational autoencoder", Variational, (300,), 1000, "unseen"),
    Network("categories", Categories, (12,), 800, "unseen"),
    Network("WaveNet", lambda: nn.Sequential(*(Dilated(20, 2**at) for at in range(5))), (20, 200), 24, "unseen"),
    Network("DenseNet", Dense, (3, 26, 26), 30, "unseen"),
    Network("Conv3d", video, (2, 8, 20, 20), 14, "unseen"),
    Network("set of points", Sets, (50, 5), 64, "unseen"),
)
