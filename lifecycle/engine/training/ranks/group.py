"""This process among those that train one model together, and what they tell each other.

The first rank decides and the others follow: it alone has monitors, hooks, checkpoints and the clock, so that ranks
never have to agree. An update is four messages: the first's order, the gradients (by DistributedDataParallel, or in
shards, while the backward pass still runs), every row's loss to the first, and its verdict whether the update is
applied. Where a rank is stands in its place file, so that a hang has a name.

Who waits for an order or a verdict may be asked for help in between, where the weights are sharded (shards.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from trainworthy.lifecycle.engine.training.ranks.orders import LOOK, RESTART, VERDICT
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.protocol.ranks import PHASES, Phase
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.storage.rank_files import PlaceFile

if TYPE_CHECKING:
    from trainworthy.lifecycle.engine.training.ranks.shards import Shards

# Codes of errors: ranks would train different things; a branch of the network was left out.
RANKS_DIFFER, NOT_REACHED = "ranks_differ", "not_reached"
# A verdict's norm where gradients are not clipped.
NOT_CLIPPED = -1.0


class Order(NamedTuple):
    """What comes next: its kind, the update it is of, and the learning rate of each parameter group."""

    kind: int
    step: int
    rates: tuple[float, ...]


class Verdict(NamedTuple):
    """Of an update: is it applied, was its gradient finite, and the norm that it is clipped by (None if it is not)."""

    applied: bool
    finite: bool
    norm: float | None


def clipping(norm: float | None, device: torch.device) -> Tensor | None:
    """What gradients are clipped by, the same bits in each rank, whatever type the first computed it in."""
    return None if norm is None else torch.tensor(norm, dtype=torch.float32, device=device)


class Ranks:
    """This rank of `size`, 0 the first. `asked` says that this process was asked to end; `here` are those of a machine.

    `rows` are those of an update over all ranks, and `replica` is what the forward pass goes through; both are known
    from `join` on. `shards` divide the model, None where each rank has a whole replica.
    """

    def __init__(
        self, out: Path, rank: int, size: int, asked: Callable[[], bool] = lambda: False, here: int | None = None
    ) -> None:  # fmt: skip
        self.out, self.rank, self.size = out, rank, size
        self._on_first_machine = 0 < rank < (here or size)
        self.place = PlaceFile(out, rank)
        self.rows = 0
        self._asked, self._other_asked = asked, False
        self._groups = 0
        self._group: Any = None
        self._replica: DistributedDataParallel | None = None
        self.shards: Shards | None = None
        self._outside_model: list[torch.nn.Parameter] = []

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def replica(self) -> torch.nn.Module:
        if self.shards is not None:
            return self.shards.model
        assert self._replica is not None
        return self._replica

    def asked(self) -> bool:
        """True once any rank was asked to end; the first knows of the others after an update."""
        return self._other_asked or self._asked()

    def share(self, rows: Tensor) -> Tensor:
        """This rank's part of an update's rows: contiguous, and of equal size but for one row."""
        return rows.tensor_split(self.size)[self.rank]

    def join(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], rows: int, *, unused: bool
    ) -> None:
        """Train this model with the other ranks, whose weights are the first's from here on.

        `unused`: some parameters get no gradient in an update. Raises TrainingError if ranks would be without rows.
        """
        self._count(optimizers, rows)
        # What optimizers move beside the model is a parameter of the loss, which no forward pass reaches.
        own = {id(parameter) for parameter in model.parameters()}
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self._outside_model = [
            parameter for group in groups for parameter in group["params"] if id(parameter) not in own
        ]
        for parameter in self._outside_model:
            distributed.broadcast(parameter.data, src=0)
        # Before each forward pass the first's buffers go to all: a codebook that is learned in one may be read there.
        self._replica = DistributedDataParallel(model, find_unused_parameters=unused)
        self._replica.register_forward_hook(lambda *arguments: self.backward_begins())

    def join_shards(self, shards: Shards, optimizers: Sequence[torch.optim.Optimizer], rows: int) -> None:
        """Train the model that is divided so with the other ranks. Raises TrainingError as `join`."""
        self._count(optimizers, rows)
        shards.join(optimizers)
        self.shards = shards

    def _count(self, optimizers: Sequence[torch.optim.Optimizer], rows: int) -> None:
        if rows < self.size:
            raise TrainingError(
                "an update has fewer rows than there are processes",
                value=f"{rows} rows for {self.size} processes",
                fix="raise training.batch_size, or lower compute.processes",
            )
        self.rows, self._groups = rows, sum(len(optimizer.param_groups) for optimizer in optimizers)

    def waits_to_start(self) -> None:
        """This rank is prepared, and waits for the others."""
        self.place.at(self.place.step, PHASES.index("start"))

    def begin(self, step: int) -> None:
        """This rank's forward passes of an update begin."""
        self.place.at(step, _FORWARD)

    def backward_begins(self) -> None:
        """This rank's last forward pass of an update is over."""
        self.place.at(self.place.step, _BACKWARD)

    @contextmanager
    def part(self, step: int, number: int, parts: int) -> Iterator[None]:
        """Around the passes of one of so many parts of an update's rows, 0 the first.

        Replicas exchange gradients in the last alone; shards in each, since none of them has all.
        """
        if self.shards is None:
            self.begin(step)
            assert self._replica is not None
            with nullcontext() if number == parts - 1 else self._replica.no_sync(), self.all_reached():
                yield
            return
        if number == 0:
            self.begin(step)
            self.shards.share_buffers()
        with self.shards.together(last=number == parts - 1):
            yield

    @contextmanager
    def all_reached(self) -> Iterator[None]:
        """Raises TrainingError for what DistributedDataParallel says of parameters that an update did not reach."""
        try:
            yield
        except RuntimeError as error:
            if "Expected to have finished reduction" not in str(error):
                raise
            raise TrainingError(
                "a parameter got no gradient in an update, and had one when the training began",
                fix="let every branch of the network take part in each update, or train in one process "
                "(compute.launcher: local): several processes have to know before which gradients come",
                code=NOT_REACHED,
            ) from None

    def reduce_the_rest(self) -> None:
        """The gradients of what optimizers move beside the model, as those of the model are reduced."""
        if self.shards is not None:
            self.shards.drop_idle()
        for parameter in self._outside_model:
            # Left without one where it has none in any rank: a gradient of zeros would let weight decay move it.
            if self.any_of(parameter.grad is not None):
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                distributed.all_reduce(gradient)
                parameter.grad = gradient / self.size

    def gather(self, losses: Tensor) -> Tensor:
        """Each row's loss of the whole update, `(rows,)`, in the order of the rows; of use to the first alone.

        Each rank tells beside its own whether it was asked to end.
        """
        with self._in("losses"):
            longest = math.ceil(self.rows / self.size)
            mine = losses.new_zeros(longest + 1)
            mine[0], mine[1 : 1 + len(losses)] = float(self._asked()), losses
            every = [torch.empty_like(mine) for _ in range(self.size)] if self.first else None
            distributed.gather(mine, every, dst=0)
        if every is None:
            return losses
        self._other_asked = self._other_asked or any(message[0].item() for message in every)
        whole = torch.arange(self.rows).tensor_split(self.size)
        return torch.cat([message[1 : 1 + len(part)] for message, part in zip(every, whole, strict=True)])

    def order(self, kind: int, step: int, rates: tuple[float, ...] = ()) -> None:
        """The first tells the others what comes next."""
        with self._in("order", step):
            self._say(kind, step, rates)
        self._prepares_again(kind)

    def next_order(self) -> Order:
        """What the first has ordered, once it needs no more help."""
        kind, step, numbers = self._next_word("order", 1)
        self._prepares_again(kind)
        return Order(kind, step, numbers[: self._groups])

    def ask(self, kind: int, what: int = 0) -> None:
        """The first asks the others, which wait for its order or verdict, to help it (shards.py)."""
        with self._in("order"):
            self._say(kind, self.place.step, (what,))

    def _say(self, kind: int, step: int, numbers: Sequence[float]) -> None:
        values = self._word()
        values[: 2 + len(numbers)] = torch.tensor([kind, step, *numbers], dtype=torch.float64)
        distributed.broadcast(values, src=0)

    def _next_word(self, phase: Phase, ahead: int = 0) -> tuple[int, int, tuple[float, ...]]:
        """The first's next order or verdict; it waits in this phase, `ahead` of the update that the rank was at."""
        while True:
            values = self._word()
            with self._in(phase, self.place.step + ahead):
                distributed.broadcast(values, src=0)
            kind, step, *numbers = values.tolist()
            if kind < LOOK:
                return int(kind), int(step), tuple(numbers)
            assert self.shards is not None
            self.place.at(int(step), PHASES.index("order"))
            self.shards.help(int(kind), int(numbers[0]))

    def _word(self) -> Tensor:
        # Kind and update, then the groups' rates or a verdict.
        return torch.zeros(2 + max(self._groups, len(Verdict._fields)), dtype=torch.float64)

    def _prepares_again(self, kind: int) -> None:
        if kind == RESTART:
            self.place.at(0, PHASES.index("prepare"))

    def verdict(self, verdict: Verdict | None) -> Verdict:
        """The first's verdict on the update under way, in each rank."""
        with self._in("verdict"):
            if verdict is None:
                _, _, numbers = self._next_word("verdict")
            else:
                numbers = (verdict.applied, verdict.finite, NOT_CLIPPED if verdict.norm is None else verdict.norm)
                self._say(VERDICT, self.place.step, numbers)
        applied, finite, norm = numbers[:3]
        self.place.at(self.place.step, _AFTER)
        return Verdict(bool(applied), bool(finite), None if norm == NOT_CLIPPED else norm)

    def share_state(self, content: bytes) -> bytes:
        """What the first gives, in each rank, before it begins."""
        return self.share_content(content, "start")

    def share_content(self, content: bytes, phase: Phase = "order") -> bytes:
        """What the first gives, in each rank."""
        if self.first:
            self._tell(content, phase, self.place.step)
            return content
        return self._hear(phase, self.place.step)

    def open_script_group(self, timeout_seconds: float) -> None:
        """From here on in a group of their own: a script has messages of its own, which come in between.

        All ranks have to call it.
        """
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout_seconds))

    def meet(self, values: Sequence[float]) -> list[list[float]]:
        """What each rank tells, as many numbers each, in each rank; beside them, whether it was asked to end."""
        with self._in("losses"):
            mine = torch.tensor([*values, float(self._asked())], dtype=torch.float64)
            every = [torch.empty_like(mine) for _ in range(self.size)]
            distributed.all_gather(every, mine, group=self._group)
        numbers = [tensor.tolist() for tensor in every]
        self._other_asked = self._other_asked or any(row[-1] for row in numbers)
        return [row[:-1] for row in numbers]

    def decide(self, decision: Sequence[float]) -> list[float]:
        """What the first decides, in each rank; the others give as many numbers."""
        with self._in("verdict"):
            values = torch.tensor(decision, dtype=torch.float64)
            distributed.broadcast(values, src=0, group=self._group)
        return values.tolist()

    def in_script(self, step: int) -> None:
        """What comes until the next message is a script's own."""
        self.place.at(step, PHASES.index("script"))

    def every(self, content: bytes, phase: Phase = "after") -> list[bytes]:
        """What each rank gives, in each rank."""
        with self._in(phase):
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            distributed.all_gather(lengths, torch.tensor([len(content)]), group=self._group)
            sizes = [int(length.item()) for length in lengths]
            padded = torch.zeros(max(sizes), dtype=torch.uint8)
            padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            every = [torch.empty_like(padded) for _ in range(self.size)]
            distributed.all_gather(every, padded, group=self._group)
        return [tensor[:size].numpy().tobytes() for tensor, size in zip(every, sizes, strict=True)]

    def others_sum(self, mine: float) -> float:
        """In the first rank the sum of what the others of its machine have given."""
        with self._in("after"):
            total = torch.tensor(mine if self._on_first_machine else 0.0, dtype=torch.float64)
            distributed.all_reduce(total, group=self._group)
        return total.item()

    def any_of(self, mine: bool) -> bool:
        """True in every rank if it is so in one."""
        count = torch.tensor(float(mine))
        distributed.all_reduce(count, group=self._group)
        return bool(count.item())

    def refuse_others(self, facts: dict[str, Any]) -> None:
        """Raises TrainingError in the first rank if another's facts differ from its own: code, rows, versions."""
        every = self.every(json.dumps(facts, sort_keys=True).encode(), "start")
        for rank, encoded in enumerate(every if self.first else ()):
            other = json.loads(encoded)
            differs = [
                f"{name}: {other[name]} instead of {facts[name]}" for name in facts if other[name] != facts[name]
            ]
            if differs:
                raise TrainingError(
                    f"rank {rank} of {self.size} would train something else than the first",
                    value="; ".join(differs),
                    fix="let all nodes have the same checkout, packages and data",
                    code=RANKS_DIFFER,
                )

    def _tell(self, content: bytes, phase: Phase, step: int) -> None:
        with self._in(phase, step):
            distributed.broadcast(torch.tensor([len(content)]), src=0, group=self._group)
            distributed.broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8), src=0, group=self._group)

    def _hear(self, phase: Phase, step: int) -> bytes:
        with self._in(phase, step):
            length = torch.zeros(1, dtype=torch.int64)
            distributed.broadcast(length, src=0, group=self._group)
            content = torch.empty(int(length.item()), dtype=torch.uint8)
            distributed.broadcast(content, src=0, group=self._group)
        return content.numpy().tobytes()

    @contextmanager
    def _in(self, phase: Phase, step: int | None = None) -> Iterator[None]:
        self.place.at(self.place.step if step is None else step, PHASES.index(phase))
        yield


_FORWARD, _BACKWARD, _AFTER = (PHASES.index(phase) for phase in ("forward", "backward", "after"))


@contextmanager
def open_group(
    out: Path, rank: int, size: int, rendezvous: str, job: TrainJob, asked: Callable[[], bool]
) -> Iterator[Ranks]:  # fmt: skip
    """The process group of ranks that meet at a URL: a file's, for which no port is opened, or by torchrun's store.

    A rank that waits for another for too long raises torch's error (error_causes.lost_rank).
    """
    cuda = choose_device(job.device) == "cuda"
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        init_method=rendezvous, rank=rank, world_size=size,
        timeout=timedelta(seconds=job.collective_timeout_seconds),
    )  # fmt: skip
    try:
        yield Ranks(out, rank, size, asked, int(os.environ["LOCAL_WORLD_SIZE"]))
    finally:
        distributed.destroy_process_group()
