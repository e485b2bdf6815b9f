"""Installs packages into a virtual environment, and says at least every five seconds how far it is.

    python install.py [--pip] .venv REQUIREMENT… [--editable FOLDER] [--no-deps]

What `make setup` runs, before anything is installed: the standard library is all that it has. By uv, which pip installs
first and which takes a minute for 250 packages where pip takes four. By pip where --pip asks for it, where its
configuration names another index, which uv does not read, and where there is no uv or it fails. Versions are those of
constraints.txt. What the installer writes lies in <environment>/setup.log, and its end is shown if it fails.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SECONDS_A_LINE = 5.0
# Of the installer, in the environment.
LOG = "setup.log"
UV_LOG = "setup-uv.log"
CONSTRAINT = ("--constraint", "constraints.txt")
SHOWN_LINES, SHOWN_CHARACTERS = 20, 80
# What an installer's log says of a cause that it is not at fault for, and what to do about it.
FIXES = {
    ("NewConnectionError", "Temporary failure in name resolution", "dns error", "Connection refused", "timed out"): (
        "the package index cannot be reached: set-up alone needs a network, or a mirror that pip is configured for"
    ),
    ("ResolutionImpossible", "No solution found", "conflicting dependencies"): (
        "constraints.txt and pyproject.toml do not fit: take both from one commit (git checkout -- constraints.txt)"
    ),
    ("No space left on device",): "free space on the disk: an environment takes 3 GB",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install, and say so; exit code 0, or 1 with the end of the log and a fix."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pip", action="store_true", help="not by uv")
    parser.add_argument("environment", type=Path)
    asked, requirements = parser.parse_known_args(arguments)
    python = asked.environment / "bin" / "python"
    if not asked.pip and (uv := uv_for(python, asked.environment)):
        if run([*by_uv(uv, python), *requirements], asked.environment) == 0:
            return 0
        log = (asked.environment / LOG).rename(asked.environment / UV_LOG)
        print(f"uv could not install it ({log}); once more by pip", flush=True)
    return install([*by_pip(python), *requirements], asked.environment)


def uv_for(python: Path, environment: Path) -> str | None:
    """The environment's own uv, one on the PATH, or one that pip installs now; None if pip is to do it itself."""
    pip = [str(python), "-m", "pip"]
    configured = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    # Of more than the usual index uv needs to know nothing: what it does not find, pip is asked for.
    if any(line.partition("=")[0].endswith(".index-url") for line in configured.splitlines()):
        return None
    own = str(python.parent)
    if not (shutil.which("uv", path=own) or shutil.which("uv")):
        run([*by_pip(python), "uv"], environment)
    return shutil.which("uv", path=own) or shutil.which("uv")


def by_uv(uv: str, python: Path) -> list[str]:
    """The command that installs into the environment of `python`, without what it installs.

    uv compiles nothing unless asked, and each process would compile what it imports anew where the shell forbids it
    to keep that. It compiles all of the environment, on all cores.
    """
    return [uv, "pip", "install", "--python", str(python), "--compile-bytecode", *CONSTRAINT]


def by_pip(python: Path) -> list[str]:
    """The same by pip."""
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", *CONSTRAINT]


def install(command: Sequence[str], environment: Path) -> int:
    """Run the installer to its end, and show why it failed; 0, or 1 for any failure."""
    if run(command, environment) == 0:
        return 0
    log = environment / LOG
    print(failure(log.read_text(errors="replace"), log), file=sys.stderr, flush=True)
    return 1


def run(command: Sequence[str], environment: Path) -> int:
    """Run the installer to its end, with a line of progress every few seconds; its exit code."""
    log, started = environment / LOG, time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        while True:
            try:
                code = process.wait(SECONDS_A_LINE)
                break
            except subprocess.TimeoutExpired:
                print(progress(environment, log, time.monotonic() - started), flush=True)
    if code == 0:
        print(progress(environment, log, time.monotonic() - started, done=True), flush=True)
    return code


def progress(environment: Path, log: Path, seconds: float, *, done: bool = False) -> str:
    """Time since this installation began, packages in the environment, and what the installer says that it does."""
    minutes, rest = divmod(int(seconds), 60)
    elapsed = f"{minutes} min {rest:2} s" if minutes else f"{rest:2} s"
    packages = sum(1 for _ in environment.glob("lib/python*/site-packages/*.dist-info"))
    told = "" if done else last_step(log.read_text(errors="replace"))
    return f"  {elapsed}: {packages} packages{f'; {told}' if told else ''}"


def last_step(text: str) -> str:
    """The newest line of the log that says what is done, cut to one line of a terminal."""
    steps = (
        "Collecting",
        "Downloading",
        "Using cached",
        "Processing",
        "Building",
        "Installing",
        "Resolved",
        "Prepared",
        "Installed",
    )
    lines = (line.strip() for line in reversed(text.splitlines()))
    told = next((line for line in lines if line.startswith(steps)), "")
    # uv's last line until it has compiled all, which takes longest.
    told = f"{told}; compiling them" if told.startswith("Installed") else told
    return told if len(told) <= SHOWN_CHARACTERS else f"{told[: SHOWN_CHARACTERS - 1]}…"


def failure(text: str, log: Path) -> str:
    """The end of the log without its warnings, where the rest lies, and what to do where that is known."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    # The first cause alone: without an answer of the index, pip speaks of conflicting versions as well.
    known = (fix for marks, fix in FIXES.items() if any(mark in text for mark in marks))
    fix = next(known, "read the lines above, then run it again")
    return "\n".join([*lines[-SHOWN_LINES:], f"set-up failed; all of it: {log}", f"  fix: {fix}"])


if __name__ == "__main__":
    sys.exit(main())
