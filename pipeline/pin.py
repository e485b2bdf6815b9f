"""What `trainworthy contract pin` does: counts a published version, and writes reference.json beside contract.yaml."""

from __future__ import annotations

from trainworthy.lifecycle.contract.pin import bins_of, pinned_columns
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.reference import REFERENCE_FILE, Bins, Reference, read_reference, reference_text
from trainworthy.lifecycle.data.files import read_columns
from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.storage.state import write_atomic
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.dvc import DatasetStore
from trainworthy.resources.settings import read_settings, use_case_folder


def pin(name: str, version: str | None) -> str:
    """Pin the columns of all `distribution` rules on a version (None: the declared one); what was written.

    Raises TrainworthyError, having written nothing.
    """
    settings = read_settings()
    folder = use_case_folder(settings, name)
    use_case = load_use_case(folder).at_version(version or "")
    contract, dataset = load_contract(use_case.contract_path, pinned=False), use_case.spec.dataset
    columns = pinned_columns(contract)
    if not columns:
        fix = "add one; docs/how-to/contract.md shows its form"
        raise UseCaseError(name, [Problem("contract.yaml", "no rule of kind distribution needs a reference", fix)])
    store = DatasetStore(settings.var)
    fetched = store.fetch(use_case.project, dataset.name, dataset.version, store.datasets)
    rows = read_columns(fetched.path, columns)
    path = folder / REFERENCE_FILE
    before = read_reference(path)
    reference = Reference(
        dataset=dataset.name,
        version=dataset.version,
        content_hash=fetched.content_hash,
        columns={column: bins_of(rows[column], contract.column(column)) for column in columns},
    )
    write_atomic(path, reference_text(reference).encode())
    was = f" (was {before.dataset}@{before.version})" if isinstance(before, Reference) else ""
    lines = [f"pinned   {path}: {len(columns)} columns of {dataset}, {fetched.rows:,} rows{was}"]
    lines += [f"  {column:<24} {_bins_summary(bins)}" for column, bins in reference.columns.items()]
    return "\n".join([*lines, "Commit the file: it is part of the contract, and a changed one makes a new snapshot."])


def _bins_summary(bins: Bins) -> str:
    if bins.values is not None:
        return f"{len(bins.values)} values, {bins.counts[-2]:,} rows of others, {bins.counts[-1]:,} nulls"
    return f"{len(bins.counts) - 1} bins, {bins.counts[-1]:,} nulls"
