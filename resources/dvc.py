"""The door to DVC: published dataset versions, read back without a checkout, built by DVC where they are missing.

Everything lies below the state folder: `dvc/cache` and `dvc/remote` hold DVC's objects (a remote that the project's
`.dvc/config` names takes the place of the second), `dvc/work` the temporary workspaces that versions are built in,
`datasets` the folders that runs read. A project's own tree, its dvc.lock and its git status stay as they are; only
publishing writes, below data/. DVC itself needs no set-up.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainworthy.lifecycle.data.backfill import refuse_undeclared
from trainworthy.lifecycle.errors import DatasetError, SettingsError
from trainworthy.lifecycle.files.content import ContentHash, content_hash
from trainworthy.lifecycle.files.contents import PublishedContent, add_contents, published_files, read_contents
from trainworthy.lifecycle.files.materialised import Manifest, files_folder, install, intact, read_manifest
from trainworthy.lifecycle.files.tree import is_file_name
from trainworthy.lifecycle.files.versions import (
    Parameter,
    PublishedVersion,
    add_version,
    check_entry,
    check_versions_writable,
    published_version,
    read_versions,
)
from trainworthy.lifecycle.protocol.records import StoredFile, StoredTree
from trainworthy.resources.dvc_objects import DvcObjects, tell_refused, write_pointer
from trainworthy.resources.dvc_origin import declared_entry, made, made_again
from trainworthy.resources.dvc_stage import check_parameters
from trainworthy.resources.dvc_work import locked, say, workspace

_DVC_HASH = re.compile(r"[0-9a-f]{32}\.dir")


@dataclass(frozen=True)
class FetchedDataset:
    """A published version on this machine. `path` holds its Parquet files: `files`, relative to the state folder.

    `tree` are the files that rows name, not one by one: a record that named 100,000 of them would have 23 MB.
    `dvc_hash` differs from the published one where the rows were rebuilt as other bytes, by another pyarrow.
    """

    path: Path
    rows: int
    content_hash: str
    dvc_hash: str
    files: tuple[StoredFile, ...]
    tree: StoredTree | None = None


@dataclass(frozen=True)
class DatasetStore:
    """Published versions of a project's datasets, below the folder `state`."""

    state: Path

    def fetch(self, project: Path, name: str, revision: str, into: Path) -> FetchedDataset:
        """A published version below `into`: as it lies there, from DVC's objects, or rebuilt; in this order.

        Args:
            project: folder that holds dvc.yaml and data/versions.yaml.
            name: dataset, as in dvc.yaml and data/versions.yaml.
            revision: published version, for example `v9`.
            into: folder below `state`; the files go to `into/<name>/<content hash>/files`.

        Raises DatasetError if the version is unknown, or if no source gives the content that was published.
        """
        version = published_version(project, name, revision)
        if not into.resolve().is_relative_to(self.state.resolve()):
            raise SettingsError("datasets lie below the state folder", value=str(into), fix=f"use {self.datasets}")
        target = into / name / version.content_hash
        # Without the lock: whoever only reads must not wait for another version's build.
        manifest = _quietly_intact(target, version)
        if manifest is None:
            with locked(self.state):
                manifest = self._obtain(project, name, revision, version, target)
        files = files_folder(target)
        return FetchedDataset(
            path=files,
            rows=version.rows,
            content_hash=version.content_hash,
            dvc_hash=manifest.dvc_hash,
            files=tuple(
                _below(self.state, files, file.stored) for file in manifest.files if not is_file_name(file.stored.path)
            ),
            tree=manifest.tree,
        )

    def publish(
        self,
        project: Path,
        name: str,
        revision: str,
        parameters: Mapping[str, Parameter],
        *,
        source: str | None = None,
        backfill: str = "",
    ) -> PublishedVersion:
        """Build a new version, or import it from `source`; keep its bytes, write its entry to data/versions.yaml.

        Raises DatasetError if the version exists, a parameter is unknown, the build fails, or a file differs from
        the file of the same name in an earlier version: a next version adds files only. `backfill` declares, in
        words, that it changes the newest version before it.
        """
        with locked(self.state), workspace(self.state) as work:
            published = read_versions(project).get(name, {})
            declared = declared_entry(name, parameters, source, backfill, published)
            check_entry(name, revision, declared)
            if source is None:
                check_parameters(project, name, parameters)
            check_versions_writable(project)
            if revision in published:
                problem = f"dataset {name} already has this version"
                raise DatasetError(problem, value=revision, fix="take a new name", code="dataset.published")
            say(f"{'building' if source is None else 'importing'} {name}@{revision} ...")
            folder = made(project, name, parameters, source, work)
            content = content_hash(folder)
            if content.rows == 0:
                fix = "correct dataset.py" if source is None else "import a source that has rows"
                raise DatasetError(f"{name}@{revision} has no rows", value=declared, fix=fix)
            contents = self._contents(project, name, published)
            refuse_undeclared(
                name, revision, content, published, lambda earlier: contents[earlier.content_hash].content, backfill
            )
            dvc_hash = self._objects(project).keep(folder)
            self._objects(project).push(dvc_hash)
            version = PublishedVersion.model_validate(
                {**declared, "rows": content.rows, "content_hash": content.sha256, "dvc_hash": dvc_hash}
            )
            target = self.datasets / name / content.sha256
            install(folder, target, content, version.dvc_hash)
            own = published_files(name, revision, content, files_folder(target))
            add_contents(project, {**contents, content.sha256: own})
            write_pointer(project, name, revision, version.dvc_hash)
            add_version(project, name, revision, version)
        return version

    def known_contents(
        self, project: Path, name: str, versions: Mapping[str, PublishedVersion]
    ) -> dict[str, ContentHash]:
        """The files of these versions by content hash, nothing fetched: as published, or as they lie here.

        A version is left out where neither is known.
        """
        contents = {sha256: recorded.content for sha256, recorded in read_contents(project).items()}
        for version in versions.values():
            if version.content_hash in contents:
                continue
            with contextlib.suppress(DatasetError):
                content = read_manifest(self.datasets / name / version.content_hash).content
                # Under its own hash: a manifest that was changed is nobody's.
                contents[content.sha256] = content
        return contents

    def _contents(
        self, project: Path, name: str, published: Mapping[str, PublishedVersion]
    ) -> dict[str, PublishedContent]:
        """The files of every earlier version, by content hash; a version that has no line yet is fetched for it."""
        known = read_contents(project)
        for revision, version in published.items():
            if version.content_hash not in known:
                target = self.datasets / name / version.content_hash
                content = self._obtain(project, name, revision, version, target).content
                known[version.content_hash] = published_files(name, revision, content, files_folder(target))
        return known

    @property
    def datasets(self) -> Path:
        """Where `publish` leaves the files of the versions; the usual `into` of `fetch`."""
        return self.state / "datasets"

    def _objects(self, project: Path) -> DvcObjects:
        return DvcObjects(self.state / "dvc", project)

    def _obtain(self, project: Path, name: str, revision: str, version: PublishedVersion, target: Path) -> Manifest:
        """The manifest of a verified `target`, however it comes about. The caller holds the lock."""
        label = f"{name}@{revision}"
        manifest = _said_intact(target, version, label)
        if manifest is not None:
            return manifest
        with workspace(self.state) as work:
            lost: list[str] = []
            for dvc_hash in self._dvc_hashes(version):
                folder = work / "read"
                lost = self._objects(project).read(dvc_hash, folder)
                if not lost and _matches(folder, version):
                    return self._install(project, folder, target, rebuilt=False)
                shutil.rmtree(folder, ignore_errors=True)
            folder = made_again(project, name, label, version, lost, work)
            content = content_hash(folder)
            if (content.sha256, content.rows) != (version.content_hash, version.rows):
                raise _other_content(
                    label, version, content, self._objects(project).changed_files(version.dvc_hash, folder)
                )
            manifest = self._install(project, folder, target, rebuilt=True)
            dvc_hash = manifest.dvc_hash
            if dvc_hash != version.dvc_hash:
                say(f"{label}: other bytes than published ({dvc_hash}, not {version.dvc_hash}), equal rows: accepted")
                self._note(version).parent.mkdir(parents=True, exist_ok=True)
                self._note(version).write_text(dvc_hash, encoding="utf-8")
            return manifest

    def _install(self, project: Path, folder: Path, target: Path, *, rebuilt: bool) -> Manifest:
        """Install verified files and keep them; the user's remote gets what was rebuilt, if it takes part."""
        objects = self._objects(project)
        manifest = install(folder, target, content_hash(folder), objects.keep(folder))
        try:
            if rebuilt or objects.has_own_remote:
                objects.push(manifest.dvc_hash)
        except DatasetError as error:
            tell_refused(error)
        return manifest

    def _dvc_hashes(self, version: PublishedVersion) -> list[str]:
        """The published DVC hash and, if this machine rebuilt the same rows as other bytes, the one of those."""
        note = self._note(version)
        rebuilt = note.read_text(encoding="utf-8") if note.is_file() else ""
        return [version.dvc_hash, *([rebuilt] if _DVC_HASH.fullmatch(rebuilt) else [])]

    def _note(self, version: PublishedVersion) -> Path:
        return self.state / "dvc" / "rebuilt" / version.content_hash


