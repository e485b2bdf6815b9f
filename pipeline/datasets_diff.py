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


class Asked(NamedTuple):
    """Two versions of a project's dataset, the earlier published one first."""

    project: Path
    name: str
    old: str
    new: str


class By(NamedTuple):
    """What rows are compared by, and for whom."""

    told: str
    key: tuple[str, ...]
    label: Label | None
    sensitive: tuple[str, ...]


def diff_text(words: Sequence[str], key: Sequence[str], out: Path | None) -> tuple[str, bool]:
    """What differs, and whether the later version changes old rows or labels without declaring it.

    `words` name two versions, `key` the columns that name a row where it is not a contract's. Every row that differs
    goes to `out` as Parquet.
    """
    asked = asked_for(words)
    ways = _ways(asked, key)
    if out is not None and (not out.parent.is_dir() or out.suffix != ".parquet"):
        fix = "name a .parquet file in a folder that exists"
        raise DatasetError("the rows cannot be written there", value=str(out), fix=fix)
    old, new = (_fetched(asked, revision) for revision in (asked.old, asked.new))
    versions = read_versions(asked.project)[asked.name]
    declared = declared_between(versions, asked.old, asked.new)
    parts, undeclared = [], False
    for number, by in enumerate(ways):
        found = compare(old, new, by.key, by.label)
        parts += _lines(found, old, new, by)
        breaks = _breaks(found, old, new)
        undeclared = undeclared or (breaks and not declared)
        if out is not None and number == 0:
            changed_rows(found, old, new, by.key, _shown_label(by)).write_parquet(out)
            parts.append(f"every row that differs, by {by.told}: {out}")
    parts += [f"{revision} is a {backfill.told}" for revision, backfill in declared.items()]
    if undeclared:
        parts.append(f"UNDECLARED: {new.told} changes what {old.told} holds, and no entry declares a backfill")
    return "\n".join(parts), undeclared


def asked_for(words: Sequence[str]) -> Asked:
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
    return Asked(project, name, old, new)


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
    told = f"name the dataset, {' or '.join(known)}; {fix}" if known else "publish a version first"
    raise DatasetError("two versions of one dataset are needed", value=list(words), fix=told)


def _ways(asked: Asked, key: Sequence[str]) -> list[By]:
    """Key and label of each contract that uses the dataset, equal ones once; `key` in place of the contracts'."""
    found: dict[tuple[object, ...], By] = {}
    for use_case in loadable_use_cases():
        if use_case.project != asked.project or use_case.spec.dataset.name != asked.name:
            continue
        contract = load_contract(use_case.contract_path)
        by = _by(use_case.name, contract, tuple(key))
        earlier = found.get(by[1:])
        found[by[1:]] = by if earlier is None else by._replace(told=f"{earlier.told}, {use_case.name}")
    _refuse_sensitive([*found.values()])
    ways = [by for by in found.values() if by.key]
    if not ways and key:
        return [By("--key", tuple(key), None, ())]
    if not ways:
        fix = "name the columns that name a row: --key A,B"
        raise DatasetError("no contract of a use case names the rows of this dataset", value=asked.name, fix=fix)
    return ways


def _by(use_case: str, contract: Contract, key: tuple[str, ...]) -> By:
    return By(use_case, key or contract.primary_key, contract.label, contract.sensitive_columns)


def _refuse_sensitive(ways: Sequence[By]) -> None:
    """Raises DatasetError for a key whose values may not be told: it names each row in the text and in the file."""
    hidden = {name for by in ways for name in by.sensitive}
    if told := sorted({name for by in ways for name in by.key} & hidden):
        raise DatasetError("a sensitive column can't name rows", value=told, fix="name other columns: --key A,B")


def _fetched(asked: Asked, revision: str) -> VersionFiles:
    from trainworthy.resources.dvc import DatasetStore

    state = StateFolder(read_settings().var)
    state.check_writable()
    store = DatasetStore(state.root)
    fetched = store.fetch(asked.project, asked.name, revision, store.datasets)
    version = read_versions(asked.project)[asked.name][revision]
    known = store.known_contents(asked.project, asked.name, {revision: version}).get(version.content_hash)
    return VersionFiles(f"{asked.name}@{revision}", fetched.path, known or content_hash(fetched.path))


