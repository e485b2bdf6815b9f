"""Trainworthy as a wheel, beside a project whose own folders are called as some of its packages are."""

import csv
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lifecycle", "expectations", "resources", "assets", "pipeline")
# The checkout is nowhere on the path: what an editable install put there is taken off again.
WITHOUT_CHECKOUT = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(getattr(finder, "__module__", ""))]
sys.path[:] = [entry for entry in sys.path if not entry.startswith({str(ROOT)!r}) or "site-packages" in entry]
"""


def run(*command: str | Path, cwd: Path) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "TRAINWORTHY_", "DAGSTER_"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=kept | {"DAGSTER_DISABLE_TELEMETRY": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def tracked() -> list[str]:
    return run("git", "ls-files", *PACKAGES, "src", cwd=ROOT).splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the tracked files elsewhere: a build leaves folders where it runs."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in (*tracked(), "pyproject.toml", "README.md", "LICENSE", "prices.yaml", "dagster.yaml"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    # The environment of the tests has setuptools; nothing is fetched.
    command = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, ".")
    run(sys.executable, *command, cwd=tree)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """Python of an environment with the wheel, which sees the libraries of this one."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    libraries = [entry for entry in sys.path if entry.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({entry!r})" for entry in libraries]
    (site / "zz_libraries.pth").write_text("\n".join([*lines, "import zz_without_checkout"]))
    (site / "zz_without_checkout.py").write_text(WITHOUT_CHECKOUT)
    return python


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with packages of its own, and a table of visits."""
    for name in ("assets", "resources"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('the project's own package was imported')")
    random, began = Random(0), datetime(2024, 1, 1)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("visit_id", "at", "amount", "bought"))
        for n in range(1500):
            amount = random.gauss(50, 20)
            at = (began + timedelta(hours=1.3 * n)).isoformat()
            rows.writerow((n, at, f"{amount:.2f}", int(amount + random.gauss(0, 15) > 55)))
    return tmp_path


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_packages_once(wheel):
    held = zipfile.ZipFile(wheel).namelist()
    wanted = {f"trainworthy/{name}" for name in tracked() if name.startswith(PACKAGES)}
    own = {f"trainworthy/{name}" for name in ("__init__.py", "earlier_name.py", "prices.yaml", "dagster.yaml")}
    assert {name for name in held if ".dist-info/" not in name} == wanted | own
    assert len(held) == len(set(held))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_wheel_drafts_checks_and_preflights_a_use_case_in_a_folder_with_packages_of_its_own(installed, project):
    where = run(installed, "-c", "import trainworthy.pipeline.cli as cli; print(cli.__file__)", cwd=project)
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    command = installed.with_name("trainworthy")
    run(command, "new", "shop", "--data", "rows.csv", "--target", "bought", "--time", "at", cwd=project)
    assert "nothing wrong in shop" in run(command, "check", "shop", cwd=project)
    execute = ("-m", "dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions", "-j", "preflight_shop")
    shown = run(installed, *execute, cwd=project)
    assert "preflight  passed" in shown
    assert (project / "var" / "reports" / "shop" / "preflight.xml").is_file()
    assert "0 failed" in run(command, "doctor", cwd=project)
