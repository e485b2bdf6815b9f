"""Exchanges that put a plain network in the place of a training's own: on its tensors, and on columns as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from trainworthy.lifecycle.engine.substitution.answer_loss import NUMBERS, answers_of, label_scale, output_loss
from trainworthy.lifecycle.engine.substitution.plain_network import Input, PlainNetwork, described
from trainworthy.lifecycle.engine.substitution.plain_places import (
    PlaceInputs,
    PlainPlaces,
    described_places,
    tells_target,
)
from trainworthy.lifecycle.engine.substitution.setup import (
    FEW_ROWS,
    SOME_ROWS,
    Exchanged,
    NotExchangedError,
    Setup,
    fresh,
)
from trainworthy.lifecycle.engine.training.judging.places import Layout, channels_of
from trainworthy.lifecycle.engine.training.recipe import make_optimizers
from trainworthy.lifecycle.protocol.training_figures import Part
from trainworthy.lifecycle.sampling import evenly_spaced
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.encoding import Encoding, fit_encoding
from trainworthy.lifecycle.tasks.labels import labels_of

# The key of a fitted state under which a plain network's inputs are described.
_INPUTS = "plain_network"


def network(setup: Setup, device: str) -> Exchanged:
    """A plain network on the same tensors with the kind's own loss: flattened, or place by place where answers are.

    It takes numbers as they are: one that standardized them would mend what to_tensors did wrong, too.
    """
    task, fit, places = setup.task, setup.task.fit_preprocessing, _places(setup, device)
    # What Trainworthy adds to the state, which to_tensors may read.
    target = setup.kind.target_state(labels_of(setup.job.rows, setup.folds[0].training))

    def fitted(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        state = dict(fit(training, hyperparameters))
        few = training.iloc[evenly_spaced(len(training), SOME_ROWS)]
        some = task.to_tensors(few, state | {"target": target})
        return state | {_INPUTS: places.described(some, standardized=False)}

    plain, contains = _plain(setup, places, fit_preprocessing=fitted)
    return Exchanged(plain, places.told, contains)


def inputs(setup: Setup, device: str) -> Exchanged:
    """The plain network on the columns as they are: standardized numbers, categories, files as numbers or pictures,
    texts as bytes."""
    encodings: list[Encoding] = []
    (fold, *_), columns = setup.folds, list(setup.job.rows.features)
    labels = labels_of(setup.job.rows, fold.training)
    of_places, place_inputs = setup.kind.fit_place_inputs(fold.training, columns, labels)
    # Numbers of a whole text would tell what comes.
    others = [name for name in columns if name not in of_places]
    # What stands at a place of the columns is never what is to be answered there.
    places = _Places(_size(setup, device), ())

    def fitted(training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        encodings[:] = [fit_encoding(training, others)] if others else []
        some = training.iloc[evenly_spaced(len(training), SOME_ROWS)] if places.size else training
        of_columns = at_places(some)
        # Their grid has its own proportions, whatever those of the masks are.
        known: dict[str, Layout] = {name: "none" if held.dim() == 2 else "first" for name, held in of_columns.items()}
        return {_INPUTS: places.described(tensors(some, {}), known, standardized=True)}

    def at_places(rows: pd.DataFrame) -> dict[str, Tensor]:
        return {f"places of {name}": torch.from_numpy(values) for name, values in place_inputs(rows).items()}

    def tensors(rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, Tensor]:
        known: dict[str, Tensor] = {}
        for encoding in encodings:
            numbers, codes = encoding.encode(rows)
            known |= {
                "numbers": torch.from_numpy(numbers).float(),
                "missing": torch.from_numpy(np.isnan(numbers)).float(),
                "categories": torch.from_numpy(codes),
            }
        known |= at_places(rows)
        return {name: tensor for name, tensor in known.items() if tensor.numel()}

    # What an augmentation changes are the tensors of to_tensors: it goes with them.
    plain, contains = _plain(setup, places, fit_preprocessing=fitted, to_tensors=tensors, augment=None)
    augmentation: tuple[Part, ...] = ("regularization",) if hasattr(setup.task, "augment") else ()
    return Exchanged(plain, "columns as they are", ("network", *contains, *augmentation))


class _Places(NamedTuple):
    """The places of an answer, () where it has none, and the inputs whose own place tells its target."""

    size: tuple[int, ...]
    late: tuple[str, ...]

    @property
    def told(self) -> str:
        if not self.size:
            return "two hidden layers on flattened inputs"
        return "two hidden layers of convolutions" if len(self.size) > 1 else "two hidden layers on the bytes before"

    def described(
        self, some: Mapping[str, Tensor], known: Mapping[str, Layout] | None = None, *, standardized: bool
    ) -> dict[str, Any]:
        """What build needs to know of tensors like these, as JSON has it; of those `known` the places are given."""
        if self.size:
            return described_places(some, self.size, self.late, known or {}, standardized=standardized).state()
        return {name: spec._asdict() for name, spec in described(some, standardized=standardized).items()}

    def build(self, kind: Kind, preprocessing: Mapping[str, Any]) -> nn.Module:
        """The plain network of inputs that were described."""
        state = preprocessing[_INPUTS]
        if self.size:
            return PlainPlaces(PlaceInputs.of_state(state), kind, self.size)
        return PlainNetwork(
            {name: Input(**spec) for name, spec in state.items()}, kind, preprocessing.get("target", {})
        )


def _size(setup: Setup, device: str) -> tuple[int, ...]:
    """The places of a row's target, where the kind answers at places."""
    return tuple(fresh(setup, FEW_ROWS, device)[1].targets.shape[1:]) if len(setup.kind.answer_shape) > 1 else ()


