"""What the inputs that nobody has reviewed do for a trained network, and what follows for the verdict.

When a value is known can't be seen in rows, and a drafted contract only guesses it. A guess that hardly matters to the
model may stay one. Where such inputs carry most of what the model knows, a good score says nothing yet: it may be made
of what is known only after the outcome. The same holds for a score that is too good, whatever share they have of it:

- near the ceiling: the score decides the label as a copy of it would (leakage/separability.py has the limit);
- beyond what the inputs tell one by one. If inputs added up what each tells of the label, their squared
  discriminabilities (d' = sqrt(2) * probit(AUC)) would add up, which holds for normal scores that are independent
  within a label; redundant inputs reach less. Twice that sum is reached by inputs that only together spell the label
  out, such as a start and an end.

Shares are measured by shuffling: the values of all these inputs together, row by row, so that what only two of them say
together counts as well. A null is a value too, and may have been left by the outcome: quick trees on nothing but the
nulls say how much of the network's gain that pattern explains alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from trainworthy.lifecycle.columns import with_columns
from trainworthy.lifecycle.files.values import is_file_column
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.results import InputGain, UnreviewedInputs
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.lifecycle.tasks.kind import Kind
from trainworthy.lifecycle.tasks.probabilities import auc_error

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

NAME = "inputs_reviewed"
# Most of the gain over chance.
MOST = 0.5
# Of the sum of squared discriminabilities.
BEYOND = 2.0
STANDARD_ERRORS = 3.0
# Of a 95 % interval's half.
LIKELY_ERRORS = 1.96
# AUC is then known within 0.01 for a label of 10 %. Fewer rows are shuffled more often, to about as many scored rows:
# one shuffle of 120 rows left an AUC of 0.63 where nothing was left to tell.
VALIDATION_ROWS, MOST_SHUFFLES = 4_000, 20
TRAINING_ROWS, MOST_SHUFFLED = 20_000, 64
# Named in the sentence; the check's details have all of them.
MOST_NAMED = 3


def measure_unreviewed(
    predict: Callable[[pd.DataFrame], np.ndarray], training: pd.DataFrame, validation: pd.DataFrame,
    features: Sequence[str], unreviewed: Sequence[str], label: str, seed: int, kind: Kind,
) -> UnreviewedInputs | None:  # fmt: skip
    """The figures, on rows with the columns `features` and the label; `predict` gives the kind's answers of features.

    An AUC is that of the label's main event (Kind.events). None where a table holds one side of it only.
    """
    import numpy as np

    from trainworthy.lifecycle.tasks.probabilities import ranking

    labels = [kind.checked_labels(rows[label].to_numpy()) for rows in (training, validation)]
    event = kind.events(labels[0])[0]
    training, validation = (
        with_columns(rows, {label: event.of_labels(of_rows).astype(np.int64)})
        for rows, of_rows in zip((training, validation), labels, strict=True)
    )
    training = _few_rows(training, label, TRAINING_ROWS)
    validation = _few_rows(validation, label, VALIDATION_ROWS).reset_index(drop=True)
    if min(training[label].nunique(), validation[label].nunique()) < 2:
        return None
    labels, rows = validation[label].to_numpy(), validation[list(features)]

    def ranked(some: pd.DataFrame) -> float:
        return float(ranking(labels, event.of_answers(predict(some))))

    generator = np.random.default_rng(seed)
    orders = [generator.permutation(len(rows)) for _ in range(min(MOST_SHUFFLES, -(-VALIDATION_ROWS // len(rows))))]

    def shuffled(columns: Sequence[str]) -> float:
        """The mean AUC that is left when these columns' values go to other rows, together."""
        if len(columns) == len(features):
            return 0.5  # nothing is left in its place
        left = (with_columns(rows, {name: rows[name].array.take(order) for name in columns}) for order in orders)
        return float(np.mean([ranked(changed) for changed in left]))

    reached = ranked(rows)
    alone = alone_aucs(training, validation, features, label)
    strongest = sorted(unreviewed, key=lambda name: -alone[name])
    lost = {name: reached - shuffled([name]) for name in strongest[:MOST_SHUFFLED]}
    inputs = [InputGain(column=name, lost=lost.get(name), alone=alone[name]) for name in strongest]
    return UnreviewedInputs(
        auc=reached,
        standard_error=auc_error(reached, int(labels.sum()), int(len(labels) - labels.sum())),
        auc_shuffled=shuffled(list(unreviewed)),
        auc_nulls=_auc_of_nulls(training, validation, unreviewed, label, seed),
        # What a file or a text holds says more together than its numbers one by one: there is no such bound.
        auc_expected=1.0 if any(_is_of_many_numbers(training[name]) for name in features) else together(alone.values()),
        copy_auc=kind.copy.auc,
        event=event.name,
        inputs=tuple(
            sorted(inputs, key=lambda input_gain: -(input_gain.lost if input_gain.lost is not None else -1.0))
        ),
        count=len(features),
    )


