"""References on equal rows in three arms, beside the network: where is a signal, and where is it lost?

Size decides, not significance alone: shuffled labels reach a small significant rise as well. So the network's rise is
held against references that are fitted on as many rows as the stage has, and answer the same validation rows.

- `validation`: cross-fitted on the validation rows, each half of the groups for the other half. What they show is there
  to be found. Fitted on the stage's rows alone a reference is fooled by whatever is wrong with these: with shuffled
  training labels it found nothing either, and 10 of 10 such runs went on.
- `stage`: fitted on the stage's rows. Where as many validation rows show something and these do not, they are at fault;
  where both do and the network does not, it is the network, its recipe, or too few updates.
- on the network's own tensors: where the raw columns tell something and these do not, to_tensors lost it.

The linear model is always asked. What costs more is asked where that leaves something open (ask_references), so that a
healthy run pays for little of it. Which arms are asked hangs on rows and answers, never on a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from trainworthy.lifecycle.engine.training.judging.rise import Judge, Scored, constant_answers, halves
from trainworthy.lifecycle.plan import stage_rows
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.jobs import Rows
from trainworthy.lifecycle.protocol.results import LINEAR, Arm, Inputs, References
from trainworthy.lifecycle.tasks import Kind
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.interval import MINIMUM_GROUPS
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

REFITS = 5
# Rows that a reference beside the linear one is fitted on at most. A hundred trees of 20,000 rows of 10 columns took
# 3 CPU seconds on a loaded machine, those of 500 rows 1: more rows cost little, and the network has them as well.
MOST_ROWS = 20_000
# Numbers of an answer up to which trees are asked. Each has a hundred of its own: 25 CPU seconds for ten classes.
MOST_BOOSTED = 3

# Fits on rows with these features and that label, by the kind and a seed.
Answers = Callable[[pd.DataFrame], np.ndarray]
Fit = Callable[[pd.DataFrame, Sequence[str], str, Kind, int], Answers]


def references_of(kind: Kind) -> dict[str, Fit]:
    """The references of a kind, by name; the linear one comes first."""
    numbers = math.prod(kind.answer_shape)
    names = (name for name in kind.baselines if name != "prior" and (name == LINEAR or numbers <= MOST_BOOSTED))
    return {name: partial(_baseline, name) for name in names}


def _baseline(name: str, training: pd.DataFrame, features: Sequence[str], label: str, kind: Kind, seed: int) -> Answers:
    return fit_baselines(training, features, label, (name,), seed, kind)[name]


@dataclass(frozen=True)
class ReferenceRows:
    """Rows as references see them, the stage's and the validation split's, with what their columns mean."""

    stage: pd.DataFrame
    validation: pd.DataFrame
    columns: Rows

    def answers(self, fit: Fit, training: pd.DataFrame, rows: pd.DataFrame, seed: int) -> np.ndarray:
        """Answers to `rows`, `(N, ...)`, of a fit on `training`; labels that are all alike tell nothing, and the best
        constant is the answer."""
        kind, features, label = kind_of_rows(self.columns), list(self.columns.features), self.columns.label
        labels = labels_of(self.columns, training)
        if kind.one_valued(labels):
            return constant_answers(kind.prior(labels), len(rows))
        # In one thread: trees of few rows spend more on threads than on themselves, most of all beside other work.
        with threadpool_limits(1):
            return fit(training[[*features, label]], features, label, kind, seed)(rows[features])

    def cross_fitted(self, fit: Fit, seed: int, most_rows: int) -> np.ndarray:
        """Answers to the validation rows, each half of the groups scored by a fit on the other half."""
        return self._halves_answered(fit, self.validation, seed, most_rows)

    def of_itself(self, fit: Fit, seed: int, most_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Labels and groups of the stage's rows, twice so many at most, and answers to them in the same way.

        None in fewer groups than an interval takes.
        """
        some = limited(self.stage, self.columns, 2 * most_rows, seed)
        groups = some[self.columns.group].to_numpy()
        if len(np.unique(groups)) < MINIMUM_GROUPS:
            return None
        return labels_of(self.columns, some), groups, self._halves_answered(fit, some, seed, most_rows)

    def _halves_answered(self, fit: Fit, rows: pd.DataFrame, seed: int, most_rows: int) -> np.ndarray:
        """The halves take turns group by group, so that both span all of the time."""
        answers = np.empty((len(rows), *kind_of_rows(self.columns).answer_shape))
        for scored in halves(rows[self.columns.group].to_numpy()):
            some = limited(rows[~scored], self.columns, most_rows, seed)
            answers[scored] = self.answers(fit, some, rows.loc[scored], seed)
        return answers

    def refitted(self, fit: Fit, seed: int, most_rows: int) -> Iterator[np.ndarray]:
        """Answers to the validation rows of REFITS fits on at most so many of the stage's, drawn with repeats.

        One after the other, since those to texts and masks are large.
        """
        generator = np.random.default_rng(seed)
        size = min(len(self.stage), most_rows)
        draws = (generator.integers(0, len(self.stage), size) for _ in range(REFITS))
        yield from (self.answers(fit, self.stage.iloc[drawn], self.validation, seed) for drawn in draws)

    def fitted(self, fit: Fit, seed: int, most_rows: int | None = None) -> np.ndarray:
        """Answers to the validation rows of a fit on the stage's."""
        some = self.stage if most_rows is None else limited(self.stage, self.columns, most_rows, seed)
        return self.answers(fit, some, self.validation, seed)


