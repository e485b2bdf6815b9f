"""Seeds, data-learning curve and avoided cost in the report, and the curve's forecast against what came."""

import report_records as example

from trainworthy.lifecycle.cost.forecast_error import error_figures
from trainworthy.lifecycle.protocol.records import DataCurve, Forecast, StageReport
from trainworthy.lifecycle.protocol.training_figures import SeedResult
from trainworthy.lifecycle.report import in_words
from trainworthy.lifecycle.report.render import render
from trainworthy.lifecycle.report.sections import curve_sentences, score_name, seed_rows

CURVE = DataCurve(
    told="doubling the rows lowers the validation loss by 0.0000 to 0.0170",
    gain=Forecast(name="doubling_gain", unit="nats", value=0.0085, low=0.0, high=0.017),
    full_loss=Forecast(name="full_loss", unit="nats", value=0.497, low=0.47, high=0.525),
    usd=Forecast(name="remaining_cost", unit="usd", value=0.001, low=0.0006, high=0.002),
)
LOSSES = {0: 0.5231, 1: 0.5219, 2: 0.5244}


def scaled(**full):
    """An experiment whose pilot had three seeds, the last of which would have been stopped."""
    records = example.experiment()
    trained = tuple(
        SeedResult(seed=seed, val_loss=loss, val_auc=0.7, resumed_from_step=0, stopped_by=("learned",) * (seed == 2))
        for seed, loss in LOSSES.items()
    )
    records["pilot"] = records["pilot"].model_copy(update={"trained": trained, "data_curve": CURVE})
    records["full"] = records["full"].model_copy(update=full)
    return records


def test_report_lists_every_seed_and_says_which_counts():
    rows = seed_rows(scaled())
    assert [(row.stage, row.seed, row.val_loss) for row in rows] == [
        ("pilot", 0, "0.5231"), ("pilot", 1, "0.5219"), ("pilot", 2, "0.5244"),
    ]  # fmt: skip
    assert [row.note for row in rows] == ["this one counts", "", "would be stopped by learned"]
    assert "would be stopped by learned" in render(scaled(), {})
    assert seed_rows(example.experiment()) == []


def test_report_shows_the_score_of_old_and_new_seeds_alike():
    old = seed_rows(scaled())
    assert [row.val_score for row in old] == ["0.7000"] * 3
    assert score_name(scaled()) == "Validation AUC"
    numbers = example.of_numbers()
    assert [row.val_score for row in seed_rows(numbers)] == ["24.1000"] * 3
    assert [row.val_loss for row in seed_rows(numbers)] == ["1,788", "1,797", "1,806"]
    assert score_name(numbers) == "Validation MAE"


def test_report_holds_the_curve_against_what_full_reached():
    after = DataCurve(told="twice the rows would lower the validation loss by 0.0000 to 0.0080")
    told = curve_sentences(scaled(data_curve=after))
    assert told == [
        f"After pilot: {CURVE.told}.",
        "Full reached 0.4987, inside the interval.",
        f"After full: {after.told}.",
    ]
    beyond = curve_sentences(scaled(metrics={"val_loss": 0.46, "val_loss_of_prior": 0.5771}))
    assert beyond[1] == "Full reached 0.4600, below the interval."
    page = render(scaled(), {})
    assert CURVE.told in page
    assert "Bar: what the pilot expected of full." in page


def test_error_of_the_curve_is_a_share_of_its_forecast():
    records = scaled()
    stages = [record for record in records.values() if isinstance(record, StageReport)]
    error = error_figures(example.preflight(), stages)["forecast_validation_loss_error"]
    assert error == 0.4987 / 0.497 - 1


def test_stop_says_what_it_avoided_in_report_and_reasons():
    records = example.stopped_at_pilot()
    records["pilot"] = records["pilot"].model_copy(update={"avoided_usd": CURVE.usd})
    assert in_words.reasons(records["pilot"])[-1].startswith("The stop avoided")
    assert "The stop avoided" in render(records, {}, "pilot")
