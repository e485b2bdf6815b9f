"""Tries the functions of model.py on rows made from the contract alone: a look at their forms, in a second.

Each function is tried as soon as those it needs have given anything, so that one run tells all that is wrong.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.sample import FIT_ROWS, sample_rows
from trainworthy.lifecycle.contract.sample_files import with_sample_files, without_size
from trainworthy.lifecycle.engine.preflight.function_trials import FIXES, OPTIONAL_FIXES, Trials, Wrong
from trainworthy.lifecycle.engine.preflight.inputs import axes
from trainworthy.lifecycle.engine.preflight.optional_functions import try_optional
from trainworthy.lifecycle.engine.preflight.output_shape import follows, too_wide
from trainworthy.lifecycle.engine.preflight.own import own_checks
from trainworthy.lifecycle.engine.preflight.wiring.descent import WRONG_WAY, descend
from trainworthy.lifecycle.engine.training.random_state import seed_torch
from trainworthy.lifecycle.engine.training.techniques.recompute import checkpoint_activations
from trainworthy.lifecycle.errors import EvaluationError, TrainingError
from trainworthy.lifecycle.protocol.jobs import FunctionsJob
from trainworthy.lifecycle.protocol.results import FunctionsResult
from trainworthy.lifecycle.scoring import as_array
from trainworthy.lifecycle.task import TARGET_STATE, Task
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.labels import kind_of_rows
from trainworthy.lifecycle.training_script import NETWORK_FUNCTIONS

# float32 sums of one row and of a batch differ in the last digits.
TOLERANCE = 1e-4
_LABELS = "compare the outputs with the targets; if it is to need no labels, say preflight: {labels: unused}"


def try_functions(job: FunctionsJob) -> FunctionsResult:
    """Try them all. An error of the use case's code becomes a fault with its line."""
    # More threads only wait for each other on so few rows.
    torch.set_num_threads(1)
    seed_torch(0)
    kind = kind_of_rows(job.rows)
    fixes = FIXES | OPTIONAL_FIXES | {"predict": kind.predict_fix}
    if kind.target_state(kind.sample_labels(FIT_ROWS)):
        fixes["to_tensors"] += f"; beside your own keys preprocessing holds {TARGET_STATE!r}, of the label"
    trials = Trials(Path(job.use_case_folder), job.rows.features, job.hyperparameters, fixes)
    task = trials.imported()
    if task is None:
        return trials.result()
    contract = load_contract(trials.folder / "contract.yaml")
    if shapeless := without_size(contract, job.rows.features):
        for name in FIXES:
            trials.not_tried(
                name, f"the contract says no size of {', '.join(shapeless)}, so no array can be made: add it"
            )
        return trials.result()
    with tempfile.TemporaryDirectory() as folder:
        rows = with_sample_files(sample_rows(contract, job.rows.features), contract, Path(folder))
        trials.whole_numbers = _whole_numbers(rows)
        size = contract.column(contract.label.column).size
        return _tried(job, trials, task, rows, kind_of_rows(job.rows).sample_truth(len(rows), size))


