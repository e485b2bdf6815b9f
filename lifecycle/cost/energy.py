"""Energy that this machine has used, where it has a meter that may be read."""

from __future__ import annotations

from pathlib import Path

# Intel's and AMD's running average power limit; packages only, since their parts are counted within them.
METERS = Path("/sys/class/powercap")


def joules(meters: Path = METERS) -> float | None:
    """Joules since some moment in the past, of all processor packages; None where nothing can be read.

    A counter starts again after hours; a difference across that moment is negative and no measurement.
    """
    packages = [path for path in sorted(meters.glob("*-rapl:*")) if path.name.count(":") == 1]
    try:
        readings = [int((path / "energy_uj").read_text()) for path in packages]
    except (OSError, ValueError):
        # Only root may read it on many machines.
        return None
    return sum(readings) / 1e6 if readings else None
