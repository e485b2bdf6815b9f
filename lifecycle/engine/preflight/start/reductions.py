"""What a loss is summed or averaged over: rows, a row's elements, and the parts of an update.

The smallest forward passes have to go through, too, and batch norms need enough rows in them: an update is shared out
over processes and made in `accumulate` parts, and smoke has a hundredth of the rows. So a pass may see one row, which a
batch norm behind a linear layer refuses, or two, whose mean and variance say little of all.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves, tree_map

from trainworthy.lifecycle.engine.outputs.pytree import flat, has_rows, is_float
from trainworthy.lifecycle.engine.preflight.start.steady import evaluating
from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS, augmented, batch_norm, put_back
from trainworthy.lifecycle.engine.training.loop import backward
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.spec.preflight import PreflightSpec

ROWS, PARTS = 64, 4
# Relative, by the coarsest type of what is compared: some hundred times what rounding gave.
TOLERANCE = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.03}
# Fewer summed elements change a learning rate by less than one tries anyway.
FEWEST_SUMMED = 16
FEW_ROWS_A_NORM, ROWS_REFUSED = "few_rows_a_norm", "rows_refused"
# ResNet-50 with batch norm errs on 23.6 % of ImageNet with 32 rows a device, 24.8 % with 8, 27.3 % with 4 and 34.7 %
# with 2 (Wu and He 2018, arXiv:1803.08494, table 2).
FEWEST_ROWS = 4


def reduction(subject: Subject) -> Outcome:
    """A row's loss alone, among half of the rows and among all of them."""
    if subject.claims.rows == "together":
        return Outcome("not_applicable", "claimed rows: together: a row's loss depends on the others")
    data = subject.training.take(spread_rows(subject.training, ROWS))
    rows = len(data.targets)
    if rows < 2:
        return Outcome("insufficient", "one row does not tell what its loss would be among others")
    with torch.no_grad(), autocast(subject):
        outputs = subject.model().eval()(data.inputs)
        whole, again = (_row_losses(subject.recipe, outputs, data.targets) for _ in range(2))
        parts = _parts(subject.recipe, outputs, data.targets)
    if parts is None:
        return Outcome("not_applicable", f"no part of these outputs is that of {rows // 2} of {rows} rows")
    scale = float(whole.abs().mean())
    limit = TOLERANCE[_coarsest(outputs, subject.recipe)] * scale
    if float((whole - again).abs().max()) > limit:
        return Outcome("not_applicable", "the loss is drawn at random: equal outputs give different losses")
    off = {k: float((part - whole[:k]).abs().max()) for k, part in parts.items()}
    if max(off.values()) > limit:
        return _depends(rows, whole, parts, scale)
    return _elements(subject, outputs, data, whole) or Outcome(
        "pass", f"a row's loss is the same among {', '.join(map(str, sorted({*parts, rows})))} rows"
    )


def _row_losses(recipe: Recipe, outputs: Any, targets: Tensor) -> Tensor:
    return recipe.loss_fn(outputs, targets).float()


