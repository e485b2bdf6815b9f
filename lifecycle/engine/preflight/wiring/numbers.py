"""Does predict of a regression mean what the loss means? Asked at the outputs that the loss likes best.

Free outputs of each row: whatever the loss is, it likes best what stands for the row's own label, so predict has to
give that. One output for all rows: predict has to give a middle of the labels, or their declared quantiles. The first
shows another unit, the second other quantiles than the declared ones, which no single row can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from trainworthy.lifecycle.engine.outputs.free_outputs import link_of, same
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring.best import downhill
from trainworthy.lifecycle.engine.preflight.wiring.descent import leads_away
from trainworthy.lifecycle.engine.preflight.wiring.passes import few, forward, stirred
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.tasks import Kind

ROWS, ROWS_OF_CONSTANT = 64, 1024
# Of Rprop, whose steps grow by a fifth or halve: 1.2 ** 60 is 6e4 times the outputs' own spread.
STEPS = 150
# Median distance of a row's answer from its label, in median distances of labels from their middle. Measured: losses
# with a clip, a logarithm, a Huber bound or bins at most 0.1; another unit 0.9 and more.
OFF_LABEL = 0.5
# By how much an answer rises with its label, between this and its inverse, where a loss only shifts: a smooth pinball
# loss likes best an answer beside the label, by the same distance for all rows, and is right for all rows together.
ONE_UNIT = 0.8
# Said of such a loss.
ENDLESS = "the loss falls without end, as with a wrong sign, so that none is the best one"
# Standard deviations that one answer for all may lie from the labels' mean: their median lies within one.
OFF_MIDDLE = 1.0
# Share of the labels that may lie on the wrong side of a quantile. Measured: 0.01 with a smoothed pinball loss; a bell
# curve on labels that are none up to 0.2, a level for another 0.3 and more.
OFF_QUANTILE, OTHER_QUANTILE = 0.03, 0.25
# Of the distance between the labels' own quantiles: where answers of several levels lie nearer, the loss asks the same
# of all.
ALIKE = 0.01
# Networks of other weights whose quantiles are asked to rise.
STIRRED = 3
_UNIT = (
    "predict gives another unit than the one in which loss_fn compares outputs with labels, or squashes the outputs",
    "let predict undo what loss_fn does to the labels; or let forward answer in the label's own unit: "
    'preprocessing["target"] holds the mean and standard deviation of the training rows\' labels',
)
_QUANTILE = (
    "levels in loss_fn that are not the declared ones, in another order, or with over- and underestimates swapped",
    "a row's loss of level q is max(q * off, (q - 1) * off) of off = target - output, in the order of task.quantiles",
)
_LEVELS = (
    "a loss that asks the same of every level, such as a squared error: all outputs become the mean",
    _QUANTILE[1],
)
_SIGN = (
    "predict turns the sign of the outputs, or loss_fn compares labels with minus the outputs",
    "let predict give what loss_fn compares with the labels",
)
_CROSSING = (
    "outputs whose order nothing holds: one row with crossed quantiles ends a stage, or a request",
    "let predict give rising quantiles, for example outputs.sort(dim=1).values",
)
_MIDDLE = (
    "a loss of a quantile or of one side, or an offset in predict",
    "use a squared or absolute error, or declare the quantile: task: {kind: regression, quantiles: [0.9]}",
)


def predicted_numbers(subject: Subject, kind: Kind) -> Outcome:
    """The answers to each row's best output, and to the best one for all."""
    if subject.claims.rows == "together":
        return Outcome(
            "not_applicable", "declared: the loss compares rows, so that no row has a best output of its own"
        )
    data = few(subject, ROWS_OF_CONSTANT)
    with torch.no_grad():
        outputs = forward(subject.model().eval(), data.inputs)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point() or len(outputs) != len(data.targets):
        return Outcome("not_applicable", "outputs are no tensor of a row each")
    outputs, targets = outputs.detach().float(), data.targets
    if float(targets.min()) == float(targets.max()):
        return Outcome("not_applicable", f"all of {len(targets)} rows have one label")
    of_rows = _answers(subject, outputs[:ROWS], targets[:ROWS], constant=False)
    of_all = _answers(subject, outputs, targets, constant=True)
    if of_rows is None or of_all is None:
        away = leads_away(subject, outputs[:ROWS], targets[:ROWS])
        return away or Outcome("insufficient", "the loss has no lowest value that could be searched for")
    wrong, description = _off_label(of_rows[0], targets[:ROWS].double().cpu().numpy())
    if wrong is not None and falls_without_end(
        lambda some: subject.recipe.loss_fn(some, targets[:ROWS]), outputs[:ROWS], of_rows[1]
    ):
        away = leads_away(subject, outputs[:ROWS], targets[:ROWS])
        return away or Outcome("insufficient", f"{description}; but {ENDLESS}")
    labels = targets.double().cpu().numpy()
    middle = _off_middle(of_all[0], labels, kind, description)
    if len(kind.answer_names) > 1 and middle is None and _in_one_unit(of_rows[0], labels[:ROWS]):
        wrong = None
    return wrong or middle or _crossing(subject, data.inputs, kind, description)


