"""Own checks: functions of model.py named check_<something>, run last, told as own.<something>."""

import types

import pytest
import toy_jobs

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.functions import try_functions
from trainworthy.lifecycle.engine.preflight.own import own_checks
from trainworthy.lifecycle.engine.preflight.run import run_preflight
from trainworthy.lifecycle.gates.ci import github_annotations, rows_of
from trainworthy.lifecycle.gates.own_names import own_names
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import FunctionsJob
from trainworthy.lifecycle.protocol.trial import Trial

CHECKS = '''
def check_width(subject):
    """Is the network at least 16 wide?

    A narrower one was never worth its time.
    """
    width = subject.build().layers[0].out_features
    return f"it is {width} wide" if width < 16 else ""


def check_rows(subject):
    assert len(subject.training.targets) > 1_000_000, "too few rows for this"
'''


def tried(function, *, sensitive: bool = False) -> Trial:
    (check,) = own_checks(types.SimpleNamespace(check_it=function, other=function, check_text="no function"),
                          sensitive=sensitive)  # fmt: skip
    (trial,) = run_checks((check,), None, device="host", not_applicable={})
    return trial


def asserts(subject):
    assert not subject, "never"
    raise AssertionError


def raises(subject):
    raise ValueError("planted")


@pytest.mark.parametrize(
    ("function", "status", "told"),
    [
        (lambda subject: None, "pass", "nothing wrong"),
        (lambda subject: "", "pass", "nothing wrong"),
        (lambda subject: "three labels are missing", "fail", "three labels are missing"),
        (asserts, "fail", "an assertion of check_it does not hold"),
        (raises, "error", "ValueError: planted"),
        (lambda subject: True, "error", "check_it gave bool, not None or a text"),
    ],
)
def test_own_check_says_what_is_wrong_or_nothing(function, status, told):
    trial = tried(function)
    evidence, _, place = trial.evidence.partition(" (")
    assert (trial.check, trial.status, evidence) == ("own.it", status, told)
    # What it raises is told with its line by the worker.
    assert bool(place) == (status != "pass" and function is not raises)
    assert (status == "pass") == (not trial.fix)


def test_own_check_of_sensitive_features_keeps_its_text_back():
    trial = tried(lambda subject: "Ada Lovelace is twice in it", sensitive=True)
    assert trial.status == "fail"
    assert "Ada" not in trial.model_dump_json()


def takes_rows(training, held_out):
    return None


def takes_nothing():
    return None


def reads_a_wrong_name(subject):
    return subject.trainig.targets


@pytest.mark.parametrize("function", [takes_rows, takes_nothing])
def test_own_check_with_other_arguments_is_told_what_a_subject_has(function):
    trial = tried(function)
    assert trial.status == "error"
    assert "is given one argument, the subject (test_own.py:" in trial.evidence
    assert all(name in trial.fix for name in ("def check_it(subject)", "training", "held_out", "recipe", "model"))


def test_own_check_that_reads_a_name_which_is_not_there_is_told_the_nearest():
    (check,) = own_checks(types.SimpleNamespace(check_it=reads_a_wrong_name))
    (trial,) = run_checks((check,), mlp(0).subject(), device="host", not_applicable={})
    line = reads_a_wrong_name.__code__.co_firstlineno + 1
    assert trial.status == "error"
    assert trial.evidence == (
        f"check_it reads subject.trainig, which there is not (test_own.py:{line} in reads_a_wrong_name)"
    )
    assert trial.fix == "did you mean 'training'?"


def test_own_names_are_read_from_the_text_alone():
    source = "from .checks import check_imported, other\nimport torch\n" + CHECKS + "\nwidth = 3\n"
    assert own_names(source) == ("check_width", "check_rows", "check_imported")
    assert own_names("def broken(:") == ()


def test_own_checks_of_model_py_run_with_the_subject_and_end_in_their_family(splits, tmp_path):
    place = "def predict(outputs):"
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (place, f"{CHECKS}\n\n{place}"))
    result = run_preflight(toy_jobs.preflight_job(splits, tmp_path, use_case=use_case))
    own = {trial.check: trial for trial in result.trials if trial.family == "own"}
    assert own["own.width"].status == "pass"
    assert own["own.rows"].status == "fail"
    line = (use_case / "model.py").read_text().splitlines().index(CHECKS.splitlines()[-1]) + 1
    assert own["own.rows"].evidence == f"too few rows for this (model.py:{line} in check_rows)"
    family = CheckResult(name="own", status="fail", details=(own["own.rows"].model_dump(mode="json"),))
    (told,) = github_annotations(rows_of("preflight", [family]), "toy", ("model.py",))
    assert told.startswith(f"::error file=toy/model.py,line={line},title=own.rows::")


def test_own_checks_are_listed_by_the_trial_of_the_functions(tmp_path):
    place = "def predict(outputs):"
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (place, f"{CHECKS}\n\n{place}"))
    job = FunctionsJob(
        use_case_folder=str(use_case), out=str(tmp_path), device="cpu", rows=toy_jobs.ROWS,
        hyperparameters=toy_jobs.SPEC.hyperparameters,
    )  # fmt: skip
    found = {tried.name: tried.evidence for tried in try_functions(job).functions}
    assert found["own.width"] == "asked in preflight: Is the network at least 16 wide?"
    assert "own.rows" in found
