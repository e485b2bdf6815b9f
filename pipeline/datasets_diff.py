"""`trainworthy datasets diff`: what differs between two versions, as text and as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainworthy.lifecycle.contract.model import Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.backfill import declared_between
from trainworthy.lifecycle.data.difference import Difference, VersionFiles, compare
from trainworthy.lifecycle.data.row_differences import ColumnShift, changed_rows, shifts
from trainworthy.lifecycle.errors import DatasetError, did_you_mean
from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.tree import is_file_name
from trainworthy.lifecycle.files.versions import Versions, changed_files, published_version, read_versions
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.pipeline.datasets import loadable_use_cases
from trainworthy.resources.settings import projects, read_settings

EXAMPLES, SHOWN_COLUMNS = 20, 12
_LABELS = {0: "0", 1: "1", None: "none"}


class DiffRequest(NamedTuple):
    """Two versions of a project's dataset, the earlier published one first."""

    project: Path
    name: str
    old: str
    new: str


class By(NamedTuple):
    """What rows are compared by, and for whom."""

    origin: str
    key: tuple[str, ...]
    label: Label | None
    sensitive: tuple[str, ...]


def diff_text(words: Sequence[str], key: Sequence[str], out: Path | None) -> tuple[str, bool]:
    """What differs, and whether the later version changes old rows or labels without declaring it.

    `words` name two versions, `key` the columns that name a row where it is not a contract's. Every row that differs
    goes to `out` as Parquet.
    """
    request = parsed_request(words)
    ways = _ways(request, key)
    if out is not None and (not out.parent.is_dir() or out.suffix != ".parquet"):
        fix = "name a .parquet file in a folder that exists"
        raise DatasetError("the rows cannot be written there", value=str(out), fix=fix)
    old, new = (_fetched(request, revision) for revision in (request.old, request.new))
    versions = read_versions(request.project)[request.name]
    declared = declared_between(versions, request.old, request.new)
    tables: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    undeclared, written = False, ""
    for number, by in enumerate(ways):
        difference = compare(old, new, by.key, by.label)
        # Labels of two kinds may differ in nothing: then the table is shown once, for both.
        tables.setdefault((by.key, tuple(_lines(difference, old, new, by))), []).append(by.origin)
        breaks = _breaks(difference, old, new)
        undeclared = undeclared or (breaks and not declared)
        if out is not None and number == 0:
            changed_rows(difference, old, new, by.key, _shown_label(by)).write_parquet(out)
            written = f"every row that differs, by {by.origin}: {out}"
    parts = [line for (key, lines), origins in tables.items() for line in (_head(old, new, key, origins), *lines)]
    parts += [written] if written else []
    parts += [f"{revision} is a {backfill.told}" for revision, backfill in declared.items()]
    if undeclared:
        parts.append(f"UNDECLARED: {new.title} changes what {old.title} holds, and no entry declares a backfill")
    return "\n".join(parts), undeclared


def parsed_request(words: Sequence[str]) -> DiffRequest:
    """The two versions that the words name. Raises DatasetError, also for two that are one."""
    published: dict[str, tuple[Path, Versions]] = {}
    for project in projects(read_settings()):
        versions = read_versions(project)
        published |= {name: (project, versions) for name in versions}
    name, revisions = _parsed(words, list(published))
    if name not in published:
        raise DatasetError("no version of this dataset is published", value=name, fix=did_you_mean(name, published))
    project, versions = published[name]
    for revision in revisions:
        published_version(project, name, revision)
    if revisions[0] == revisions[1]:
        raise DatasetError("a version is not compared with itself", value=f"{name}@{revisions[0]}", fix="name two")
    old, new = sorted(revisions, key=list(versions[name]).index)
    return DiffRequest(project, name, old, new)


def _parsed(words: Sequence[str], known: Sequence[str]) -> tuple[str, list[str]]:
    fix = "write: trainworthy datasets diff flights v3 v4"
    if len(words) == 2 and all("@" in word for word in words):
        (name, old), (other, new) = (word.split("@", 1) for word in words)
        if name != other:
            raise DatasetError("versions of two datasets can't be compared", value=list(words), fix=fix)
        return name, [old, new]
    if len(words) == 3:
        return words[0], list(words[1:])
    if len(words) == 2 and len(known) == 1:
        return known[0], list(words)
    advice = f"name the dataset, {' or '.join(known)}; {fix}" if known else "publish a version first"
    raise DatasetError("two versions of one dataset are needed", value=list(words), fix=advice)


def _ways(request: DiffRequest, key: Sequence[str]) -> list[By]:
    """Key and label of each contract that uses the dataset, equal ones once; `key` in place of the contracts'."""
    by_key: dict[tuple[object, ...], By] = {}
    for use_case in loadable_use_cases():
        if use_case.project != request.project or use_case.spec.dataset.name != request.name:
            continue
        contract = load_contract(use_case.contract_path)
        by = _by(use_case.name, contract, tuple(key))
        earlier = by_key.get(by[1:])
        by_key[by[1:]] = by if earlier is None else by._replace(origin=f"{earlier.origin}, {use_case.name}")
    _refuse_sensitive([*by_key.values()])
    ways = [by for by in by_key.values() if by.key]
    if not ways and key:
        return [By("--key", tuple(key), None, ())]
    if not ways:
        fix = "name the columns that name a row: --key A,B"
        raise DatasetError("no contract of a use case names the rows of this dataset", value=request.name, fix=fix)
    return ways


