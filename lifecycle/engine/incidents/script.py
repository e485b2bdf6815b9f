"""An incident of a training by a script of the use case's own: what can be said of it without its loop.

Only the script knows how its update is made, so that none is made again. What was recorded stands, the checkpoint is
verified, and the rows that the script told are looked at.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from trainworthy.lifecycle.engine.incidents.deviations import elsewhere, outstanding
from trainworthy.lifecycle.engine.incidents.record import NUMBERS
from trainworthy.lifecycle.engine.incidents.rows import bad_inputs
from trainworthy.lifecycle.engine.incidents.scene import require_code, require_rows
from trainworthy.lifecycle.engine.training.prepare import prepare
from trainworthy.lifecycle.errors import CheckpointError
from trainworthy.lifecycle.incidents.incident import Incident
from trainworthy.lifecycle.protocol.results import GuiltyRow, ReplayResult
from trainworthy.lifecycle.scoring import choose_device
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint

NUMBERS_NOT_REPORTED = "the script did not tell their numbers (session.step(rows=…))"
# Rows that are told of.
_ROWS = 5


def replay_of_script(folder: Path, incident: Incident, *, changed_code: bool) -> ReplayResult:
    """What is known of the step. Raises IncidentError if code or rows are others by now, and DatasetError."""
    require_code(incident, Path(incident.job.use_case_folder), changed_code)
    require_rows(incident)
    device = choose_device("cpu" if incident.environment.made_with["device"] == "cpu" else "auto")
    rows, rows_evidence, code_sha256 = _rows(incident, device)
    from_step, origin = _checkpoint(incident)
    signals = incident.at_step
    norms = [] if signals is None or len(signals.grad_norms) != len(incident.parameters) else signals.grad_norms
    return ReplayResult(
        step=incident.step,
        from_step=from_step,
        from_told=origin,
        reproduced="insufficient",
        tolerance=f"{incident.job.trainer} makes its updates itself, so that none can be made again without it",
        compared=(),
        agreed=0,
        on_the_way=0,
        elsewhere=elsewhere(incident, device, code_sha256),
        first_bad=None,
        rows=rows,
        rows_told=rows_evidence,
        layers=outstanding(incident, incident.step, incident.parameters if norms else (), norms),
        notes=_notes(incident),
    )


def _rows(incident: Incident, device: str) -> tuple[tuple[GuiltyRow, ...], str, str]:
    """Rows of the update with inputs that are not finite, what that says, and the hash of the code that made them."""
    # Kept features are left alone: what is to be shown shall hang on rows and code alone.
    prepared = prepare(incident.job.model_copy(update={"kept_features": None}), device)
    numbers, sensitive = incident.batch_rows, bool(incident.job.rows.sensitive_features)
    if not numbers:
        why = "they did not fit into the incident" if NUMBERS in incident.left_out else NUMBERS_NOT_REPORTED
        return (), f"not known: {why}", prepared.code_sha256
    batch = prepared.data.take(torch.tensor(numbers, device=device))
    reasons = {place: why for place in range(len(numbers)) if (why := bad_inputs(batch, place))}
    keys = dict(enumerate(incident.row_keys))
    rows = tuple(
        GuiltyRow(
            row=numbers[place],
            key=keys.get(place, {}),
            told="why is not told, since a feature is sensitive" if sensitive else why,
        )
        for place, why in list(reasons.items())[:_ROWS]
    )
    evidence = f"{len(reasons)} of {len(numbers)} that the script told have inputs that are not finite"
    return (
        rows,
        f"{evidence}; which of the others did it is not known" if not reasons else evidence,
        prepared.code_sha256,
    )


def _checkpoint(incident: Incident) -> tuple[int, str]:
    """The step of the checkpoint that the incident names, and what became of it."""
    if incident.checkpoint is None:
        return 0, "the script had written no checkpoint before"
    path = Path(incident.checkpoint.path)
    try:
        step = int(verify_checkpoint(path, identity=incident.identity)["step"])
    except CheckpointError as error:
        return 0, f"{path.name} is no longer what it was: {error.problem}"
    return step, f"the script's newest checkpoint before it, sound: {path / 'files'}"


def _notes(incident: Incident) -> tuple[str, ...]:
    """What was recorded of the step."""
    signals = incident.at_step
    if signals is None:
        return ("no signals of this step were recorded",)
    norm = f"gradient norm {signals.grad_norm:.9g}" if signals.grad_norms else "no gradient was seen"
    # Told, one that is not finite would be the alarm.
    later = math.isnan(signals.loss) and incident.alarm.monitor != "non_finite_loss"
    loss = "the loss is told after the update, and there was none" if later else f"loss {signals.loss:.9g}"
    return (f"recorded: {loss}; {norm}",)