def _quietly_intact(target: Path, version: PublishedVersion) -> Manifest | None:
    try:
        manifest = intact(target, version.content_hash)
    except (DatasetError, OSError):
        return None  # looked at again under the lock, where nobody replaces it meanwhile
    return manifest if manifest and manifest.content.rows == version.rows else None


def _said_intact(target: Path, version: PublishedVersion, label: str) -> Manifest | None:
    """As `intact`, but damage is told and then counts as missing."""
    try:
        manifest = intact(target, version.content_hash)
    except DatasetError as error:
        say(f"{label}: {error.problem} ({error.value}); fetching it again")
        return None
    return manifest if manifest and manifest.content.rows == version.rows else None


def _matches(folder: Path, version: PublishedVersion) -> bool:
    try:
        content = content_hash(folder)
    except DatasetError:
        return False
    return (content.sha256, content.rows) == (version.content_hash, version.rows)


def _other_content(label: str, version: PublishedVersion, content: ContentHash, changed: list[str]) -> DatasetError:
    files = f"files that differ: {', '.join(changed)}" if changed else f"files: {len(content.files)}"
    return DatasetError(
        f"{label} was built with other content than published: "
        f"expected {version.content_hash} ({version.rows} rows), found {content.sha256} ({content.rows} rows); {files}",
        value=version.source or version.parameters,
        fix="use the code and packages of the commit that published it, or publish the new rows as another version"
        if version.source is None
        else "what lies at the source changed since: publish it as another version, or restore DVC's remote",
    )


def _below(state: Path, folder: Path, file: StoredFile) -> StoredFile:
    path = (folder / file.path).resolve().relative_to(state.resolve())
    return file.model_copy(update={"path": path.as_posix()})