def _parts(recipe: Recipe, outputs: Any, targets: Tensor) -> dict[int, Tensor] | None:
    """Losses of the first row alone and of half of the rows, by their number; None if the outputs have no such."""
    rows = len(targets)
    if not any(is_float(leaf) and has_rows(leaf, rows) for leaf in tree_leaves(outputs)):
        return None

    def first(count: int) -> Any:
        return tree_map(lambda leaf: leaf[:count] if has_rows(leaf, rows) else leaf, outputs)

    try:
        return {count: _row_losses(recipe, first(count), targets[:count]) for count in {1, rows // 2}}
    except (RuntimeError, ValueError, IndexError):
        # Beside the outputs of rows there are others, of another order.
        return None


def _coarsest(outputs: Any, recipe: Recipe) -> str:
    """The name of the type with the fewest digits among outputs and recipe."""
    types = [str(leaf.dtype).removeprefix("torch.") for leaf in tree_leaves(outputs) if is_float(leaf)]
    types += [{"bf16": "bfloat16", "fp16": "float16"}.get(recipe.precision, "float32")]
    return max(types, key=lambda name: TOLERANCE[name])


def _depends(rows: int, whole: Tensor, parts: dict[int, Tensor], scale: float) -> Outcome:
    half = rows // 2
    ratio = float(parts[half].mean() / whole[:half].mean()) if scale else math.nan
    said = f"a row's loss among {half} rows is {ratio:.3g} times that among {rows}"
    if math.isclose(ratio, rows / half, rel_tol=0.1):
        cause = "the loss of each row is divided by the number of rows, and the loop averages once more"
    elif math.isclose(ratio, half / rows, rel_tol=0.1):
        cause = "a sum over the rows: gradients grow with the batch"
    else:
        cause = "each row's loss holds a mean, a weight or a statistic of the whole batch"
    return Outcome("fail", said, ratio, 1.0, cause)


def _elements(subject: Subject, outputs: Any, data: TrainData, whole: Tensor) -> Outcome | None:
    """A warning if a row's loss is a sum over its elements: doubled elements then double it."""
    targets = data.targets
    if not isinstance(outputs, torch.Tensor) or targets.ndim < 2:
        return None
    for axis in range(1, outputs.ndim):
        summed = _doubled(subject.recipe, outputs, targets, axis)
        if summed is not None and math.isclose(float(summed.mean()), 2 * float(whole.mean()), rel_tol=0.02):
            count = math.prod(targets.shape[1:])
            said = f"a row's loss is a sum over its {count} elements: gradients are {count} times those of a mean"
            if count < FEWEST_SUMMED:
                return Outcome("pass", said, count)
            said += f", and learning rate and clip_norm {subject.recipe.clip_norm:g} meet the sum"
            cause = "a sum where a mean was meant, or a sum on purpose"
            fix = "average over a row's elements; else keep in mind that learning rate and clip_norm mean the sum"
            return Outcome("fail", said, count, FEWEST_SUMMED, cause, fix, severity="warning")
    return None


def _doubled(recipe: Recipe, outputs: Tensor, targets: Tensor, axis: int) -> Tensor | None:
    """Losses with all elements along an axis twice; None where the loss does not take that."""
    at = [at for at in (axis, axis - 1) if 0 < at < targets.ndim and targets.shape[at] == outputs.shape[axis]]
    if not at:
        return None
    try:
        with torch.no_grad():
            losses = recipe.loss_fn(torch.cat([outputs] * 2, axis), torch.cat([targets] * 2, at[0]))
    except (RuntimeError, ValueError, IndexError, AssertionError):
        # A loss that is made for one size.
        return None
    return losses.float() if losses.shape == (len(targets),) else None


def micro_batches(subject: Subject) -> Outcome:
    """Gradients of a batch in parts, by the loop's own backward, against those of the whole."""
    claims, small = subject.claims, small_parts(subject)
    if small is not None and small.severity is None:
        return small
    outcome = _by_parts(subject, claims)
    return small if small is not None and outcome.status in ("pass", "not_applicable") else outcome


def _by_parts(subject: Subject, claims: PreflightSpec) -> Outcome:
    if claims.rows == "together":
        return Outcome("not_applicable", "claimed rows: together: parts of a batch have other losses than the whole")
    if claims.evaluation == "stochastic":
        return Outcome("not_applicable", "claimed evaluation: stochastic: what is drawn differs between the parts")
    rows = spread_rows(subject.training, ROWS).to(subject.device)
    parts = min(len(rows), max(PARTS, subject.recipe.accumulate))
    if parts < 2:
        return Outcome("insufficient", "one row has no parts")
    recipe = replace(subject.recipe, augment=None)
    # In evaluation mode, since batch norm's statistics of a part differ from those of the whole in a healthy network.
    model = evaluating(subject.model())
    whole, again = (gradients_of(model, subject.training, rows, recipe, 1) for _ in range(2))
    if relative_distance(whole, again) > gradient_limit(subject, model):
        return Outcome("insufficient", "two passes over the same rows give different gradients, in evaluation mode too")
    return _compared(subject, model, rows, recipe, whole, parts)


def _compared(subject: Subject, model: nn.Module, rows: Tensor, recipe: Recipe, whole: Tensor, parts: int) -> Outcome:
    if not float(whole.norm()) > 0:
        return Outcome("insufficient", "there is no gradient to compare")
    difference, limit = (
        relative_distance(whole, gradients_of(model, subject.training, rows, recipe, parts)),
        gradient_limit(subject, model),
    )
    said = f"gradients of {len(rows)} rows in {parts} parts and as a whole are {difference:.1e} of their norm apart"
    if difference <= limit:
        return Outcome("pass", said, difference, limit)
    if evaluates_by_batch(model):
        why = "batch norm without running statistics sees the rows of its part only, which no loop can fix"
        return Outcome("not_applicable", f"{said}: {why}", difference, limit)
    return Outcome("fail", said, difference, limit)


def evaluates_by_batch(model: nn.Module) -> bool:
    """Whether a normalisation uses its batch's own statistics in evaluation too."""
    return any(isinstance(module, _BatchNorm) and module.running_mean is None for module in model.modules())


def gradients_of(model: nn.Module, data: TrainData, rows: Tensor, recipe: Recipe, parts: int) -> Tensor:
    """All gradients of the rows in so many parts, one behind the other, flat."""
    model.zero_grad(set_to_none=True)
    generator = torch.Generator().manual_seed(recipe.seed)
    for part in rows.tensor_split(parts):
        backward(model, data, part, recipe, generator, of=len(rows))
    return flat_gradient(model)


def flat_gradient(model: nn.Module) -> Tensor:
    """The gradients of all parameters that have one, one behind the other."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([flat(gradient) for gradient in gradients]) if gradients else torch.zeros(1)


def relative_distance(reference: Tensor, other: Tensor) -> float:
    """How far they lie from each other, as a share of the first one's norm."""
    if reference.shape != other.shape:
        return math.inf
    return float((reference - other).norm() / reference.norm().clamp_min(1e-300))


def gradient_limit(subject: Subject, model: nn.Module) -> float:
    """What rounding may leave between gradients, as a share of their norm."""
    parameters = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    return TOLERANCE[_coarsest(parameters, subject.recipe)]


def small_parts(subject: Subject) -> Outcome | None:
    """Fails if such a pass raises and a larger one does not; a warning if a batch norm sees so few rows; else None."""
    rows = subject.smallest_pass()
    if rows >= FEWEST_ROWS or len(subject.training.targets) < FEWEST_ROWS:
        return None
    norms, error = _passed(subject, rows)
    if error is not None:
        if _passed(subject, FEW_ROWS)[1] is not None:
            return None
        evidence = (
            f"a training pass of {_rows(rows)} raises {type(error).__name__}, one of {FEW_ROWS} rows goes through"
        )
        cause = f"an update's rows divided by {_divided(subject)}, or smoke's few rows, under a batch norm"
        return Outcome("fail", evidence, rows, FEWEST_ROWS, cause, _FEW_ROWS_FIX, code=ROWS_REFUSED)
    if not norms:
        return None
    evidence = f"{norms} batch norms take mean and variance of passes of {_rows(rows)}"
    cause = "training.batch_size is a pass's rows: accumulation adds gradients, and no rows to a batch norm"
    return Outcome("fail", evidence, rows, FEWEST_ROWS, cause, _FEW_ROWS_FIX, severity="warning", code=FEW_ROWS_A_NORM)


def _divided(subject: Subject) -> str:
    return "training.accumulate" + " and compute.processes" * (subject.processes > 1)


_FEW_ROWS_FIX = "raise training.batch_size and lower training.accumulate, or take GroupNorm or LayerNorm"


def _passed(subject: Subject, rows: int) -> tuple[int, Exception | None]:
    """How many calls of batch norm used the batch's statistics, and what the pass raised."""
    model = subject.model().train()
    data = augmented(subject, subject.training.take(spread_rows(subject.training, rows).to(subject.device)))
    try:
        with torch.no_grad(), put_back(model), batch_norm() as norms, autocast(subject):
            model(dict(data.inputs))
    except Exception as error:
        # Whatever the network raises of so few rows.
        return 0, error
    return len(norms), None


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows"
