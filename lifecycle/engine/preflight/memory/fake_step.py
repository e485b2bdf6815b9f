"""A training step on fake tensors: shapes without storage, every byte counted.

FakeTensorMode runs the loop's own train_step without allocating. A dispatch mode above it sees each operation's
outputs and counts their storages until they are freed. So accumulation, autocast's cached casts, activation
checkpointing and several optimizers are counted as they happen: nothing of the network has to be known.

What scoring the validation split holds: a forward pass of many rows at once, without gradients.

It comes between updates with early stopping, and at the end of every stage: beside weights, gradients and optimizer
state. A network that trains on few rows at a time may hold most of all here.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.ranks.blocks import blocks_of, largest_share
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.engine.training.techniques.parts import average_of, move_average
from trainworthy.lifecycle.engine.training.techniques.recompute import checkpoint_activations, recomputed
from trainworthy.lifecycle.spec.training import Precision

# Two updates of 12 transformer layers are 8,000 operations and take 2 s; so many are a loop over values. Counted and
# not timed: how long an operation takes hangs on what else the machine does.
MOST_OPERATIONS = 60_000
# More accumulated parts hold no more than two do: the second already runs beside the gradients of the first.
TRACED_PARTS = 2


class TraceError(RuntimeError):
    """The step could not be followed without values."""


@dataclass(frozen=True)
class Timeline:
    """What a step of `rows` rows a part holds, in bytes.

    `held[i]` is held when `operations[i]` has made its outputs, and `inside[i]` how much more its kernel held
    meanwhile; only a real step shows it, its `calls` (call.py), and how much `more` was held since it was looked at
    (real_step.py). `before` is the most that was held before the step, at operation `before_at` of an earlier update:
    its name, and how many of that name ran before it. `kinds` are those of the peak; `state` are parameters, gradients,
    optimizer state and an average of the weights together, `trained` the bytes of the parameters that train, and
    `largest` those of the largest block that sharding leaves whole at a time (ranks/blocks.py). `values_read` counts
    how often model or loss asked for a value, which a fake tensor does not have. `blocks` are the modules that the
    trace itself put activation checkpointing around, as training.activation_checkpointing would name them.
    """

    rows: int
    operations: tuple[str, ...]
    held: tuple[int, ...]
    inside: tuple[int, ...] = ()
    calls: tuple[Any, ...] = ()
    more: tuple[int, ...] = ()
    before: int = 0
    before_at: tuple[str, int] | None = None
    kinds: dict[str, int] = field(default_factory=dict)
    state: int = 0
    parameters: int = 0
    trained: int = 0
    largest: int = 0
    values_read: int = 0
    blocks: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        return max(self.before, *self.levels)

    @property
    def levels(self) -> list[int]:
        """The most that is held in each operation, as if nobody looked on."""
        none = (0,) * len(self.held)
        parts = zip(self.held, self.inside or none, self.more or none, strict=True)
        return [held + inside - more for held, inside, more in parts]


def trace_step(
    subject: Subject,
    rows: int,
    *,
    accumulate: int,
    precision: Precision,
    blocks: bool = False,
    round_to: int = 1,
    updates: int = 2,
) -> Timeline:
    """The last of so many updates with `rows` rows a part, on fake tensors. Each storage is rounded up to `round_to`.

    `blocks`: with activation checkpointing around each repeated block. The training rows themselves are not counted.
    Tensors that the model keeps outside itself stay fake: memory.py calls this in a process apart.
    Raises TraceError if there are no blocks or too many operations, and what the model raises.
    """
    parts = min(TRACED_PARTS, accumulate)
    mode, counter = fake_counter(round_to)
    with mode:
        data = empty_rows(subject.training, rows * parts)
        with counter:
            model = subject.build()
            checkpoint_activations(model, subject.activation_checkpointing)
            around = repeated_blocks(model) if blocks else ()
            checkpoint_activations(model, around)
            state = TrainState(model, subject.optimizers(model), also=subject.also(model, precision))
            recipe = replace(subject.recipe, accumulate=parts, precision=precision, loss_fn=counter.watched(subject))
            counter.watch(model)
            before, before_at = 0, None
            for state.step in range(updates):
                before, before_at = counter.new_step()
                train_step(state, data, torch.arange(rows * parts), recipe)
                move_average(state)
            kinds, state_bytes = counter.kinds(state)
    return Timeline(
        rows=rows,
        operations=tuple(counter.operations),
        held=tuple(counter.held),
        before=before,
        before_at=before_at,
        kinds=kinds,
        state=state_bytes,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained=trained_bytes(model),
        largest=largest_bytes(model),
        values_read=counter.values_read,
        blocks=around,
    )


def trained_bytes(model: nn.Module) -> int:
    """Bytes of the parameters that train, and of their gradients."""
    return sum(
        parameter.numel() * parameter.element_size() for parameter in model.parameters() if parameter.requires_grad
    )


def largest_bytes(model: nn.Module) -> int:
    """Bytes of the largest block that sharding leaves whole at a time."""
    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return round(largest_share(model, blocks_of(model)) * held)


def fake_counter(round_to: int = 1) -> tuple[Any, Any]:
    """A mode in which tensors have no storage, and what counts their bytes within it."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # A module's deepcopy would copy the mode as well: its weights would be foreign tensors, counted at each use anew.
    vars(mode)["__deepcopy__"] = lambda memo: mode
    return mode, _counter(round_to)


