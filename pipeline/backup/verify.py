"""Is a backup what was written: every file with its hash, none missing, none besides, and no links."""

from __future__ import annotations

from pathlib import Path

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.progress import Progress, never_silent
from trainworthy.pipeline.backup.files import fingerprint, listed, refuse_odd
from trainworthy.pipeline.backup.manifest import FILE, SEAL, Manifest, read_manifest

_SHOWN = 5


def verified(folder: Path) -> tuple[Manifest, str]:
    """The manifest of a backup whose every byte is as it was written, and its hash. Raises BackupError otherwise."""
    manifest, sha256 = read_manifest(folder)
    refuse_odd(folder, "the backup")
    there = {name for name, entry in listed(folder) if entry.is_file(follow_symlinks=False)} - {FILE, SEAL}
    wrong = [f"missing: {name}" for name in sorted(manifest.files.keys() - there)]
    wrong += [f"not of this backup: {name}" for name in sorted(there - manifest.files.keys())]
    progress = Progress("verify", len(manifest.files))
    with never_silent("verify"):
        for name in sorted(there & manifest.files.keys()):
            if fingerprint(folder / name).sha256 != manifest.files[name].sha256:
                wrong.append(f"changed: {name}")
            progress.advance()
    progress.close()
    if wrong:
        fix = "take another copy of this backup, or an earlier one: nothing of it was restored"
        problem = f"the backup is not what was written: {len(wrong)} files"
        raise BackupError(problem, value=wrong[:_SHOWN], fix=fix, code="backup.changed")
    return manifest, sha256
