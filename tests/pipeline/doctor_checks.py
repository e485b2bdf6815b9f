"""What a check of `trainworthy doctor` finds wrong, as it is printed."""

import subprocess
import sys

from trainworthy.pipeline.doctor import examine
from trainworthy.resources.settings import Settings, read_settings


def bad(check, settings: Settings | None = None) -> list[str]:
    """Sign, evidence and fix of what did not pass."""
    found = examine.examined(check, settings or read_settings())
    assert found, "a check that says nothing can't fail"
    return [examine.text([result]) for result in found if result.status not in ("pass", "not_applicable")]


def only(check, *told: str, settings: Settings | None = None) -> None:
    """Exactly one result is not good, and it says all of this."""
    (line,) = bad(check, settings)
    assert "\n    fix: " in line
    for text in told:
        assert text in line, line


def dead_pid() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