def _by(use_case: str, contract: Contract, key: tuple[str, ...]) -> By:
    return By(use_case, key or contract.primary_key, contract.label, contract.sensitive_columns)


def _refuse_sensitive(ways: Sequence[By]) -> None:
    """Raises DatasetError for a key whose values may not be told: it names each row in the text and in the file."""
    hidden = {name for by in ways for name in by.sensitive}
    if exposed := sorted({name for by in ways for name in by.key} & hidden):
        raise DatasetError("a sensitive column can't name rows", value=exposed, fix="name other columns: --key A,B")


def _fetched(request: DiffRequest, revision: str) -> VersionFiles:
    from trainworthy.resources.dvc import DatasetStore

    state = StateFolder(read_settings().var)
    state.check_writable()
    store = DatasetStore(state.root)
    fetched = store.fetch(request.project, request.name, revision, store.datasets)
    version = read_versions(request.project)[request.name][revision]
    known = store.known_contents(request.project, request.name, {revision: version}).get(version.content_hash)
    return VersionFiles(f"{request.name}@{revision}", fetched.path, known or content_hash(fetched.path))


def _breaks(difference: Difference, old: VersionFiles, new: VersionFiles) -> bool:
    """True if old rows or files that they name changed, or a column is gone.

    A version of fewer files, published later, is a part of the other and changes none.
    """
    changed, missing = changed_files(new.content, old.content)
    if difference.removed_columns or not (changed or missing):
        return bool(difference.removed_columns)
    return bool(len(difference.changed) or len(difference.removed) or any(map(is_file_name, (*changed, *missing))))


def _head(old: VersionFiles, new: VersionFiles, key: Sequence[str], origins: Sequence[str]) -> str:
    return f"{old.title} → {new.title}, rows named by {', '.join(key)} ({', '.join(origins)})"


def _lines(difference: Difference, old: VersionFiles, new: VersionFiles, by: By) -> Iterator[str]:
    files, labels = difference.files, sum(difference.labels.values())
    yield f"files     {len(files.equal)} equal and skipped; compared {len(files.old)} with {len(files.new)}"
    added, removed, changed = len(difference.added), len(difference.removed), len(difference.changed)
    yield f"rows      {added:,} added, {removed:,} removed, {changed:,} changed"
    if by.label is not None:
        how = (
            f"{_LABELS[before]} → {_LABELS[after]}: {count:,}" for (before, after), count in difference.labels.items()
        )
        yield f"labels    {labels:,} changed" + (f" ({', '.join(sorted(how))})" if labels else "")
    if difference.old_duplicates or difference.new_duplicates:
        repeats = f"{difference.old_duplicates:,} in the earlier, {difference.new_duplicates:,} in the later"
        yield f"keys      rows that repeat another's key: {repeats}"
    else:
        yield "keys      no two rows of a version share one"
    yield f"schema    {'; '.join(difference.schema) or 'equal'}"
    yield from _changed_columns(difference)
    yield from _examples(difference, old, new, by)
    without = {*by.key} | ({by.label.column} & set(by.sensitive) if by.label else set())
    yield from _shift_lines(shifts(difference, old, new, by.label, without), old.title)


def _changed_columns(difference: Difference) -> Iterator[str]:
    counts = sorted(((int(differs.sum()), name) for name, differs in difference.cells.items()), reverse=True)
    if counts:
        more = f" and {len(counts) - SHOWN_COLUMNS} more" if len(counts) > SHOWN_COLUMNS else ""
        yield f"columns   {', '.join(f'{name} in {count:,} rows' for count, name in counts[:SHOWN_COLUMNS])}{more}"


def _examples(difference: Difference, old: VersionFiles, new: VersionFiles, by: By) -> Iterator[str]:
    """At most EXAMPLES rows that changed or are gone, by key; added rows are no news."""
    if not len(difference.changed) and not len(difference.removed):
        return
    rows = changed_rows(difference, old, new, by.key, _shown_label(by), most=EXAMPLES)
    for row in [row for row in rows.iter_rows(named=True) if row["what"] != "added"][:EXAMPLES]:
        named = ", ".join(f"{name}={row[name]}" for name in by.key)
        labels = row["label_before"], row["label_after"]
        changes = f": {row['columns']}" if row["columns"] else ""
        changes += f"; label {_LABELS[labels[0]]} → {_LABELS[labels[1]]}" if labels[0] != labels[1] else ""
        yield f"  {row['what']:<8} {named}{changes}"


def _shift_lines(column_shifts: Sequence[ColumnShift], old: str) -> Iterator[str]:
    if not column_shifts:
        return
    yield f"added rows against {old}, the largest shift first:"
    yield f"  {'column':<26}{'PSI':>8}{'mean before':>14}{'mean added':>14}{'null before':>13}{'null added':>12}"
    for row in column_shifts[:SHOWN_COLUMNS]:
        means = f"{_figure(row.old_mean):>14}{_figure(row.new_mean):>14}"
        yield f"  {row.column:<26}{row.psi:>8.3f}{means}{row.old_null_share:>13.1%}{row.new_null_share:>12.1%}"
    if len(column_shifts) > SHOWN_COLUMNS:
        yield f"  {len(column_shifts) - SHOWN_COLUMNS} more columns shifted less"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _shown_label(by: By) -> Label | None:
    """The label, unless its column is sensitive: then no row's label is told."""
    return by.label if by.label is not None and by.label.column not in by.sensitive else None
