"""What a script told of its last updates, and the incident that an alarm makes of it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from trainworthy.lifecycle.engine.incidents.record import BlackBox, LastUpdates, keys_of
from trainworthy.lifecycle.engine.incidents.rows import bad_inputs
from trainworthy.lifecycle.engine.trainers.gradients import Gradients
from trainworthy.lifecycle.engine.trainers.watched import ScriptWatch
from trainworthy.lifecycle.engine.training.monitors.row_keys import NAMED_ROWS, NO_ROWS, NamedRows
from trainworthy.lifecycle.engine.training.monitors.watch import KEPT_SIGNALS
from trainworthy.lifecycle.engine.training.random_state import torch_states
from trainworthy.lifecycle.engine.training.watching.clock import DATA, Clock
from trainworthy.lifecycle.incidents.incident import Interventions
from trainworthy.lifecycle.protocol.records import Alarm
from trainworthy.lifecycle.protocol.signals import Signals


class Told(NamedTuple):
    """What a script says of an update: its loss, None if that comes later, rows, and their `numbers` if it tells them.

    The learning rate is 0 where neither it nor an optimizer is told.
    """

    loss: float | None
    rows: int
    rate: float
    numbers: Callable[[], tuple[int, ...]] = tuple
    optimizers: Sequence[torch.optim.Optimizer] = ()


@dataclass
class Recorder:
    """Keeps the last signals, the newest update's rows, and torch's generators from before it."""

    box: BlackBox
    clock: Clock
    _signals: deque[Signals] = field(default_factory=lambda: deque(maxlen=KEPT_SIGNALS))
    _numbers: Callable[[], tuple[int, ...]] = tuple
    _random: dict[str, torch.Tensor] = field(default_factory=dict)
    _at: float = field(default_factory=time.perf_counter)
    _waited: float = 0.0

    def before_update(self) -> None:
        """The next update begins."""
        self._random = torch_states(self.box.device)

    def told(self, step: int, told: Told, seen: Gradients | None) -> None:
        """An update, right before it is made or right after it. NaN is what was not told, or not seen."""
        now, waited = time.perf_counter(), self.clock.spent(DATA)
        loss = math.nan if told.loss is None else told.loss
        norm, norms = (math.nan, []) if seen is None else seen
        times = (now - self._at, waited - self._waited)
        self._at, self._waited, self._numbers = now, waited, told.numbers
        self._signals.append(Signals(step, loss, loss * loss, told.rows, told.rate, norm, norms, *times))

    def rows(self) -> NamedRows:
        """Rows of the newest update by key: those with inputs that are not finite, else the first ones."""
        box, numbers = self.box, self._numbers()
        if not numbers:
            return NO_ROWS
        batch = box.prepared.data.take(torch.tensor(numbers, device=box.device))
        bad = [number for place, number in enumerate(numbers) if bad_inputs(batch, place)]
        return NamedRows(keys_of(box.prepared, box.job, (bad or numbers)[:NAMED_ROWS]), bool(bad))

    def kept(self, alarm: Alarm, watch: ScriptWatch | None) -> Alarm:
        """The alarm with its rows and its incident."""
        box, rows = self.box, self._numbers()

        def last_updates() -> LastUpdates:
            return LastUpdates(
                step=min(alarm.step, box.plan.last_step - 1),
                batch=rows,
                signals=tuple(self._signals),
                samples=() if watch is None else tuple(watch.samples),
                parameters=() if watch is None else watch.parameters,
                random=self._random,
                done=Interventions(),
            )

        return box.keep(alarm.model_copy(update={"row_keys": self.rows().keys}), last_updates)
