"""The weights, gradients and optimizer states of one training divided over its ranks (FSDP2).

Each rank holds a part of every parameter. A block's weights are whole in each rank while it computes, so that every
pass is one that all ranks make together. What the first does alone with a whole replica, it asks the others to help
with: they wait for its next order or verdict, and make the same pass (LOOK), give their parts of the state (GATHER),
take new ones (TAKE) or say whose are not finite (FINITE).

Whole states are plain tensors in the first's host memory, by the names and numbers that one process has: a checkpoint
is the same file, whoever made it.
"""

from __future__ import annotations

import copy
import ctypes
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils._pytree import tree_map

from trainworthy.lifecycle.engine.training.random_state import undisturbed
from trainworthy.lifecycle.engine.training.ranks.blocks import blocks_of, largest_share
from trainworthy.lifecycle.engine.training.ranks.orders import FINITE, GATHER, LOOK, TAKE, Messages
from trainworthy.lifecycle.errors import TrainingError

# Codes of errors: what of a network or its optimizers cannot be divided.
NOT_SHARDED, USED_OUTSIDE = "not_sharded", "used_outside"
REPLICAS = "remove compute.sharding: fsdp, so that each process has a whole replica"
# As in malloc.h. Two processes of 18 million weights held 940 MB each without it, 118 MB of them tensors.
_M_MMAP_THRESHOLD, _SMALL_BYTES = -3, 2**20
# What `GATHER` asks for.
_WEIGHTS, _ALL = 0, 1


