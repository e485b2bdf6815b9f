"""The contract of a monitor: it looks at signals, and says when something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from trainworthy.lifecycle.gates.monitor_words import Severity
from trainworthy.lifecycle.protocol.signals import Sample, Signals
from trainworthy.lifecycle.protocol.training_figures import CurvePoint


@dataclass(frozen=True)
class Finding:
    """Something is wrong: what was seen, since which update, and in which parameters or modules.

    `symptom` is one sentence without figures, `evidence` has the figures with what they were held against. A cause and
    a fix are said by causes.py, which sees all findings together; `known_cause` is that one's name where the monitor
    itself had to tell it apart.
    """

    monitor: str
    severity: Severity
    step: int
    onset: int
    symptom: str
    evidence: str
    where: tuple[str, ...] = ()
    known_cause: str = ""


class Monitor(Protocol):
    """A small class for one thing that can go wrong. Most do something in only one of the three methods.

    `after_backward` is called at every update, before it is applied, and has about half a microsecond: append and
    compare, no more. `after_window` gets the newest WINDOW updates, each once. `after_sample` gets a closer look, and
    the signals of the same update. Loss and gradient of all that they get are finite. Its state is plain numbers, in
    every checkpoint.
    """

    name: str

    def after_backward(self, signals: Signals) -> Finding | None: ...
    def after_window(self, updates: Sequence[Signals]) -> Finding | None: ...
    def after_sample(self, sample: Sample, update: Signals) -> Finding | None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class CurveMonitor(Protocol):
    """A monitor that looks at the curve as well: at the points that a window closed, the reserve's among them."""

    def after_points(self, points: Sequence[CurvePoint]) -> Finding | None: ...
