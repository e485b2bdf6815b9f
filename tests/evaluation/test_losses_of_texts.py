"""A language model's loss is of bytes: blind spots, residuals and fairness weigh a text by how many it has."""

import numpy as np
import pandas as pd
import pytest
from known import known

from trainworthy.lifecycle.evaluation.blind_spots import benchmark_spots
from trainworthy.lifecycle.evaluation.fairness import fairness
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.residuals import residuals
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.evaluation.slices import slice_column
from trainworthy.lifecycle.spec.benchmark import FairnessSpec
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.metric import value
from trainworthy.lifecycle.tasks.statistic_columns import as_columns

KIND, ROWS, GROUPS = LanguageModel(64), 6_000, 40


def texts(seed: int, planted: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Answers to texts of 1 to 64 bytes, and the rows; those of one source cost more a byte if that is planted."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 65, ROWS)
    rows = pd.DataFrame(
        {"source": random.choice(["wiki", "forum", "code", "mail"], ROWS), "year": random.integers(0, 9, ROWS)}
    )
    frame = pd.DataFrame({"row": np.arange(ROWS), "group": random.integers(0, GROUPS, ROWS), "label": "ab"})
    frame[slice_column("source")] = rows["source"]
    for model, level in {"candidate": 1.0, "prior": 3.0}.items():
        # A byte's loss is of an exponential, so that few bytes have a mean that swings widely.
        nats = random.gamma(sizes, level)
        if planted and model == "candidate":
            nats = nats * np.where(rows["source"] == "forum", 1.6, 1.0)
        statistics = np.zeros((ROWS, len(KIND.statistic_names)))
        statistics[:, 0], statistics[:, 1] = nats, sizes
        frame = pd.concat([frame, pd.DataFrame(as_columns(KIND, model, statistics))], axis=1)
    return frame, rows


def confirmed(seed: int, planted: bool) -> list[str]:
    frame, rows = texts(seed, planted)
    return [
        spot.rule for spot in benchmark_spots(frame, rows, training_cuts(rows), KIND, ["prior"]).spots if spot.confirmed
    ]


def test_part_of_texts_that_costs_more_a_byte_is_a_blind_spot_and_there_is_none_without():
    _, rows = texts(0, planted=True)
    (rule, *_) = confirmed(0, planted=True)
    forum = rows["source"] == "forum"
    assert parse(rule).mask(rows)[~forum].mean() < 0.01
    assert parse(rule).mask(rows)[forum].mean() > 0.9
    assert [confirmed(seed, planted=False) for seed in range(10)] == [[]] * 10


def test_losses_weighed_by_bytes_are_the_metric_over_all_rows_and_over_parts():
    frame, rows = texts(1, planted=True)
    statistics = frame[[name for name in frame if str(name).startswith("candidate")]].to_numpy()
    labels = KIND.checked_labels(frame["label"])
    found = KIND.judged_losses(labels, statistics)
    assert np.average(found.losses, weights=found.weights(None)) == pytest.approx(
        value(KIND.metrics["log_loss"], labels, statistics)
    )
    by_source = {axis.by: axis.parts for axis in known(residuals(frame, rows, KIND, ["prior"], ordered=False)).axes}[
        "source"
    ]
    told = {part.name: known(part.loss).value for part in by_source}
    of_values = fairness(frame, FairnessSpec(columns=("source",)), "candidate", KIND)
    (mean_loss,) = [one for one in of_values if one.rate == "mean_loss"]
    for source in ("wiki", "forum"):
        some = (rows["source"] == source).to_numpy()
        expected = value(KIND.metrics["log_loss"], labels[some], statistics[some])
        assert told[f"source={source}"] == pytest.approx(expected)
        (rate,) = [one.rate for one in mean_loss.values if one.value == f"source={source}"]
        assert known(rate).value == pytest.approx(expected)


def test_weights_of_rows_and_bytes_weigh_together():
    found = KIND.judged_losses(np.zeros((2, 1)), np.array([[2.0, 1.0], [9.0, 3.0]]))
    assert found.losses.tolist() == [2.0, 3.0]
    assert known(found.weights(np.array([3.0, 2.0]))).tolist() == [3.0, 6.0]
