"""The networks of pytorch/examples on small rows that are made here, each as a training by hand: PROGRAMS.

Classes and functions come from the unchanged files of a checkout (`definitions`); of their loops, which are written out
anew, each has the loss, the optimizer, the rates, the batch size and the validation in between. Images, sequences,
corpora and graphs are smaller than published, and the language models narrower. Where a file wants weights that have to
be downloaded (VGG-16) or a package that is not here (torchvision's ResNet-18, gymnasium's pole), a small part of the
same kind takes its place.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR

from benchmarks.published_rows import digits, graph, patterns, reversed_words, waves, words
from trainworthy.lifecycle.engine.trainers.session import TrainingSession
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def definitions(path: Path, **given: Any) -> ModuleType:
    """A module of the imports, classes and functions of a file, without what else it does when it is run.

    Imports of packages that are not installed are left out. `given` are names that the file's own statements would
    have made: arguments, devices, datasets.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if _defines(node)]
    module = ModuleType(f"published_{path.parent.name}_{path.stem}")
    # Dataclasses look their module up by name.
    sys.modules[module.__name__] = module
    vars(module).update(given)
    exec(compile(tree, str(path), "exec"), vars(module))
    return module


def _defines(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return True
    if isinstance(node, ast.Import):
        return all(_installed(name.name) for name in node.names)
    return isinstance(node, ast.ImportFrom) and _installed(node.module or "")


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None


class On(nn.Module):
    """A published network on a dict of inputs, given in order."""

    def __init__(self, network: nn.Module, *names: str, then: Callable[[Any], Any] = lambda outputs: outputs) -> None:
        super().__init__()
        self.network, self.names, self.then = network, names, then

    def forward(self, inputs: dict[str, Tensor]) -> Any:
        return self.then(self.network(*(inputs[name] for name in self.names)))


@dataclass(frozen=True)
class Rows:
    """A training on rows: what both the handle of a script and the battery are given.

    `loss` gives one a row. `gamma` multiplies the rate after each pass; `clip` is the largest norm of gradients.
    `summed`: the loss of a batch is the sum of its rows'. `by_hand`: no optimizer is told, since weights are moved by
    hand.
    """

    network: Callable[[], nn.Module]
    loss: Callable[[Any, Tensor], Tensor]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    training: TrainData
    held_out: TrainData
    batch_size: int = 64
    gamma: float = 1.0
    clip: float = math.inf
    summed: bool = False
    by_hand: bool = False
    claims: PreflightSpec = field(default_factory=PreflightSpec)

    def train(self, session: TrainingSession) -> Iterator[float]:
        """The loop of these examples by the handle: passes over shuffled rows, with a validation after each."""
        torch.manual_seed(1)
        model = self.network()
        optimizer = self.optimizer(model)
        schedule, passes = StepLR(optimizer, 1, self.gamma), len(self.training.targets) // self.batch_size
        order = torch.randperm(len(self.training.targets))
        for step in range(session.steps):
            if step % passes == 0:
                order = torch.randperm(len(self.training.targets))
                if step:
                    self._validate(model)
                    schedule.step()
                model.train()
            rows = self.training.take(order[step % passes * self.batch_size :][: self.batch_size])
            optimizer.zero_grad()
            losses = self.loss(model(rows.inputs), rows.targets)
            (losses.sum() if self.summed else losses.mean()).backward()
            rate: float = optimizer.param_groups[0]["lr"]
            told: dict[str, Any] = {"learning_rate": rate} if self.by_hand else {"optimizer": optimizer}
            session.step(losses.mean(), rows=len(losses), model=model, **told)
            if self.clip < math.inf:
                nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
            yield losses.mean().item()

    def _validate(self, model: nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            self.loss(model(self.held_out.inputs), self.held_out.targets)


Train = Callable[[TrainingSession], Iterator[float]]


@dataclass(frozen=True)
class Program:
    """A published program: its training by the handle, and its rows where the battery can be given them."""

    train: Train
    rows: Rows | None = None
    updates: int = 300


def of_rows(rows: Rows, updates: int = 300) -> Program:
    return Program(rows.train, rows, updates)


def nll(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.nll_loss(outputs, targets, reduction="none")


def each_mean(losses: Tensor) -> Tensor:
    """The mean of a row's own."""
    return losses.flatten(1).mean(1)


# ---- pictures --------------------------------------------------------------------------------------------------------


def mnist(folder: Path) -> Program:
    network = definitions(folder / "mnist" / "main.py").Net
    rows = Rows(lambda: On(network(), "image"), nll, lambda m: torch.optim.Adadelta(m.parameters(), lr=1.0),
                *digits(28), gamma=0.7)  # fmt: skip
    return of_rows(rows)


def mnist_rnn(folder: Path) -> Program:
    network = definitions(folder / "mnist_rnn" / "main.py").Net
    rows = Rows(lambda: On(network(), "image"), nll, lambda m: torch.optim.Adadelta(m.parameters(), lr=0.1),
                *digits(28), gamma=0.7)  # fmt: skip
    return of_rows(rows)


def mnist_hogwild(folder: Path) -> Program:
    """By one process."""
    network = definitions(folder / "mnist_hogwild" / "main.py").Net
    rows = Rows(lambda: On(network(), "image"), nll,
                lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.5), *digits(28))  # fmt: skip
    return of_rows(rows)


def vae(folder: Path) -> Program:
    network = definitions(folder / "vae" / "main.py").VAE

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        made, middle, log_variance = outputs
        apart = functional.binary_cross_entropy(made, targets.flatten(1), reduction="none").sum(1)
        return apart - 0.5 * (1 + log_variance - middle**2 - log_variance.exp()).sum(1)

    training, held_out = (TrainData(part.inputs, part.inputs["image"]) for part in digits(28, normalised=False))
    rows = Rows(lambda: On(network(), "image"), loss, lambda m: torch.optim.Adam(m.parameters(), lr=1e-3), training,
                held_out, batch_size=128, summed=True,
                claims=PreflightSpec(labels="unused", evaluation="stochastic"))  # fmt: skip
    return of_rows(rows)


def super_resolution(folder: Path) -> Program:
    network = definitions(folder / "super_resolution" / "model.py").Net
    # Pixels eight by eight, asked for at three times the size.
    small, large = digits(8, normalised=False), digits(24, normalised=False)
    training, held_out = (TrainData(a.inputs, b.inputs["image"]) for a, b in zip(small, large, strict=True))
    rows = Rows(lambda: On(network(3), "image"), lambda o, t: each_mean((o - t) ** 2),
                lambda m: torch.optim.Adam(m.parameters(), lr=0.01), training, held_out)  # fmt: skip
    return of_rows(rows)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.norm2(self.second(self.norm1(self.first(x)).relu()))).relu()


class SmallResidual(nn.Module):
    """In the place of ResNet-18, with its parts in its order."""

    def __init__(self, weights: object = None) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1, self.layer2 = Residual(64), Residual(64)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(64, 10)


def siamese_network(folder: Path) -> Program:
    """Pixels from 0 to 255, as the example gives them."""
    vision = SimpleNamespace(models=SimpleNamespace(resnet18=SmallResidual))
    network = definitions(folder / "siamese_network" / "main.py", torchvision=vision).SiameseNetwork

    def paired(part: TrainData) -> TrainData:
        image, generator = part.inputs["image"] * 255, torch.Generator().manual_seed(2)
        other = torch.randint(len(image), (len(image),), generator=generator)
        for row in range(0, len(image), 2):
            same = (part.targets == part.targets[row]).nonzero()[:, 0]
            other[row] = same[int(torch.randint(len(same), (1,), generator=generator))]
        return TrainData({"one": image, "other": image[other]}, (part.targets == part.targets[other]).float())

    training, held_out = map(paired, digits(28, normalised=False))
    rows = Rows(lambda: On(network(), "one", "other", then=lambda outputs: outputs.squeeze(1)),
                lambda o, t: functional.binary_cross_entropy(o, t, reduction="none"),
                lambda m: torch.optim.Adadelta(m.parameters(), lr=1.0),
                training, held_out, gamma=0.7)  # fmt: skip
    return of_rows(rows)


def fast_neural_style(folder: Path) -> Program:
    """A frozen random network in the place of VGG-16 gives the features; pictures are coloured patterns."""
    files = folder / "fast_neural_style" / "neural_style"
    network, tools = definitions(files / "transformer_net.py").TransformerNet, definitions(files / "utils.py")
    torch.manual_seed(3)
    first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()).requires_grad_(False)
    second = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()).requires_grad_(False)

    def features(pictures: Tensor) -> list[Tensor]:
        # The example's function divides what it is given in place.
        found = first(tools.normalize_batch(pictures.clone()))
        return [found, second(found)]

    style = [tools.gram_matrix(one) for one in features(patterns(1, seed=9))]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        made, wanted = features(outputs), features(targets)
        content = 1e5 * each_mean((made[1] - wanted[1]) ** 2)
        return content + 1e10 * sum(
            each_mean((tools.gram_matrix(one) - gram) ** 2) for one, gram in zip(made, style, strict=True)
        )

    pictures = patterns(240, seed=4)
    parts = [TrainData({"picture": one}, one) for one in (pictures[:200], pictures[200:])]
    rows = Rows(lambda: On(network(), "picture"), loss, lambda m: torch.optim.Adam(m.parameters(), lr=1e-3), *parts,
                batch_size=4, claims=PreflightSpec(labels="unused"))  # fmt: skip
    return of_rows(rows, 200)