class Shards:
    """This rank's part of a model that it has divided with the others. `joined` makes it known to them.

    `told` says how the model is divided.
    """

    def __init__(self, ranks: Messages, model: nn.Module, device: str) -> None:
        """Divide the model, which is whole on the host and then on the device in parts. Raises TrainingError."""
        _refuse(model)
        if device == "cpu":
            _give_back_freed_blocks()
        self._ranks, self.model = ranks, model
        for tensor in model.state_dict().values():
            distributed.broadcast(tensor, src=0)
        mesh = init_device_mesh(device, (ranks.size,))
        blocks = blocks_of(model)
        whole = 100 * largest_share(model, blocks)
        self.told = (
            f"weights, gradients and optimizer states are divided over {ranks.size} processes (FSDP2), in "
            f"{len(blocks)} blocks and the rest; at most {whole:.0f} % of the weights are whole at a time"
        )
        for module in (*blocks, model):
            try:
                # The model itself as well: what evaluates it makes no backward pass, after which it would be divided.
                fully_shard(module, mesh=mesh, reshard_after_forward=True, shard_placement_fn=self._dimension)
            except (NotImplementedError, ValueError) as error:
                raise TrainingError(f"the model cannot be sharded: {error}", fix=REPLICAS, code=NOT_SHARDED) from error
            module.register_forward_pre_hook(self._passes, prepend=True)
        model.register_forward_pre_hook(self._ask_for_a_pass, prepend=True)
        model.register_forward_hook(self._passed)
        self._parameters = list(model.parameters())
        self._buffers = list(model.buffers())
        self._optimizers: Sequence[torch.optim.Optimizer] = ()
        self._idle: list[nn.Parameter] = []
        self._together, self._last = False, False

    def _dimension(self, parameter: nn.Parameter) -> Shard | None:
        """Another one than the first where that has fewer rows than there are ranks, if it divides evenly."""
        size = self._ranks.size
        even = (number for number, length in enumerate(parameter.shape) if length % size == 0)
        number = next(even, None) if parameter.shape[0] < size else None
        return None if number is None else Shard(number)

    def join(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """What moves the parameters, which the first may ask for from here on. Raises TrainingError."""
        self._optimizers = optimizers
        own = {id(parameter) for parameter in self._parameters}
        if any(
            id(p) not in own for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]
        ):
            raise TrainingError(
                "an optimizer moves a parameter that is none of the model's, which sharding does not know",
                fix=f"register it in the model, or {REPLICAS}",
                code=NOT_SHARDED,
            )

    def begin(self, without_gradient: Sequence[nn.Parameter]) -> None:
        """Updates come next; these parameters got no gradient in a pass that all made of the same rows."""
        self._idle = list(without_gradient)
        assert isinstance(self.model, FSDPModule)
        # A parameter that only some ranks' rows reach has a gradient of zeros in the others, or they would wait for it.
        self.model.set_reduce_scatter_unused_params(True)

    @contextmanager
    def together(self, *, last: bool = True) -> Iterator[None]:
        """Inside, all ranks make the same passes by themselves; `last`: no forward pass follows before the update."""
        self._together, self._last = True, last
        try:
            yield
        except RuntimeError as error:
            if "mixed torch.Tensor and DTensor" not in str(error):
                raise
            raise TrainingError(
                "weights are used outside of the forward pass of the module that holds them, where they are divided",
                value=str(error)[:200],
                fix=f"call members of lists and sequences as modules, and not their weights or methods; or {REPLICAS}",
                code=USED_OUTSIDE,
            ) from None
        finally:
            self._together = False

    def share_buffers(self) -> None:
        """The first's buffers, in each rank: a codebook that is learned in one may be read by the next pass."""
        for buffer in self._buffers:
            distributed.broadcast(buffer, src=0)

    def drop_idle(self) -> None:
        """No gradient where no rank has one: one of zeros would let weight decay move what is not trained."""
        idle = [(parameter, gradient) for parameter in self._idle if (gradient := parameter.grad) is not None]
        if not idle:
            return
        reached = torch.tensor([float(bool(local(gradient).any())) for _, gradient in idle])
        distributed.all_reduce(reached)
        for (parameter, _), of_ranks in zip(idle, reached.tolist(), strict=True):
            if not of_ranks:
                parameter.grad = None

    def local(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """This rank's part of each."""
        return [local(tensor) for tensor in tensors]

    def norms(self, parts: list[Tensor]) -> list[Tensor]:
        """In the first rank the norm of each whole gradient, `()`, float64, by those of the ranks' parts of them."""
        squares = torch.stack(parts).double().square()
        every = [torch.empty_like(squares) for _ in range(self._ranks.size)] if self._ranks.first else None
        distributed.gather(squares, every, dst=0)
        # Added in the order of the ranks, so that a resumed training has the same bits.
        return parts if every is None else list(torch.stack(every).sum(0).sqrt().unbind())

    def clip(self, most: float, norm: Tensor) -> None:
        """As torch's clip_grads_with_norm_, on this rank's parts: its operation takes no DTensors on CUDA."""
        gradients = [local(gradient) for parameter in self._parameters if (gradient := parameter.grad) is not None]
        share = torch.clamp(most / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, share)  # pyright: ignore[reportPrivateImportUsage]

    def weights(self) -> dict[str, Tensor]:
        """The whole model's state dict on the host. The first's to ask for."""
        self._ranks.ask(GATHER, _WEIGHTS)
        return self._gathered(_WEIGHTS)[0]

    def states(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Those of the whole model and of its optimizers, on the host. The first's to ask for."""
        self._ranks.ask(GATHER, _ALL)
        weights, *optimizers = self._gathered(_ALL)
        return weights, optimizers

    def take(self, weights: Mapping[str, Tensor], optimizers: Sequence[Mapping[str, Any]]) -> None:
        """Let each rank have its part of whole states. The first's to ask for."""
        self._ranks.ask(TAKE)
        self._take([weights, *optimizers])

    def not_finite(self) -> list[str]:
        """Names of the parameters that are not finite in any rank. The first's to ask for."""
        self._ranks.ask(FINITE)
        return self._not_finite()

    def help(self, kind: int, what: int) -> None:
        """Do this rank's part of what the first asks for."""
        helps: dict[int, Callable[[], object]] = {
            LOOK: lambda: self._look(bool(what)),
            GATHER: lambda: self._gathered(what),
            TAKE: lambda: self._take(None),
            FINITE: self._not_finite,
        }
        helps[kind]()

    def _passes(self, module: nn.Module, inputs: Any) -> None:
        # Before the block's weights are gathered: who waits for them is further on than who hangs before.
        self._ranks.place.on()

    def _ask_for_a_pass(self, module: nn.Module, inputs: Any) -> None:
        if self._ranks.first and not self._together:
            self._ranks.ask(LOOK, int(module.training))
            content = io.BytesIO()
            torch.save(dict(inputs[0]), content)
            self._ranks.share_content(content.getvalue())

    def _passed(self, *arguments: Any) -> None:
        if self._together and self._last and torch.is_grad_enabled():
            self._ranks.backward_begins()

    def _look(self, training: bool) -> None:
        content = io.BytesIO(self._ranks.share_content(b""))
        device = self._parameters[0].device
        inputs = torch.load(content, weights_only=True, map_location=device)
        # What it raises the first meets as well, and tells it or does without: it knows what it has asked for.
        with suppress(Exception), undisturbed(self.model), torch.no_grad():
            self.model.train(training)(inputs)

    def _gathered(self, what: int) -> list[Any]:
        """Whole state dicts on the first's host; in other ranks what is left when parts are dropped."""
        names = dict(self.model.named_parameters(remove_duplicate=False))
        held, weights = self.model.state_dict(), {}
        gathered = copy.copy(held)
        for name, tensor in held.items():
            # Tied weights have two names, and are one tensor in the file, too.
            key = id(names[name]) if name in names else name
            if key not in weights:
                weights[key] = self._whole(tensor)
            gathered[name] = weights[key]
        optimizers = self._optimizers if what == _ALL else ()
        return [gathered, *(tree_map(self._whole, optimizer.state_dict()) for optimizer in optimizers)]

    def _whole(self, value: Any) -> Any:
        if isinstance(value, DTensor):
            whole = value.full_tensor()
            return whole.cpu() if self._ranks.first else None
        return value.detach().cpu().clone() if isinstance(value, Tensor) else value

    def _take(self, held: list[Any] | None) -> None:
        """The first's whole states, one tensor at a time in parts to all ranks; what is not divided goes as it is."""
        whole: list[Tensor] = []

        def set_aside(tensor: Tensor, target: DTensor) -> Tensor:
            whole.append(tensor)
            return tensor.to("meta")

        content = io.BytesIO()
        if held is not None:
            torch.save(self._mapped(held, set_aside), content)
        skeleton = torch.load(io.BytesIO(self._ranks.share_content(content.getvalue())), weights_only=True)
        given = iter(whole)

        def part(tensor: Tensor, target: DTensor) -> Tensor:
            full = next(given, torch.empty(tensor.shape, dtype=tensor.dtype)).to(target.device).contiguous()
            return distribute_tensor(full, target.device_mesh, target.placements, src_data_rank=0)

        weights, *optimizers = self._mapped(skeleton, part)
        self.model.load_state_dict(weights)
        for optimizer, state in zip(self._optimizers, optimizers, strict=True):
            optimizer.load_state_dict(state)

    def _mapped(self, states: Sequence[Any], made: Callable[[Tensor, DTensor], Tensor]) -> list[Any]:
        """State dicts of the model and its optimizers with something made of each tensor that is divided here.

        Of an optimizer's those are as large as their parameter.
        """
        divided = {name: tensor for name, tensor in self.model.state_dict().items() if isinstance(tensor, DTensor)}
        # A state dict has versions of its modules beside it.
        weights = copy.copy(states[0])
        for name, tensor in weights.items():
            weights[name] = made(tensor, divided[name]) if name in divided else tensor
        return [weights, *map(partial(_of_optimizer, made), self._optimizers, states[1:])]

    def _not_finite(self) -> list[str]:
        named = [(name, p) for name, p in self.model.named_parameters() if p.is_floating_point() and p.numel()]
        found = torch.tensor([float(not local(parameter).isfinite().all()) for _, parameter in named])
        distributed.all_reduce(found)
        return [name for (name, _), ranks in zip(named, found.tolist(), strict=True) if ranks]


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a divided tensor, which shares its memory; any other as it is."""
    return cast("DTensor", tensor.detach()).to_local() if isinstance(tensor, DTensor) else tensor


def _give_back_freed_blocks() -> None:
    """Let glibc give back what is freed of whole blocks. Once one was freed it keeps the next ones, of up to 32 MB."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _SMALL_BYTES)


def _refuse(model: nn.Module) -> None:
    scalars = [name for name, parameter in model.named_parameters() if not parameter.dim()]
    if scalars:
        raise TrainingError(
            "a parameter without dimensions cannot be sharded",
            value=", ".join(scalars),
            fix=f"give it one, of one element: torch.ones(1); or {REPLICAS}",
            code=NOT_SHARDED,
        )


def _of_optimizer(
    made: Callable[[Tensor, DTensor], Tensor], optimizer: torch.optim.Optimizer, state: Mapping[str, Any]
) -> dict[str, Any]:
    """A state dict of this optimizer; parameters are numbered through its groups."""
    parameters: list[Any] = list(dict.fromkeys(p for group in optimizer.param_groups for p in group["params"]))
    of_parameters = {
        number: {
            key: made(value, parameters[number])
            if isinstance(value, Tensor) and value.shape == parameters[number].shape
            else value
            for key, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": of_parameters}
