"""dataset: a published version, fetched or rebuilt, its bytes checked against its content hash."""

from pathlib import Path

import dagster as dg

from assets.declare import step_asset
from assets.step import Outcome, StepRun
from lifecycle.checks import holds
from lifecycle.contract.agreement import agreement_problems
from lifecycle.contract.model import contract_problems, load_contract
from lifecycle.cost.prices import Prices
from lifecycle.data.versions import published_version
from lifecycle.errors import Problem, TrainworthyError, UseCaseError
from lifecycle.identity import sha256_file
from lifecycle.records import DatasetVersion, Record
from lifecycle.use_case import UseCase
from resources.dvc import DatasetStore
from resources.workspace import Workspace


def dataset_asset(use_case: UseCase) -> dg.AssetsDefinition:
    """The asset <use case>/dataset."""
    return step_asset(
        use_case,
        "dataset",
        fetch_dataset,
        kinds={"dvc", "parquet"},
        read=published_content,
        reusable=dataset_is_whole,
    )


def published_content(use_case: UseCase, workspace: Workspace) -> dict[str, str]:
    """The content hash that the version was published with. Raises UseCaseError for wrong declarations."""
    refuse_declarations(use_case, workspace.prices)
    declared = use_case.spec.dataset
    return {"content_hash": published_version(use_case.project, declared.name, declared.version).content_hash}


def fetch_dataset(run: StepRun) -> Outcome:
    """Bring the version's files below the state folder."""
    state, declared = run.workspace.state, run.use_case.spec.dataset
    found = DatasetStore(state.root).fetch(
        run.use_case.project, declared.name, declared.version, into=state.folder("datasets")
    )
    evidence = (
        f"{declared.name}@{declared.version}: {found.rows:,} rows, logical content hash {found.content_hash[:12]}"
    )
    return Outcome(
        checks=(holds("content_hash", True, observed=found.content_hash[:12], evidence=evidence),),
        fields={
            "name": declared.name,
            "revision": declared.version,
            "dvc_hash": found.dvc_hash,
            "content_hash": found.content_hash,
            "rows": found.rows,
            "path": state.relative(Path(found.path)),
            "files": found.files,
        },
    )


def refuse_declarations(use_case: UseCase, prices: Prices) -> None:
    """Raises UseCaseError with all that is wrong in the contract, between the files, and with what they name."""
    problems = contract_problems(use_case.contract_path)
    if not problems:
        problems += agreement_problems(use_case, load_contract(use_case.contract_path))
    declared, compute = use_case.spec.dataset, use_case.spec.compute
    for where, ask in {
        "use_case.yaml: dataset": lambda: published_version(use_case.project, declared.name, declared.version),
        "use_case.yaml: compute.sku": lambda: prices.sku(compute.sku),
    }.items():
        try:
            ask()
        except TrainworthyError as error:
            problems.append(Problem(where, error.problem, error.fix, error.value))
    if problems:
        raise UseCaseError(use_case.name, problems)


def dataset_is_whole(run: StepRun, record: Record) -> bool:
    """True if every file still has the bytes on record; else the step fetches them again."""
    assert isinstance(record, DatasetVersion)
    paths = ((run.workspace.state.absolute(file.path), file.sha256) for file in record.files)
    return all(path.is_file() and sha256_file(path) == sha256 for path, sha256 in paths)