def _off_label(answers: np.ndarray, labels: np.ndarray) -> tuple[Outcome | None, str]:
    """What is wrong if most rows' answers are not near their labels, and how near they are."""
    usual = float(np.median(np.abs(labels - np.median(labels)))) or float(np.abs(labels - labels.mean()).mean())
    distances = np.abs(answers.reshape(len(labels), -1) - labels[:, None])
    off = float(np.median(distances, axis=0).max()) / max(usual, 1e-30)
    (low, high), (lowest, highest) = (np.quantile(values, (0.1, 0.9)) for values in (labels, answers))
    description = (
        f"at the outputs that the loss likes best for each row, 80 % of the answers lie from {lowest:.4g} to "
        f"{highest:.4g}, of the labels from {low:.4g} to {high:.4g}"
    )
    if off <= OFF_LABEL:
        return None, description
    middle = answers.reshape(len(labels), -1).mean(axis=1)
    falls = float(middle.std()) > 0 and float(np.corrcoef(middle, labels)[0, 1]) < -OFF_LABEL
    return Outcome("fail", description, off, OFF_LABEL, *(_SIGN if falls else _UNIT)), description


def _in_one_unit(answers: np.ndarray, labels: np.ndarray) -> bool:
    """Whether the answers of every level, (N, K), rise with the labels one for one."""
    slopes = np.polyfit(labels, answers, 1)[0]
    return bool((slopes > ONE_UNIT).all() and (slopes < 1 / ONE_UNIT).all())


def falls_without_end(loss_of: Callable[[Tensor], Tensor], start: Tensor, best: Tensor) -> bool:
    """Whether the loss is much lower ten times as far from the start as where it was found to be low."""
    with torch.no_grad():
        try:
            near, far = (float(loss_of(some).float().mean()) for some in (best, start + 10 * (best - start)))
        except (RuntimeError, ValueError):
            return False
    return far < near - max(1.0, abs(near))


def _crossing(subject: Subject, inputs: Mapping[str, Tensor], kind: Kind, description: str) -> Outcome:
    """A warning if quantiles cross once the network's weights are others."""
    if len(kind.answer_names) > 1:
        for seed in range(STIRRED):
            with torch.no_grad():
                given = subject.predict(forward(stirred(subject.model(), 1.0, seed).eval(), inputs))  # pyright: ignore[reportOptionalCall]
            crossed = float((given[:, 1:] < given[:, :-1]).any(dim=1).float().mean())
            if crossed > 0:
                evidence = f"with other weights of the same size, the quantiles of {crossed:.0%} of the rows cross"
                return Outcome("fail", evidence, crossed, 0.0, *_CROSSING, severity="warning")
    return Outcome("pass", description)


def _off_middle(answer: np.ndarray, labels: np.ndarray, kind: Kind, description: str) -> Outcome | None:
    """Of one output for all rows, `answer` of shape (1, ...)."""
    every = np.broadcast_to(answer, (len(labels), *answer.shape[1:]))
    try:
        kind.checked(labels, every)
    except EvaluationError as error:
        evidence = f"at the output that the loss likes best for all rows: {error.problem}, {error.value}"
        return Outcome("fail", evidence, cause=_QUANTILE[0], fix=f"{_QUANTILE[1]}; {error.fix}")
    if every.ndim == 1:
        off = abs(float(answer[0]) - float(labels.mean())) / float(labels.std())
        said = f"one output for all rows gives {float(answer[0]):.4g}, where the labels' mean is {labels.mean():.4g}"
        if off > OFF_MIDDLE:
            return Outcome("fail", said, off, OFF_MIDDLE, *_MIDDLE, severity="warning")
        return None
    levels = [float(name) for name in kind.answer_names]
    spread, label_spread = (float(np.ptp(values)) for values in (answer[0], np.quantile(labels, levels)))
    if spread < ALIKE * label_spread:
        said = f"one output for all rows gives {float(answer[0][0]):.4g} for each of the levels {levels}"
        return Outcome("fail", said, spread, ALIKE * label_spread, *_LEVELS)
    misses = [
        _missed(labels, float(quantile), float(name))
        for quantile, name in zip(answer[0], kind.answer_names, strict=True)
    ]
    off, share, name = max((*missed, name) for missed, name in zip(misses, kind.answer_names, strict=True))
    said = f"one output for all rows gives quantiles of which {name} has {share:.1%} of the labels below"
    if off > OFF_QUANTILE:
        severity = "error" if off > OTHER_QUANTILE else "warning"
        return Outcome("fail", said, off, OFF_QUANTILE, *_QUANTILE, severity=severity)
    return None


def _missed(labels: np.ndarray, answer: float, level: float) -> tuple[float, float]:
    """How far a level is from the shares of labels below and up to an answer, and the nearer share."""
    near = 1e-5 * max(abs(answer), float(labels.std()))
    below, up_to = float((labels < answer - near).mean()), float((labels <= answer + near).mean())
    off = max(below - level, level - up_to, 0.0)
    return off, below if below > level else up_to


def _answers(subject: Subject, outputs: Tensor, targets: Tensor, *, constant: bool) -> tuple[np.ndarray, Tensor] | None:
    """What predict gives, (N, ...), for the best output of each row, and these; (1, ...) for the best one for all.

    Outputs keep to the range of the network's own where others have no finite loss. None where nothing finite is found.
    """
    assert subject.predict is not None
    start = outputs.mean(0, keepdim=True) if constant else outputs
    size = max(float(outputs.std()), 1e-3 * float(outputs.abs().max()), 1e-3)
    for link in (same, link_of([outputs])):
        steps = downhill(
            lambda free, link=link: subject.recipe.loss_fn(link(free).expand(outputs.shape), targets),
            start if link is same else start * 0,
            size if link is same else 1.0,
        )
        best = next(islice(steps, STEPS - 1, None), None)
        if best is None:
            continue
        answers = subject.predict(link(best)).detach().double().cpu().numpy()
        if np.isfinite(answers).all():
            return answers, link(best)
    return None