def limited(rows: pd.DataFrame, columns: Rows, most: int, seed: int) -> pd.DataFrame:
    """About so many of the rows, stratified by label."""
    if len(rows) <= most:
        return rows
    return rows.iloc[stage_rows(kind_of_rows(columns).strata(labels_of(columns, rows)), most / len(rows), seed)]


class OwnRows(NamedTuple):
    """Rows that the network learned from: its rise as own_rise says it, its loss there, and a constant's."""

    rise: Estimate | None = None
    loss: float | None = None
    prior_loss: float | None = None


class Asking:
    """References asked of validation rows that the network has answered; an arm is measured once.

    `most_rows` is what a fit sees at most, so that all arms have equally many. `tensors` makes the rows of the
    network's own tensors, None where no reference can be fitted on these.
    """

    def __init__(
        self,
        judge: Judge,
        network: np.ndarray,
        columns: ReferenceRows,
        most_rows: int,
        tensors: Callable[[], ReferenceRows | None],
    ) -> None:
        self.judge, self.columns, self.most_rows = judge, columns, most_rows
        self.network = judge.scored(network)
        self.references = references_of(judge.kind)
        self.arms: list[Arm] = []
        self._tensors = cache(tensors)

    def measured(self, name: str, inputs: Inputs, fitted_on: str) -> Arm | None:
        """The arm if it was measured."""
        return next((arm for arm in self.arms if _key(arm) == (name, inputs, fitted_on)), None)

    def measure_on_validation(self, name: str, inputs: Inputs = "columns") -> Arm | None:
        """The arm of the validation rows."""
        rows, began = self._rows_of(inputs), time.process_time()
        if rows is None:
            return None
        answers = rows.cross_fitted(self.references[name], self.judge.seed, min(self.most_rows, MOST_ROWS))
        scored = self.judge.scored(answers)
        rise = self.judge.mean(scored.rises)
        return self._record(Arm(
            reference=name, inputs=inputs, fitted_on="validation", rise=rise, **self._loss_fields(scored),
            cpu_seconds=time.process_time() - began,
        ))  # fmt: skip

    def measure_on_stage(self, name: str, inputs: Inputs = "columns", *, drawn: bool, whole: bool = True) -> Arm | None:
        """The arm of the stage's rows, its rise over several draws of them, or of one fit.

        `whole`: a fit on as many as a reference takes tells its loss. Only the linear model, which costs little, is
        fitted once more on as many as the validation rows' arm has.
        """
        rows, began, loss_fields = self._rows_of(inputs), time.process_time(), {}
        if rows is None:
            return None
        fit, seed, rises = self.references[name], self.judge.seed, []
        most = min(self.most_rows, MOST_ROWS)
        answers = np.empty(0)
        if whole:
            answers = rows.fitted(fit, seed, None if name == LINEAR else MOST_ROWS)
            scored = self.judge.scored(answers)
            loss_fields, rises = self._loss_fields(scored), [scored.rises]
        if drawn:
            rises = [self.judge.scored(answers).rises for answers in rows.refitted(fit, seed, most)]
        elif not whole or (name == LINEAR and len(rows.stage) > most):
            answers = rows.fitted(fit, seed, most)
            rises = [self.judge.scored(answers).rises]
        rise = self.judge.over_fits(rises) if drawn else self.judge.mean(rises[0])
        return self._record(Arm(
            reference=name, inputs=inputs, fitted_on="stage", rise=rise, draws=len(rises), **loss_fields,
            unstretched_loss=self._unstretched(answers),
            cpu_seconds=time.process_time() - began,
        ))  # fmt: skip

    def ask_stage_of_itself(self, arm: Arm) -> None:
        """What the rows of a stage's arm tell of each other, kept with it."""
        rows, began, seed = self._rows_of(arm.inputs), time.process_time(), self.judge.seed
        asked = rows and rows.of_itself(self.references[arm.reference], seed, min(self.most_rows, MOST_ROWS))
        if not asked:
            return
        labels, groups, answers = asked
        judge = Judge(self.judge.kind, labels, groups, seed, self.judge.within)
        rise, took = judge.mean(judge.scored(answers).rises), time.process_time() - began
        self.arms[self.arms.index(arm)] = arm.model_copy(
            update={"of_itself": rise, "cpu_seconds": arm.cpu_seconds + took}
        )

    def _rows_of(self, inputs: Inputs) -> ReferenceRows | None:
        return self.columns if inputs == "columns" else self._tensors()

    def _loss_fields(self, scored: Scored) -> dict[str, Any]:
        behind = self.judge.mean(self.network.losses - scored.losses)
        return {"loss": float(scored.losses.mean()), "behind": behind}

    def _unstretched(self, answers: np.ndarray) -> float | None:
        return float(self.judge.kind.row_loss(self.judge.labels, answers).mean()) if len(answers) else None

    def _record(self, arm: Arm) -> Arm:
        """In the place of the same arm with fewer draws, whose loss is kept, and whose seconds count as well."""
        for earlier in [other for other in self.arms if _key(other) == _key(arm)]:
            self.arms.remove(earlier)
            kept = {} if earlier.loss is None else {"loss": earlier.loss, "behind": earlier.behind}
            kept |= {"unstretched_loss": earlier.unstretched_loss}
            arm = arm.model_copy(update={**kept, "cpu_seconds": arm.cpu_seconds + earlier.cpu_seconds})
        self.arms.append(arm)
        return arm


