"""Bad input ends in one clear error: problem, value, fix; exit code 1; nothing half-written."""

import shutil

import pytest
from toy_project import FIRST

from trainworthy.lifecycle.code_identity import KEPT
from trainworthy.resources.settings import OWNERS


def refused(done, *told):
    """The command failed with one message that holds these texts, and without the stack of the machinery."""
    assert done.code == 1, done.out
    for text in told:
        assert text in done.out, done.out
    assert "Traceback" not in done.out, done.out
    assert 'File "' not in done.out, done.out
    return True


def written(toy):
    """Records, runs' folders and logs of the state, without Dagster's own history and what is remembered of sources."""
    if not toy.var.is_dir():
        return []
    names = {path.name for path in toy.var.iterdir()}
    return sorted(names - {"dagster", ".dagster", KEPT[0], OWNERS})


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("use_case.yaml", "owner:", "ownr:", ("ownr", "did you mean 'owner'?")),
        ("use_case.yaml", "epochs: 6", "epochs: many", ("use_case.yaml: training.epochs", "many")),
        ("use_case.yaml", "stages: {smoke", "stages: {{smoke", ("use_case.yaml", "not valid YAML")),
        ("model.py", "def predict(", "def predicts(", ("model.py", "function predict is missing")),
        ("model.py", "return Network", "return return", ("model.py:", "not valid Python")),
    ],
)
def test_input_broken_use_case_file_is_told_and_nothing_is_written(fresh, name, old, new, told):
    fresh.edit(name, old, new)
    done = fresh.run(intent=FIRST)
    assert refused(done, *told, "fix:")
    assert fresh.materialized(done.run_id) == {}
    assert written(fresh) == []


def test_input_broken_use_case_does_not_hold_up_the_others(fresh):
    """Two typos in a use case beside the toy: its preflight ends with both, the toy's data is judged, and a line says
    which is left out."""
    copied = fresh.folder.with_name("other")
    shutil.copytree(fresh.folder, copied)
    text = (copied / "use_case.yaml").read_text().replace("name: toy\n", "name: other\n")
    (copied / "use_case.yaml").write_text(text.replace("owner:", "ownr:").replace("epochs: 6", "epochs: many"))
    problems = ("use case 'other' has 2 problems", "did you mean 'owner'?", "use_case.yaml: training.epochs", "fix:")
    broken = fresh.execute("preflight_other")
    assert refused(broken, *problems)
    assert fresh.status(broken.run_id) == "FAILURE"
    good = fresh.run("validate_toy")
    assert good.code == 0, good.out
    assert "Left out, while the other use cases go on: 'other', 2 problems: trainworthy check other" in good.out
    assert "did you mean" not in good.out
    assert list(fresh.materialized(good.run_id)) == ["dataset", "snapshot"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("version: v1", "version: v7", ("no such published version", "'v7'", "v1, v2")),
        ("name: toy_rows", "name: toy_row", ("'toy_row'", "did you mean 'toy_rows'?")),
        ("sku: local-2cpu", "sku: local-3cpu", ("no price for the SKU", "'local-3cpu'", "did you mean 'local-2cpu'?")),
    ],
)
def test_input_unknown_name_stops_the_first_step(fresh, old, new, told):
    fresh.edit("use_case.yaml", old, new)
    done = fresh.run(intent=FIRST)
    assert refused(done, *told, "fix:")
    assert fresh.materialized(done.run_id) == {}
    # The stop is remembered, so that the webhook is told once and of its end.
    assert written(fresh) == ["alerts"]


def test_input_contract_that_disagrees_with_the_use_case_stops_the_first_step(fresh):
    fresh.edit("use_case.yaml", "target: positive", "target: positiv")
    done = fresh.run(intent=FIRST)
    assert refused(done, "positiv", "fix:")
    assert fresh.materialized(done.run_id) == {}


@pytest.mark.parametrize("command", ["job", "cli"])
def test_input_state_folder_below_a_file_is_refused(fresh, tmp_path, command):
    (tmp_path / "file").write_text("")
    variables = {"TRAINWORTHY_VAR": str(tmp_path / "file" / "state")}
    if command == "job":
        done = fresh.finish(fresh.start(fresh.command(intent=FIRST), **variables))
        assert refused(done, "state folder cannot be written", str(tmp_path / "file"), "TRAINWORTHY_VAR")
    else:
        publish = ("datasets", "publish", "toy_rows", "v3", "days=10", "seed=1")
        assert refused(
            fresh.call("-m", "trainworthy.pipeline.cli", *publish, **variables), str(tmp_path / "file"), "fix:"
        )
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("command", ["job", "cli"])
def test_input_folder_of_use_cases_that_is_missing_is_refused(fresh, tmp_path, command):
    variables = {"TRAINWORTHY_USE_CASES": str(tmp_path / "nowhere")}
    job = fresh.command(intent=FIRST)
    start = fresh.start(job, **variables) if command == "job" else None
    done = fresh.finish(start) if start else fresh.call("-m", "trainworthy.pipeline.cli", "verdict", "toy", **variables)
    assert refused(done, "does not exist", "nowhere", "TRAINWORTHY_USE_CASES")
    assert written(fresh) == []


def test_input_misspelled_fail_on_is_refused_before_the_run(fresh):
    done = fresh.execute(intent={"first_model": True, "fail_on": "rejct"})
    assert done.code == 1
    assert "fail_on" in done.out
    assert "rejct" in done.out
    assert written(fresh) == []


def test_input_unknown_dataset_version_in_the_run_config_stops_the_first_step(fresh):
    done = fresh.run(intent={"first_model": True, "dataset_version": "v22"})
    assert refused(done, "no such published version", "'v22'", "did you mean 'v2'?")
    assert fresh.materialized(done.run_id) == {}
    assert fresh.observed(done.run_id)["dataset"]["lineage/dataset_version"] == "toy_rows@v22"
    # The stop is remembered, so that the webhook is told once and of its end.
    assert written(fresh) == ["alerts"]
