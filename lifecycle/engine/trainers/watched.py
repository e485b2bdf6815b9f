"""A model of a training by a script, and its watch: by what is told of each update, closer if its optimizer is told.

A script makes its own updates, so that an alarm can be told or end the training, and nothing else.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import parameters_finite
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.base import Base, named
from trainworthy.lifecycle.engine.training.monitors.causes import of_alarms
from trainworthy.lifecycle.engine.training.monitors.closer_look import CloserLook, CloserLooks
from trainworthy.lifecycle.engine.training.monitors.evidence import Context
from trainworthy.lifecycle.engine.training.monitors.feeding import RepeatedBatches
from trainworthy.lifecycle.engine.training.monitors.layers import NotOptimized
from trainworthy.lifecycle.engine.training.monitors.monitor import Finding, Monitor
from trainworthy.lifecycle.engine.training.monitors.non_finite import alarm_of, bad_names, bad_parameters, not_finite
from trainworthy.lifecycle.engine.training.monitors.recorder import Recorder
from trainworthy.lifecycle.engine.training.monitors.rows_and_replicas import left_out
from trainworthy.lifecycle.engine.training.monitors.watch import Watch
from trainworthy.lifecycle.engine.training.state import TrainState
from trainworthy.lifecycle.engine.training.watching.clock import Clock
from trainworthy.lifecycle.gates.monitor_words import severity_of, symptom_of
from trainworthy.lifecycle.memory_limit import device_limit_bytes
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.signals import SAMPLE_EVERY, Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm

# Layers that do another thing in evaluation mode.
MODAL = (_BatchNorm, _DropoutNd)
# Samples in a row that must show it.
CONFIRMED = 2
# Updates with neither a gradient nor a move. A scaler that begins at 65,536 leaves out 16 at the most until its scale
# is 1, and a script that tells its updates after zero_grad(), and of no scaler, has neither so long.
UPDATES = 17
# Shares that decay takes of two parameters, as read in float32 of a part of each.
DECAY_RATIO = 1.05


class ScriptLooks(CloserLooks):
    """`earlier` tells the weights of the look before, None before the first one."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.earlier: tuple[int, ...] | None = None

    def fingerprints(self, weights: np.ndarray) -> tuple[int, ...]:
        """Of each parameter, as far as it is looked at: few enough for a checkpoint."""
        # -0.0 is no other weight than 0.0.
        ends = [*self.starts[1:].tolist(), self.looked_at]
        parts = zip(self.starts.tolist(), ends, strict=True)
        return tuple(zlib.crc32((weights[start:end] + 0.0).tobytes()) for start, end in parts)

    def begin(self, state: TrainState) -> ScriptLook:
        return ScriptLook(self, state)


