"""What was there when a record was made: commit, environment, time. Never identity."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from lifecycle.identity import python_sources, sha256_json
from lifecycle.records import Provenance

# Trainworthy itself: a result is as much its code's as the use case's.
PRODUCT = Path(__file__).resolve().parent.parent
OUR_CODE = ("lifecycle", "expectations", "resources", "assets", "pipeline")


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit of the use case in `folder`, and whether any code that a step runs is not what a commit holds.

    True if its repository or Trainworthy's has a change, an untracked file, or code that git ignores; None if
    either lies outside git (an installed Trainworthy does), and the commit is None if the use case does.
    """
    commit, dirty = _state(folder, [*python_sources(folder).values(), *folder.rglob("*.yaml")])
    ours = [path for name in OUR_CODE for path in python_sources(PRODUCT / name).values()]
    _, product_dirty = _state(PRODUCT, ours)
    if dirty is None or product_dirty is None:
        return commit, None
    return commit, dirty or product_dirty


@functools.cache
def repository_url(folder: Path) -> str | None:
    """Address of the folder's `origin` in a browser, without credentials; None if it is not an https one."""
    address = urlsplit(without_credentials((_git(folder, "remote", "get-url", "origin") or "").strip()))
    if address.scheme != "https" or not address.hostname:
        return None
    return f"https://{address.netloc}{address.path.rstrip('/').removesuffix('.git')}"


def without_credentials(text: str) -> str:
    """The text with each address in it without user, password and query.

    All up to an address's last @ goes: databases take passwords with / ? and # in them.
    """
    return re.sub(r"://(?:\S*@)?([^\s?#&]*)\S*", r"://\1", text)


def commit_url(folder: Path, commit: str | None) -> str | None:
    """Where the commit can be looked at (GitHub, GitLab and Gitea agree on the path), None if that is not known."""
    repository = repository_url(folder)
    return f"{repository}/commit/{commit}" if repository and commit else None


def _state(folder: Path, code: Iterable[Path]) -> tuple[str | None, bool | None]:
    """Commit of the folder's repository, and whether it has a change or does not track a file of `code`."""
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    tracked = _git(folder, "ls-files", "-z")
    if status is None or tracked is None:
        return None, None
    lines = status.splitlines()
    commits = [line.split()[2] for line in lines if line.startswith("# branch.oid ")]
    commit = commits[0] if commits and commits[0] != "(initial)" else None
    changed = any(not line.startswith("#") for line in lines)
    # git names no ignored file in its status, and one name for a whole untracked folder.
    in_git = {folder / name for name in tracked.split("\0") if name}
    return commit, changed or any(path not in in_git for path in code)


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
