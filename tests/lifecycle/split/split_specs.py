"""Rows of customers over 120 days, and a spec of each kind of split for them."""

import numpy as np
import pandas as pd
import toy_jobs
from pydantic import TypeAdapter

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.spec.split import SplitSpec

CONTRACT: Contract = load_contract(toy_jobs.TOY / "contract.yaml")
LABEL = CONTRACT.label.name
SHARES = {"validation": 0.15, "calibration": 0.1, "benchmark": 0.2}
WINDOWS = {
    "column": "when",
    "embargo": "1d",
    "validation": "14d",
    "calibration": "10d",
    "benchmark": {"window": "20d", "roll": "each_version"},
    "resample_by": "day",
}
HASHED = {"salt": "v1", "shares": SHARES, "resample_by": "day"}
KINDS = {
    "time": WINDOWS,
    "time_and_group": {**WINDOWS, "group": "customer"},
    "group": {**HASHED, "group": "customer"},
    "stratified": {**HASHED, "strata": ["shop"]},
    "hash": HASHED,
}


def spec(by: str, **changes):
    """The spec of a kind with some values replaced; nested mappings are merged."""
    return TypeAdapter(SplitSpec).validate_python({"by": by, **toy_jobs.merged(KINDS[by], changes)})


def rows(days: int = 120, a_day: int = 40, seed: int = 0) -> pd.DataFrame:
    """A third of a day's rows are of that day's new customers, the others of any customer so far."""
    generator = np.random.default_rng(seed)
    count = days * a_day
    day = np.repeat(np.arange(days), a_day)
    newest = day * (a_day // 3) + generator.integers(0, a_day // 3, count)
    earlier = (generator.random(count) * (newest + 1)).astype(int)
    date = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    frame = pd.DataFrame(
        {
            "row_id": np.arange(count),
            "when": (date + pd.to_timedelta(generator.integers(0, 24, count), unit="h")).tz_localize("UTC"),
            "day": date,
            "shop": generator.choice(["north", "south", "west"], count),
            "customer": np.where(generator.random(count) < 1 / 3, newest, earlier),
            LABEL: (generator.random(count) < 0.3).astype("int8"),
        }
    )
    return frame.astype({"customer": str})
