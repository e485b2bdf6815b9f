"""Does a version keep what the versions before it hold? What was published stays, or the change is declared.

A version that rewrites old rows in silence makes yesterday's model impossible to explain: it was trained on other
labels. Compared are the files' content hashes, so the question costs nothing and is asked at every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import ContentHash
from trainworthy.lifecycle.files.versions import PublishedVersion, changed_files, refuse_changes
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Backfill

NAMED_FILES, MOST_DETAILS = 10, 100
Details = tuple[dict[str, str], ...]
ContentOf = Callable[[PublishedVersion], ContentHash | None]


def to_keep(versions: Mapping[str, PublishedVersion], revision: str) -> tuple[str, ...]:
    """The versions whose files `revision` has to keep, the one before it first; `revision` may be a new one.

    A declared backfill puts the version that it changes, and all before that one, out of force: for itself and for
    every version after it.
    """
    order = list(versions)
    before = order[: order.index(revision)] if revision in versions else order
    declared = versions[revision].backfill if revision in versions else None
    if declared is not None and declared.of in before:
        before = before[before.index(declared.of) + 1 :]
    else:
        newest = max((place for place, name in enumerate(before) if versions[name].backfill), default=0)
        before = before[newest:]
    return tuple(reversed(before))


def declared_between(versions: Mapping[str, PublishedVersion], old: str, new: str) -> dict[str, Backfill]:
    """The backfills that were declared after `old` up to `new`, by version."""
    order = list(versions)
    between = order[order.index(old) + 1 : order.index(new) + 1]
    return {name: backfill for name in between if (backfill := versions[name].backfill)}


def refuse_undeclared(
    name: str,
    revision: str,
    content: ContentHash,
    versions: Mapping[str, PublishedVersion],
    content_of: Callable[[PublishedVersion], ContentHash],
    declared: str,
) -> None:
    """Raise DatasetError if a new version changes an earlier one undeclared, equals one, or declares a change of none.

    Args:
        versions: those published so far.
        declared: why rows of the newest one change; empty if they do not.
    """
    new = f"{name}@{revision}"
    for earlier, version in versions.items():
        if version.content_hash == content.sha256:
            same = f"{new} is the same as {name}@{earlier}"
            raise DatasetError(same, value=content.sha256, fix="use that version", code="dataset.same_content")
    if not declared:
        for earlier in to_keep(versions, revision):
            refuse_changes(new, content, f"{name}@{earlier}", content_of(versions[earlier]))
        return
    newest = list(versions)[-1]
    if not any(changed_files(content, content_of(versions[newest]))):
        problem = f"{new} declares a backfill and changes no file of {name}@{newest}"
        raise DatasetError(problem, value=declared, fix="leave --backfill out: adding files is no backfill")


def backfill_check(
    name: str, revision: str, versions: Mapping[str, PublishedVersion], content_of: ContentOf
) -> CheckResult:
    """Fails if the version changes or lacks files of an earlier one without declaring it.

    Insufficient if the files of the version before it are not known: that one has to be compared, older ones are
    where they are known.
    """
    declared, before = versions[revision].backfill, list(versions)[: list(versions).index(revision)]
    if declared is not None and declared.of not in before:
        evidence = f"{revision} declares a backfill of {declared.of}, which is no version before it"
        return _result("fail", evidence, f"name one of these: {', '.join(before) or 'none, it is the first version'}")
    own, keep = content_of(versions[revision]), to_keep(versions, revision)
    if own is None:
        return _result("error", f"the files of {name}@{revision} itself are not known", "fetch it again")
    known = {earlier: content for earlier in keep if (content := content_of(versions[earlier])) is not None}
    broken = {earlier: rows for earlier, content in known.items() if (rows := _rows(earlier, own, content))}
    if broken:
        return _undeclared(name, revision, broken)
    if keep and keep[0] not in known:
        evidence = f"the files of {name}@{keep[0]} are not known here, so nothing tells whether {revision} keeps them"
        fix = f"compare them once: trainworthy datasets diff {name} {keep[0]} {revision}; publishing records them"
        return _result("insufficient", evidence, fix)
    unchanged = f"no file of {', '.join(known)} was changed" if known else ""
    if declared is None:
        return _result("pass", unchanged or "the first published version")
    replaced = content_of(versions[declared.of])
    rows = _rows(declared.of, own, replaced) if replaced else ()
    return _result("pass", f"{declared.told}{_in_files(rows)}{'; ' if unchanged else ''}{unchanged}", details=rows)


def _undeclared(name: str, revision: str, broken: Mapping[str, Details]) -> CheckResult:
    files = list(dict.fromkeys(row["file"] for rows in broken.values() for row in rows))
    more = f" and {len(files) - NAMED_FILES} more" if len(files) > NAMED_FILES else ""
    evidence = (
        f"{name}@{revision} changes or lacks files of {', '.join(broken)} without declaring it: "
        f"{', '.join(files[:NAMED_FILES])}{more}"
    )
    fix = (
        f"see which rows: trainworthy datasets diff {name} {next(iter(broken))} {revision}; then restore the entry, or "
        'publish the rows as a declared change: trainworthy datasets publish … --backfill "reason"'
    )
    return _result("fail", evidence, fix, tuple(row for rows in broken.values() for row in rows))


def _in_files(rows: Details) -> str:
    return f" ({len(rows)} {'file differs' if len(rows) == 1 else 'files differ'})" if rows else ""


def _rows(earlier: str, own: ContentHash, known: ContentHash) -> Details:
    """The files of the earlier version that are no longer there as they were."""
    changed, missing = changed_files(own, known)
    named = {file: "changed" for file in changed} | {file: "missing" for file in missing}
    return tuple({"version": earlier, "file": file, "what": what} for file, what in named.items())


def _result(status: str, evidence: str, fix: str = "", details: Details = ()) -> CheckResult:
    values = {"name": "backfill", "status": status, "evidence": evidence, "fix": fix}
    return CheckResult.model_validate({**values, "details": details[:MOST_DETAILS]})