# ---- words -----------------------------------------------------------------------------------------------------------


def each_word(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of log probabilities (N, T, words): the mean of a row's own."""
    return functional.nll_loss(outputs.transpose(1, 2), targets, reduction="none").mean(1)


class Recurrent(On):
    """Sequences are the example's second dimension; each begins with a state of zeros."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        tokens = inputs["tokens"].T
        network: Any = self.network
        outputs, _ = network(tokens, network.init_hidden(tokens.shape[1]))
        return outputs.view(*tokens.shape, -1).transpose(0, 1)


class Sequences(On):
    """Of a transformer whose second dimension is the rows."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.network(inputs["tokens"].T).transpose(0, 1)


def word_lstm(folder: Path) -> Program:
    """As the example's default: weights are moved by hand, at a rate of 20, gradients clipped to 0.25."""
    network = definitions(folder / "word_language_model" / "model.py").RNNModel
    rows = Rows(lambda: Recurrent(network("LSTM", 60, 64, 64, 2, 0.2)), each_word,
                lambda m: torch.optim.SGD(m.parameters(), lr=20.0), *words(), batch_size=20, clip=0.25, by_hand=True,
                claims=PreflightSpec(causal=("tokens",)))  # fmt: skip
    return of_rows(rows)


def word_transformer(folder: Path) -> Program:
    """At the rate of 5 that its page names."""
    network = definitions(folder / "word_language_model" / "model.py").TransformerModel
    rows = Rows(lambda: Sequences(network(60, 64, 2, 64, 2, 0.2)), each_word,
                lambda m: torch.optim.SGD(m.parameters(), lr=5.0), *words(), batch_size=20, clip=0.25, by_hand=True,
                claims=PreflightSpec(causal=("tokens",)))  # fmt: skip
    return of_rows(rows)


def llama(folder: Path) -> Program:
    """The transformer of distributed/tensor_parallelism, in one process."""
    found = definitions(folder / "distributed" / "tensor_parallelism" / "llama2_model.py")
    size = found.ModelArgs(dim=64, n_layers=2, n_heads=4, vocab_size=60, max_seq_len=64)
    rows = Rows(lambda: On(found.Transformer(size), "tokens", then=lambda o: functional.log_softmax(o, -1)), each_word,
                lambda m: torch.optim.AdamW(m.parameters(), lr=3e-3, foreach=True), *words(), batch_size=20,
                claims=PreflightSpec(causal=("tokens",)))  # fmt: skip
    return of_rows(rows)


class Translated(On):
    """Sequences first, with the example's masks; padding is 1."""

    def __init__(self, network: nn.Module, masks: Callable[..., Any]) -> None:
        super().__init__(network)
        self.masks = masks

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        source, target = inputs["source"].T, inputs["target"].T
        whole, ahead, of_source, of_target = self.masks(source, target, 1, source.device)
        return self.network(source, target, whole, ahead, of_source, of_target, of_source).transpose(0, 1)


def language_translation(folder: Path) -> Program:
    """Words in another order, in the place of German and English; narrower, at ten times the rate."""
    files = folder / "language_translation" / "src"
    network = definitions(files / "model.py").Translator
    masks = definitions(files / "data.py").create_mask

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = functional.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=1, reduction="none")
        return losses.sum(1) / (targets != 1).sum(1)

    rows = Rows(lambda: Translated(network(2, 2, 64, 4, 24, 24, 128, 0.1), masks), loss,
                lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9), *reversed_words(),
                claims=PreflightSpec(causal=("target",)))  # fmt: skip
    return of_rows(rows)


