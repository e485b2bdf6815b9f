"""The loss of the best answer that looks at no input: what a training that sees its inputs gets below."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from trainworthy.lifecycle.engine.outputs.best_constant import constant_losses
from trainworthy.lifecycle.engine.training.random_state import random_state, restore_random
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData

# The reference is searched for by some hundred evaluations of the loss: on a language model's outputs too many.
MOST_ROWS, FEWEST_ROWS, MOST_NUMBERS = 512, 64, 2**20
# Numbers of constant answers, which cost no pass. Of a label with a heavy tail, 512 rows lack the few that make most of
# its variance: on prices (log-normal) the reference was half of what it is, and a healthy training was told a plateau.
MOST_CONSTANT_NUMBERS = 2**17


def prior_loss(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe, batch_size: int) -> float | None:
    """On training rows; None where it says nothing of the losses that a training shows.

    So it is where these are of other rows (weighted or augmented ones), where a row's loss depends on the other rows
    of its batch, where no loss reads the targets, as an autoencoder's, which is held against its inputs, and of outputs
    that are too large. Rows pass the model in parts of a batch, in evaluation mode.
    """
    if data.weights is not None or recipe.augment is not None or len(data.targets) < FEWEST_ROWS:
        return None
    drawn, mode = random_state(), model.training
    try:
        with torch.no_grad():
            answers = _answers(model.eval(), data, batch_size)
            if answers is None or not _a_row_alone(recipe.loss_fn, *answers):
                return None
            outputs, targets = _for_more_targets(*answers, data.targets)
        best = constant_losses(recipe.loss_fn, outputs, targets).best
    # A use case's loss may bear neither constants nor other rows, and no reference is worth a training.
    except Exception:
        return None
    finally:
        model.train(mode)
        restore_random(drawn)
    return best if math.isfinite(best) else None


def _answers(model: torch.nn.Module, data: TrainData | LoadedRows, batch_size: int) -> tuple[Any, Tensor] | None:
    """Outputs and targets of some rows; None where so few fit that their mean says little."""
    rows, given, parts, targets = spread_rows(data, MOST_ROWS), 0, [], []
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    for part in rows.split(batch_size):
        some = data.take(part).to(device)
        outputs = model(some.inputs)
        tensors = _tensors(outputs)
        if not tensors or any(len(tensor) != len(part) for tensor in tensors):
            return None
        parts.append(outputs)
        targets.append(some.targets)
        given += sum(tensor.numel() for tensor in tensors)
        if given > MOST_NUMBERS:
            break
    joined = torch.cat(targets)
    if len(joined) < min(FEWEST_ROWS, len(rows)):
        return None
    return tree_map(lambda *same: torch.cat(same) if isinstance(same[0], torch.Tensor) else same[0], *parts), joined


def _for_more_targets(outputs: Any, targets: Tensor, known: Tensor) -> tuple[Any, Tensor]:
    """Outputs again and again, beside as many of the known targets: of constants, outputs only say the shape."""
    have, numbers = len(targets), sum(tensor.numel() for tensor in _tensors(outputs))
    count = min(len(known), MOST_CONSTANT_NUMBERS * have // max(numbers, 1))
    if count <= have:
        return outputs, targets
    more = known[torch.linspace(0, len(known) - 1, count, dtype=torch.float64).round().long()].to(targets.device)
    again = torch.arange(count, device=targets.device) % have
    return tree_map(lambda leaf: leaf[again] if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf, outputs), more


def _a_row_alone(loss_fn: Any, outputs: Any, targets: Tensor) -> bool:
    """True if a row's loss is that of its own output and target, and of both."""
    half = len(targets) // 2
    losses = loss_fn(outputs, targets)
    if not bool(losses.isfinite().all()):
        return False
    alone = loss_fn(
        tree_map(lambda leaf: leaf[:half] if isinstance(leaf, torch.Tensor) else leaf, outputs), targets[:half]
    )
    permuted = [loss_fn(outputs, targets.roll(by, 0)) for by in (1, half)]
    reads = any(not torch.allclose(losses, other, rtol=1e-4) for other in permuted)
    return reads and torch.allclose(losses[:half], alone, rtol=1e-3, atol=1e-5)


def _tensors(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(outputs)[0] if isinstance(leaf, torch.Tensor) and leaf.dim()]
