"""What the evaluation computes of 327 thousand answered flights, in CPU seconds: all figures that its record has.

The candidate is a boosting, with `linear` and `prior` beside it, each scored on weeks that it was not trained on.
Measured is what follows the scoring: metrics with intervals of all three models, gains, slices of three columns, three
conditions that decide, decisions at what mistakes cost, calibration, fairness of two columns, residuals by 45 features,
blind spots; then the gain over a champion on all rows and on the slices, all that is told of the champion, and both
models' answers kept side by side. What is asked of the model anew is bounded by rows of its own (changed_inputs.py).

    make bench NAME=evaluation      about 3 minutes on 2 cores
"""

from __future__ import annotations

import cProfile
import pstats
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.result import arguments, begin, finish
from benchmarks.slices import answered
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.evaluation.comparison import comparison
from trainworthy.lifecycle.evaluation.decision import decision_column, threshold_for
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.kept_answers import keep_answers, side_by_side
from trainworthy.lifecycle.evaluation.model_figures import model_figures
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.evaluation.slice_parts import slice_parts
from trainworthy.lifecycle.evaluation.slice_results import with_gains
from trainworthy.lifecycle.evaluation.slices import slice_column
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import CHAMPION
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT

WHAT = (
    "overall_metrics", "slice_metrics", "measured_slices", "calibration", "fairness", "residuals", "blind_spots",
    "with_gains", "model_figures", "side_by_side", "keep_answers",
)  # fmt: skip
TARGET_SECONDS = 60.0


def main() -> None:
    """Print CPU seconds of all of it and of its parts, and the memory."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    rows, answers = answered(use_case, short)
    spec = declared(use_case, short)
    mine = table(rows, answers, spec, use_case, "candidate")
    theirs = table(rows, answers, spec, use_case, "champion")
    features = rows[list(load_contract(use_case.contract_path).feature_columns)]
    profile, before = cProfile.Profile(), time.process_time()
    profile.enable()
    judge(rows, features, mine, theirs, spec)
    profile.disable()
    seconds = time.process_time() - before
    parts = cumulative(profile)
    print(f"{len(rows):,} rows, {len(features.columns)} features, {mine['group'].nunique()} groups")
    print(pd.Series(parts, name="CPU seconds, profiled").round(2).to_string())
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    finish("evaluation", {"cpu_seconds": seconds, "gigabytes": gigabytes}, {"cpu_seconds": TARGET_SECONDS}, short=short)


def declared(use_case: UseCase, short: bool) -> BenchmarkSpec:
    """The use case's own benchmark, with slices that decide, costs of decisions, and protected columns."""
    values = use_case.spec.benchmark.model_dump(mode="json")
    conditions = ['origin == "EWR" and wind_speed > 15', "sched_dep_minute_of_day > 1140", 'carrier in ["MQ", "FL"]']
    slices = [*values["slices"], *({"where": one, "at_most": 1.0, "champion_margin": 0.1} for one in conditions)]
    return BenchmarkSpec.model_validate(
        values
        | {
            "baselines": ["prior", "linear"],
            "slices": slices,
            "slice_rows": 20 if short else 200,
            "decision": {"costs": {"false_positive": 1, "false_negative": 5}},
            "fairness": {"columns": ["carrier", "origin"]},
        }
    )


def table(
    rows: pd.DataFrame, answers: dict[str, np.ndarray], spec: BenchmarkSpec, use_case: UseCase, model: str
) -> pd.DataFrame:
    """A table of answers as the worker writes it, of this model as the candidate."""
    assert spec.decision is not None
    threshold = threshold_for(spec.decision, answers[model])
    found = {"candidate": answers[model], "linear": answers["linear"], "prior": answers["prior"]}
    return pd.DataFrame(
        {
            "row": np.arange(len(rows)),
            "group": rows["date"].to_numpy(),
            "label": rows[use_case.spec.target].to_numpy(),
            **found,
            **{decision_column(name): (of >= threshold).astype("float64") for name, of in found.items()},
            **{slice_column(name): rows[name].to_numpy() for name in spec.kept_columns},
        }
    )


def judge(
    rows: pd.DataFrame, features: pd.DataFrame, mine: pd.DataFrame, theirs: pd.DataFrame, spec: BenchmarkSpec
) -> None:
    """What evaluation and promotion compute of the answers."""
    parts = slice_parts(spec, mine, rows, Path(), ())
    window = CheckResult(name="benchmark_window", status="pass", required=True)
    found = evaluate(
        mine, spec, BINARY, benchmark_rows=len(mine), window=window, parts=parts, features=features,
        cuts=training_cuts(features), ordered=True,
    )  # fmt: skip
    bad = [check.name for check in found.checks if check.stops]
    if bad or not found.slices or found.residuals is None or not found.calibration or not found.fairness:
        raise SystemExit(f"the evaluation is incomplete: {bad}")
    with_gains(found.slices, parts, mine, theirs, spec, BINARY)
    comparison(spec, BINARY, ("candidate", mine), ("candidate", theirs), "champion")
    both = side_by_side(mine, theirs, rows[["flight"]])
    met = model_figures(both, CHAMPION, spec, BINARY, parts=parts, features=features, ordered=True)
    if not met.calibration or not met.fairness or met.residuals is None:
        raise SystemExit("the champion's figures are incomplete")
    with tempfile.TemporaryDirectory() as folder:
        keep_answers(Path(folder), both)


def cumulative(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds within each of WHAT, those of what it calls included."""
    stats = pstats.Stats(profile).get_stats_profile().func_profiles
    return {name: stats[name].cumtime for name in WHAT if name in stats}


if __name__ == "__main__":
    main()
