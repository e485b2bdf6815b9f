"""What is done about a finding: as declared, where that is possible, and a limited number of times.

All of it follows from the steps at which something was done, so that a training which went back, or was interrupted,
decides as it did the first time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainworthy.lifecycle.engine.training.monitors.monitor import Finding
from trainworthy.lifecycle.spec.training import Action, MonitorsSpec

# A training that leaves out so many batches one after the other trains on nothing.
MOST_IN_A_ROW = 10
# Of the planned updates, and at least MOST_IN_A_ROW: what is left out beyond is no longer a few bad batches.
MOST_SHARE = 0.05
# Updates after which a lowered rate may be lowered again.
SETTLES = 50
# From mild to hard: of several findings of one update the hardest is done.
HARDNESS: tuple[Action, ...] = ("warn", "lower_rate", "skip_batch", "roll_back", "stop")


class Policy:
    """The declared actions, and at which steps they were taken.

    `passed_over` is the skip list of what was rolled back: batches that are not even looked at.
    """

    def __init__(self, spec: MonitorsSpec, planned_steps: int) -> None:
        self._spec, self._most_skipped = spec, max(MOST_IN_A_ROW, int(MOST_SHARE * planned_steps))
        self.passed_over: set[int] = set()
        self._skipped: set[int] = set()
        self._lowered: set[int] = set()
        self.rolled_back = 0

    @property
    def skipped(self) -> list[int]:
        """All steps whose batch was not trained on."""
        return sorted(self._skipped | self.passed_over)

    def rate_factor(self, step: int) -> float:
        """What the learning rate of a step is multiplied by."""
        if not self._lowered:
            return 1.0
        return self._spec.rate_factor ** sum(lowered < step for lowered in self._lowered)

    def decide(self, finding: Finding) -> tuple[Action, str]:
        """The action, and why it is another one than was declared: "" if it is not."""
        declared = self._spec.action(finding.monitor)
        if finding.monitor == "non_finite_parameter" and declared in ("skip_batch", "lower_rate"):
            # The bad update is in the weights: leaving out the next one mends nothing.
            declared = "roll_back"
        if declared == "lower_rate" and self._just_lowered(finding.step):
            declared = "skip_batch" if finding.monitor.startswith("non_finite") else "warn"
        match declared:
            case "skip_batch" if self._too_many(finding.step):
                return "stop", f"{len(self.skipped)} batches were left out already"
            case "roll_back" if self.rolled_back >= self._spec.most_times:
                return "stop", f"the training had gone back {self.rolled_back} times"
            case "lower_rate" if len(self._lowered) >= self._spec.most_times:
                return "stop", f"the rate had been lowered {len(self._lowered)} times"
            case _:
                return declared, ""

    def taken(self, action: Action, step: int, onset: int) -> None:
        """Note what is done at a step. What was done after the onset of what is rolled back was done in vain."""
        if action == "skip_batch":
            self._skipped.add(step)
        elif action == "lower_rate":
            self._lowered.add(step)
        elif action == "roll_back":
            self.rolled_back += 1
            self.passed_over |= set(range(onset, step + 1))
            self._skipped = {skipped_step for skipped_step in self._skipped if skipped_step < onset}
            self._lowered = {lowered_step for lowered_step in self._lowered if lowered_step < onset}

    def _just_lowered(self, step: int) -> bool:
        """A lower rate needs some updates to show: nobody lowers it further meanwhile."""
        return any(step - SETTLES < lowered < step for lowered in self._lowered)

    def state_dict(self) -> dict[str, Any]:
        return {
            "passed_over": sorted(self.passed_over), "skipped": sorted(self._skipped),
            "lowered": sorted(self._lowered), "rolled_back": self.rolled_back,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passed_over, self._skipped = set(state["passed_over"]), set(state["skipped"])
        self._lowered, self.rolled_back = set(state["lowered"]), state["rolled_back"]

    def _too_many(self, step: int) -> bool:
        before = [earlier for earlier in self.skipped if earlier < step]
        return len(before) >= self._most_skipped or set(before) >= set(range(step - MOST_IN_A_ROW, step))


def hardest(actions: Iterable[Action]) -> Action:
    """The one that is done where several are asked for."""
    return max(actions, key=HARDNESS.index)
