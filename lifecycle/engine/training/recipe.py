"""What a use case declares of its updates, made ready for the loop: model, optimizers, learning rate, augmentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from trainworthy.lifecycle.engine.training.state import Recipe
from trainworthy.lifecycle.engine.training.techniques.compiled import compile_updates
from trainworthy.lifecycle.engine.training.techniques.recompute import checkpoint_activations
from trainworthy.lifecycle.plan import learning_rate
from trainworthy.lifecycle.spec.training import OptimizerSpec, TrainingSpec
from trainworthy.lifecycle.task import Task


def make_model(
    task: Task, preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any], training: TrainingSpec
) -> torch.nn.Module:
    """The use case's model on the CPU, as it is trained. The caller has set the seed.

    Raises TrainingError if what is declared of its modules fits none.
    """
    model = task.build_model(preprocessing, hyperparameters)
    checkpoint_activations(model, training.activation_checkpointing)
    if training.compile:
        compile_updates(model)
    return model


def make_recipe(task: Task, training: TrainingSpec, horizon_steps: int) -> Recipe:
    """The recipe of a training of `horizon_steps` updates. What model.py does not define is as the YAML says."""
    return Recipe(
        loss_fn=task.loss_fn,
        learning_rate=make_learning_rate(task, training, horizon_steps),
        clip_norm=training.clip_norm,
        precision=training.precision,
        accumulate=training.accumulate,
        augment=getattr(task, "augment", None),
        focal_gamma=training.focal_gamma or 0.0,
        seed=training.seed,
    )


def make_learning_rate(task: Task, training: TrainingSpec, horizon_steps: int) -> Callable[[int], float]:
    """Rate of a step: model.py's own `learning_rate`, else the declared warm-up and decay."""
    own = getattr(task, "learning_rate", None)
    if own is None:
        return lambda step: learning_rate(step, horizon_steps, training)
    declared = training.model_dump(mode="json")
    return lambda step: float(own(step, horizon_steps, declared))


def make_optimizers(task: Task, model: torch.nn.Module, spec: OptimizerSpec) -> tuple[torch.optim.Optimizer, ...]:
    """model.py's own `build_optimizers`, else the declared one over the trainable parameters.

    Each parameter group keeps the ratio of its rate to the declared one, as `lr_scale`: the schedule moves all alike.
    """
    own = getattr(task, "build_optimizers", None)
    optimizers = tuple(own(model, spec.model_dump(mode="json"))) if own else (_declared(model, spec),)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr_scale"] = group["lr"] / spec.learning_rate
    return optimizers


def _declared(model: torch.nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if spec.name == "adamw":
        # One operation for all parameters: on a CPU 0.3 ms less an update of 82,000 numbers (benchmarks/loop.py).
        fused = all(map(_fits_fused, parameters)) or None
        return torch.optim.AdamW(parameters, lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=fused)
    # torch's fused SGD fails where a parameter gets its first gradient later than others (2.13).
    return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=0.9, weight_decay=spec.weight_decay)


def _fits_fused(parameter: torch.nn.Parameter) -> bool:
    """True if torch's fused AdamW can update it: on a CPU it takes a view with gaps for one without."""
    by_stride = sorted(range(parameter.dim()), key=parameter.stride, reverse=True)
    without_gaps = parameter.detach().permute(by_stride).is_contiguous()
    return without_gaps and parameter.is_floating_point() and parameter.device.type in ("cpu", "cuda")