def empty_rows(data: TrainData, rows: int) -> TrainData:
    """Rows of the same form; called within FakeTensorMode, they have no storage."""

    def like(tensor: Tensor) -> Tensor:
        return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype)

    weights = None if data.weights is None else like(data.weights)
    return TrainData({name: like(tensor) for name, tensor in data.inputs.items()}, like(data.targets), weights)


def repeated_blocks(model: nn.Module) -> tuple[str, ...]:
    """The outermost repeated blocks, equal modules in a row, as training.activation_checkpointing names them: blocks.*.

    Raises TraceError if there are none that are not checkpointed already.
    """
    patterns: list[str] = []
    within: set[nn.Module] = {part for wrapper in recomputed(model).values() for part in wrapper.module.modules()}
    for name, module in model.named_modules():
        children = list(module.children())
        repeated = isinstance(module, nn.ModuleList | nn.Sequential) and len({type(child) for child in children}) == 1
        if not repeated or len(children) < 2 or module in within or not any(True for _ in children[0].children()):
            continue
        patterns.append(f"{name}.*" if name else "*")
        within.update(part for child in children for part in child.modules())
    if not patterns:
        raise TraceError("the model has no repeated blocks")
    return tuple(patterns)


def _counter(round_to: int) -> Any:
    """The dispatch mode that counts; made in a function, since its base class needs torch."""

    class Counter(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.now, self.before, self.values_read = 0, 0, 0
            self.before_at: tuple[str, int] | None = None
            self.operations: list[str] = []
            self.held: list[int] = []
            # By id of the storage: bytes, the operation of this step that made it, None for earlier ones.
            self.alive: dict[int, tuple[int, int | None, weakref.ref[Any]]] = {}
            self.dead: list[tuple[int, int, int | None, int]] = []
            self.user, self.followed = True, 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                self.values_read += self.user
                return _value(args[0])
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self.see(leaf.untyped_storage())
            if func.namespace != "prim":
                # Questions such as a tensor's device, which real tensors answer themselves.
                self.operations.append(str(func))
                self.held.append(self.now)
            self.followed += 1
            if self.followed > MOST_OPERATIONS:
                raise TraceError(f"the step has more than {MOST_OPERATIONS:,} operations: too many to follow")
            return out

        def see(self, storage: torch.UntypedStorage) -> None:
            key = id(storage)
            if key in self.alive:
                return
            size = -(-storage.nbytes() // round_to) * round_to
            self.now += size
            self.alive[key] = (size, len(self.operations), weakref.ref(storage, lambda _: self.free(key)))

        def free(self, key: int) -> None:
            size, born, _ = self.alive.pop(key)
            self.now -= size
            self.dead.append((key, size, born, len(self.operations)))

        def new_step(self) -> tuple[int, tuple[str, int] | None]:
            """Begins a step's timeline. Returns the most that was held before it, and at which operation."""
            most = max(self.held, default=0)
            if most > self.before:
                at = self.held.index(most)
                name = self.operations[at]
                self.before, self.before_at = most, (name, self.operations[:at].count(name))
            self.before = max(self.before, self.now)
            for record in (self.operations, self.held, self.dead):
                record.clear()
            self.alive = {key: (size, None, ref) for key, (size, _, ref) in self.alive.items()}
            self.user = False
            return self.before, self.before_at

        def watch(self, model: nn.Module) -> None:
            """Values that the forward pass reads count from here on; the loop's and the optimizer's do not."""
            model.register_forward_pre_hook(lambda *_: setattr(self, "user", True))
            model.register_forward_hook(lambda *_: setattr(self, "user", False))

        def watched(self, subject: Subject) -> Any:
            def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
                self.user = True
                losses = subject.recipe.loss_fn(outputs, targets)
                self.user = False
                return losses

            return loss_fn

        def kinds(self, state: TrainState) -> tuple[dict[str, int], int]:
            """What is held at the step's peak, by kind; and the bytes of all that is kept from step to step."""
            peak = max(range(len(self.held)), key=self.held.__getitem__)
            known = _storages(state)
            names = ("parameters", "gradients", "optimizer", "activations")
            bytes_by_kind: dict[str, int] = dict.fromkeys((*names, *(("average",) if average_of(state) else ())), 0)
            there = [(key, size) for key, (size, born, _) in self.alive.items() if born is None or born <= peak]
            there += [(-1, size) for _, size, born, died in self.dead if (born is None or born <= peak) and died > peak]
            for key, size in there:
                bytes_by_kind[known.get(key, "activations")] += size
            return bytes_by_kind, sum(size for key, (size, _, _) in self.alive.items() if key in known)

    return Counter()


def _storages(state: TrainState) -> dict[int, str]:
    """Kind by id of storage, after an update."""
    kinds = {}
    for optimizer in state.optimizers:
        for values in optimizer.state.values():
            tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
            kinds.update({id(tensor.untyped_storage()): "optimizer" for tensor in tensors})
    for parameter in state.model.parameters():
        if parameter.grad is not None:
            kinds[id(parameter.grad.untyped_storage())] = "gradients"
    average = average_of(state)
    for tensor in () if average is None else average.weights.values():
        kinds[id(tensor.untyped_storage())] = "average"
    for tensor in (*state.model.parameters(), *state.model.buffers()):
        kinds[id(tensor.untyped_storage())] = "parameters"
    return kinds


def _value(tensor: Tensor) -> float | int | bool:
    """What a fake tensor answers when it is asked for its value: one, in the tensor's type."""
    if tensor.dtype == torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


def scoring_bytes(subject: Subject, timeline: Timeline) -> int:
    """The peak while a chunk of the validation split is scored, after the followed update; 0 if there is none.

    0 as well where the network asks for values that fake tensors do not have. Raises what the model raises.
    """
    scored = subject.scored
    if scored is None:
        return 0
    above = _above_the_model(subject, min(scored.rows, scored.chunk))
    # Early stopping scores the average in place of the weights, which are copied meanwhile.
    copied = timeline.kinds.get("average", 0) if scored.kept else 0
    return timeline.state + copied + above if above else 0


def _above_the_model(subject: Subject, rows: int) -> int:
    """Bytes that a forward pass in evaluation mode holds at its peak, its inputs among them."""
    mode, counter = fake_counter()
    with mode, counter, torch.no_grad():
        model = subject.build().eval()
        before = counter.now
        counter.new_step()
        outputs = model(empty_rows(subject.held_out, rows).inputs)
        if subject.predict is not None:
            subject.predict(outputs).double()
    return 0 if counter.values_read else max(counter.held, default=before) - before
