"""Overfit ten small batches: a network that cannot learn a handful of rows by heart will learn nothing.

Two yardsticks, both measured on the same rows. The control is the same network on zeroed inputs: the
best that it can do without looking, and never worse than the share of positives. The oracle is logistic
regression fitted to these rows: a small network need not memorise noise, but it must come near to a
straight line. All losses are log losses of predictions in evaluation mode, so that dropout and the
form of loss_fn do not matter.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lifecycle.jobs import PreflightJob
from lifecycle.preflight.check import Check, Found
from lifecycle.preflight.sample import Sample
from lifecycle.preflight.subject import Subject
from lifecycle.training.loop import TrainData, train_step
from lifecycle.training.plan import stage_rows

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCHES, BATCH_ROWS, MAX_STEPS = 10, 32, 400
# Half of the control's loss is memorising. Near to the oracle is enough, if it is below the control at all: a
# linear network under AdamW ended 0.3 % of the way short of the oracle, a slow learning rate 1.3 %.
SHARE, OF_ORACLE, BELOW_CONTROL = 0.5, 0.9, 0.98


def overfits(seen: tuple[PreflightJob, Sample]) -> Found:
    """Train on the ten batches until the target is met, for at most MAX_STEPS updates."""
    job, sample = seen
    subject, chosen = sample.subject, _choose(job, sample)
    small = TrainData({n: t[chosen] for n, t in sample.data.inputs.items()}, sample.data.targets[chosen])
    zeroed = TrainData({name: tensor * 0 for name, tensor in small.inputs.items()}, small.targets)
    control, _ = _fit(subject, zeroed, target=0.0, steps=MAX_STEPS // 4)
    # A control that diverged is no yardstick.
    control = min(control, _entropy(float(small.targets.mean())))
    oracle = _oracle(job, sample, chosen)
    target = min(BELOW_CONTROL * control, max(SHARE * control, control - OF_ORACLE * (control - oracle)))
    reached, steps = _fit(subject, small, target=target, steps=MAX_STEPS)
    evidence = (
        f"{len(chosen)} rows: log loss {reached:.4f} after {steps} updates, wanted {target:.4f}; "
        f"on zeroed inputs {control:.4f}, logistic regression on the same rows {oracle:.4f}"
    )
    return Found("pass" if reached <= target else "fail", evidence, reached, target)


def _choose(job: PreflightJob, sample: Sample) -> Tensor:
    """Row numbers of ten full batches, or of as many as there are; stratified by label."""
    import torch

    wanted = min(1.0, BATCHES * BATCH_ROWS / len(sample.rows))
    chosen = torch.from_numpy(stage_rows(sample.rows[job.rows.label].to_numpy(), wanted, job.training.seed + 1))
    # No last batch of one row: batch norm cannot train on it.
    full = len(chosen) // BATCH_ROWS * BATCH_ROWS
    return (chosen[:full] if full else chosen).to(sample.data.targets.device)


def _fit(subject: Subject, data: TrainData, target: float, steps: int) -> tuple[float, int]:
    """Log loss on the rows after training, and the updates made, at a constant learning rate."""
    import torch

    state = subject.state()
    batches = torch.arange(len(data.targets), device=subject.device).split(BATCH_ROWS)
    reached, done = float("inf"), 0
    while done < steps and not reached <= target:
        state.model.train()
        for rows in batches:
            train_step(state, data, rows, subject.recipe)
        done += len(batches)
        reached = _log_loss(subject, state.model, data)
    return reached, done


def _log_loss(subject: Subject, model: nn.Module, data: TrainData) -> float:
    import torch

    model.eval()
    with torch.no_grad():
        assert subject.predict is not None
        probabilities = subject.predict(model(data.inputs)).reshape(-1).float().clamp(1e-7, 1 - 1e-7)
        return float(torch.nn.functional.binary_cross_entropy(probabilities, data.targets))


def _entropy(share: float) -> float:
    """Log loss of always predicting the share of positives."""
    return -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)


def _oracle(job: PreflightJob, sample: Sample, chosen: Tensor) -> float:
    """Log loss of logistic regression on the rows that it was fitted to."""
    from lifecycle.evaluation.baselines import fit_baselines
    from lifecycle.evaluation.metrics import log_loss

    features = list(job.rows.features)
    rows = sample.rows.iloc[chosen.tolist()][[*features, job.rows.label]]
    linear = fit_baselines(rows, job.rows.features, job.rows.label, ("linear",), job.training.seed)["linear"]
    return float(log_loss(rows[job.rows.label].to_numpy(), linear(rows[features])).mean())


CHECKS = (
    Check(
        "overfit.ten_batches",
        question="Can the network learn ten batches by heart?",
        symptom="the loss stays high even on a handful of rows that are seen again and again",
        cause="a detached graph, frozen or unregistered parameters, inputs that do not reach the output, or a learning "
        "rate that is far off",
        fix="look at the wiring checks first; then try ten times the learning rate, and a tenth of it",
        look=overfits,
    ),
)