def _few_rows(rows: pd.DataFrame, label: str, most: int) -> pd.DataFrame:
    """At most so many rows, spread evenly; of a rare label as many as there are, up to half. An AUC knows no shares."""
    import numpy as np

    from trainworthy.lifecycle.sampling import evenly_spread

    if len(rows) <= most:
        return rows
    labels = rows[label].to_numpy()
    rarer, commoner = sorted((np.flatnonzero(labels == value) for value in (0, 1)), key=len)
    rarer = rarer[evenly_spread(len(rarer), most // 2)]
    return rows.iloc[np.sort(np.concatenate([rarer, commoner[evenly_spread(len(commoner), most - len(rarer))]]))]


def alone_aucs(
    training: pd.DataFrame, validation: pd.DataFrame, features: Sequence[str], label: str
) -> dict[str, float]:
    """The AUC on validation rows of each input alone, as training rows rank its values; at least 0.5.

    Of a file and of a free text it is that of the linear model of its numbers.
    """
    import numpy as np

    from trainworthy.lifecycle.leakage.binning import cells_of
    from trainworthy.lifecycle.leakage.separability import power

    labels, held = training[label].to_numpy(np.int64), validation[label].to_numpy(np.int64)
    scored = np.ones(len(held), dtype=bool)
    contents = [name for name in features if _is_of_many_numbers(training[name])]
    cells = {name: cells_of(training[name], validation[name]) for name in features if name not in contents}
    aucs = {name: power(column_cells, labels, held, scored).auc for name, column_cells in cells.items()}
    aucs |= {name: _linear_auc(training, validation, name, label) for name in contents}
    return {name: max(0.5, aucs[name]) for name in features}


def _is_of_many_numbers(values: pd.Series) -> bool:
    """True for files and free texts, which are many numbers each (tasks/encoding.py)."""
    return is_file_column(values) or is_free_text(values)


def _linear_auc(training: pd.DataFrame, validation: pd.DataFrame, name: str, label: str) -> float:
    from trainworthy.lifecycle.tasks.baselines import fit_baselines
    from trainworthy.lifecycle.tasks.probabilities import auc

    linear = fit_baselines(training[[name, label]], [name], label, ("linear",), 0, BINARY)["linear"]
    return float(auc(validation[label].to_numpy(), linear(validation[[name]])))


def _auc_of_nulls(
    training: pd.DataFrame, validation: pd.DataFrame, unreviewed: Sequence[str], label: str, seed: int
) -> float | None:
    """The AUC of quick trees that see only which of these inputs are null; None if none ever is in training."""
    from trainworthy.lifecycle.tasks.baselines import fit_baselines
    from trainworthy.lifecycle.tasks.probabilities import auc

    masked = [name for name in unreviewed if training[name].isna().any()]
    if not masked:
        return None
    training_nulls, held = (rows[masked].isna().astype("float64") for rows in (training, validation))
    name = "gradient_boosting"
    trees = fit_baselines(with_columns(training_nulls, {label: training[label]}), masked, label, (name,), seed, BINARY)[
        name
    ]
    return float(auc(validation[label].to_numpy(), trees(held)))


def together(alone: Iterable[float]) -> float:
    """The AUC of inputs that add up what each tells of the label, by the AUC of each."""
    return NormalDist().cdf(math.sqrt(sum(discriminability(auc) ** 2 for auc in alone) / 2))


def discriminability(auc: float) -> float:
    """d', the distance of two normal scores of variance 1 with this AUC; 0 at chance and below."""
    return math.sqrt(2) * NormalDist().inv_cdf(min(max(auc, 0.5), 1 - 1e-9))


def unreviewed_check(unreviewed: Sequence[str], measured: UnreviewedInputs | None, use_case: str) -> CheckResult:
    """Insufficient while inputs that nobody has reviewed carry most of the score, or while the score is too good.

    `unreviewed` are the features that the contract marks so.
    """
    fix = f"say when the value of each is known: trainworthy contract review {use_case}"
    if not unreviewed:
        return CheckResult(name=NAME, status="pass", evidence="no input waits for a review")
    if measured is None:
        evidence = f"{_inputs(len(unreviewed))} never reviewed; what they do for the model was not measured"
        return CheckResult(name=NAME, status="insufficient", evidence=evidence, fix=fix)
    share = gain_share(measured, measured.auc - measured.auc_shuffled)
    # The unfavourable end decides: what was lost may be more than the rows show.
    high = gain_share(measured, measured.auc - measured.auc_shuffled + LIKELY_ERRORS * measured.standard_error)
    reasons = list(_reasons(measured))
    details = tuple(input_gain.model_dump() for input_gain in measured.inputs)
    if share is not None and high is not None and high < MOST and not reasons:
        evidence = f"{_of_inputs(measured)} never reviewed and carry {_percent(share)} of the gain ({_aucs(measured)})"
        return CheckResult(name=NAME, status="pass", observed=share, threshold=MOST, evidence=evidence, details=details)
    if share is None:
        near = f"an AUC of {measured.auc:.3f} is too near to chance to share out"
        carry = f"{_of_inputs(measured)} never reviewed, and {near}"
    else:
        carry = f"{_of_inputs(measured)} never reviewed and carry {_percent(share)} of the gain ({_aucs(measured)})"
    return CheckResult(
        name=NAME,
        status="insufficient",
        observed=share,
        threshold=MOST,
        evidence="; ".join([f"{carry}, the strongest: {_named(measured)}", *reasons]),
        fix=fix,
        details=details,
    )


def gain_share(measured: UnreviewedInputs, part: float) -> float | None:
    """`part` of the network's AUC above 0.5, as a share from 0 to 1; None where that gain may as well be 0."""
    gain = measured.auc - 0.5
    if not math.isfinite(gain + part):
        return None
    if gain <= STANDARD_ERRORS * measured.standard_error:
        return None
    return min(1.0, max(0.0, part / gain))


def _reasons(measured: UnreviewedInputs) -> Iterator[str]:
    """Why the score is too good to rest on inputs that nobody has reviewed, however small their share."""
    noise = STANDARD_ERRORS * measured.standard_error
    if measured.auc_nulls is not None and measured.auc_nulls - 0.5 > noise:
        explained = gain_share(measured, measured.auc_nulls - 0.5)
        if explained is not None and explained >= MOST:
            yield f"which of their values are missing gives an AUC of {measured.auc_nulls:.3f} alone"
    if measured.auc >= measured.copy_auc:
        yield f"an AUC this near to 1 (from {measured.copy_auc}) is as good as a copy of the label"
    if discriminability(measured.auc - noise) ** 2 > BEYOND * discriminability(measured.auc_expected) ** 2:
        yield (
            "that is far above what the inputs tell one by one, which adds up to an AUC of "
            f"{measured.auc_expected:.3f}: some of them spell the label out together"
        )


def _aucs(measured: UnreviewedInputs) -> str:
    of = measured.event and f" of {measured.event}"
    return f"AUC {measured.auc:.3f}{of}, {measured.auc_shuffled:.3f} with their values shuffled"


def _of_inputs(measured: UnreviewedInputs) -> str:
    return f"{len(measured.inputs)} of {measured.count} inputs were"


def _inputs(count: int) -> str:
    return "1 input was" if count == 1 else f"{count} inputs were"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _named(measured: UnreviewedInputs) -> str:
    names = [input_gain.column for input_gain in measured.inputs]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
