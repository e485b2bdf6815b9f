"""What most kinds of task say; the others say otherwise, by a method of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.tasks.kind import BASELINES, Claim, JudgedLosses, Kind

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class Usual:
    """What most kinds say; the others say otherwise."""

    declares_classes = True
    class_axis = 1
    ragged = False
    has_decisions = False
    takes_cost_matrix = False
    baselines = BASELINES

    def without_weights(self, answers: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """As they are: no class weighs a row."""
        return answers

    def tamed(self, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """As they are: the loss of a class or of a byte is a logarithm already."""
        return lambda values: values

    def answer_scale(self, answers: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.ones_like(answers)

    def later_changed(
        self, values: np.ndarray, labels: np.ndarray, share: float
    ) -> tuple[np.ndarray, np.ndarray] | None:
        return None

    def fit_place_inputs(
        self, training: pd.DataFrame, columns: list[str], labels: np.ndarray
    ) -> tuple[tuple[str, ...], Callable[[pd.DataFrame], dict[str, np.ndarray]]]:
        return (), lambda rows: {}

    def claims(self, labels: np.ndarray, answers: np.ndarray) -> tuple[Claim, ...]:
        return ()

    def errors(self, labels: np.ndarray, answers: np.ndarray) -> np.ndarray | None:
        return None

    def judged_losses(self: Kind, labels: np.ndarray, statistics: np.ndarray) -> JudgedLosses:
        loss = self.metrics[self.loss].rows
        assert loss is not None
        return JudgedLosses(loss(labels, statistics))


class FewNumbers(Usual):
    """What kinds share whose answer of a row is one number or a few: labels and answers are kept as they are."""

    @property
    def answer_shape(self: Kind) -> tuple[int, ...]:
        return () if self.answer_names == ("",) else (len(self.answer_names),)

    @property
    def statistic_names(self: Kind) -> tuple[str, ...]:
        return self.answer_names

    @property
    def drifting(self: Kind) -> tuple[str, ...]:
        return self.answer_names

    def truth(self: Kind, values: Any) -> np.ndarray:
        return self.checked_labels(values)

    def served(self: Kind, answers: np.ndarray) -> dict[str, Any]:
        return dict(zip(self.answer_names, answers.reshape(len(answers), -1).T, strict=True))

    def sample_truth(self: Kind, rows: int, size: tuple[int, ...] | None) -> np.ndarray:
        return self.sample_labels(rows)

    def of_predict(self, raw: Any, *, whole: bool = False) -> np.ndarray:
        import numpy as np

        return np.asarray(raw, dtype=np.float64)

    def aligned(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return answers

    def statistics(self, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return answers

    def checked_statistics(self: Kind, labels: Any, statistics: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.checked(labels, statistics)