def _whole_numbers(rows: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """The least and the greatest of each column of whole numbers that has a value."""
    whole = {str(name): values.dropna() for name, values in rows.items() if pd.api.types.is_integer_dtype(values.dtype)}
    return {name: (int(values.min()), int(values.max())) for name, values in whole.items() if len(values)}


def _tried(job: FunctionsJob, trials: Trials, task: Task, rows: pd.DataFrame, truth: np.ndarray) -> FunctionsResult:
    """Each function on these rows, whose files are there."""
    kind = kind_of_rows(job.rows)
    labels, targets = kind.checked_labels(truth), torch.from_numpy(kind.targets(truth))
    needed = [name for name in NETWORK_FUNCTIONS if job.trainer is None or hasattr(task, name)]
    axes_told = "inputs.channels_first" in job.claims.not_applicable
    state = trials.of("fit_preprocessing", lambda: _fit(task, rows, job.hyperparameters, kind.target_state(labels)))
    inputs = trials.of("to_tensors", lambda: _tensors(task, rows, state, axes_told), state)
    if "build_model" not in needed:
        return trials.result()

    def _shaped(given: tuple[Any, str, list[Wrong]]) -> tuple[Any, str, list[Wrong]]:
        """forward's outputs, told to be wrong where their last side of 1 is in the way of what takes them."""
        found = too_wide(task, given[0], targets, kind, users)
        trials.follows = dict.fromkeys(users, follows(given[0])) if found else {}
        return (*given[:2], [*([found] if found else []), *given[2]])

    model = trials.of("build_model", lambda: _build(task, state, job), state)
    users = [name for name in ("loss_fn", "predict") if name == "predict" or name in needed]
    outputs = trials.of("forward", lambda: _shaped(_forward(model, inputs, len(rows))), model, inputs)
    if "loss_fn" in needed:
        uses_labels = job.claims.labels == "used"
        apart = uses_labels and job.claims.rows == "apart"
        trials.of(
            "loss_fn", lambda: _loss(task, model, outputs, targets, uses_labels, kind if apart else None), outputs
        )
    trials.of("predict", lambda: _predict(task, outputs, kind), outputs)
    if job.trainer is None:
        try_optional(trials, task, job, model, inputs, targets)
    trials.add_own_checks({check.id: check.question for check in own_checks(task)})
    return trials.result()


def _fit(
    task: Task, rows: pd.DataFrame, hyperparameters: Mapping[str, Any], target: Mapping[str, Any]
) -> tuple[Any, str, list[Wrong]]:
    state = task.fit_preprocessing(rows.head(FIT_ROWS).copy(), hyperparameters)
    if not isinstance(state, dict):
        return None, "", [(f"gives {type(state).__name__}, not a dict", FIXES["fit_preprocessing"])]
    try:
        text = json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        fix = "give plain dicts, lists, texts and finite numbers: float(x) for numpy values, .tolist() for arrays"
        return state, "", [(f"the state is no JSON: {error}", fix)]
    again = json.loads(text)
    changed = again != state
    fix = "write keys as text: JSON has no others, and what is shipped comes back from JSON"
    wrong = [("the state differs after a way through JSON", fix)] if changed else []
    if target and TARGET_STATE in again:
        fix = f"use another key: Trainworthy fills in {TARGET_STATE!r}"
        wrong.append((f"the state has a key {TARGET_STATE!r} of its own", fix))
    return again | ({TARGET_STATE: dict(target)} if target else {}), f"{len(text):,} bytes of JSON", wrong


def _tensors(task: Task, rows: pd.DataFrame, state: dict[str, Any], axes_told: bool) -> tuple[Any, str, list[Wrong]]:
    """What it gives; `axes_told`: a use case says why its files are stored with other axes than they hold."""
    inputs = task.to_tensors(rows.copy(), state)
    if not isinstance(inputs, dict) or not inputs or not all(isinstance(t, torch.Tensor) for t in inputs.values()):
        return None, "", [("does not give a dict of tensors", "give {name: tensor}, rows first")]
    short = [f"{name} {tuple(t.shape)}" for name, t in inputs.items() if t.ndim == 0 or len(t) != len(rows)]
    if short:
        return None, "", [(f"{len(rows)} rows became {', '.join(short)}", "give each tensor one row for each row")]
    mixed = [] if axes_told else [(found, axes.FIX) for found in axes.reshaped(rows, inputs)]
    wrong = [*_not_finite(inputs, rows), *_depends_on_others(task, rows, state, inputs), *mixed]
    shown = ", ".join(f"{name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in inputs.items())
    return inputs, shown, wrong


def _not_finite(inputs: dict[str, Tensor], rows: pd.DataFrame) -> Iterator[Wrong]:
    for name, tensor in inputs.items():
        bad = ~tensor.isfinite().reshape(len(rows), -1).all(dim=1)
        if bad.any():
            nulls = rows.isna().any(axis=1).to_numpy()
            where = " in rows that hold nulls" if nulls[bad.numpy()].all() else ""
            yield (
                f"{name} is not finite in {int(bad.sum())} of {len(rows)} rows{where}",
                "put a number in place of nulls",
            )


def _depends_on_others(
    task: Task, rows: pd.DataFrame, state: dict[str, Any], inputs: dict[str, Tensor]
) -> Iterator[Wrong]:
    """The first row and the one of nulls alone: served rows come alone."""
    for place in (0, len(rows) - 1):
        alone = task.to_tensors(rows.iloc[[place]].copy(), state)
        for name, tensor in inputs.items():
            single = alone.get(name)
            if single is None or single.shape != tensor[[place]].shape or single.dtype != tensor.dtype:
                yield f"{name} of one row alone has another form", FIXES["to_tensors"]
                return
            if not _close(single, tensor[[place]]):
                fix = "use what fit_preprocessing learned, and nothing that is computed from the rows at hand"
                yield f"{name} of a row changes with the other rows of its batch", fix
                return


def _build(task: Task, state: dict[str, Any], job: FunctionsJob) -> tuple[Any, str, list[Wrong]]:
    model = task.build_model(state, job.hyperparameters)
    if not isinstance(model, nn.Module):
        return None, "", [(f"gives {type(model).__name__}, not an nn.Module", FIXES["build_model"])]
    count = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    fix = "keep layers in attributes, nn.ModuleList or nn.ModuleDict: a plain list hides them"
    wrong = [] if count else [("no parameter can be trained", fix)]
    try:
        checkpoint_activations(model, job.training.activation_checkpointing if job.training else ())
    except TrainingError as error:
        wrong.append((error.problem, error.fix))
    return model, f"{count:,} parameters", wrong


def _forward(model: nn.Module, inputs: dict[str, Tensor], rows: int) -> tuple[Any, str, list[Wrong]]:
    model.train()
    outputs = model(inputs)
    if not isinstance(outputs, torch.Tensor) or outputs.ndim == 0 or len(outputs) != rows:
        shown = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        return None, "", [(f"{rows} rows became {shown}", FIXES["forward"])]
    wrong: list[Wrong] = []
    if not outputs.isfinite().all():
        wrong.append(("outputs are not finite", "look at divisions, logarithms and the scale of the inputs"))
    model.eval()
    with torch.no_grad():
        together = model(inputs)[:1]
        alone = model({name: tensor[:1] for name, tensor in inputs.items()})
    model.train()
    if alone.shape != together.shape:
        wrong.append((f"one row alone gives {tuple(alone.shape)}", "squeeze only the last dimension: squeeze(1)"))
    elif not _close(alone, together):
        wrong.append(("a row's output changes with the other rows of its batch", "keep rows apart in forward"))
    return outputs, f"outputs {tuple(outputs.shape)}", wrong


def _loss(
    task: Task, model: nn.Module, outputs: Tensor, targets: Tensor, uses_labels: bool, kind: Kind | None
) -> tuple[Any, str, list[Wrong]]:
    """`kind` is None where no row's own loss says where a descent leads."""
    loss = task.loss_fn(outputs, targets)
    if tuple(loss.shape) != (len(targets),):
        fix = "give one loss a row: reduction='none', and "
        fix += (
            "outputs of shape (N,)" if targets.ndim == 1 else "the mean over all but the rows: .flatten(1).mean(dim=1)"
        )
        return None, "", [(f"{len(targets)} rows became {tuple(loss.shape)}", fix)]
    wrong: list[Wrong] = []
    finite = bool(loss.isfinite().all())
    if not finite:
        wrong.append(("losses are not finite", "keep logarithms away from 0, for example by a loss with logits"))
    # Each row gets the label of the row before: of two labels in turn the other one.
    swapped = task.loss_fn(outputs, targets.roll(1, 0)).detach() if uses_labels else None
    if swapped is not None and finite and float(outputs.detach().std()) > 0 and _alike(loss.detach(), swapped):
        wrong.append(("the loss is the same for swapped targets", _LABELS))
    if not loss.requires_grad:
        fix = "do not detach, and compute with torch only, from the parameters to the loss"
        return None, "", [*wrong, ("the loss has no gradient", fix)]
    loss.mean().backward()
    reached, trained, bad = _gradients(model)
    if not reached:
        wrong.append(("no parameter gets a gradient", "let the outputs depend on the parameters"))
    if bad:
        wrong.append((f"the gradient of {bad[0]} is not finite", "look at divisions, roots and logarithms in forward"))
    leads = ""
    if kind is not None and not wrong:
        leads, away = _where_it_leads(task, kind, outputs.detach(), targets)
        wrong += away
    return (
        loss,
        f"mean {float(loss.detach().mean()):.3f}; {reached} of {trained} parameter tensors get a gradient{leads}",
        wrong,
    )


def _where_it_leads(task: Task, kind: Kind, outputs: Tensor, targets: Tensor) -> tuple[str, list[Wrong]]:
    """Whether that was found out, and what is wrong where answers get worse as the loss falls."""
    descent = descend(task.loss_fn, task.predict, kind, outputs, targets)
    if descent is None:
        # A predict that fails is told by its own trial.
        return "; where it leads was not found out", []
    return "", [(f"{descent}: {WRONG_WAY[0]}", WRONG_WAY[1])] if descent.worse else []


def _gradients(model: nn.Module) -> tuple[int, int, list[str]]:
    """How many parameter tensors have a gradient other than 0, how many there are, and which are not finite."""
    trained = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradients = {name: grad for name, grad in trained.items() if grad is not None}
    reached = sum(bool((grad != 0).any()) for grad in gradients.values())
    return reached, len(trained), [name for name, grad in gradients.items() if not grad.isfinite().all()]


def _predict(task: Task, outputs: Tensor, kind: Kind) -> tuple[Any, str, list[Wrong]]:
    predictions = task.predict(outputs.detach())
    try:
        answers, shape = kind.of_predict(as_array(predictions)), (len(outputs), *kind.answer_shape)
        if answers.shape != shape:
            return None, "", [(f"{len(outputs)} rows became {tuple(predictions.shape)}, not {shape}", kind.predict_fix)]
        kind.checked(kind.sample_labels(len(predictions)), answers)
        wrong = []
    except EvaluationError as error:
        wrong = [(f"{error.problem} (for example {error.value})", error.fix)]
    return predictions, f"{kind.answers} from {float(predictions.min()):.3f} to {float(predictions.max()):.3f}", wrong


def _alike(losses: Tensor, other_losses: Tensor) -> bool:
    """Equal for the size that they have: a loss in units of prices is some 1e-10 for labels from -1 to 1."""
    size = max(float(losses.abs().max()), 1e-300)
    return _close(losses.double() / size, other_losses.double() / size)


def _close(tensor: Tensor, other: Tensor) -> bool:
    return bool(torch.allclose(tensor.double(), other.double(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
