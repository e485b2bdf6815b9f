import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax
from sklearn.metrics import confusion_matrix, log_loss

from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.tasks.masks import read_mask, read_masks
from trainworthy.lifecycle.tasks.metric import estimate, value
from trainworthy.lifecycle.tasks.segmentation import GRID, Segmentation
from trainworthy.lifecycle.tasks.statistic_columns import as_columns, from_columns, statistic_columns

CLASSES = ("ground", "disc", "ring", "rare")
# Metrics of masks are of statistics; of labels they need the number of rows alone.
ROWS = np.zeros(0)
KIND = Segmentation(CLASSES)


def drawn(rows: int = 12, height: int = 40, width: int = 48, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the first three classes, and probabilities as predict gives them that know something of these."""
    random = np.random.default_rng(seed)
    masks = random.choice(3, size=(rows, height, width), p=[0.7, 0.2, 0.1]).astype(np.uint8)
    outputs = random.normal(size=(rows, len(CLASSES), height, width)) + 1.5 * (
        masks[:, None] == np.arange(len(CLASSES))[:, None, None]
    )
    return masks, softmax(outputs, axis=1).astype(np.float32)


def kept(masks: np.ndarray, raw: np.ndarray) -> np.ndarray:
    return KIND.statistics(masks, KIND.of_predict(raw, whole=True))


def confusion(masks: np.ndarray, raw: np.ndarray) -> np.ndarray:
    return confusion_matrix(masks.ravel(), raw.argmax(axis=1).ravel(), labels=range(len(CLASSES)))


def overlaps(masks: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """IoU and Dice of each class by the confusion matrix, NaN where nobody has the class."""
    counts = confusion(masks, raw)
    both, mask, answer = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return both / (mask + answer - both), 2 * both / (mask + answer)


ORACLES = {
    "log_loss": lambda masks, raw: log_loss(
        masks.ravel(), np.moveaxis(raw, 1, 3).reshape(-1, len(CLASSES)).astype(float), labels=range(len(CLASSES))
    ),
    "brier": lambda masks, raw: np.square(
        np.moveaxis(raw, 1, 3).astype(float) - np.eye(len(CLASSES))[masks]
    ).sum(axis=3).mean(),
    "pixel_accuracy": lambda masks, raw: (raw.argmax(axis=1) == masks).mean(),
    "mean_iou": lambda masks, raw: np.nanmean(overlaps(masks, raw)[0]),
    "dice": lambda masks, raw: np.nanmean(overlaps(masks, raw)[1]),
    "iou[disc]": lambda masks, raw: overlaps(masks, raw)[0][1],
    "dice[ring]": lambda masks, raw: overlaps(masks, raw)[1][2],
    "mean_iou_per_picture": lambda masks, raw: np.mean(
        [np.nanmean(overlaps(mask[None], one[None])[0]) for mask, one in zip(masks, raw, strict=True)]
    ),
    "dice_per_picture": lambda masks, raw: np.mean(
        [np.nanmean(overlaps(mask[None], one[None])[1]) for mask, one in zip(masks, raw, strict=True)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_metric_of_masks_is_the_known_one(name):
    masks, raw = drawn()
    statistics = kept(masks, raw)
    # float32 answers, of which each row's mean is taken in float64.
    assert value(KIND.metrics[name], ROWS, statistics) == pytest.approx(ORACLES[name](masks, raw), rel=1e-6)


def test_counts_of_pixels_are_exact_and_weights_are_rows_again():
    masks, raw = drawn()
    statistics = kept(masks, raw)
    again = np.repeat(np.arange(len(masks)), np.arange(len(masks)) % 3)
    for name, metric in KIND.metrics.items():
        weighed = value(metric, ROWS, statistics, np.arange(len(masks)) % 3.0)
        assert weighed == pytest.approx(value(metric, ROWS, statistics[again]), rel=1e-12, nan_ok=True), name
    assert value(KIND.metrics["mean_iou"], ROWS, statistics) == pytest.approx(
        np.nanmean(overlaps(masks, raw)[0]), rel=1e-12
    )


def test_intervals_by_group_and_a_class_that_nobody_has():
    masks, raw = drawn(rows=40)
    found = estimate(KIND.metrics["mean_iou"], ROWS, kept(masks, raw), np.arange(40) // 4)
    assert found.low < value(KIND.metrics["mean_iou"], ROWS, kept(masks, raw)) < found.high
    raw[:, 3] = 0
    raw /= raw.sum(axis=1, keepdims=True)
    with pytest.raises(EvaluationError):
        estimate(KIND.metrics["iou[rare]"], ROWS, kept(masks, raw), np.arange(40) // 4)


def test_calibration_error_of_fixed_bins():
    masks, raw = drawn()
    sure, right = raw.max(axis=1).ravel(), (raw.argmax(axis=1) == masks).ravel()
    bins = np.minimum((sure * 10).astype(int), 9)
    off = sum(abs(sure[bins == at].sum(dtype=float) - right[bins == at].sum()) for at in range(10)) / len(sure)
    assert value(KIND.metrics["calibration_error"], ROWS, kept(masks, raw)) == pytest.approx(off, rel=1e-6)
    assert sum(one.rows for one in KIND.reliability(masks, kept(masks, raw))) == pytest.approx(masks.size, abs=10)


def test_grid_stands_for_the_mask():
    masks, raw = drawn(rows=200, height=96, width=64)
    labels = KIND.checked_labels(masks)
    assert labels.shape == (200, GRID, GRID)
    assert (KIND.checked_labels(KIND.column(masks)) == labels).all()
    whole = value(KIND.metrics["log_loss"], ROWS, kept(masks, raw))
    assert KIND.row_loss(*KIND.checked(masks, KIND.of_predict(raw))).mean() == pytest.approx(whole, rel=0.01)


def test_small_masks_are_taken_whole():
    masks, raw = drawn(height=GRID, width=GRID)
    assert (KIND.checked_labels(masks) == masks).all()
    losses = KIND.row_loss(*KIND.checked(masks, KIND.of_predict(raw)))
    assert losses == pytest.approx(kept(masks, raw)[:, 0], rel=1e-5)


def test_answers_of_another_size_are_enlarged():
    masks, _ = drawn(height=40, width=40)
    coarse = np.eye(len(CLASSES), dtype=np.float32)[masks[:, ::2, ::2]]
    statistics = KIND.statistics(np.repeat(np.repeat(masks[:, ::2, ::2], 2, axis=1), 2, axis=2), coarse)
    assert value(KIND.metrics["pixel_accuracy"], ROWS, statistics) == 1


def test_calibration_mends_answers_that_are_too_sure():
    masks, raw = drawn(rows=60)
    labels, sure = KIND.checked(masks, KIND.of_predict(softmax(4 * np.log(raw), axis=1)))
    state = KIND.fit_calibration(labels, sure)
    assert 4 * state["slope"] == pytest.approx(KIND.fit_calibration(masks, KIND.of_predict(raw))["slope"], rel=0.02)
    better, now = (KIND.row_loss(labels, one).mean() for one in (KIND.calibrated(sure, state), sure))
    assert better < 0.8 * now
    assert KIND.calibrated(sure, KIND.uncalibrated) == pytest.approx(sure, abs=1e-6)


def test_prior_events_strata_and_words():
    masks, _ = drawn(rows=60)
    masks[:20] = np.where(masks[:20] == 1, 0, masks[:20])
    labels = KIND.checked_labels(masks)
    prior = KIND.prior(labels)
    assert prior.shape == KIND.answer_shape
    assert prior[0, 0, 3] == 0
    assert prior.sum(axis=-1) == pytest.approx(1)
    event = KIND.events(labels)[0]
    assert 0.3 < event.of_labels(labels).mean() < 0.7
    ideal = KIND.of_predict(np.moveaxis(np.eye(len(CLASSES))[masks], 3, 1))
    scores = event.of_answers(ideal)
    assert scores[event.of_labels(labels)].min() > scores[~event.of_labels(labels)].max()
    assert len(np.unique(KIND.strata(labels))) == 4
    assert "4 classes, ground" in KIND.in_words(labels)
    assert KIND.one_valued(np.zeros((3, 8, 8), dtype=int)) == "all pixels are of one class (ground)"
    assert "fewer than 2" in KIND.shortage(np.zeros((30, 8, 8), dtype=int), np.arange(30))


def test_statistics_come_back_from_a_tables_columns():
    import pandas as pd

    masks, raw = drawn()
    stored = as_columns(KIND, "candidate", kept(masks, raw))
    assert list(stored) == statistic_columns(KIND, "candidate")
    again = from_columns(KIND, "candidate", pd.DataFrame(stored)).copy()
    labels, statistics = KIND.checked_statistics(KIND.column(masks), again)
    assert (statistics == kept(masks, raw)).all()
    assert labels.shape == (len(masks), GRID, GRID)
    again[0, 0] = np.nan
    with pytest.raises(EvaluationError, match="not finite"):
        KIND.checked_statistics(masks, again)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda raw: raw[:, :2], "4 probabilities"),
        (lambda raw: raw.argmax(axis=1), "4 probabilities"),
        (lambda raw: raw * 2, "add up to 1"),
        (lambda raw: raw - 0.3, "add up to 1"),
        (lambda raw: raw * np.nan, "add up to 1"),
        (lambda raw: np.log(raw), "add up to 1"),
    ],
)
def test_answers_that_are_none_are_refused_with_a_fix(change, told):
    masks, raw = drawn()
    with pytest.raises(EvaluationError, match=told) as error:
        KIND.checked(masks, KIND.of_predict(change(raw)))
    assert error.value.fix


def test_one_row_that_is_not_finite_is_refused_among_all_pixels():
    masks, raw = drawn()
    raw[7, 0, 3, 3] = np.nan
    with pytest.raises(EvaluationError, match="not finite"):
        kept(masks, raw)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda path: Image.fromarray(np.full((4, 4), 9, dtype=np.uint8)).save(path), "no declared class"),
        (lambda path: Image.new("RGB", (4, 4)).save(path), "no class a pixel"),
        (lambda path: path.write_bytes(b"no picture"), "can't be read"),
    ],
)
def test_files_that_are_no_masks_are_named(tmp_path, made, told):
    path = tmp_path / "wrong.png"
    made(path)
    with pytest.raises(EvaluationError, match=told) as error:
        read_mask(path, len(CLASSES))
    assert "wrong.png" in error.value.problem
    assert error.value.fix


def test_masks_are_read_from_palettes_and_must_have_one_size(tmp_path):
    masks, _ = drawn(rows=3)
    picture = Image.fromarray(masks[0])
    picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    picture.save(tmp_path / "0.png")
    Image.fromarray(masks[1]).save(tmp_path / "1.png")
    found = read_masks([tmp_path / "0.png", tmp_path / "1.png"], len(CLASSES))
    assert (found == masks[:2]).all()
    Image.fromarray(masks[2][:10]).save(tmp_path / "2.png")
    with pytest.raises(EvaluationError, match="different sizes"):
        read_masks([tmp_path / "0.png", tmp_path / "2.png"], len(CLASSES))
