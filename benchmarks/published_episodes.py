"""The two reinforcement learners of pytorch/examples on a pole that is balanced here, in the place of gymnasium's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.published_programs import Program, definitions, updated
from trainworthy.lifecycle.engine.trainers.session import TrainingSession

LONGEST = 200


class Pole:
    """A cart of 1 kg under a pole of 0.1 kg and one metre, pushed by 10 N to the left or right fifty times a second.

    An episode ends when the pole leans by more than 12 degrees or the cart is 2.4 m away, at the latest after LONGEST
    pushes.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.state, self.pushes = generator.uniform(-0.05, 0.05, 4), 0

    def push(self, right: bool) -> bool:
        """True if the episode has ended."""
        _, speed, angle, turn = self.state
        force = (10.0 if right else -10.0) + 0.05 * turn**2 * math.sin(angle)
        bend = 9.8 * math.sin(angle) - math.cos(angle) * force / 1.1
        bend /= 0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        pull = (force - 0.05 * bend * math.cos(angle)) / 1.1
        self.state = self.state + 0.02 * np.array([speed, pull, turn, bend])
        self.pushes += 1
        return abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12) or self.pushes >= LONGEST


def _program(path: Path, rate: float, made: str, kept: str, loss: Callable[[Any, Tensor], Tensor]) -> Program:
    """An update of each episode, by the example's network and its choice of actions.

    `made` is what its file calls its network, `kept` the list in which that keeps what its actions were.
    """

    def train(session: TrainingSession) -> Iterator[float]:
        torch.manual_seed(543)
        published, generator = definitions(path), np.random.default_rng(543)
        if made == "model":
            from collections import namedtuple

            setattr(published, "SavedAction", namedtuple("SavedAction", ["log_prob", "value"]))  # noqa: B010
        model: nn.Module = published.Policy()
        setattr(published, made, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(session.steps):
            pole = Pole(generator)
            while not pole.push(bool(published.select_action(pole.state))):
                pass
            actions = getattr(model, kept)
            yield updated(session, model, optimizer, loss(actions, _returns(len(actions))), len(actions))
            actions.clear()

    return Program(train)


def _returns(pushes: int) -> Tensor:
    """Standardised sums of what follows each push, of which every one gives 1, at 0.99 a push."""
    found = torch.tensor([(1 - 0.99**left) / (1 - 0.99) for left in range(pushes, 0, -1)])
    return (found - found.mean()) / (found.std() + 1e-7)


def _of_policy(log_probabilities: Sequence[Tensor], returns: Tensor) -> Tensor:
    return -(torch.cat(list(log_probabilities)) * returns).sum()


def _of_both(actions: Sequence[tuple[Tensor, Tensor]], returns: Tensor) -> Tensor:
    values = torch.cat([value for _, value in actions])
    of_policy = -(torch.stack([one for one, _ in actions]) * (returns - values.detach())).sum()
    return of_policy + functional.smooth_l1_loss(values, returns, reduction="sum")


def reinforce(folder: Path) -> Program:
    return _program(folder / "reinforcement_learning" / "reinforce.py", 1e-2, "policy", "saved_log_probs", _of_policy)


def actor_critic(folder: Path) -> Program:
    return _program(folder / "reinforcement_learning" / "actor_critic.py", 3e-2, "model", "saved_actions", _of_both)


EPISODES: dict[str, Callable[[Path], Program]] = {"reinforce": reinforce, "actor_critic": actor_critic}
