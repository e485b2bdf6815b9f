"""dataset: a published version, fetched or rebuilt, its bytes checked against its content hash.

And what the versions before it hold is still there, or the entry declares that it is not.
"""

from pathlib import Path

from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.data.backfill import backfill_check
from trainworthy.lifecycle.declarations import refuse_declarations
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.materialised import tree_here
from trainworthy.lifecycle.files.versions import published_version, read_versions
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.protocol.checks import CheckResult, holds, stopping
from trainworthy.lifecycle.protocol.records import DatasetBody, DatasetVersion, Record, StoredTree
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.workspace import Workspace


def published_content(use_case: UseCase, workspace: Workspace) -> dict[str, str]:
    """What the version was published with: its content hash, and the backfill that it declares.

    Raises UseCaseError for wrong declarations.
    """
    refuse_declarations(use_case, workspace.prices)
    declared = use_case.spec.dataset
    version = published_version(use_case.project, declared.name, declared.version)
    content = {"content_hash": version.content_hash}
    return {**content, "backfill": version.backfill.told} if version.backfill else content


def fetch_dataset(run: StepRun) -> StepOutcome[DatasetBody]:
    """Bring the version's files below the state folder."""
    state, declared = run.workspace.state, run.use_case.spec.dataset
    fetched = DatasetStore(state.root).fetch(
        run.use_case.project, declared.name, declared.version, into=state.folder("datasets")
    )
    evidence = (
        f"{declared.name}@{declared.version}: {fetched.rows:,} rows, logical content hash {fetched.content_hash[:12]}"
    )
    checks = (holds("content_hash", True, observed=fetched.content_hash[:12], evidence=evidence), kept_history(run))
    if stopping(checks):
        return StepOutcome(checks=checks, body=None)
    return StepOutcome(
        checks=checks,
        body=DatasetBody(
            name=declared.name,
            revision=declared.version,
            dvc_hash=fetched.dvc_hash,
            content_hash=fetched.content_hash,
            rows=fetched.rows,
            path=state.relative(Path(fetched.path)),
            files=fetched.files,
            tree=fetched.tree,
            backfill=published_version(run.use_case.project, declared.name, declared.version).backfill,
        ),
    )


def kept_history(run: StepRun) -> CheckResult:
    """Whether the version changes what an earlier one holds; by lists of files, so nothing else is fetched."""
    project, dataset = run.use_case.project, run.use_case.spec.dataset
    versions = read_versions(project)[dataset.name]
    known = DatasetStore(run.workspace.state.root).known_contents(project, dataset.name, versions)
    return backfill_check(
        dataset.name, dataset.version, versions, lambda version: known.get(version.content_hash)
    )  # fmt: skip


def dataset_is_whole(run: StepRun, record: Record) -> bool:
    """True if every file still has the bytes on record and history is judged as it was; else the step is done again."""
    assert isinstance(record, DatasetVersion)
    before = next((check for check in record.checks if check.name == "backfill"), None)
    paths = ((run.workspace.state.absolute(file.path), file.sha256) for file in record.files)
    if not all(path.is_file() and sha256_file(path) == sha256 for path, sha256 in paths):
        return False
    if record.tree is not None and not _has_tree(run.workspace.state.absolute(record.path), record.tree):
        return False
    return before is not None and kept_history(run).status == before.status


def _has_tree(folder: Path, tree: StoredTree) -> bool:
    try:
        return tree_here(folder) == tree
    except (DatasetError, OSError):
        return False


STEP = StepWork(fetch_dataset, read=published_content, reusable=dataset_is_whole)