# ---- loops of their own ----------------------------------------------------------------------------------------------


def updated(
    session: TrainingSession, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, rows: int
) -> float:
    """An update in the order of the page: gradients, what is told, the optimizer."""
    optimizer.zero_grad()
    loss.backward()
    session.step(loss, rows=rows, model=model, optimizer=optimizer)
    optimizer.step()
    return loss.item()


def _of_graph(make: Callable[[int, int], nn.Module], rate: float, *, sparse: bool) -> Program:
    """All nodes at once, of which most give a loss, scored in evaluation mode after each update."""

    def train(session: TrainingSession) -> Iterator[float]:
        torch.manual_seed(42)
        features, labels, neighbours = graph(sparse=sparse)
        known, others = torch.randperm(len(labels)).tensor_split([200])
        model = make(features.shape[1], int(labels.max()) + 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4)
        for _ in range(session.steps):
            model.train()
            loss = functional.nll_loss(model(features, neighbours)[known], labels[known])
            yield updated(session, model, optimizer, loss, len(known))
            model.eval()
            with torch.no_grad():
                functional.nll_loss(model(features, neighbours)[others], labels[others])

    return Program(train, updates=200)


def gcn(folder: Path) -> Program:
    network = definitions(folder / "gcn" / "main.py").GCN
    return _of_graph(lambda inputs, classes: network(inputs, 16, classes, False, 0.5), 0.01, sparse=True)


