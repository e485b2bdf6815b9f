"""What a training keeps of its newest updates, whoever makes them, and what it makes of an alarm."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from trainworthy.lifecycle.engine.training.monitors.row_keys import NO_ROWS, NamedRows
from trainworthy.lifecycle.engine.training.random_state import torch_states
from trainworthy.lifecycle.engine.training.watching.clock import DATA, Clock
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import Alarm

# Updates whose signals are kept.
KEPT_SIGNALS = 200


@dataclass(frozen=True)
class LastUpdates:
    """What an incident holds of them.

    `batch` are the row numbers of the alarm's update, as far as they are known; `taken` is the policy's state_dict().
    """

    batch: tuple[int, ...]
    signals: tuple[Signals, ...]
    samples: tuple[Sample, ...]
    parameters: tuple[str, ...]
    random: dict[str, Tensor]
    taken: Mapping[str, list[int]]


@dataclass
class Recorder:
    """The newest signals, and torch's generators from before the newest update.

    `batch` gives the row numbers of an update. `name` names rows by number, with each row's loss where it is known.
    `keep` is told of every new alarm, and what it returns is kept in its place.
    """

    device: str = "cpu"
    batch: Callable[[int], tuple[int, ...]] = lambda step: ()
    name: Callable[[tuple[int, ...], Tensor | None], NamedRows] = lambda numbers, losses: NO_ROWS
    keep: Callable[[Alarm, Callable[[], LastUpdates]], Alarm] = lambda alarm, last_updates: alarm
    signals: deque[Signals] = field(default_factory=lambda: deque(maxlen=KEPT_SIGNALS))
    random: dict[str, Tensor] = field(default_factory=dict)
    _at: float = field(default_factory=time.perf_counter)
    _waited: float | None = None

    def before_update(self) -> None:
        """The next update begins."""
        self.random = torch_states(self.device)

    def add(
        self, clock: Clock, step: int, loss: float, squared: float, rows: int, rate: float, norm: float,
        norms: list[float | None], batch: int | None = None,
    ) -> Signals:  # fmt: skip
        """The signals of an update, with what passed since the one before. NaN is what nobody knows.

        The clock goes on where earlier attempts ended, and back with the training: neither is a wait of this update.
        """
        now, waited = time.perf_counter(), clock.spent(DATA)
        before = waited if self._waited is None else min(self._waited, waited)
        signals = Signals(step, loss, squared, rows, rate, norm, norms, now - self._at, waited - before, batch)
        self._at, self._waited = now, waited
        self.signals.append(signals)
        return signals

    def rows(self, step: int, losses: Tensor | None = None) -> NamedRows:
        """Rows of the update of a step, by key."""
        return self.name(self.batch(step), losses)

    def record(
        self, alarm: Alarm, samples: Iterable[Sample] = (), parameters: Iterable[str] = (),
        taken: Mapping[str, list[int]] | None = None,
    ) -> Alarm:  # fmt: skip
        """The alarm with its incident's id, where one is kept. `samples` and `parameters` are those of its model."""
        return self.keep(
            alarm,
            lambda: LastUpdates(
                self.batch(alarm.step), tuple(self.signals), tuple(samples), tuple(parameters), self.random, taken or {}
            ),
        )
