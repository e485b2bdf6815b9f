"""trainworthy doctor: each check passes on a healthy set-up and finds a planted fault; repairs only with --fix."""

import os
import shutil
import subprocess
import sys

from doctor_checks import bad, only
from toy_project import until

from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.pipeline.doctor import examine, project, runs, stores
from trainworthy.resources.settings import read_settings


def test_doctor_tells_what_is_wrong_first_and_what_is_well_by_its_count():
    well = CheckResult(name="python", status="pass", evidence="Python 3.11")
    absent = CheckResult(name="shared_state", status="not_applicable", evidence="named nowhere")
    warning = CheckResult(name="git a", status="fail", severity="warning", evidence="not in it: a.py", fix="commit")
    dirty = [warning, warning.model_copy(update={"name": "git b"})]
    full = CheckResult(name="disk", status="fail", evidence="0 GB free", fix="free space")
    results = [well, *dirty, absent, full]
    # A warning that use cases share is told once.
    brief = "✗ disk: 0 GB free\n    fix: free space\n! git a, b: not in it: a.py\n    fix: commit"
    assert examine.in_brief(results) == brief
    assert examine.summary(results) == "5 checks: 1 failed, 2 warnings, 1 passed, 1 not applicable"
    assert len(examine.text(results).splitlines()) == 8
    assert examine.in_brief([well, absent]) == ""
    assert examine.summary([well, absent]) == "✓ all is well: 1 passed, 1 not applicable"
    assert examine.summary([well, well]) == "✓ all is well: 2 passed"
    assert examine.summary([]) == "! nothing was checked: 0 passed"
    assert examine.summary([absent]) == "! nothing was checked: 0 passed, 1 not applicable"
    # What has no name of its own needs none where it is told once.
    port = CheckResult(name="port", status="fail", evidence="taken", fix="free it")
    assert examine.in_brief([port, port]).splitlines()[0] == "✗ port: taken"


# pytest-xdist shows a test's name as its process's command, and a parent named after Dagster counts as one of its.
def test_doctor_worker_that_nobody_started_is_told(place):
    assert bad(runs.workers) == []
    script = "import time; time.sleep(600)"
    command = [sys.executable, "-c", script, "trainworthy.lifecycle.worker", f"{place}/state/training/job.json"]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: bad(runs.workers))
            only(runs.workers, "! left workers", f"pid {process.pid}", f"kill {process.pid}")
        finally:
            process.kill()


def test_doctor_check_that_breaks_is_told_and_hides_no_other(place, monkeypatch):
    def breaks(settings):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(examine, "CHECKS", (breaks, project.prices))
    broken, prices = examine.examine()
    assert (broken.name, broken.status, broken.stops) == ("breaks", "error", True)
    assert "ZeroDivisionError: planted" in broken.evidence
    assert prices.name == "prices"


def test_doctor_command_on_a_trained_state_is_well_and_changes_nothing(trained):
    before = {path: path.stat().st_mtime_ns for path in trained.toy.var.glob("[!d]*/**/*") if path.is_file()}
    done = trained.toy.call("-X", "importtime", "-m", "trainworthy.pipeline.cli", "doctor")
    assert done.code == 0, done.out
    assert "✗" not in done.out
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "trainworthy.pipeline.doctor.examine" in imported
    assert not {"mlflow", "torch", "pandas", "numpy"} & imported
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_doctor_command_before_any_run_writes_nothing_and_a_failure_is_exit_code_1(fresh):
    assert fresh.call("-m", "trainworthy.pipeline.cli", "doctor").code == 0
    assert not fresh.var.exists()
    fresh.edit("use_case.yaml", "version: v1", "version: v7")
    done = fresh.call("-m", "trainworthy.pipeline.cli", "doctor")
    assert (done.code, "1 failed" in done.out, "Traceback" in done.out) == (1, True, False)
    assert (done.out[0], "✓" in done.out) == ("✗", False)
    nothing = fresh.call("-m", "trainworthy.pipeline.cli", "doctor", "--fix")
    assert (nothing.code, nothing.out.splitlines()[0]) == (1, "nothing to repair")
    assert not fresh.var.exists()


def test_doctor_on_a_read_only_state_looks_at_the_databases_and_says_what_it_left_out(place, trained, monkeypatch):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    found = {result.name: result.status for result in examine.runs_checks(read_settings())}
    assert {"attempts", "open_attempts"} < found.keys()
    assert set(found.values()) == {"pass"}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert bad(stores.dagster_store) == []
    only(examine.runs_checks, "! runs: not looked at")


def test_doctor_with_settings_that_fail_leaves_dagster_out(place, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "nowhere"))
    only(examine.runs_checks, "! runs: not looked at", settings=examine.settings_there()[0])
