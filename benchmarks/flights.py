"""The flights network against HistGradientBoosting, same rows and columns, September to December.

For each month, both train on all earlier rows up to the embargo of one day and are scored on the month,
uncalibrated. Network: the declared values, our loop, median of three seeds. HistGradientBoosting:
categorical features, early_stopping=False, 100 and 300 rounds, of which the better mean over the months
counts. Target: the network is not worse by more than 0.01 AUC and 0.01 log loss.

    make bench NAME=flights          about 8 minutes on 2 cores
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import pandas as pd
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.flights_rows import labelled
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.state import TrainData, TrainState
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.task import fit_preprocessing, load_task
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.probabilities import auc, log_loss
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

TOLERANCE = 0.01


class Size(NamedTuple):
    """The months that both are scored on, the network's seeds, and the rounds of boosting."""

    months: tuple[int, ...]
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]


WHOLE, SHORT = Size((9, 10, 11, 12), (0, 1, 2), (100, 300)), Size((9,), (0,), (3, 6))


def main() -> None:
    """Run all months and print the table."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    size = SHORT if short else WHOLE
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    contract = load_contract(use_case.contract_path)
    rows = labelled(contract, short)
    table = []
    for month in size.months:
        start = pd.Timestamp(2013, month, 1)
        before, held = rows[rows["date"] < start - pd.Timedelta(days=1)], rows[rows["month"] == month]
        network = _network(use_case, contract, before, held, size.seeds)
        scores = {**network, **_boosting(contract, before, held, size.rounds)}
        table += [{"month": month, "model": name, **values} for name, values in scores.items()]
        print(pd.DataFrame(table[-len(scores) :]).to_string(index=False), flush=True)
    means = pd.DataFrame(table).groupby("model")[["auc", "log_loss", "seconds"]].mean()
    print("\nmean over the months")
    print(means.round(4).to_string())
    best_auc = max(means.loc[f"boosting_{n}", "auc"] for n in size.rounds)
    best_loss = min(means.loc[f"boosting_{n}", "log_loss"] for n in size.rounds)
    figures = {
        "network_auc": means.loc["network", "auc"],
        "network_log_loss": means.loc["network", "log_loss"],
        "boosting_auc": best_auc,
        "boosting_log_loss": best_loss,
        "auc_deficit": best_auc - means.loc["network", "auc"],
        "log_loss_deficit": means.loc["network", "log_loss"] - best_loss,
    }
    targets = {"auc_deficit": TOLERANCE, "log_loss_deficit": TOLERANCE}
    finish("flights", figures, targets, short=short, zero_allowed=targets)


def _network(
    use_case, contract, before: pd.DataFrame, held: pd.DataFrame, seeds: tuple[int, ...]
) -> dict[str, dict[str, float]]:
    """Median over the seeds of each score; trained by the product's own loop."""
    task, spec, features = load_task(use_case.folder), use_case.spec, list(contract.feature_columns)
    found = []
    for seed in seeds:
        started = time.perf_counter()
        seed_everything(seed)
        state = fit_preprocessing(task, before[features], spec.hyperparameters)
        targets = torch.tensor(before[contract.label.name].to_numpy(), dtype=torch.float32)
        data = TrainData(task.to_tensors(before[features], state), targets)
        training = spec.training.model_copy(update={"seed": seed})
        plan = make_plan(len(before), training, spec.stages, "full")
        model = task.build_model(state, spec.hyperparameters)
        run = TrainState(model, make_optimizers(task, model, training.optimizer))
        alarm = train(run, data, plan, make_recipe(task, training, plan.horizon_steps), lambda state, update: False)
        assert alarm is None, alarm
        seconds = time.perf_counter() - started
        found.append(
            _scores(held[contract.label.name], predict_rows(task, model, state, held[features], "cpu", BINARY), seconds)
        )
    return {"network": {name: statistics.median(one[name] for one in found) for name in found[0]}}


def _boosting(
    contract, before: pd.DataFrame, held: pd.DataFrame, all_rounds: tuple[int, ...]
) -> dict[str, dict[str, float]]:
    features = list(contract.feature_columns)
    texts = [name for name in features if not pd.api.types.is_numeric_dtype(before[name])]
    kinds = {name: pd.CategoricalDtype(sorted(before[name].dropna().unique())) for name in texts}
    found = {}
    for rounds in all_rounds:
        started = time.perf_counter()
        model = HistGradientBoostingClassifier(
            max_iter=rounds, early_stopping=False, categorical_features="from_dtype", random_state=0
        ).fit(before[features].astype(kinds), before[contract.label.name])
        seconds = time.perf_counter() - started
        probabilities = model.predict_proba(held[features].astype(kinds))[:, 1]
        found[f"boosting_{rounds}"] = _scores(held[contract.label.name], probabilities, seconds)
    return found


def _scores(labels, probabilities, seconds: float) -> dict[str, float]:
    loss = float(log_loss(labels.to_numpy(), probabilities).mean())
    return {"auc": float(auc(labels.to_numpy(), probabilities)), "log_loss": loss, "seconds": seconds}


if __name__ == "__main__":
    main()
