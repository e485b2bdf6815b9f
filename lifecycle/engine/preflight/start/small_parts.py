"""Do the smallest forward passes that a stage trains with go through, and have batch norms enough rows in them?

An update is shared out over processes and made in `accumulate` parts, and smoke has a hundredth of the rows: so a pass
may see one row, which a batch norm behind a linear layer refuses, or two, whose mean and variance say little of all.
"""

from __future__ import annotations

import torch

from trainworthy.lifecycle.engine.preflight.subject import Subject, autocast
from trainworthy.lifecycle.engine.preflight.wiring.passes import FEW_ROWS, augmented, batch_norm, put_back
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.gates.check import Outcome

FEW_ROWS_A_NORM, ROWS_REFUSED = "few_rows_a_norm", "rows_refused"
# ResNet-50 with batch norm errs on 23.6 % of ImageNet with 32 rows a device, 24.8 % with 8, 27.3 % with 4 and 34.7 %
# with 2 (Wu and He 2018, arXiv:1803.08494, table 2).
FEWEST = 4


def small_parts(subject: Subject) -> Outcome | None:
    """Fails if such a pass raises and a larger one does not; a warning if a batch norm sees so few rows; else None."""
    rows = subject.smallest_pass()
    if rows >= FEWEST or len(subject.training.targets) < FEWEST:
        return None
    norms, error = _passed(subject, rows)
    if error is not None:
        if _passed(subject, FEW_ROWS)[1] is not None:
            return None
        evidence = (
            f"a training pass of {_rows(rows)} raises {type(error).__name__}, one of {FEW_ROWS} rows goes through"
        )
        cause = f"an update's rows divided by {_divided(subject)}, or smoke's few rows, under a batch norm"
        return Outcome("fail", evidence, rows, FEWEST, cause, _FIX, code=ROWS_REFUSED)
    if not norms:
        return None
    evidence = f"{norms} batch norms take mean and variance of passes of {_rows(rows)}"
    cause = "training.batch_size is a pass's rows: accumulation adds gradients, and no rows to a batch norm"
    return Outcome("fail", evidence, rows, FEWEST, cause, _FIX, severity="warning", code=FEW_ROWS_A_NORM)


def _divided(subject: Subject) -> str:
    return "training.accumulate" + " and compute.processes" * (subject.processes > 1)


_FIX = "raise training.batch_size and lower training.accumulate, or take GroupNorm or LayerNorm"


def _passed(subject: Subject, rows: int) -> tuple[int, Exception | None]:
    """How many calls of batch norm used the batch's statistics, and what the pass raised."""
    model = subject.model().train()
    data = augmented(subject, subject.training.take(spread_rows(subject.training, rows).to(subject.device)))
    try:
        with torch.no_grad(), put_back(model), batch_norm() as norms, autocast(subject):
            model(dict(data.inputs))
    except Exception as error:
        # Whatever the network raises of so few rows.
        return 0, error
    return len(norms), None


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count} rows"
