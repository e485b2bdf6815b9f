"""freshness: is the newest row of the newest published version late? A check of the dataset, never reused.

Only the job validate_<use case> asks it: its answer changes with the clock, and a training on an old version is no
mistake. It does not block, so that a late dataset's contract is judged as well; the run fails all the same.

Dagster's own freshness policy on the dataset watches the watcher: without a run nobody asks.

No `from __future__ import annotations`: Dagster cannot resolve a text annotation of `context`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg

from trainworthy.assets.announce import announce_checks, published_versions
from trainworthy.assets.metadata import check_result
from trainworthy.assets.stopped import StoppedError
from trainworthy.lifecycle.contract.freshness import AHEAD, Freshness, freshness_check
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.newest import newest_value
from trainworthy.lifecycle.errors import DatasetError, TrainworthyError
from trainworthy.lifecycle.files.versions import versions_path
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.workspace import Workspace

NAME = "freshness"
QUESTION = "Is the newest row of the newest published version late, by the latency that contract.yaml declares?"

# Two missed daily validations.
UNWATCHED = timedelta(days=2)


def freshness_spec(use_case: UseCase) -> dg.AssetCheckSpec:
    """The check freshness of the asset <use case>/dataset."""
    return dg.AssetCheckSpec(NAME, asset=dg.AssetKey([use_case.name, "dataset"]), description=QUESTION)


def freshness_asset_check(use_case: UseCase) -> dg.AssetChecksDefinition:
    """The op that judges and announces it."""

    @dg.multi_asset_check(name=f"{use_case.name}__{NAME}", specs=[freshness_spec(use_case)], description=QUESTION)
    def freshness(context: dg.AssetCheckExecutionContext, workspace: Workspace) -> Iterator[dg.AssetCheckResult]:
        newest = use_case
        try:
            newest = newest_version(use_case)
            check = judge_freshness(newest, workspace)
        except TrainworthyError as error:
            check = CheckResult(name=NAME, status="error", evidence=error.problem, fix=error.fix)
        except Exception as error:  # an alert has to be told, whatever broke; only its kind, it may quote a value
            context.log.exception(NAME)
            evidence = f"{type(error).__name__}, see the log of the run"
            check = CheckResult(name=NAME, status="error", evidence=evidence, fix="fix what the log of the run names")
        announce_checks(workspace, newest, "late data", "dataset", context.run.run_id, (check,), context.log)
        yield check_result(check)
        if check.stops:
            message = f"{use_case.name} stopped at {NAME}\n  - {check.evidence}\n    fix: {check.fix}"
            raise StoppedError(message)

    return freshness


def watched(use_case: UseCase, dataset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The dataset with a freshness policy if its contract declares a latency: no run for longer shows as overdue."""
    declared = _declared(use_case)
    if declared is None:
        return dataset
    policy = dg.FreshnessPolicy.time_window(max(timedelta(seconds=declared.seconds), UNWATCHED))
    return dataset.map_asset_specs(lambda spec: dg.apply_freshness_policy(spec, policy))


def _declared(use_case: UseCase) -> Freshness | None:
    """The latency of a contract that names service levels; others are not read while definitions load: it costs."""
    try:
        named = "slaProperties" in use_case.contract_path.read_text(encoding="utf-8")
        return load_contract(use_case.contract_path).freshness if named else None
    except (TrainworthyError, OSError, ValueError):
        return None  # the first step of any run tells what is wrong with the contract


def newest_version(use_case: UseCase) -> UseCase:
    """The use case at the newest published version of its dataset. Raises DatasetError if none is published."""
    published = published_versions(use_case)
    if not published:
        name = use_case.spec.dataset.name
        fix = f"publish one: trainworthy datasets publish {name} v1 NAME=VALUE"
        read = versions_path(use_case.project)
        raise DatasetError(f"no version of this dataset is published in {read}", value=name, fix=fix)
    return use_case.at_version(published[-1])


def judge_freshness(use_case: UseCase, workspace: Workspace) -> CheckResult:
    """The check for this version of the dataset, fetched if it is not there. Raises TrainworthyError."""
    dataset, now = use_case.spec.dataset, datetime.now(UTC)
    declared, newest = load_contract(use_case.contract_path).freshness, None
    if declared is not None:
        state = workspace.state
        fetched = DatasetStore(state.root).fetch(
            use_case.project, dataset.name, dataset.version, into=state.folder("datasets")
        )
        newest = newest_value(fetched.path, declared.column, now + AHEAD)
    return freshness_check(declared, newest, str(dataset), now)
