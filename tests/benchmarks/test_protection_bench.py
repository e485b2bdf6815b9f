"""The bench that takes protections away: what it lists is read off the code, and one taken away makes a test fail."""

import os
import subprocess
import sys

import pytest

from benchmarks.protection_plugin import OFF, SWITCH, protection, switch_off
from benchmarks.protection_sites import PROTECTION, ROOT, all_sites, marked, module_files, monitor_classes

CONTROLS = "trainworthy.lifecycle.promotion.controls"
CONTRACT = f"{CONTROLS}.dataset_control:contract"
BROKEN = {
    "published_content_hash": "a", "found_content_hash": "a", "contract_passed": False,
    "snapshot_dataset_identity": "b", "dataset_identity": "b",
}  # fmt: skip


def made_of(module, source):
    """The names of a module whose places are marked, beside the real one."""
    names = {"__name__": f"{module}_marked", PROTECTION: protection}
    exec(compile(marked(module, source)[0], module, "exec"), names)
    return names


def test_control_whose_finding_is_switched_off_passes_and_fails_else(monkeypatch):
    control = made_of(CONTROLS, module_files()[CONTROLS].read_text())["dataset_control"]
    assert control(**BROKEN).status == "fail"
    monkeypatch.setattr(SWITCH, "off", CONTRACT)
    assert control(**BROKEN).status == "pass"
    assert control(**{**BROKEN, "found_content_hash": "c"}).status == "fail"


def test_new_check_is_a_protection_by_its_code_alone():
    source = (
        "def slow_check(seconds):\n"
        "    if seconds is None:\n"
        "        return CheckResult(name='slow', status='insufficient')\n"
        "    if seconds == 0:\n"
        "        return CheckResult(name='slow', status='pass')\n"
        "    return at_most('slow', seconds, 3.0)\n"
    )
    found = [site.id for site in marked("trainworthy.lifecycle.new", source)[1]]
    assert found == ["trainworthy.lifecycle.new.slow_check:slow", "trainworthy.lifecycle.new.slow_check:slow#2"]


def test_protections_of_the_code_are_many_and_named_apart():
    sites = all_sites()
    assert len({site.id for site in sites}) == len(sites)
    kinds = {
        "alarm", "check result", "control", "decide reject", "decide shadow", "drift shift", "drift shifts", "gate",
        "monitor", "own check",
    }  # fmt: skip
    assert {site.kind for site in sites} == kinds
    assert {"Spikes", "Plateau", "Heartbeat"} <= monitor_classes()


def test_plugin_takes_one_protection_away_and_only_its_test_fails(tmp_path):
    tests = tmp_path / "test_baselines.py"
    tests.write_text(
        "import pytest\n"
        "from trainworthy.lifecycle.promotion.decide import _linear, _prior\n"
        "from trainworthy.lifecycle.promotion.evidence import PromotionEvidence\n"
        "from trainworthy.lifecycle.protocol.figures import Comparison, Estimate\n\n"
        "@pytest.mark.parametrize(('name', 'rule'), [('linear', _linear), ('prior', _prior)])\n"
        "def test_gain(name, rule):\n"
        "    gain = Estimate(value=0.0, low=-0.1, high=0.1, standard_error=0.05, groups=30)\n"
        "    compared = Comparison(reference=name, metric='log_loss', gain=gain)\n"
        "    evidence = PromotionEvidence.model_construct(metric='log_loss', margin=0.01, baselines=(compared,))\n"
        "    assert [finding.allows for finding in rule(evidence)] == ['shadow']\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "benchmarks.protection_plugin", "-p", "no:cacheprovider"]
    off = os.environ | {OFF: "trainworthy.lifecycle.promotion.decide._linear:shadow#2"}
    of_its_own = ["--rootdir", str(tmp_path), "-c", os.devnull, str(tests)]
    done = subprocess.run([*command, *of_its_own], cwd=ROOT, env=off, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_baselines.py::test_gain[linear-_linear]" in done.stdout


def test_protection_that_there_is_not_cannot_be_taken_away():
    with pytest.raises(pytest.UsageError, match=r"no protection 'nothing'\. Fix: "):
        switch_off("nothing", all_sites())
