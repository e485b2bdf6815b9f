"""Folders of dataset files on this machine: `<name>/<content hash>/files/` beside `manifest.json`.

The manifest holds every file's size, sha256 and logical content. A folder counts only while its files are exactly
those; whatever differs is fetched again, never used.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pydantic import ValidationError

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import ContentHash, FileContent, all_files, combined
from trainworthy.lifecycle.files.tree import is_file_name, tree_files, tree_hashes
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.protocol.records import StoredFile, StoredTree
from trainworthy.lifecycle.spec.frozen import Frozen


class ManifestFile(Frozen):
    """One file: logical content, and the bytes that carry it."""

    content: FileContent
    stored: StoredFile


class Manifest(Frozen):
    """What a folder holds. `stored.path` is relative to the folder of files."""

    dvc_hash: str
    files: tuple[ManifestFile, ...]

    @property
    def content(self) -> ContentHash:
        """The dataset's logical content, from that of its files."""
        return combined(file.content for file in self.files)

    @property
    def tree(self) -> StoredTree | None:
        """The files that rows name, all together; None where there are none."""
        return _together([file.stored for file in self.files if is_file_name(file.stored.path)])


def files_folder(target: Path) -> Path:
    """The folder of a materialised dataset: its Parquet files, and `files/` with those that rows name."""
    return target / "files"


def intact(target: Path, content_sha256: str) -> Manifest | None:
    """The manifest if the folder is there and holds exactly the expected content; None if it is not there.

    Raises DatasetError, naming the files, if anything is missing, added or changed.
    """
    if not target.exists():
        return None
    manifest = read_manifest(target)
    if manifest.content.sha256 != content_sha256:
        raise _damaged(target, "the manifest describes other content", manifest.content.sha256)
    expected = {file.stored.path: file.stored for file in manifest.files}
    # Not combined into one hash of hashes: the message has to name the file.
    present = _stored(all_files(files_folder(target)))
    changed = sorted(name for name in expected.keys() | present.keys() if expected.get(name) != present.get(name))
    if changed:
        raise _damaged(target, "files differ from the manifest", changed)
    return manifest


def install(folder: Path, target: Path, content: ContentHash, dvc_hash: str) -> Manifest:
    """Move a folder of verified files into place as `target`, replacing what is there; all or nothing.

    `folder` has to lie on the same file system as `target`.
    """
    paths = all_files(folder)
    stored = _stored(paths)
    files = (ManifestFile(content=file, stored=stored[file.name]) for file in content.files)
    manifest = Manifest(dvc_hash=dvc_hash, files=tuple(files))
    new = folder.with_name(f"{folder.name}.new")
    new.mkdir()
    for path in paths.values():
        path.chmod(0o444)  # shared by all runs: a write by mistake fails at once instead of at the next fetch
    folder.rename(files_folder(new))
    (new / "manifest.json").write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        # A folder can't be replaced by rename; in between, `target` is missing, which readers take as "fetch".
        old = folder.with_name(f"{folder.name}.old")
        target.rename(old)
        shutil.rmtree(old)
    os.rename(new, target)
    return manifest


def read_manifest(target: Path) -> Manifest:
    """What the folder is said to hold; its files are not looked at. Raises DatasetError."""
    path = target / "manifest.json"
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise _damaged(target, "the manifest can't be read", str(error)) from error


def tree_here(folder: Path) -> StoredTree | None:
    """The files that rows name as they lie in a folder of files; each is read. Raises DatasetError for a link."""
    return _together([*_stored(tree_files(folder)).values()])


def _together(files: list[StoredFile]) -> StoredTree | None:
    if not files:
        return None
    sha256 = sha256_json({file.path: file.sha256 for file in files})
    return StoredTree(files=len(files), bytes=sum(file.bytes for file in files), sha256=sha256)


def _stored(files: dict[str, Path]) -> dict[str, StoredFile]:
    hashes = zip(files.items(), tree_hashes(files.values(), "verifying the dataset's files"), strict=True)
    return {name: StoredFile(path=name, sha256=sha256, bytes=path.stat().st_size) for (name, path), sha256 in hashes}


def _damaged(target: Path, problem: str, value: object) -> DatasetError:
    return DatasetError(
        f"the dataset in {target} is damaged: {problem}", value=value, fix="remove the folder and fetch it again"
    )
