"""Which part of a training is at fault? Exchange one at a time, train again on the same rows, and see which helps.

The exchanged training and the one as it is have the same seed, rows and number of updates, and are held against each
other row by row on the validation split.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainworthy.lifecycle.engine.substitution.exchanges import EXCHANGES, NotExchangedError
from trainworthy.lifecycle.engine.substitution.setup import BudgetSpentError, Setup, judged_training, setup_of
from trainworthy.lifecycle.engine.training.judging.rise import Judge, constant_answers
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.gates.diagnosis import TRAININGS, judged, part_at_fault
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob
from trainworthy.lifecycle.protocol.results import DiagnoseResult
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Exchange, Part
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.task import error_line, load_task
from trainworthy.lifecycle.tasks.labels import labels_of


def run_diagnosis(job: DiagnoseJob) -> DiagnoseResult:
    """The training as it is, then with each part exchanged. Raises what a stage raises of its rows and its code."""
    began, device = time.perf_counter(), choose_device(job.device)
    setup = setup_of(job.training, load_task(Path(job.use_case_folder)), job.updates)
    say(f"diagnosis: {setup.updates} updates on {len(setup.folds[0].training):,} rows, as declared")
    try:
        as_it_is = judged_training(setup, device)
    except BudgetSpentError:
        raise TrainingError("the run's budget is as good as spent", fix="raise budget.run_usd") from None
    say(
        f"diagnosis: nothing exchanged: validation loss {as_it_is.losses.mean():.4g} after "
        f"{time.perf_counter() - began:.0f} s; up to {len(job.parts)} parts follow, each about as long, rows twice"
    )
    labels = labels_of(job.training.rows, setup.folds[0].judged)
    prior = setup.kind.prior(labels_of(job.training.rows, setup.folds[0].training))
    of_prior = setup.kind.row_loss(labels, constant_answers(prior, len(labels)))
    before = _Before(as_it_is.losses, of_prior, Judge(setup.kind, labels, as_it_is.groups, job.training.training.seed))
    exchanges = list[Exchange]()
    for part in job.parts:
        tried: list[Part] = [
            exchange.part for exchange in exchanges if exchange.status != "not_tried" or exchange.code == "raised"
        ]
        taken = sum(TRAININGS[name] for name in tried)
        too_many = job.trainings is not None and taken + TRAININGS[part] > job.trainings
        if tried and (len(tried) >= job.most or too_many):
            exchanges.append(Exchange(part=part, status="not_tried", code="most_exchanges"))
        else:
            exchanges.append(_exchanged(setup, part, before, device))
            loss = exchanges[-1].loss
            say(f"diagnosis: {part}: {'not tried' if loss is None else f'validation loss {loss:.4g}'}")
    # What one has to show depends on how many there are.
    of_own_prior = setup.kind.row_loss(labels, constant_answers(setup.kind.prior(labels), len(labels)))
    found = judged(exchanges, float(of_own_prior.mean()))
    return DiagnoseResult(
        diagnosis=Diagnosis(
            rows=len(setup.folds[0].training),
            updates=setup.updates,
            loss=float(as_it_is.losses.mean()),
            prior_loss=float(of_prior.mean()),
            exchanges=found,
            at_fault=part_at_fault(found),
        ),
        device=device,
        gpu_seconds=time.perf_counter() - began if device == "cuda" else 0.0,
    )


@dataclass(frozen=True)
class _Before:
    """The validation rows' losses as the training is and of the best constant answer, `(N,)`, and who judges them."""

    losses: np.ndarray
    of_prior: np.ndarray
    judge: Judge


def _exchanged(setup: Setup, part: Part, before: _Before, device: str) -> Exchange:
    """The part's exchange, not yet judged; an error of the exchanged training says nothing of the part."""
    try:
        exchanged, for_, contains = EXCHANGES[part](setup, device)
        losses = _as_before(setup, exchanged, judged_training(exchanged, device).losses)
        gain = before.judge.mean(before.losses - losses)
    except BudgetSpentError:
        return Exchange(part=part, status="not_tried", code="budget")
    except NotExchangedError as error:
        return Exchange(part=part, status="not_tried", code=error.code, told=error.reason)
    except Exception as error:
        message = error_line(error, Path(setup.job.use_case_folder), sensitive=bool(setup.job.rows.sensitive_features))
        return Exchange(part=part, status="not_tried", code="raised", told=message)
    below_prior = before.judge.mean(before.of_prior - losses)
    return Exchange(
        part=part, status="no_gain", loss=float(losses.mean()), gain=gain, below_prior=below_prior, contains=contains,
        told=for_,
    )  # fmt: skip


def _as_before(setup: Setup, exchanged: Setup, losses: np.ndarray) -> np.ndarray:
    """Losses of the exchanged setup's folds, in the order of the validation rows."""
    places = {number: place for place, number in enumerate(setup.folds[0].judged.index)}
    ordered = np.empty(len(losses))
    ordered[[places[number] for fold in exchanged.folds for number in fold.judged.index]] = losses
    return ordered
