"""What Dagster loads: all assets and jobs, and nothing heavy."""

import os
import shutil
import subprocess
import sys

import dagster as dg
import pytest
from toy_project import ROOT

from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.build import build_defs, load_all

HEAVY = (
    "torch", "mlflow", "great_expectations", "dvc", "pandas", "numpy", "sklearn", "pyarrow", "matplotlib", "polars",
    "scipy", "PIL",
)  # fmt: skip
# A step's own file, which is imported when the step runs.
STEP_FILES = tuple(
    f"trainworthy.assets.{name}" for name in ("dataset", "snapshot", "preflight", "training", "evaluation", "promotion")
)
# Every check of preflight with its words: a table that a run reads.
CATALOGUE = "trainworthy.lifecycle.gates.catalogue"
# What commands import that ask of files and records alone: pandas takes half a CPU second.
LIGHT = ("check", "quick", "missing_task", "show", "datasets", "starting", "doctor.examine")


@pytest.fixture(scope="module")
def definitions():
    folders = [ROOT / "tests" / "toy" / "use_cases" / "toy", ROOT / "use_cases" / "flight_delays"]
    return build_defs([load_use_case(folder) for folder in folders])


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [(("definitions",), (*HEAVY, *STEP_FILES, CATALOGUE)), (LIGHT, tuple(name for name in HEAVY if name != "numpy"))],
    ids=["definitions", "commands"],
)
def test_what_dagster_or_a_light_command_loads_imports_nothing_heavy(modules, heavy):
    loads = ", ".join(f"trainworthy.pipeline.{name}" for name in modules)
    code = f"import sys, {loads}; print([name for name in {heavy} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_definitions_loaded_where_dagster_finds_no_settings_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    load_all()
    told = capsys.readouterr().err
    assert told.startswith(f"Warning: there is no dagster.yaml in {tmp_path}, ")
    assert "in no history, and Dagster's own telemetry is on" in told
    assert f"fix: cd {ROOT}, " in told
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    load_all()
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.chdir(ROOT)
    load_all()
    assert capsys.readouterr().err == ""


def test_definitions_steps_are_a_row(definitions):
    graph = definitions.resolve_asset_graph()
    for earlier, step in zip((None, *STEPS), STEPS, strict=False):
        parents = [key.path[-1] for key in graph.get(dg.AssetKey(["toy", step])).parent_keys]
        assert parents == ([earlier] if earlier else [])


@pytest.mark.parametrize("use_case", ["toy", "flight_delays"])
def test_definitions_use_case_has_eight_assets_and_their_jobs(definitions, use_case):
    keys = {key for key in definitions.resolve_all_asset_keys() if key.path[0] == use_case}
    assert keys == {dg.AssetKey([use_case, step]) for step in STEPS}
    last = {"train": "promotion", "experiment": "full", "preflight": "preflight", "validate": "snapshot"}
    for name, step in last.items():
        job = definitions.resolve_job_def(f"{name}_{use_case}")
        made = {key.path[-1] for key in job.asset_layer.selected_asset_keys}
        assert made == set(STEPS[: STEPS.index(step) + 1])
        # The clock decides freshness, so no training may ask it.
        asked = {node.name for node in job.graph.nodes}
        assert (f"{use_case}__freshness" in asked) == (name == "validate")


@pytest.mark.parametrize("use_case", ["toy", "flight_delays"])
def test_definitions_rollback_needs_no_config_and_describes_its_reason(definitions, use_case):
    job = definitions.resolve_job_def(f"rollback_{use_case}")
    assert not job.asset_layer.selected_asset_keys
    (name, reason), *others = job.run_config_schema.config_type.fields.items()
    assert (name, others, reason.is_required) == ("reason", [], False)
    assert "verdict log" in reason.description


def test_definitions_every_step_declares_blocking_checks_and_an_owner(definitions):
    graph = definitions.resolve_asset_graph()
    for key in definitions.resolve_all_asset_keys():
        specs = [spec for check, spec in _checks(definitions) if check.asset_key == key]
        assert specs, key
        # Freshness may not keep the snapshot from being judged: its own step fails the run.
        assert all(spec.blocking for spec in specs if spec.name != "freshness"), key
        assert all(spec.description for spec in specs), key
        asset = graph.get(key)
        assert asset.owners, key
        assert asset.description, key
        assert 1 <= len(asset.kinds) <= 3, key
        assert asset.group_name == key.path[0]
        assert asset.tags["trainworthy/use_case"] == key.path[0]