def ask_references(asking: Asking, *, nonlinear: bool, compare_network: bool) -> tuple[Arm, ...]:
    """The arms that tell where a signal is lost.

    The linear model is fitted on both kinds of rows. The others, if `nonlinear`, are fitted on the stage's rows if
    `compare_network`, and on validation rows if the linear model finds nothing there. The tensors are used if the
    columns tell nothing, or for the references that the network is measurably behind.
    """
    asking.measure_on_validation(LINEAR)
    in_stage = asking.measure_on_stage(LINEAR, drawn=False, whole=compare_network)
    linear_finds = _there(asking, LINEAR, "columns")
    if not nonlinear or in_stage is None:
        return tuple(asking.arms)
    names = [name for name in asking.references if name != LINEAR]
    fitted = [in_stage, *(asking.measure_on_stage(name, drawn=False) for name in names if compare_network)]
    columns_have_signal = linear_finds or any([_there(asking, name, "columns") for name in names])
    if not columns_have_signal:
        for name in asking.references:
            _there(asking, name, "tensors")
        return tuple(asking.arms)
    for arm in fitted:
        if arm is not None and arm.behind is not None and arm.behind.low > 0:
            asking.measure_on_stage(arm.reference, "tensors", drawn=False)
    return tuple(asking.arms)


def _there(asking: Asking, name: str, inputs: Inputs) -> bool:
    """Whether validation rows show something to a reference; if so, it is asked of as many of the stage's as well.

    Where these seem to show less, they are asked again in several draws: one fit may have had bad luck. If they do show
    less, they are asked of themselves: labels of other rows tell nothing there either, and other codes or a season do.
    """
    arm = asking.measured(name, inputs, "validation") or asking.measure_on_validation(name, inputs)
    if arm is None or arm.rise.low <= 0:
        return False
    fitted = asking.measured(name, inputs, "stage") or asking.measure_on_stage(name, inputs, drawn=False)
    if fitted is not None and fitted.draws == 1 and fitted.rise.high < arm.rise.low:
        drawn = asking.measure_on_stage(name, inputs, drawn=True, whole=False)
        if drawn is not None and drawn.rise.high < arm.rise.low:
            asking.ask_stage_of_itself(drawn)
    return True


def _key(arm: Arm) -> tuple[str, Inputs, str]:
    return arm.reference, arm.inputs, arm.fitted_on


def measure_references(
    asking: Asking,
    network: np.ndarray,
    prior: np.ndarray,
    own: OwnRows,
    *,
    nonlinear: bool,
    compare_network: bool,
) -> References:
    """What the `network`'s answers `(N, ...)` and the references show of the validation rows.

    `prior` is the best constant answer of the training rows, and `own` what is known of rows that it learned
    from; `nonlinear`
    and `compare_network` are as in ask_references.
    """
    judge = asking.judge
    kind, labels = judge.kind, judge.labels
    return References(
        network=judge.mean(asking.network.rises),
        arms=ask_references(asking, nonlinear=nonlinear, compare_network=compare_network),
        own=own.rise,
        own_loss=own.loss,
        own_prior_loss=own.prior_loss,
        label_entropy=judge.entropy,
        within_groups=judge.within_groups,
        network_loss=float(kind.row_loss(labels, network).mean()),
        stretched_loss=float(asking.network.losses.mean()),
        prior_loss=float(kind.row_loss(labels, constant_answers(prior, len(labels))).mean()),
        words=kind.words,
    )
