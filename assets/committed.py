"""Whether a commit holds what a verdict is about: judged at the end, and told before anything is trained."""

from __future__ import annotations

from trainworthy.assets.step_run import CANDIDATE, StepRun
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.versions import parse_versions, published_version
from trainworthy.lifecycle.provenance import (
    changed_files,
    commit_of,
    committed_text,
    installed_version,
    uncommitted,
)
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.workspace import Workspace


def committed_entry(use_case: UseCase, workspace: Workspace) -> dict[str, str]:
    """Whether the commit publishes the dataset version: once it does, a verdict that was held back is made anew."""
    return {"dataset_is_committed": str(entry_is_committed(use_case)).lower()}


def not_in_commit(use_case: UseCase) -> tuple[str, ...] | None:
    """Files that a verdict is about and that differ from the commit, by name; None if something lies in no git."""
    suite = use_case.suite_path
    changed = changed_files(use_case.folder, (suite,) if suite else ())
    if changed is None or entry_is_committed(use_case):
        return changed
    return (*changed, f"data/versions.yaml ({use_case.spec.dataset})")


def tell_uncommitted(run: StepRun) -> None:
    """Log, before a candidate costs anything, that its verdict can be shadow at most, and why."""
    if run.intent != CANDIDATE:
        return
    use_case = run.use_case
    if reason := uncommitted(commit_of(use_case.folder), not_in_commit(use_case), installed_version()):
        run.context.log.warning(f"the verdict of this run will be shadow at most: {reason}")


def entry_is_committed(use_case: UseCase) -> bool:
    """True if the commit's data/versions.yaml has the version as it is published here."""
    text, dataset = committed_text(use_case.project, "data/versions.yaml"), use_case.spec.dataset
    try:
        committed = parse_versions(text or "").get(dataset.name, {}).get(dataset.version)
    except DatasetError:
        return False
    return committed == published_version(use_case.project, dataset.name, dataset.version)