def test_definitions_every_resource_and_job_says_what_it_is_for(definitions):
    repository = definitions.get_repository_def()
    resources = repository.get_top_level_resources()
    assert resources.keys() >= {"workspace", "tracking", "launcher", "intent"}
    assert [name for name, resource in resources.items() if not resource.description] == []
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    assert [job.name for job in jobs if not job.description] == []


def _checks(definitions):
    graph = definitions.resolve_asset_graph()
    return [(key, graph.get_check_spec(key)) for key in graph.asset_check_keys]


def test_definitions_use_case_without_gpus_has_no_pool(definitions):
    assets = definitions.resolve_asset_graph()
    assert not assets.get(dg.AssetKey(["toy", "full"])).pools


def test_definitions_string_selection_parses_with_this_antlr(definitions):
    selection = dg.AssetSelection.from_string('key:"toy/full" or group:"flight_delays"')
    found = selection.resolve(definitions.resolve_asset_graph())
    assert found == {dg.AssetKey(["toy", "full"])} | {dg.AssetKey(["flight_delays", step]) for step in STEPS}


def test_definitions_broken_use_case_has_jobs_that_stop_with_its_problems_beside_the_good_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
    good = load_use_case(ROOT / "tests" / "toy" / "use_cases" / "toy")
    problems = [
        Problem("use_case.yaml: ownr", "unknown key", "did you mean 'owner'?"),
        Problem("model.py", "bad", "mend"),
    ]
    broken = UseCaseError("other", problems)
    definitions = build_defs([good], broken=[broken])
    assert {key.path[0] for key in definitions.resolve_all_asset_keys()} == {"toy"}
    names = {job.name for job in definitions.get_repository_def().get_all_jobs() if not job.name.startswith("__")}
    kinds = ("train", "experiment", "preflight", "validate")
    assert names == {f"{kind}_{name}" for kind in kinds for name in ("toy", "other")} | {"rollback_toy"}
    for kind in kinds:
        job = definitions.resolve_job_def(f"{kind}_other")
        assert str(broken) in job.description
        (failure,) = job.execute_in_process(raise_on_error=False).filter_events(lambda event: event.is_step_failure)
        assert failure.step_failure_data.user_failure_data.description == str(broken)
        left = tmp_path / "reports" / "other" / "preflight.xml"
        assert left.is_file() == (kind == "preflight")
        left.unlink(missing_ok=True)


@pytest.mark.parametrize(("name", "shown"), [("other", "other"), ("spa ce", "'spa ce'")])
def test_definitions_broken_use_case_is_told_in_a_line_beside_the_good_one(tmp_path, monkeypatch, capsys, name, shown):
    for folder in ("toy", name):
        shutil.copytree(ROOT / "tests" / "toy" / "use_cases" / "toy", tmp_path / "use_cases" / folder)
    written = tmp_path / "use_cases" / name / "use_case.yaml"
    written.write_text(written.read_text().replace("owner:", "ownr:"))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(tmp_path / "use_cases"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    loaded, (broken,) = load_all()
    assert [use_case.name for use_case in loaded] == ["toy"]
    assert len(broken.problems) > 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"{name!r}, {len(broken.problems)} problems: trainworthy check {shown}")


@pytest.mark.parametrize("name", ["no-job", "spa ce"])
def test_definitions_broken_use_case_whose_name_no_job_can_have_has_none(name):
    definitions = build_defs([], broken=[UseCaseError(name, [Problem("use_case.yaml: name", "bad", "rename it")])])
    assert not [job for job in definitions.get_repository_def().get_all_jobs() if not job.name.startswith("__")]


def test_definitions_resources_can_be_replaced(definitions):
    from trainworthy.resources.launcher import Launcher

    use_case = load_use_case(ROOT / "tests" / "toy" / "use_cases" / "toy")
    replaced = build_defs([use_case], {"launcher": Launcher(grace_seconds=1.5)})
    assert replaced.resources["launcher"].grace_seconds == 1.5


def test_job_of_own_definitions_that_import_ours_says_nothing_of_our_use_cases():
    code = "import sys; sys.argv[1:] = ['job', 'execute']; import trainworthy.pipeline, trainworthy.pipeline.build"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loading the use cases" not in done.stdout + done.stderr