def _places(setup: Setup, device: str) -> _Places:
    """Those of the training's own tensors. Raises NotExchangedError where none of them has the answers' places."""
    if len(setup.kind.answer_shape) < 2:
        return _Places((), ())
    some = fresh(setup, FEW_ROWS, device)[1]
    size = tuple(some.targets.shape[1:])
    found = {name: tensor for name, tensor in some.inputs.items() if channels_of(tensor, size) is not None}
    if not found:
        shape = " x ".join(map(str, size))
        reason = f"no input of to_tensors has the {shape} places of an answer, so that no plain network can take it"
        raise NotExchangedError("not_exchangeable", reason)
    codes = {name: tensor for name, tensor in found.items() if tensor.dim() == 2 and not tensor.is_floating_point()}
    return _Places(size, tuple(name for name, tensor in codes.items() if tells_target(tensor, some.targets)))


def _plain(setup: Setup, places: _Places, **functions: Callable[..., Any] | None) -> tuple[Setup, tuple[Part, ...]]:
    """With a plain network and the kind's own loss; and the parts that are exchanged with the network.

    model.py's own optimizers may name parts of its own network: then the declared one takes their place.
    """
    kind, levels = setup.kind, setup.job.rows.target.quantiles
    labels = labels_of(setup.job.rows, setup.folds[0].training)
    scale = label_scale(labels) if kind.loss in NUMBERS else 1.0
    exchanged = setup.with_functions(
        build_model=lambda preprocessing, hyperparameters: places.build(kind, preprocessing),
        loss_fn=output_loss(kind, levels, scale), predict=lambda outputs: answers_of(kind, outputs), **functions,
    )  # fmt: skip
    exchanged = exchanged.with_training(activation_checkpointing=(), focal_gamma=None)
    if not hasattr(setup.task, "build_optimizers"):
        return exchanged, ("loss",)
    try:
        make_optimizers(exchanged.task, fresh(exchanged, SOME_ROWS, "cpu")[0], setup.training.optimizer)
    except Exception:
        return exchanged.with_functions(build_optimizers=None), ("loss", "recipe")
    return exchanged, ("loss",)
