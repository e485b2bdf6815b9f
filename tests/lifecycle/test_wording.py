"""How names and numbers are said."""

import pytest

from trainworthy.lifecycle.tasks import is_better_higher, words_of
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.lifecycle.wording import figures, metric_name, stage_metric_name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("log_loss", "log loss"), ("auc", "AUC"), ("r2", "R²"), ("rmse", "RMSE"), ("mae", "MAE"), ("f1", "F1"),
        ("macro_f1", "macro F1"), ("average_precision", "average precision"), ("pinball", "pinball loss"),
        ("recall[on_time]", "recall of on_time"), ("f1[a[b]]", "F1 of a[b]"),
        ("coverage[0.9]", "coverage of the 0.9 quantile"), ("pinball[0.5]", "pinball loss of the 0.5 quantile"),
    ],
)  # fmt: skip
def test_metric_is_named_as_people_say_it(name, said):
    assert metric_name(name) == said


def test_stage_metric_is_named_as_one_of_validation():
    names = ("val_loss", "val_mae", "val_auc_sd", "val_loss_of_prior", "peak_memory")
    assert [stage_metric_name(name) for name in names] == [
        "validation loss", "validation MAE", "sd of validation AUC", "validation loss of prior", "peak memory",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.4987, -0.0012), ("0.4987", "-0.0012")),
        ((0.00003, 0.0001), ("0.0000300", "0.0001000")),
        ((1788.09, 12.5), ("1,788", "12")),
        ((151.25, 3.0), ("151.2", "3.0")),
        ((0.0, 0.0), ("0.0000", "0.0000")),
        ((float("nan"), 1.0), ("nan", "1.0000")),
    ],
)
def test_figures_have_the_decimals_of_the_largest(values, said):
    assert figures(*values) == said


def test_every_metric_of_every_kind_has_the_direction_that_its_kind_says():
    for kind in (Multiclass(("x", "y z", 3)), Regression(), Regression((0.25, 0.75))):
        for metric in kind.metrics.values():
            assert is_better_higher(metric.name) == (metric.higher_is_better if metric.ranks else None), metric.name


def test_words_of_a_record_are_those_of_its_kind():
    import report_records

    assert words_of(report_records.dataset()).linear == "logistic regression"
    assert words_of(report_records.of_numbers()["full"]) == Regression().words
