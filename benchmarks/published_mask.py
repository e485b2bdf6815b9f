"""A bug in a published example, found by `wiring.causal`: a mask that hides nothing.

distributed/minGPT-ddp/mingpt/model.py of github.com/pytorch/examples (still so at 77f55b9, 25 August 2025) gives
`torch.tril(torch.ones(...))` to nn.MultiheadAttention, which adds a mask of numbers to the scores: what should be
hidden only scores 1 less. The same file with a mask of booleans, True where nothing may be seen, has to pass.

    python -m benchmarks.published_mask model.py      seconds; the file from a checkout of pytorch/examples
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.causal import causal
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.spec.preflight import PreflightSpec

ROWS, LENGTH, WORDS = 96, 16, 40


class Words(nn.Module):
    """The example's network on a dict of inputs, giving logits (N, LENGTH, WORDS)."""

    def __init__(self, example: ModuleType, *, repaired: bool) -> None:
        super().__init__()
        self.gpt = example.GPT(
            example.GPTConfig(model_type=None, n_layer=3, n_head=4, n_embd=48, vocab_size=WORDS, block_size=LENGTH)
        )
        if repaired:
            for block in self.gpt.blocks:
                block.attn.mask = block.attn.mask == 0

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits."""
        return self.gpt(inputs["words"])[0]


def reproduce() -> int:
    """Print what the check says of the file as published, and repaired; 1 unless it fails and passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="distributed/minGPT-ddp/mingpt/model.py of pytorch/examples")
    example = _loaded(parser.parse_args().file)
    found = []
    for name, repaired in (("as published", False), ("with a mask of booleans", True)):
        result = causal(_subject(example, repaired=repaired))
        found.append(result.status)
        print(f"{name}: wiring.causal {result.status}: {result.evidence}")
    return int(found != ["fail", "pass"])


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("published_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _subject(example: ModuleType, *, repaired: bool) -> Subject:
    words = torch.randint(0, WORDS, (ROWS, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    data = TrainData({"words": words[:, :-1].contiguous()}, words[:, 1:].contiguous())

    def build() -> nn.Module:
        torch.manual_seed(0)
        return Words(example, repaired=repaired)

    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.movedim(2, 1), targets, reduction="none").mean(1)

    def optimizers(model: nn.Module) -> tuple[Any, ...]:
        return (torch.optim.AdamW(model.parameters(), lr=3e-4),)

    plan = Plan(
        rows=ROWS, batch_size=32, steps_per_epoch=ROWS // 32, horizon_steps=20, first_step=0, last_step=20, seed=0
    )
    recipe = Recipe(loss_fn=loss_fn, learning_rate=lambda step: 3e-4, clip_norm=1.0)
    return Subject(build, optimizers, recipe, data, data, plan, claims=PreflightSpec())


if __name__ == "__main__":
    sys.exit(reproduce())