def _breaks(found: Difference, old: VersionFiles, new: VersionFiles) -> bool:
    """True if old rows or files that they name changed, or a column is gone.

    A version of fewer files, published later, is a part of the other and changes none.
    """
    changed, missing = changed_files(new.content, old.content)
    if found.removed_columns or not (changed or missing):
        return bool(found.removed_columns)
    return bool(len(found.changed) or len(found.removed) or any(map(is_file_name, (*changed, *missing))))


def _lines(found: Difference, old: VersionFiles, new: VersionFiles, by: By) -> Iterator[str]:
    files, labels = found.files, sum(found.labels.values())
    yield f"{old.told} → {new.told}, rows named by {', '.join(by.key)} ({by.told})"
    yield f"files     {len(files.equal)} equal and skipped; compared {len(files.old)} with {len(files.new)}"
    yield f"rows      {len(found.added):,} added, {len(found.removed):,} removed, {len(found.changed):,} changed"
    if by.label is not None:
        how = (f"{_LABELS[before]} → {_LABELS[after]}: {count:,}" for (before, after), count in found.labels.items())
        yield f"labels    {labels:,} changed" + (f" ({', '.join(sorted(how))})" if labels else "")
    if found.old_duplicates or found.new_duplicates:
        told = f"{found.old_duplicates:,} in the earlier, {found.new_duplicates:,} in the later"
        yield f"keys      rows that repeat another's key: {told}"
    else:
        yield "keys      no two rows of a version share one"
    yield f"schema    {'; '.join(found.schema) or 'equal'}"
    yield from _changed_columns(found)
    yield from _examples(found, old, new, by)
    without = {*by.key} | ({by.label.column} & set(by.sensitive) if by.label else set())
    yield from _shift_lines(shifts(found, old, new, by.label, without), old.told)


def _changed_columns(found: Difference) -> Iterator[str]:
    counts = sorted(((int(differs.sum()), name) for name, differs in found.cells.items()), reverse=True)
    if counts:
        more = f" and {len(counts) - SHOWN_COLUMNS} more" if len(counts) > SHOWN_COLUMNS else ""
        yield f"columns   {', '.join(f'{name} in {count:,} rows' for count, name in counts[:SHOWN_COLUMNS])}{more}"


def _examples(found: Difference, old: VersionFiles, new: VersionFiles, by: By) -> Iterator[str]:
    """At most EXAMPLES rows that changed or are gone, by key; added rows are no news."""
    if not len(found.changed) and not len(found.removed):
        return
    rows = changed_rows(found, old, new, by.key, _shown_label(by), most=EXAMPLES)
    for row in [row for row in rows.iter_rows(named=True) if row["what"] != "added"][:EXAMPLES]:
        named = ", ".join(f"{name}={row[name]}" for name in by.key)
        labels = row["label_before"], row["label_after"]
        told = f": {row['columns']}" if row["columns"] else ""
        told += f"; label {_LABELS[labels[0]]} → {_LABELS[labels[1]]}" if labels[0] != labels[1] else ""
        yield f"  {row['what']:<8} {named}{told}"


def _shift_lines(found: Sequence[ColumnShift], old: str) -> Iterator[str]:
    if not found:
        return
    yield f"added rows against {old}, the largest shift first:"
    yield f"  {'column':<26}{'PSI':>8}{'mean before':>14}{'mean added':>14}{'null before':>13}{'null added':>12}"
    for row in found[:SHOWN_COLUMNS]:
        means = f"{_figure(row.old_mean):>14}{_figure(row.new_mean):>14}"
        yield f"  {row.column:<26}{row.psi:>8.3f}{means}{row.old_null_share:>13.1%}{row.new_null_share:>12.1%}"
    if len(found) > SHOWN_COLUMNS:
        yield f"  {len(found) - SHOWN_COLUMNS} more columns shifted less"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _shown_label(by: By) -> Label | None:
    """The label, unless its column is sensitive: then no row's label is told."""
    return by.label if by.label is not None and by.label.column not in by.sensitive else None
