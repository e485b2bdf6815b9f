"""What most monitors have in common: they look at one of the three, tell a thing once, and keep plain numbers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.gates.monitor_words import severity_of
from trainworthy.lifecycle.protocol.signals import Sample, Signals


class Base:
    """Looks at nothing; its subclasses say at what. `kept` names the attributes that a checkpoint has."""

    name: str = ""
    kept: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._told: list[str] = []

    def after_backward(self, signals: Signals) -> Finding | None:
        """Nothing."""

    def after_window(self, updates: Sequence[Signals]) -> Finding | None:
        """Nothing."""

    def after_sample(self, sample: Sample, update: Signals) -> Finding | None:
        """Nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        return copy.deepcopy({name: getattr(self, name) for name in ("_told", *self.kept)})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what state_dict gave."""
        for name, value in copy.deepcopy(state).items():
            setattr(self, name, value)

    def tell(
        self, step: int, onset: int, symptom: str, evidence: str, where: tuple[str, ...] = (),
        what: str = "", milder: bool = False, again_if_critical: bool = False, known_cause: str = "",
    ) -> Finding | None:  # fmt: skip
        """The finding, told once a training, of `what` where a monitor looks for several things.

        It weighs what monitors.toml says of it; a warning if it is `milder` than the worst case. With
        `again_if_critical`, a warning that has become critical is told once more.
        """
        name = what or self.name
        severity = "warning" if milder else severity_of(name)
        worst = f"{name}, critical" if again_if_critical else name
        key = worst if severity == "critical" else name
        if {key, worst} & set(self._told):
            return None
        self._told.append(key)
        return Finding(name, severity, step, onset, symptom, evidence, where, known_cause)


def named(names: tuple[str, ...] | list[str], most: int = 4) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
