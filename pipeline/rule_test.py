"""What `trainworthy contract test` does: tries each rule on rows that should break it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.contract.mutation_test import Claim, Trial, fix_of, try_rules
from trainworthy.lifecycle.contract.polars_engine import validate_frame
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.sample import sample_rows
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.few_rows import few_rows
from trainworthy.lifecycle.files.materialised import files_folder, intact
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import read_settings, use_case_folder

ROWS = 1500
MOST_SHOWN = 6


@dataclass(frozen=True)
class Tested:
    """What was found, and on which rows. `made` is True for rows made from the contract."""

    name: str
    version: str
    rows: str
    made: bool
    trial: Trial


def tested_rules(name: str, version: str | None) -> Tested:
    """Try the rules of a use case on a version of its dataset (None: the declared one, if it is on this machine)."""
    folder = use_case_folder(read_settings(), name)
    use_case = load_use_case(folder).at_version(version or "")
    contract = load_contract(use_case.contract_path)
    dataset, files = use_case.spec.dataset, dataset_files(use_case, fetched=version is not None)
    if files is None:
        rows = sample_rows(contract, tuple(column.name for column in contract.columns))
        trial = try_rules(rows, len(rows), contract, validate_frame)
        return Tested(name, dataset.version, f"{len(rows)} rows made from the contract", True, trial)
    rows = few_rows(files, ROWS)
    total = published_version(use_case.project, dataset.name, dataset.version).rows
    trial = try_rules(rows, total, contract, validate_frame)
    return Tested(name, dataset.version, f"{len(rows):,} rows of {dataset}", False, trial)


def dataset_files(use_case: UseCase, fetched: bool) -> Path | None:
    """The dataset's files; None if nobody asked for them and they are not on this machine."""
    dataset, store = use_case.spec.dataset, DatasetStore(read_settings().var)
    if fetched:
        return store.fetch(use_case.project, dataset.name, dataset.version, store.datasets).path
    try:
        published = published_version(use_case.project, dataset.name, dataset.version)
        target = store.datasets / dataset.name / published.content_hash
        return files_folder(target) if intact(target, published.content_hash) else None
    except DatasetError:
        return None


def tested_text(tested: Tested) -> str:
    """The findings, for a terminal."""
    trial = tested.trial
    lines = [f"{tested.name}: {trial.claims} claims of its rules, tried on {tested.rows}"]
    for claim in trial.never:
        lines += ["", *_never_lines(claim, trial.rows_tried)]
    if trial.already:
        lines += ["", "Not tried, since they don't hold on these rows as they are:"]
        lines += [f"  {result.rule.id}: {result.error or result.observed}" for result in trial.already]
        again = f"trainworthy contract test {tested.name} --version {tested.version}"
        lines += [f"  Rows of a published version may try them: {again}"] if tested.made else []
    return "\n".join([*lines, "", _summary(trial)])


def _summary(trial: Trial) -> str:
    never, untried = len(trial.never), len(trial.already)
    if not untried:
        return f"{never} can never fail" if never else "each of them fails on some fault"
    summary = f"{never} can never fail" if never else f"the {trial.claims} that were tried fail on some fault"
    return f"{summary}; {untried} {'rule was' if untried == 1 else 'rules were'} not tried"


def _never_lines(claim: Claim, rows: int) -> Iterator[str]:
    bound = claim.rule.parameters["bound"]
    side = f", its {claim.side}" if claim.side else ""
    columns = f" on {', '.join(claim.rule.columns)}" if claim.rule.columns else ""
    tried = list(dict.fromkeys(claim.tried))
    more = f" and {len(tried) - MOST_SHOWN} more" if len(tried) > MOST_SHOWN else ""
    yield f"✗ {claim.rule.id}: {claim.rule.kind}{columns}{side} can never fail"
    yield f"    tried: {', '.join(tried[:MOST_SHOWN])}{more}"
    yield f"    bound: {bound['operator']} {bound['value']} {bound['unit']}"
    yield f"    fix: {fix_of(claim, rows)}"
