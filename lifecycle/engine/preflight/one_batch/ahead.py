"""Does an answer know what it is to predict? Asked of the kinds whose label is an input too, place by place.

The rows themselves are changed from a place on, and made to tensors again: so a shift that is missing in to_tensors, an
attention without a mask, a layer that reads backwards and an input that sums up the whole text are all seen alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.engine.preflight.one_batch.update import JobAndSample, forward_rows
from trainworthy.lifecycle.engine.preflight.wiring.passes import stirred
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.scoring import in_chunks
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

# Of each document's way: where it is changed.
SHARES = (0.0, 0.5, 0.9)
# Of what later answers change by: 0 in a causal network but for sums in another order.
TOLERANCE = 1e-3


def blind_ahead(job_and_sample: JobAndSample) -> Outcome:
    """Answers up to a place, before and after the text is changed from there on."""
    job, sample = job_and_sample
    rows = sample.rows.head(forward_rows(job_and_sample))
    features, labels = rows[list(job.rows.features)], labels_of(job.rows, rows)
    kind, notes, before = kind_of_rows(job.rows), [], None
    for name in features:
        for share in SHARES:
            changed = kind.later_changed(features[name].to_numpy(), labels, share)
            if changed is None:
                break
            before = _answers(job_and_sample, features) if before is None else before
            after = _answers(job_and_sample, with_columns(features, {str(name): changed[0]}))
            known, later = _largest_changes(before, after, changed[1])
            if not later > 0:
                notes = [f"answers do not change with {name} from {share:.0%} of the way on"]
                continue
            if known > TOLERANCE * later:
                evidence = (
                    f"with other bytes of {name} from a place on, at {share:.0%} of the way, probabilities of "
                    f"that byte or earlier ones change by up to {known:.3g}, later ones by {later:.3g}"
                )
                return Outcome("fail", evidence, known / later, TOLERANCE)
            notes = [f"{len(rows)} rows: probabilities of a byte do not change with {name} from that byte on"]
    if not notes:
        return Outcome("not_applicable", "no feature is what is predicted place by place")
    return Outcome("pass", notes[-1], 0.0, TOLERANCE)


def _answers(job_and_sample: JobAndSample, features: pd.DataFrame) -> np.ndarray:
    """Whole answers in evaluation mode, of much changed weights: a fresh head may answer nearly the same to all."""
    job, sample = job_and_sample
    model, kind = stirred(sample.subject.model()).eval(), kind_of_rows(job.rows)
    made: Any = lambda raw, _: kind.of_predict(raw, whole=True).astype("float64")
    return in_chunks(features, sample.task, sample.preprocessing, model, sample.subject.device, made)


def _largest_changes(before: np.ndarray, after: np.ndarray, places: np.ndarray) -> tuple[float, float]:
    """The largest difference of answers up to each row's place, and of later ones."""
    difference = np.abs(after - before).reshape(*before.shape[:2], -1).max(axis=2)
    known = np.arange(before.shape[1]) <= places[:, None]
    return float(difference[known].max()), float(difference[~known].max(initial=0.0))
