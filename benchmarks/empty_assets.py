"""Eight empty assets in a row: the least that Dagster itself costs. Dagster's process loads this module."""

import os

import dagster as dg

STEPS = ("dataset", "snapshot", "preflight", "smoke", "pilot", "full", "evaluation", "promotion")
# A short run of the benchmark makes fewer: the multiprocess executor starts a process for each.
STEPS = STEPS[: int(os.environ.get("BENCHMARK_EMPTY_ASSETS", len(STEPS)))]


def _asset(name: str, before: str | None) -> dg.AssetsDefinition:
    @dg.asset(name=name, key_prefix="empty", deps=[dg.AssetKey(["empty", before])] if before else [])
    def empty() -> None:
        return None

    return empty


_assets = [_asset(name, before) for name, before in zip(STEPS, (None, *STEPS), strict=False)]
defs = dg.Definitions(
    assets=_assets,
    jobs=[
        dg.define_asset_job("empty", selection=_assets, executor_def=dg.in_process_executor),
        dg.define_asset_job("empty_multiprocess", selection=_assets, executor_def=dg.multiprocess_executor),
    ],
)