def gat(folder: Path) -> Program:
    network = definitions(folder / "gat" / "main.py").GAT
    return _of_graph(lambda inputs, classes: network(inputs, 64, 8, classes, False, 0.6), 0.005, sparse=False)


def regression(folder: Path) -> Program:
    """A polynomial; weights are moved by hand, rows are drawn anew for each update."""
    torch.manual_seed(0)
    target = {"POLY_DEGREE": 4, "W_target": torch.randn(4, 1) * 5, "b_target": torch.randn(1) * 5}
    published = definitions(folder / "regression" / "main.py", **target)

    def train(session: TrainingSession) -> Iterator[float]:
        model = nn.Linear(4, 1)
        for _ in range(session.steps):
            inputs, targets = published.get_batch()
            model.zero_grad()
            loss = functional.smooth_l1_loss(model(inputs), targets)
            loss.backward()
            session.step(loss, rows=len(targets), model=model, learning_rate=0.1)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad
            yield loss.item()

    return Program(train)


def time_sequence_prediction(folder: Path) -> Program:
    """L-BFGS, which asks for the loss up to twenty times a step: the last pass of a step is told before the next."""
    network = definitions(folder / "time_sequence_prediction" / "train.py").Sequence

    def train(session: TrainingSession) -> Iterator[float]:
        torch.manual_seed(0)
        sequences = waves()
        model = network().double()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(sequences[:, :-1]), sequences[:, 1:])
            loss.backward()
            return loss

        for _ in range(session.steps):
            loss = optimizer.step(closure)
            session.step(loss, rows=len(sequences), model=model, optimizer=optimizer)
            yield float(loss)

    return Program(train, updates=40)


def mnist_forward_forward(folder: Path) -> Program:
    """Each layer has an optimizer and a loss of its own, and is trained to its end before the next."""
    options = SimpleNamespace(lr=0.03, threshold=2.0, epochs=1, log_interval=10)
    published = definitions(
        folder / "mnist_forward_forward" / "main.py", args=options, device=torch.device("cpu")
    )  # fmt: skip

    def train(session: TrainingSession) -> Iterator[float]:
        torch.manual_seed(1)
        rows, _ = digits(28)
        flat = rows.inputs["image"].flatten(1)
        right = published.overlay_y_on_x(flat, rows.targets)
        wrong = published.overlay_y_on_x(flat, published.get_y_neg(rows.targets))
        for layer in published.Net([784, 100, 100]).layers:
            for _ in range(session.steps // 2):
                good, bad = (layer(one).square().mean(1) for one in (right, wrong))
                loss = functional.softplus(torch.cat([2.0 - good, bad - 2.0])).mean()
                yield updated(session, layer, layer.opt, loss, len(flat))
            right, wrong = layer(right).detach(), layer(wrong).detach()

    return Program(train)


def dcgan(folder: Path) -> Program:
    """Two networks by turns, at a quarter of the width."""
    published = definitions(folder / "dcgan" / "main.py", nz=20, ngf=16, ndf=16, nc=1)

    def train(session: TrainingSession) -> Iterator[float]:
        torch.manual_seed(7)
        images, _ = digits(64, normalised=False)
        real = images.inputs["image"] * 2 - 1
        maker, judge = published.Generator(1), published.Discriminator(1)
        for network in (maker, judge):
            network.apply(published.weights_init)
        makers, judges = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (maker, judge))
        ones, zeros, loss = torch.ones(16), torch.zeros(16), functional.binary_cross_entropy
        for _ in range(session.steps // 2):
            made = maker(torch.randn(16, 20, 1, 1))
            shown = real[torch.randint(len(real), (16,))]
            both = loss(judge(shown), ones) + loss(judge(made.detach()), zeros)
            yield updated(session, judge, judges, both, 32)
            yield updated(session, maker, makers, loss(judge(made), ones), 16)

    return Program(train, updates=200)


PROGRAMS: dict[str, Callable[[Path], Program]] = {
    make.__name__: make
    for make in (
        mnist, mnist_rnn, mnist_hogwild, vae, super_resolution, siamese_network, fast_neural_style, word_lstm,
        word_transformer, llama, language_translation, gcn, gat, regression, time_sequence_prediction,
        mnist_forward_forward, dcgan,
    )
}  # fmt: skip
