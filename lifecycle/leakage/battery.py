"""The battery: every family on the splits as they were written, before the snapshot is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.data.file_rows import sha_column
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.leakage.binning import Cells, cells_of, read_labelled
from trainworthy.lifecycle.leakage.differences import differences
from trainworthy.lifecycle.leakage.duplicates import duplicates, near_duplicates
from trainworthy.lifecycle.leakage.entities import entity_overlap
from trainworthy.lifecycle.leakage.equal_files import equal_files, file_features
from trainworthy.lifecycle.leakage.formulas import formulas
from trainworthy.lifecycle.leakage.label_means import label_means
from trainworthy.lifecycle.leakage.label_window import label_window
from trainworthy.lifecycle.leakage.later_times import later_times
from trainworthy.lifecycle.leakage.null_mask import null_mask
from trainworthy.lifecycle.leakage.row_order import row_order
from trainworthy.lifecycle.leakage.separability import shortage
from trainworthy.lifecycle.leakage.single_feature import single_feature
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.leak import Leak, leakage_check
from trainworthy.lifecycle.spec.split import HashSplit, SplitSpec, StratifiedSplit, Windows

_ONLY_FILES = Leak(
    taxon="L2", family="single_feature", status="not_applicable",
    evidence="every feature is a file, and a path is no value that could be the label",
)  # fmt: skip
_ONLY_TEXT = Leak(
    taxon="L2", family="single_feature", status="not_applicable",
    evidence="the only feature is the text that is predicted, each byte by those before it: it is the label by design",
)  # fmt: skip


def leakage(written: SplitFiles, contract: Contract, split: SplitSpec, prediction_time: str | None) -> CheckResult:
    """The declared check `leakage` of the snapshot; `details` hold one entry a family and column found."""
    leaks = [*later_times(written, contract, prediction_time), *leakage_findings(written, contract, split)]
    return leakage_check("leakage", leaks)


def follows_time(split: SplitSpec) -> bool:
    """True if the held-out rows come after the training rows."""
    return split.time_column is not None


def leakage_findings(written: SplitFiles, contract: Contract, split: SplitSpec) -> list[Leak]:
    """What each family found.

    Reads all rows of at most 12 features and of the entities, and a sample of the others. Of a feature that is a file
    its bytes' hash stands in for the value: rows can be equal in it, and a missing file can betray the label.
    """
    by_time = follows_time(split)
    files = file_features(contract)
    hashes, label = [sha_column(name) for name in files], contract.label.name
    # A text whose next bytes are predicted is input and label at once: that it tells of the label is no leak. Rows may
    # still be equal in it.
    itself = [name for name in contract.feature_columns if name == contract.label.column]
    features = [name for name in contract.feature_columns if name not in (*files, *itself)]
    order, group_columns = split.time_column, [split.group_column] if split.group_column else []
    keys = [column.name for column in contract.columns if column.role == "key" and not column.sensitive]
    entities = [column.name for column in contract.columns if column.role == "entity"]
    # Only their values are compared, and none is shown.
    extra = [*keys, *entities, split.resample_by, *([order] if order else [])]
    kind = contract.label.kind
    rows = read_labelled(written, [*features, *itself, *hashes, *extra], label, kind)
    event = kind.events(kind.checked_labels(written.read("training", [label])[label].to_numpy()))[0]
    cells = {name: cells_of(rows.training[name], rows.held[name]) for name in (*features, *itself, *hashes)}
    leaks = [
        label_window(contract, split.embargo if isinstance(split, Windows) else None),
        *entity_overlap(written, entities, group_columns, by_chance=isinstance(split, HashSplit | StratifiedSplit)),
        *equal_files(written, contract, by_time=by_time),
    ]
    # Rows that are nothing but files are equal where these are.
    if features or itself:
        leaks += duplicates(
            written, cells, label, order, lambda values: event.of_labels(kind.checked_labels(values)), by_time=by_time
        )
    leaks += [
        *near_duplicates(rows, cells, order, by_time=by_time),
    ]
    few = shortage(rows.training_counts, rows.scored_counts)
    if few and not features:
        return [*leaks, _ONLY_TEXT if itself else _ONLY_FILES]
    if few:
        fix = "take a dataset version with more rows; until then no statistic says whether a feature is the label"
        told = f"{few} ({event.name})" if len(rows.events) > 1 else few
        return [*leaks, Leak(taxon="L2", family="single_feature", status="insufficient", evidence=told, fix=fix)]
    alone = (
        single_feature(rows, {name: cells[name] for name in features})
        if features
        else [_ONLY_TEXT if itself else _ONLY_FILES]
    )
    deciding = {name for finding in alone if finding.status == "fail" for name in finding.columns}
    undecided = [name for name in features if name not in deciding]
    leaks += [
        *alone,
        *null_mask(rows, {name: cells[name] for name in undecided} | _by_column(cells, files)),
        *differences(rows, contract, undecided),
        *formulas(rows, contract, undecided),
        *label_means(written, rows, contract, undecided),
        *row_order(rows, undecided, keys, split.resample_by),
    ]
    return [_reviewed(finding, contract) for finding in leaks]


def _by_column(cells: Mapping[str, Cells], files: Sequence[str]) -> dict[str, Cells]:
    """The cells of the files' hashes under the names of their columns."""
    return {name: cells[sha_column(name)] for name in files}


def _reviewed(finding: Leak, contract: Contract) -> Leak:
    """A feature that decides the label passes, with the reason, if contract.yaml gives one (decidesLabel).

    One that only looks suspicious does not once a person has reviewed it, by itself and not with all others.
    """
    if finding.suspicion and all(contract.column(name).reviewed is True for name in finding.columns):
        finding = finding.model_copy(update={"suspicion": ""})
    reasons = [contract.column(name).decides_label for name in finding.columns] if finding.taxon == "L2" else []
    if finding.status not in ("fail", "warning") or not any(reasons):
        return finding
    evidence = f"{finding.evidence}; reviewed in contract.yaml: {'; '.join(reason for reason in reasons if reason)}"
    return finding.model_copy(update={"status": "pass", "evidence": evidence, "fix": ""})
