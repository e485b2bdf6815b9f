"""From nothing to a first verdict in a team's own repository: seconds by part, the wheel's size, and silence.

The wheel is built from the committed files, installed beside the libraries of this environment (nothing is
downloaded), and drives a new project with a table of 1,500 rows: init, new, check, and a training until its verdict,
which a short run leaves out. A whole run then sets up a fresh clone and runs `make demo` there, with every time
between two pieces of its output: the longest, and the sum of those above ten seconds. That part needs the package
index. The longest silence alone has a target: a set-up's seconds are the network's.

    make bench NAME=install          about 8 minutes on 2 cores; the tree must be committed
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.process import run
from benchmarks.result import arguments, begin, finish
from benchmarks.toy_project import committed
from trainworthy.resources.settings import PRODUCT

# Whoever sees nothing for longer looks whether it hangs.
SILENCE_SECONDS = 10.0
TARGETS = {"demo_longest_silence_seconds": SILENCE_SECONDS}
ROWS = 1500


def main() -> None:
    """Run all parts and print the table."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    with tempfile.TemporaryDirectory() as folder:
        figures = team(Path(folder), training=not short)
    if not short:
        with tempfile.TemporaryDirectory() as folder:
            figures |= demo(Path(folder))
    finish("install", figures, TARGETS, short=short, zero_allowed={"demo_silent_seconds"})


def team(folder: Path, *, training: bool) -> dict[str, float]:
    """Seconds of each part from the sources to a verdict (without `training` to the checks), and the wheel's MB."""
    figures: dict[str, float] = {}

    def part(name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        figures[f"{name}_seconds"] = time.perf_counter() - started
        print(f"{name:14} {figures[f'{name}_seconds']:6.1f} s", flush=True)

    part("wheel", lambda: build_wheel(folder))
    wheel = next(folder.glob("*.whl"))
    figures["wheel_mb"] = wheel.stat().st_size / 1e6
    part("installation", lambda: install(wheel, folder / "environment"))
    binaries, project = folder / "environment" / "bin", folder / "project"
    project.mkdir()
    write_table(project / "visits.csv", ROWS)
    environment = environment_of(project)
    command, draft = str(binaries / "trainworthy"), ("--data", "visits.csv", "--target", "bought", "--time", "at")
    run(["git", "init", "--quiet"], environment, project)
    part("init", lambda: run([command, "init"], environment, project))
    part("new", lambda: run([command, "new", "shop", *draft], environment, project))
    part("check", lambda: run([command, "check", "shop"], environment, project))
    if not training:
        return figures
    committed(project)
    execute = [str(binaries / "python"), "-m", "dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions"]
    declared = ["-j", "train_shop", "-c", "use_cases/shop/first_model.yaml"]
    part("first_verdict", lambda: run([*execute, *declared], environment, project))
    verdict = subprocess.run([command, "verdict", "shop"], env=environment, cwd=project, capture_output=True, text=True)
    print(verdict.stdout.partition("\n")[0], flush=True)
    return figures


def demo(folder: Path) -> dict[str, float]:
    """Seconds of `make demo` in a fresh clone, the longest without output, and all of those above ten seconds."""
    subprocess.run(["git", "clone", "--quiet", str(PRODUCT), str(folder / "clone")], check=True)
    gaps, seconds = silences(["make", "demo"], environment_of(folder), folder / "clone")
    for length, after in sorted(gaps, reverse=True)[:5]:
        print(f"{length:6.1f} s silent after: {after[:100]}", flush=True)
    return {
        "demo_seconds": seconds,
        "demo_longest_silence_seconds": max(length for length, _ in gaps),
        "demo_silent_seconds": sum(length for length, _ in gaps if length > SILENCE_SECONDS),
    }


def silences(
    command: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[list[tuple[float, str]], float]:
    """Seconds between each two pieces of output with the line before, to the command's end; and all seconds."""
    started = before = time.perf_counter()
    gaps, line = [], "(the beginning)"
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        # What is there, not whole lines: a bar that moves is no silence.
        while piece := os.read(process.stdout.fileno(), 65536):
            now = time.perf_counter()
            gaps.append((now - before, line))
            before, line = now, piece.decode(errors="replace").strip().rpartition("\n")[2] or line
        gaps.append((time.perf_counter() - before, line))
    assert process.returncode == 0, f"{' '.join(command)} ended with {process.returncode} after: {line}"
    return gaps, time.perf_counter() - started


def build_wheel(out: Path) -> None:
    """A wheel from what is committed, built elsewhere: a build leaves folders where it runs."""
    tree = out / "tree"
    subprocess.run(["git", "clone", "--quiet", str(PRODUCT), str(tree)], check=True)
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), ".")
    run([sys.executable, "-m", "pip", *build], dict(os.environ), tree)


def install(wheel: Path, environment: Path) -> None:
    """A new environment with the wheel, which sees the libraries of this one and not its checkout."""
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], dict(os.environ), wheel.parent)
    python, pip = str(environment / "bin" / "python"), [sys.executable, "-m", "pip", "--quiet", "--python"]
    run([*pip, python, "install", "--no-deps", "--no-index", str(wheel)], dict(os.environ), wheel.parent)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    # Paths alone: the .pth files of this environment, which lead to the checkout, are not followed.
    (site / "libraries.pth").write_text("\n".join(entry for entry in sys.path if entry.endswith("site-packages")))


def environment_of(project: Path) -> dict[str, str]:
    """The environment without what this process was told of another project."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "TRAINWORTHY_", "DAGSTER_"))}
    return kept | {"DAGSTER_DISABLE_TELEMETRY": "1", "PWD": str(project)}


def write_table(path: Path, rows: int) -> None:
    """Visits of a shop: who pays much buys, but for noise."""
    draw, began = random.Random(0), datetime(2024, 1, 1)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("visit_id", "at", "amount", "bought"))
        for n in range(rows):
            amount = draw.gauss(50, 20)
            at = (began + timedelta(hours=1.3 * n)).isoformat()
            table.writerow((n, at, f"{amount:.2f}", int(amount + draw.gauss(0, 15) > 55)))


if __name__ == "__main__":
    main()
