"""Labels and outputs of a case of tensors as those of a kind of task: numbers, classes, labels, masks, texts.

A mask becomes a file, and its picture one in eight bits, which baselines read; a token becomes a printable byte. What
the subject's own functions take stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks.segmentation import Segmentation

# Outputs of these hosts are no answers, and what would make answers of them their benches do not say.
NO_ANSWERS = {
    "counts": "outputs are logarithms of rates",
    "quantile_regression": "outputs are quantiles, not means",
    "capsules": "outputs are lengths, not logits",
    "masked_language_model": "bytes are answered by those behind them, too",
    "span_corruption": "bytes are answered by those behind them, too",
}
FEW_ROWS = 8
# The byte of the first token: no white space, of which a text may not consist alone.
FIRST_BYTE, BYTES = 33, 256
NOTHING = -100
CLASSES = ("ground", "object")


class NotAskedError(Exception):
    """The case is no use case with rows; the message says why."""


def _as_it_is(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class Form:
    """A kind's target, and what stands between the kind and the subject.

    `columns` writes rows' columns beside their numbers, label among them, with files in a folder below that name.
    `own` makes the subject's targets of the kind's, `kinds` the other way round, `answers` answers of outputs.
    `features` are the columns that only baselines read, `rows` what Rows has to know of files.
    """

    target: Target
    columns: Callable[[TrainData, Path, str], dict[str, Any]]
    answers: Callable[[Tensor], Tensor]
    own: Callable[[Tensor], Tensor] = _as_it_is
    kinds: Callable[[Tensor], Tensor] = _as_it_is
    features: tuple[str, ...] = ()
    rows: Mapping[str, Any] = field(default_factory=dict)


def form_of(host: str, subject: Subject) -> Form:
    """The form of the subject's labels and outputs. Raises NotAskedError."""
    targets, claims = subject.training.targets, subject.claims
    if host in NO_ANSWERS:
        raise NotAskedError(NO_ANSWERS[host])
    if claims.labels == "unused" or claims.rows == "together":
        raise NotAskedError("labels are not what is learned")
    two = targets.is_floating_point() and bool(((targets == 0) | (targets == 1)).all())
    if subject.predict is not None:
        if not two or targets.dim() != 1:
            raise NotAskedError("labels that the answers' kind refuses")
        return Form(Target(kind="binary"), _whole_numbers, subject.predict)
    with torch.no_grad():
        outputs: Any = subject.model().eval()(subject.training.take(torch.arange(FEW_ROWS)).inputs)
    shape = tuple(outputs.shape[1:]) if isinstance(outputs, Tensor) else None
    if targets.dim() > 1 and shape is not None:
        return _of_places(subject, two, shape)
    if not targets.is_floating_point() and shape is not None and len(shape) == 1:
        target = Target(kind="multiclass", classes=tuple(range(shape[0])))
        return Form(target, _numbers, lambda outputs: outputs.softmax(dim=1))
    if targets.is_floating_point() and not two and shape in ((), (1,)):
        return Form(Target(kind="regression"), _numbers, lambda outputs: outputs.reshape(len(outputs)))
    raise NotAskedError("outputs that nothing makes answers of")


def _of_places(subject: Subject, two: bool, shape: tuple[int, ...]) -> Form:
    """Of several labels a row, a mask or a text. Raises NotAskedError."""
    targets, inputs = subject.training.targets, subject.training.inputs
    if two and shape == tuple(targets.shape[1:]):
        if targets.dim() == 2:
            return Form(Target(kind="multilabel", classes=_names(shape[0])), _digits, torch.sigmoid)
        if targets.dim() == 3 and "image" in inputs:
            return _MASKS
    if not targets.is_floating_point() and targets.dim() == 2 and len(shape) == 2 and "tokens" in inputs:
        known = targets >= 0
        ended = bool((known[:, 1:] <= known[:, :-1]).all()) and bool(known[:, 0].all())
        if ended and shape[0] == targets.shape[1] and shape[1] + FIRST_BYTE <= BYTES:
            return _texts(shape[0])
    raise NotAskedError("labels of several places that are of no kind")


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"label {number}" for number in range(count))


def _numbers(data: TrainData, folder: Path, split: str) -> dict[str, Any]:
    return {"label": data.targets.numpy()}


def _whole_numbers(data: TrainData, folder: Path, split: str) -> dict[str, Any]:
    """A use case declares labels of two values as whole numbers."""
    return {"label": data.targets.numpy().astype(int)}


def _digits(data: TrainData, folder: Path, split: str) -> dict[str, Any]:
    return {"label": ["".join("1" if one else "0" for one in row) for row in data.targets.tolist()]}


def _mask_files(data: TrainData, folder: Path, split: str) -> dict[str, Any]:
    masks, images = data.targets.numpy().astype(np.uint8), data.inputs["image"].numpy()
    low, high = images.min(), images.max()
    pictures = ((images - low) / (high - low) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    (folder / "files").mkdir(exist_ok=True)
    names = {name: [f"files/{split} {row} {name}.png" for row in range(len(masks))] for name in ("picture", "mask")}
    for row, mask in enumerate(masks):
        Image.fromarray(pictures[row].squeeze()).save(folder / names["picture"][row])
        Image.fromarray(mask).save(folder / names["mask"][row])
    return names | {"label": Segmentation(CLASSES).column(masks)}


def _integral(masks: Tensor) -> Tensor:
    """Masks as the kind has them, where they still are such after an augmentation."""
    return masks.long() if bool((masks == masks.round()).all()) else masks


_MASKS = Form(
    Target(kind="segmentation", classes=CLASSES),
    _mask_files,
    lambda outputs: torch.stack([(-outputs).sigmoid(), outputs.sigmoid()], dim=1),
    own=lambda masks: masks.float(),
    kinds=_integral,
    features=("picture",),
    rows={"files": ("picture", "mask"), "label_file": "mask"},
)


def _texts(length: int) -> Form:
    def columns(data: TrainData, folder: Path, split: str) -> dict[str, Any]:
        texts = ["".join(chr(FIRST_BYTE + code) for code in row if code >= 0) for row in data.targets.tolist()]
        return {"text": texts, "label": texts}

    def answers(outputs: Tensor) -> Tensor:
        shares = outputs.softmax(dim=-1)
        behind = BYTES - FIRST_BYTE - shares.shape[-1]
        return torch.nn.functional.pad(shares, (FIRST_BYTE, behind))

    return Form(
        Target(kind="language_model", length=length),
        columns,
        answers,
        own=lambda codes: torch.where(codes >= 0, codes - FIRST_BYTE, NOTHING),
        kinds=lambda codes: torch.where(codes >= 0, codes + FIRST_BYTE, NOTHING),
        features=("text",),
    )