class ScriptLook(CloserLook):
    """Made when the update before was told; `weigh` is called when its own is, and `end` when the next one is."""

    def __init__(self, shared: ScriptLooks, state: TrainState) -> None:
        super().__init__(shared, state)
        self._looks = shared
        self._held_gradients: Tensor | None = None
        self._modes = set[bool]()

    @property
    def step(self) -> int:
        """Of the update that is looked at."""
        return self._step

    @property
    def weighed(self) -> bool:
        """True once the update was told."""
        return self._held_gradients is not None

    def weigh(self, step: int) -> None:
        """Weights and gradients as they are between backward and the update of `step`."""
        self.leave()
        self._step = step
        self._before, self._held_gradients = self._looks.some_weights(), self._looks.some_gradients()

    def _gradients(self) -> Tensor:
        # By now they are the next update's.
        assert self._held_gradients is not None
        return self._held_gradients

    def _other_facts(self, sums: np.ndarray) -> dict[str, Any]:
        # The order of rows is the script's own, and so is what its processes do.
        return {"left_out": left_out(self._state)}

    def _sample(self, read: np.ndarray, sums: np.ndarray) -> Sample:
        """Without what is trained by turns, or by an optimizer that was not told."""
        sample, looks = super()._sample(read, sums), self._looks
        before, after = read[: 2 * looks.looked_at].reshape(2, looks.looked_at)
        # At the first update nobody knows what moves later.
        earlier = looks.earlier or (None,) * len(sample.names)
        moved = [now != then for now, then in zip(looks.fingerprints(before), earlier, strict=True)]
        looks.earlier = looks.fingerprints(after)
        changed = {name for name, change in zip(sample.names, sample.changes, strict=True) if change}
        by_turns = {
            name for name, has_moved in zip(sample.names, moved, strict=True) if has_moved and name not in changed
        }
        left = tuple(name for name in sample.left_out if name not in changed | by_turns)
        # Told after its update and after zero_grad, its gradients are gone: of decay alone nothing else moves.
        gone = not bool(self._gradients().any()) and not _decays(sample)
        no_part = set(sample.names) if gone else by_turns | set(left)
        trainable = tuple(
            trains and name not in no_part for name, trains in zip(sample.names, sample.trainable, strict=True)
        )
        return replace(sample, left_out=left, trainable=trainable, evaluates=self._modes == {False})

    def _noting(self, name: str) -> Any:
        note, model = super()._noting(name), self._shared.model

        def noted(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if not torch.is_grad_enabled():
                return
            if module is model:
                self._modes.add(model.training)
            if model.training:
                note(module, inputs, output)

        return noted

    def _note_inputs(self, module: torch.nn.Module, inputs: Any) -> None:
        """Nothing: see _beside."""


class StaysInEvaluation(Base):
    """Updates of a model in evaluation mode that was in training mode before, in CONFIRMED samples in a row.

    One that begins in it is meant so: fine-tuning often does.
    """

    name = "evaluation_mode"
    kept: ClassVar = ("_trained", "_samples", "_since")

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._trained, self._samples, self._since = model.training, 0, 0
        self._layers = [name for name, module in model.named_modules() if isinstance(module, MODAL)]

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding where there is a layer to which the mode makes a difference."""
        self._samples = self._samples + 1 if sample.evaluates and self._layers else 0
        self._since = sample.step if self._samples == 1 else self._since
        if not self._trained or self._samples < CONFIRMED:
            return None
        return self.tell(
            sample.step, self._since, symptom_of("evaluation_mode"),
            f"in {CONFIRMED} samples from update {self._since} on the model was called in evaluation mode alone, and "
            f"in training mode at first; what differs by it: {named(self._layers)}",
            tuple(self._layers),
        )  # fmt: skip


class WithoutGradient:
    """How many updates in a row were told of a model of which no parameter had a gradient other than zero, and whose
    weights stayed bit for bit the same."""

    def __init__(self) -> None:
        self._weights: tuple[int, ...] = ()
        self._updates = self._since = 0
        # Weights that have moved without a gradient: the script tells its updates late. To read them all costs time.
        self._moves = False

    def after_update(self, model: torch.nn.Module, step: int) -> Finding | None:
        """A finding once UPDATES are made so: a script that tells its updates late has moved its weights by then."""
        if self._moves:
            return None
        now = tuple(
            _bits(parameter) for parameter in model.parameters() if parameter.requires_grad and parameter.numel()
        )
        if now != self._weights:
            self._moves = self._moves or bool(self._weights)
            self._weights, self._updates, self._since = now, 0, step
            return None
        self._updates += 1
        if not now or self._updates != UPDATES:
            return None
        evidence = (
            f"at {UPDATES + 1} updates in a row, from update {self._since} on, none of {len(now)} trainable parameters "
            "had a gradient other than zero, and all weights stayed bit for bit the same"
        )
        name = "no_gradient_at_all"
        return Finding(name, severity_of(name), step, self._since, symptom_of(name), evidence)

    def has_gradient(self) -> None:
        """The update that comes has one."""
        self._weights = ()


def _decays(sample: Sample) -> bool:
    """True if all weights that have changed did so by the same share, or none has."""
    shares = [change / norm for change, norm in zip(sample.changes, sample.norms, strict=True) if change and norm]
    return not shares or max(shares) <= DECAY_RATIO * min(shares)


def _bits(weights: Tensor) -> int:
    """The sum of its numbers' bits, read as whole numbers: other weights have another one, but for chance."""
    flat = torch.view_as_real(weights) if weights.is_complex() else weights
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return int(flat.detach().contiguous().view(kind).sum(dtype=torch.int64))


class InNoOptimizer(Base):
    """Trainable parameters that stand still, and that none of the optimizers has which the script has told.

    It may have others, or mean it so: a warning, but where nothing of the model moves.
    """

    name = "not_in_optimizer"

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """A finding at once."""
        if not sample.left_out:
            return None
        return self.tell(
            sample.step, sample.step,
            "no optimizer that was told has trainable parameters, and they stand still",
            f"{len(sample.left_out)} of {len(sample.names)} parameters at update {sample.step}: "
            f"{named(sample.left_out)}",
            sample.left_out, milder=any(sample.changes),
        )  # fmt: skip


ENDED = "the training ended there, without a model"


class WatchedModel:
    """One model, made when its first update is told. `state` holds what is known of its training."""

    def __init__(
        self, model: torch.nn.Module, job: TrainJob, plan: Plan, clock: Clock, step: int, recorder: Recorder
    ) -> None:
        self.state = TrainState(model, (), step=step, clock=clock)
        self._looks = ScriptLooks(model)
        self._look: ScriptLook | None = None
        # Nothing takes a script's weights back.
        self.watch = Watch(
            model, job.training.monitors, _monitors(self.state, plan, job.frozen), plan.last_step, recorder,
            looks=self._looks, follows=ENDED,
        )  # fmt: skip
        # Held, so that no other one gets its id.
        self._weights = list(model.parameters())
        # Updates of this model that were told.
        self._updates_told = 0

    @property
    def knows_optimizer(self) -> bool:
        """True if updates could be looked at closer."""
        return bool(self.state.optimizers)

    def is_of(self, model: torch.nn.Module) -> bool:
        """True if the model has the very parameters that it had when this was made: a part of it may be made anew."""
        now = list(model.parameters())
        return len(now) == len(self._weights) and all(map(operator.is_, now, self._weights))

    def leave(self) -> None:
        """Look at nothing more."""
        if self._look is not None:
            self._look.leave()

    def look_back(self) -> Alarm | None:
        """The alarm that ends the training by the closer look at the update before, which is made by now."""
        look = self._look
        if look is None or not look.weighed or not self.watch.has_judged:
            return None
        self._look, self.state.step = None, look.step
        self.watch.sampled(self.state, look.end())
        return self.watch.ended

    def weigh(self, step: int, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """The update of `step` comes next, by these optimizers, as far as they are told."""
        self._know(optimizers)
        if not self._updates_told and optimizers:
            # The first one, without activations: its forward pass is over.
            self._look = self._looks.begin(self.state)
        if self._look is not None and optimizers:
            self._look.weigh(step)

    def _know(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Keep those of this update, and what was told before of the model's other parameters.

        A script may make one anew each epoch, and what it holds is twice as large as the model.
        """
        before = self.state.optimizers
        if all(any(optimizer is known for known in before) for optimizer in optimizers):
            return
        kept, unheld = list(optimizers), set(map(id, self._weights)) - _held_by(optimizers)
        for optimizer in reversed(before):
            if mine := unheld & _held_by([optimizer]):
                kept.append(optimizer)
                unheld -= mine
        self.state.optimizers = tuple(kept)

    def judge(self, signals: Signals) -> Alarm | None:
        """The alarm that ends the training at this update, if one does. Loss and gradients are finite."""
        self.state.step = signals.step
        self.watch.judge(self.state, signals)
        return self.watch.ended

    def look_at_next(self) -> None:
        """An update was told: look closer at the model's next one, if it is its turn."""
        self._updates_told += 1
        if self._look is not None and not self._look.weighed:
            # Of its update too little was told.
            self._look.leave()
            self._look = None
        if self._updates_told % SAMPLE_EVERY == 0 and self.state.optimizers:
            # By its own count another part of many layers comes each time.
            self.state.step = self._updates_told
            self._look = self._looks.begin(self.state)

    def fingerprints(self) -> list[int]:
        """Of the weights as they are now."""
        return list(self._looks.fingerprints(self._looks.some_weights().double().cpu().numpy()))

    def go_on_from(self, before: WatchedModel) -> None:
        """Take over what is known of the same model with other parameters."""
        self.watch.go_on_from(before.watch)

    def state_dict(self) -> dict[str, Any]:
        own = {
            "parameters": list(self.watch.parameters), "told": self._updates_told, "earlier": self._looks.earlier,
            "weights": self.fingerprints(),
        }  # fmt: skip
        return {**self.watch.state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """An earlier version's checkpoint may lack what this one has."""
        self.watch.load_state_dict(state)
        earlier = state.get("earlier")
        self._updates_told, self._looks.earlier = state.get("told", 0), None if earlier is None else tuple(earlier)


def _held_by(optimizers: Sequence[torch.optim.Optimizer]) -> set[int]:
    """Ids of their parameters."""
    return {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}


def _monitors(state: TrainState, plan: Plan, frozen: tuple[str, ...]) -> tuple[Monitor, ...]:
    """Those that go by what a script tells: the order of its rows and all of its optimizers are its own."""
    ours = (RepeatedBatches, NotOptimized)
    device = next((str(parameter.device) for parameter in state.parameters), "cpu")
    every = all_monitors(state, plan, frozen=frozen, memory_limit_bytes=device_limit_bytes(device))
    return (
        *(monitor for monitor in every if not isinstance(monitor, ours)),
        InNoOptimizer(),
        StaysInEvaluation(state.model),
    )


def spoiled_parameters(model: torch.nn.Module) -> list[str]:
    """Names of the parameters that are not finite."""
    return [] if parameters_finite(model) else bad_names(model.named_parameters())


def spoiled(step: int, onset: int, names: Sequence[str]) -> Alarm:
    """The alarm for weights of a model of which no update was seen."""
    return alarm_of(bad_parameters(step, onset, names, ENDED))


def hang_alarm(finding: Finding, before: Sequence[Alarm]) -> Alarm:
    """The alarm for what the heartbeat has found; the script went on all the same."""
    return alarm_of(finding, of_alarms(before)).model_copy(update={"severity": finding.severity, "action": "warn"})


def not_finite_alarm(
    step: int, loss: float | None, norm: float | None, before: Sequence[Alarm], bad_inputs: bool | None
) -> Alarm:
    """The alarm for an update that was told with a loss, or of whose gradient a norm was seen, that is not finite.

    `before` are earlier ones, `bad_inputs` says whether a row of the update has inputs that are not finite.
    """
    reported = {"loss": loss, "gradient norm": norm}
    finding = not_finite(step, 0.0 if loss is None else loss, 0.0 if norm is None else norm)
    alarm = alarm_of(finding, of_alarms(before), Context(bad_inputs=bad_inputs))
    figures = ", ".join(f"{name} {value}" for name, value in reported.items() if value is not None)
    return alarm.model_copy(update={"evidence": f"step {step}: {figures}; {ENDED}"})
