"""What was there when a record was made: commit, environment, time. Never identity."""

from __future__ import annotations

import base64
import csv
import functools
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from trainworthy.lifecycle.identity import python_sources, sha256_file, sha256_json
from trainworthy.lifecycle.protocol.records import Provenance

# Trainworthy itself: a result is as much its code's as the use case's. A checkout, or trainworthy/ in site-packages.
PRODUCT = Path(__file__).resolve().parent.parent
OUR_CODE = ("lifecycle", "expectations", "resources", "assets", "pipeline", "src")


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit of the use case in `folder`, and whether changed_files names any.

    None for the second if changed_files is None, for the first if the use case lies outside git.
    """
    changed = changed_files(folder)
    return commit_of(folder), None if changed is None else bool(changed)


def commit_of(folder: Path) -> str | None:
    """Commit of the repository that the folder lies in; None outside git, and before its first commit."""
    return (_git(folder, "rev-parse", "--verify", "--quiet", "HEAD") or "").strip() or None


def changed_files(folder: Path, extra: Iterable[Path] = ()) -> tuple[str, ...] | None:
    """Files of the use case in `folder` and of Trainworthy's code that are not what a commit holds, by name.

    Changed, untracked, or ignored by git; another use case's files say nothing about this one, those of `extra` do. An
    installed Trainworthy is held against its distribution's RECORD instead. None if the use case lies outside git, or
    if Trainworthy does and is not installed either.
    """
    mine = _changed(folder, (".",), [*python_sources(folder).values(), *folder.rglob("*.yaml")])
    recorded = _recorded()
    ours = _changed(PRODUCT, OUR_CODE, _our_sources()) if recorded is None else _not_as_recorded(recorded)
    more = [path.name for path in extra if last_change(path.parent, path.name) in ("", "not committed")]
    return None if mine is None or ours is None else tuple(sorted({*mine, *ours, *more}))


def uncommitted(git_commit: str | None, changed_files: Sequence[str] | None, installed: str | None) -> str:
    """What no commit holds of what a verdict is about, with what to do; empty where it holds all.

    Known before anything is trained. Each is what commit_of, changed_files and installed_version give.
    """
    if git_commit is None or changed_files is None:
        return "the code, the use case's or Trainworthy's, is in no git commit: commit it"
    if not changed_files:
        return ""
    named = ", ".join(changed_files[:5]) + (f" and {len(changed_files) - 5} more" if len(changed_files) > 5 else "")
    again = f"; install {installed} again where a file of trainworthy/ is named" if installed else ""
    return f"what the verdict is about differs from commit {git_commit[:12]} in {named}: commit it{again}"


def committed_text(folder: Path, name: str) -> str | None:
    """A file as the commit holds it, by its path relative to the folder; None if the commit or git has none."""
    return _git(folder, "show", f"HEAD:./{name}")


def installed_version() -> str | None:
    """Version of the installed Trainworthy with a hash of all its files as RECORD has them; None of a checkout.

    Two builds of one version differ in the hash, and one wheel has one hash wherever it is installed.
    """
    recorded = _recorded()
    if recorded is None:
        return None
    return f"trainworthy {metadata.version('trainworthy')} (files {sha256_json(recorded)[:12]})"


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


def _changed(folder: Path, within: Iterable[str], code: Iterable[Path]) -> list[str] | None:
    """Changed and untracked files below the sub-folders `within`, and files of `code` that git does not track."""
    status = _git(folder, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--", *within)
    tracked, prefix = _git(folder, "ls-files", "-z"), _git(folder, "rev-parse", "--show-prefix")
    if status is None or tracked is None or prefix is None:
        return None
    # git names no ignored file in its status. Two letters and a blank stand before each name.
    in_git = {folder / name for name in tracked.split("\0") if name}
    ignored = [f"{prefix.strip()}{path.relative_to(folder).as_posix()}" for path in code if path not in in_git]
    named = [entry[3:] for entry in status.split("\0") if entry]
    # Python itself writes bytecode beside the sources, also where no .gitignore names it.
    return [*(name for name in named if "__pycache__" not in name.split("/")), *ignored]


def _our_sources() -> list[Path]:
    return [path for name in OUR_CODE for path in python_sources(PRODUCT / name).values()]


def _recorded() -> dict[str, str] | None:
    """sha256 (base64, as RECORD writes it) of each of the installed Trainworthy's files, by its path below PRODUCT.

    None if PRODUCT is a checkout: the RECORD of an editable installation names none of its files.
    """
    try:
        distribution = metadata.distribution("trainworthy")
    except metadata.PackageNotFoundError:
        return None
    # An environment below a symbolic link (macOS' /tmp) names its files by another path than PRODUCT's resolved one.
    root = Path(str(distribution.locate_file(""))).resolve()
    # Not `files`: from Python 3.12 on, and wherever importlib_metadata is imported, it leaves out those that are gone.
    rows = [row for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()) if len(row) == 3]
    hashed = {root / name: value for name, sha256, _ in rows for kind, _, value in [sha256.partition("=")] if kind}
    if PRODUCT / "lifecycle" / "provenance.py" not in hashed:
        return None
    ours = [path for path in hashed if path.is_relative_to(PRODUCT)]
    return {path.relative_to(PRODUCT).as_posix(): hashed[path] for path in sorted(ours)}


def _not_as_recorded(recorded: Mapping[str, str]) -> list[str]:
    """Files that were changed or removed since they were installed, and sources that no installation brought."""
    more = {path.relative_to(PRODUCT).as_posix() for path in _our_sources()} - recorded.keys()
    changed = {name for name, sha256 in recorded.items() if _record_sha256(PRODUCT / name) != sha256}
    return [f"trainworthy/{name}" for name in changed | more]


def _record_sha256(path: Path) -> str | None:
    """A file's hash as RECORD writes it: base64 for addresses, without padding; None if there is no such file."""
    if not path.is_file():
        return None
    return base64.urlsafe_b64encode(bytes.fromhex(sha256_file(path))).decode().rstrip("=")


def last_change(folder: Path, name: str, word: str | None = None) -> str:
    """Who changed a line of a file of the folder last that holds a word: the commit and its author.

    Without a word, and where no line ever held it, who changed the file; that it is not committed; empty outside git.
    """
    status = _git(folder, "status", "--porcelain=v1", "--untracked-files=all", "--", name)
    if status is None:
        return ""
    of_word = () if word is None else (f"-G{re.escape(word)}",)
    changed = _git(folder, "diff", "HEAD", "--name-only", *of_word, "--", name)
    # A file that is new, or a repository without a commit, has no difference.
    if status[:1] in ("?", "A") or changed is None or changed.strip():
        return "not committed"
    for which in (of_word, ()):
        log_line = (_git(folder, "log", "-1", "--format=%h%x09%an", *which, "--", name) or "").strip()
        commit, _, author = log_line.partition("\t")
        if commit:
            return f"commit {commit} by {author}"
    return ""


def git_author(folder: Path) -> str:
    """Who commits in the folder, by git's own settings; empty where they do not say."""
    return (_git(folder, "config", "user.name") or "").strip()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def environment_sha256() -> str:
    """Hash of every installed distribution's name and version."""
    return sha256_json(sorted({_name_and_version(distribution) for distribution in metadata.distributions()}))


def _name_and_version(distribution: metadata.Distribution) -> str:
    """`name==version` from the head of its metadata; `found.name` parses all of it, 60 ms for 200 distributions."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
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
