"""trainworthy train: a mistake in the run config is one clear error, and a right one becomes Dagster's command."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from toy_project import ROOT, Toy

from trainworthy.pipeline import execute
from trainworthy.pipeline.cli import main


@pytest.fixture
def toy_here(monkeypatch, tmp_path):
    """The toy use case as that of the process, in a state folder of its own."""
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(ROOT / "tests" / "toy"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "var"))
    became: list[str] = []
    monkeypatch.setattr(execute, "become", became.append)
    return became


def written(folder: Path, text: str) -> str:
    (folder / "run.yaml").write_text(text)
    return str(folder / "run.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("resourcs: {}", ["at the top: unknown key", "'resourcs'", "did you mean 'resources'?"]),
        ("resources: {intnt: {}}", ["resources: unknown key", "'intnt'", "did you mean 'intent'?"]),
        (
            "resources: {intent: {config: {first_modl: true}}}",
            ["resources.intent.config: unknown key", "'first_modl'", "did you mean 'first_model'?"],
        ),
        ("first_model: true", ["at the top", "resources: {intent: {config: {first_model: …}}}"]),
        ("resources: {intent: {first_model: true}}", ["resources: {intent: {config: {first_model: …}}}"]),
        (
            "resources: {intent: {config: {fail_on: rejct}}}",
            ["fail_on: there is no such value", "'rejct'", "did you mean 'reject'?"],
        ),
        ("resources: {intent: {config: {first_model: perhaps}}}", ["'perhaps'", "write true or false"]),
        ("resources: {intent: {config: {dataset_version: 2}}}", ["value: 2", "write a text, in quotes"]),
        ("resources: {intent: {config: {fail_on: x, first_modl: true}}}", ["has 2 mistakes", "'first_modl'", "'x'"]),
        ("[first_model]", ["no mapping of keys", "begin with `resources:`"]),
        ("resources: {", ["is no YAML", "run.yaml"]),
        ("resources: {}\nresources: {}", ["is no YAML", "given twice"]),
    ],
)
def test_mistake_in_the_run_config_is_one_error_with_the_right_name_and_starts_nothing(
    toy_here, tmp_path, capsys, text, told
):
    assert main(["train", "toy", "-c", written(tmp_path, text)]) == 1
    error = capsys.readouterr().err
    assert [part for part in told if part not in error] == []
    assert "Traceback" not in error
    assert toy_here == []


def test_run_config_that_is_not_there_is_told_by_its_path(toy_here, capsys):
    assert main(["train", "toy", "-c", "/nowhere/run.yaml"]) == 1
    assert "the run config cannot be read: No such file" in capsys.readouterr().err
    assert toy_here == []


@pytest.mark.parametrize(
    ("flags", "job"), [([], "train"), (["--experiment"], "experiment"), (["--preflight"], "preflight")]
)
def test_right_run_config_becomes_dagsters_command_of_the_job(toy_here, tmp_path, flags, job):
    path = written(tmp_path, "resources: {intent: {config: {dataset_version: v1}}}\nloggers: {console: {}}\n")
    main(["train", "toy", *flags, "-c", path])
    main(["train", "toy", *flags])
    execute_toy = f"dagster job execute -m trainworthy.pipeline.definitions -j {job}_toy"
    assert toy_here == [f"{execute_toy} -c {path}", execute_toy]


def test_unknown_use_case_is_told_with_the_near_name(toy_here, capsys):
    assert main(["train", "tpy"]) == 1
    assert "did you mean 'toy'?" in capsys.readouterr().err


def test_dagsters_command_takes_over_without_its_notice_and_keeps_other_filters(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINWORTHY_PROJECT", str(ROOT / "tests" / "toy"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "var"))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::DeprecationWarning")
    monkeypatch.chdir(tmp_path)
    started: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda *given: started.append(given))
    execute.become("dagster job execute -j x -c 'a b'")
    ((program, arguments, environment),) = started
    assert (program, arguments[1:]) == (sys.executable, ["-m", "dagster", "job", "execute", "-j", "x", "-c", "a b"])
    first, second = environment["PYTHONWARNINGS"].split(",")
    assert first == "ignore::DeprecationWarning"
    assert "job_execute_command" in second


def test_run_ends_as_dagsters_command_does_and_says_no_word_of_superseded(fresh: Toy):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "train", "toy", "--validate")
    assert done.code == 0, done.out
    assert "Supersession" not in done.out
    fresh.edit("use_case.yaml", "version: v1", "version: v9")
    refused = fresh.call("-m", "trainworthy.pipeline.cli", "train", "toy", "--validate")
    assert refused.code == 1, refused.out


def test_rollback_becomes_the_job_with_its_reason_and_is_refused_without_one(toy_here, capsys):
    assert main(["rollback", "toy", "--reason", "it's\nlate"]) is None
    (command,) = toy_here
    told = shlex.split(command)
    assert told[:4] == ["dagster", "job", "execute", "-m"]
    assert told[told.index("-j") + 1] == "rollback_toy"
    assert json.loads(Path(told[told.index("-c") + 1]).read_text()) == {"reason": "it's late"}
    assert main(["rollback", "toy", "--reason", " "]) == 1
    assert "no reason is given" in capsys.readouterr().err
    assert main(["rollback", "toi", "--reason", "late"]) == 1
    assert toy_here == [command]
