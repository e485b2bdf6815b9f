"""Is the loss that of a game: does its gradient, as backward gives it, point elsewhere than down?"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from lifecycle.outputs.slope import in_float64, slope_over_gradient
from lifecycle.training.random_state import random_kept
from lifecycle.training.rows.spread import spread_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from lifecycle.training.rows.loading import LoadedRows
    from lifecycle.training.state import Recipe, TrainData

# By which share the slope differs from the gradient: 2e-4 at most on 83 of 84 healthy trainings that are no game (the
# other has a kink where it begins), 0.06 to 0.17 of adversaries at their start.
APART = 0.02
# It takes a copy of the model in float64 and its gradients: of more weights than this nobody asks.
MOST_WEIGHTS = 2**26
ROWS = 8


def is_game(model: torch.nn.Module, data: TrainData | LoadedRows, recipe: Recipe) -> bool:
    """True if networks work against each other in it, or a part of it is detached; False where that is not known.

    Its value tells no progress then: it rises and falls many times in a training that goes well. A copy of the model is
    asked on ROWS rows, in evaluation mode: what counts passes in training mode does so from the first update on.
    """
    import torch

    if sum(parameter.numel() for parameter in model.parameters()) > MOST_WEIGHTS:
        return False
    try:
        with random_kept():
            asked, some = copy.deepcopy(model).double().eval(), data.take(spread_rows(data, ROWS))
            inputs, targets = in_float64(some.inputs), in_float64(some.targets)

            def mean_loss() -> Tensor:
                torch.manual_seed(0)
                return recipe.loss_fn(asked(inputs), targets).mean()

            return abs(slope_over_gradient(asked, mean_loss) - 1) > APART
    # A model may bear neither a copy nor float64, and what is asked here is worth no training.
    except Exception:
        return False
