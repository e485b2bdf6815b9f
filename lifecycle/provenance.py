"""What was there when a record was made: commit, environment, time. Never identity."""

from __future__ import annotations

import functools
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from lifecycle.identity import sha256_json
from lifecycle.records import Provenance


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit and whether tracked or untracked files differ from it; (None, None) outside git."""
    status = _git(folder, "status", "--porcelain=v2", "--branch")
    if status is None:
        return None, None
    lines = status.splitlines()
    commits = [line.split()[2] for line in lines if line.startswith("# branch.oid ")]
    commit = commits[0] if commits and commits[0] != "(initial)" else None
    return commit, any(not line.startswith("#") for line in lines)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def environment_sha256() -> str:
    """Hash of every installed distribution's name and version."""
    return sha256_json(sorted({_name_and_version(found) for found in metadata.distributions()}))


def _name_and_version(found: metadata.Distribution) -> str:
    """`name==version` from the head of its metadata; `found.name` parses all of it, 60 ms for 200 distributions."""
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
    head = dict(line.split(": ", 1) for line in text.partition("\n\n")[0].splitlines() if ": " in line)
    return f"{head.get('Name', 'unknown').lower()}=={head.get('Version', 'unknown')}"


def collect_provenance(
    folder: Path, *, code_sha256: str, run_id: str, seeds: tuple[int, ...] = (), device: str = "host"
) -> Provenance:
    """Provenance as of now for a record made by `run_id` with the use case in `folder`."""
    commit, dirty = git_state(folder)
    return Provenance(
        git_commit=commit,
        git_dirty=dirty,
        code_sha256=code_sha256,
        environment_sha256=environment_sha256(),
        seeds=seeds,
        device=device,
        run_id=run_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
