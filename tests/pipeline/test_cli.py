"""The command `trainworthy` on real state."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from toy_project import ROOT

from trainworthy.pipeline import cli


def test_cli_verdict_of_a_trained_use_case_tells_decision_reasons_cost_and_links(trained):
    done = trained.toy.call("-m", "trainworthy.pipeline.cli", "verdict", "toy")
    assert done.code == 0, done.out
    assert "toy: PROMOTE (model version 1)" in done.out
    for reason in trained.toy.verdict(trained.done.run_id).reasons:
        assert reason in done.out
    assert f"{trained.done.run_id}.html" in done.out
    assert f"/runs/{trained.done.run_id}" in done.out


def test_cli_verdict_of_an_unknown_use_case_offers_the_near_one(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "verdict", "toi")
    assert (done.code, "did you mean 'toy'?" in done.out, "Traceback" in done.out) == (1, True, False)


def test_cli_verdict_before_any_run_says_what_to_run_and_writes_nothing(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "verdict", "toy")
    assert (done.code, "trainworthy train toy" in done.out, "Traceback" in done.out) == (1, True, False)
    assert not fresh.var.exists()


def test_verdict_without_a_champion_names_the_run_config_of_the_first_model_if_there_is_one(monkeypatch):
    from trainworthy.pipeline import show

    folder = Path(__file__).parents[2] / "use_cases" / "flight_delays"
    monkeypatch.setattr(show, "use_case_folder", lambda settings, name: folder)
    assert "trainworthy train flight_delays -c " in show.judge_fix("flight_delays", ())
    assert show.judge_fix("flight_delays", ()).endswith("flight_delays/first_model.yaml")


def test_cli_champion_prints_the_version_of_the_log_without_mlflow(trained):
    done = trained.toy.call("-X", "importtime", "-m", "trainworthy.pipeline.cli", "champion", "toy")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1")
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "trainworthy.pipeline.show" in imported
    assert not {"mlflow", "dagster", "torch"} & imported


def test_cli_champion_that_does_not_exist_exits_with_3_and_one_that_cannot_be_known_with_1(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "champion", "toy")
    assert (done.code, done.out) == (3, "toy has no champion yet\n")
    assert not fresh.var.exists()
    wrong = fresh.call("-m", "trainworthy.pipeline.cli", "champion", "toi")
    assert (wrong.code, "did you mean 'toy'?" in wrong.out) == (1, True)
    (fresh.var / "verdicts").mkdir(parents=True)
    (fresh.var / "verdicts" / "toy.jsonl").write_text("{")
    broken = fresh.call("-m", "trainworthy.pipeline.cli", "champion", "toy")
    assert (broken.code, "verdict log" in broken.out, "Traceback" in broken.out) == (1, True, False)


def make(target, folder, trainworthy):
    """What `make TARGET` starts, with this script for `trainworthy` and one for `dagster` that only tells."""
    for name, body in (
        ("trainworthy", trainworthy),
        ("dagster", 'echo "told: $*"; case "$*" in */dev/stdin) cat; esac'),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    command = ["make", "--no-print-directory", "--directory", str(ROOT), target, "READY=", f"BIN={folder}"]
    path = f"PATH={folder}:{os.environ['PATH']}"
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[done.stdout.find("told:") :].strip()


CONFIG = '{"resources": {"intent": {"config": {"dataset_version": "v10"}}}}'


@pytest.mark.parametrize(
    ("champion", "told"),
    [
        # Without a champion the first model is declared; with one the run is on the champion's dataset version.
        ("echo 'no champion yet'; exit 3", "-c use_cases/flight_delays/first_model.yaml"),
        (f"echo '{CONFIG}'", f"-c /dev/stdin\n{CONFIG}"),
    ],
)
def test_make_demo_declares_the_first_model_or_trains_on_the_champions_version(tmp_path, champion, told):
    done = make("demo", tmp_path, f'test "$1" = champion || exit 0\n{champion}')
    assert done == (0, f"told: job execute -m trainworthy.pipeline.definitions -j train_flight_delays {told}")


def test_make_demo_with_a_champion_that_cannot_be_known_stops_before_any_run(tmp_path):
    code, out = make("demo", tmp_path, "exit 1")
    assert code == 2
    assert "told:" not in out


def test_make_next_trains_the_next_version_and_shows_the_verdict(tmp_path):
    done = make("next", tmp_path, 'echo "told: $*"')
    assert done == (0, "told: next flight_delays\ntold: verdict flight_delays")


def test_cli_champion_tells_its_dataset_and_the_run_config_of_a_run_on_it(trained):
    champion = ("-m", "trainworthy.pipeline.cli", "champion", "toy")
    assert trained.toy.call(*champion, "--dataset").out == "toy_rows@v1\n"
    config = json.loads(trained.toy.call(*champion, "--run-config").out)
    assert config == {"resources": {"intent": {"config": {"dataset_version": "v1"}}}, "loggers": {"console": {}}}


def test_cli_next_without_a_champion_says_how_to_train_the_first_and_writes_nothing(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "next", "toy")
    assert (done.code, "no champion" in done.out, '"first_model": true' in done.out) == (1, True, True)
    assert not fresh.var.exists()
    wrong = fresh.call("-m", "trainworthy.pipeline.cli", "next", "toi")
    assert (wrong.code, "did you mean 'toy'?" in wrong.out, "Traceback" in wrong.out) == (1, True, False)


def test_cli_next_with_nothing_newer_says_so_and_writes_nothing(toy):
    path = toy.root / "data" / "versions.yaml"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if not line.startswith("  v2")))
    before = sorted(toy.var.rglob("*"))
    done = toy.call("-m", "trainworthy.pipeline.cli", "next", "toy")
    assert done.code == 0, done.out
    assert "champion: version 1, trained on toy_rows@v1; nothing newer: v1 has its verdict" in done.out
    assert "trainworthy datasets publish" in done.out
    assert sorted(toy.var.rglob("*")) == before


def test_cli_next_of_a_version_that_is_not_published_offers_the_near_one(toy):
    before = sorted(toy.var.rglob("*"))
    done = toy.call("-m", "trainworthy.pipeline.cli", "next", "toy", "v22")
    assert (done.code, "did you mean 'v2'?" in done.out, "Traceback" in done.out) == (1, True, False)
    assert sorted(toy.var.rglob("*")) == before


@pytest.mark.parametrize(
    ("named", "version", "told"),
    [
        ((), "v2", ["next published version: v2", "to skip v2: trainworthy next toy v3"]),
        (("v3",), "v3", ["version to judge: v3"]),
        (("v1",), "v1", ["version to judge: v1"]),
    ],
)
def test_cli_next_takes_the_version_that_is_named_and_resolved_folders(toy, monkeypatch, capsys, named, version, told):
    path = toy.root / "data" / "versions.yaml"
    entries = yaml.safe_load(path.read_text())
    entries["toy_rows"]["v3"] = entries["toy_rows"]["v2"]
    path.write_text(yaml.safe_dump(entries, sort_keys=False))
    for name, folder in (("TRAINWORTHY_VAR", "state"), ("TRAINWORTHY_USE_CASES", "project/use_cases")):
        monkeypatch.setenv(name, folder)
    monkeypatch.chdir(toy.root.parent)
    became = {}
    monkeypatch.setattr(os, "execve", lambda _, command, environment: became.update(environment, command=command[1:]))
    cli.main(["next", "toy", *named])
    config = toy.var / "run_configs" / "toy" / f"{version}.yaml"
    assert became["command"][-2:] == ["-c", str(config)]
    assert json.loads(config.read_text())["resources"]["intent"]["config"] == {"dataset_version": version}
    # The command runs elsewhere.
    assert became["TRAINWORTHY_VAR"] == str(toy.var)
    assert became["TRAINWORTHY_USE_CASES"] == str(toy.root / "use_cases")
    out = capsys.readouterr().out
    assert [line for line in told if line not in out] == []
    assert ("to skip" in out) == (not named)


def test_cli_history_of_a_trained_use_case_is_read_without_mlflow(trained):
    done = trained.toy.call("-X", "importtime", "-m", "trainworthy.pipeline.cli", "history", "toy")
    assert done.code == 0, done.out
    assert "version 1  toy_rows@v1  promote" in done.out.splitlines()[-1]
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "trainworthy.pipeline.show" in imported
    assert not {"mlflow", "dagster", "torch", "pandas"} & imported


def test_cli_history_before_any_verdict_or_of_an_unknown_use_case_is_told(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "history", "toy")
    assert (done.code, "toy was never judged" in done.out, "trainworthy train toy" in done.out) == (0, True, True)
    assert not fresh.var.exists()
    wrong = fresh.call("-m", "trainworthy.pipeline.cli", "history", "toi")
    assert (wrong.code, "did you mean 'toy'?" in wrong.out, "Traceback" in wrong.out) == (1, True, False)


def test_cli_datasets_lists_the_versions_of_the_project_of_the_use_cases(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "datasets")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["toy_rows@v1", "toy_rows@v2"]
    assert "9,600 rows" in lines[0]
    assert "days=120, seed=1" in lines[0]


def test_cli_datasets_publish_writes_to_the_project_of_the_use_cases(toy):
    publish = ("-m", "trainworthy.pipeline.cli", "datasets", "publish", "toy_rows")
    done = toy.call(*publish, "v3", "days=160", "seed=1")
    assert done.code == 0, done.out
    assert "toy_rows@v3" in done.out
    assert "v3" in (toy.root / "data" / "versions.yaml").read_text()
    again = toy.call(*publish, "v3", "days=160", "seed=1")
    assert (again.code, "already has this version" in again.out, "Traceback" in again.out) == (1, True, False)
    wrong = toy.call(*publish, "v4", "days")
    assert (wrong.code, "NAME=VALUE" in wrong.out, "Traceback" in wrong.out) == (1, True, False)


def test_cli_datasets_without_a_published_version_says_so(fresh):
    shutil.rmtree(fresh.root / "data")
    done = fresh.call("-m", "trainworthy.pipeline.cli", "datasets")
    assert (done.code, "no dataset version is published yet" in done.out) == (0, True)


def test_cli_unknown_command_is_answered_with_the_near_one_and_exit_code_2(fresh):
    for words, told in (
        (("verdct",), "no such command: verdct; did you mean 'verdict'?"),
        (("datasets", "publsh"), "no such command: publsh; did you mean 'publish'?"),
        (("verdict",), "trainworthy verdict: the following arguments are required: use_case"),
    ):
        done = fresh.call("-m", "trainworthy.pipeline.cli", *words)
        assert (done.code, told in done.out, "--help" in done.out) == (2, True, True), done.out


def test_cli_without_arguments_shows_the_help_and_exit_code_2(fresh):
    nothing, asked = (
        fresh.call("-m", "trainworthy.pipeline.cli"),
        fresh.call("-m", "trainworthy.pipeline.cli", "--help"),
    )
    assert (nothing.code, asked.code) == (2, 0)
    assert nothing.out == asked.out
    assert "examples:" in asked.out


def test_cli_output_that_nobody_reads_to_its_end_is_no_traceback(fresh):
    script = f"{sys.executable} -m trainworthy.pipeline.cli datasets | true"
    done = fresh.finish(fresh.start(["bash", "-c", f"{script}; exit ${{PIPESTATUS[0]}}"]))
    assert (done.code, done.out) in ((0, ""), (1, ""))


def test_command_line_is_declared_without_what_its_commands_need():
    words = "import sys, trainworthy.pipeline.cli; print({'pydantic', 'dagster', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_cli_error_says_where_its_kind_is_explained(fresh):
    done = fresh.call("-m", "trainworthy.pipeline.cli", "verdict", "toi")
    assert done.out.splitlines()[-1] == "  more: docs/errors.md#settingserror"


def test_explain_tells_a_check_with_its_fix_a_family_and_all(capsys):
    assert cli.main(["explain", "inputs.finite"]) == 0
    told = capsys.readouterr().out
    assert "fix: replace them in to_tensors" in told
    assert "docs/preflight/inputs.finite.md" in told
    assert cli.main(["explain", "determinism"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "determinism.other_process", "determinism.same_seed", "determinism.resume",
    ]  # fmt: skip
    assert cli.main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 50


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "loss_spike",
            ["the loss jumped and stays up", "learning_rate_too_high: (1) the schedule", "docs/how-to/monitors.md"],
        ),
        ("overfitting", ["a monitor of a training", "a cause that alarms name"]),
        ("these_rows", ["case: one batch", "explains: outlier_batch, loss_spike"]),
        (
            "stage.references",
            ["stage.references: Do the predictions", "docs/how-to/stages.md", "from: benchmarks go_no_go"],
        ),
        ("stage.seeds", ["record: no record"]),
        ("learned", ["stage.references: Do the predictions"]),
        ("stage", ["stage.remaining_cost "]),
        ("looks", ["Were fewer models measured on these rows", "docs/how-to/evaluation.md#the-suite"]),
        ("wiring.causal", ["planted faults that name it", "missed", "healthy runs", "from: benchmarks preflight"]),
        ("class_balance", ["training.class_weights", "docs/how-to/training.md"]),
        ("loss_fn", ["loss_fn(outputs, targets): ", "gives: Loss of each row, shape (N,)", "use-case.md#modelpy"]),
        ("forward", ["build_model's network", "use-case.md#modelpy"]),
        ("augment", ["that model.py may define", "use-case.md#modelpy"]),
    ],
)
def test_explain_tells_a_monitor_a_cause_a_stages_check_and_the_record(capsys, name, told):
    assert cli.main(["explain", name]) == 0
    printed = capsys.readouterr().out
    assert [part for part in told if part not in printed] == []


def test_explain_knows_every_check_of_every_step(capsys):
    from trainworthy.assets.declare import CHECKS

    unknown = [name for names in CHECKS.values() for name in names if cli.main(["explain", name])]
    capsys.readouterr()
    assert unknown == []


def named_in(folder, *names):
    """All texts that code of that folder gives an argument or a constant of one of these names."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            given = [(keyword.arg, keyword.value) for keyword in getattr(node, "keywords", ())]
            if isinstance(node, ast.Assign):
                values = getattr(node.value, "elts", [node.value])
                targets = getattr(node.targets[0], "elts", node.targets)
                given += [(getattr(target, "id", ""), value) for target, value in zip(targets, values, strict=False)]
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and len(node.args) > 1:
                given.append(("code", node.args[1]))
            yield from (
                value.value
                for name, value in given
                if name in names and isinstance(value, ast.Constant) and isinstance(value.value, str)
            )


def test_explain_knows_every_id_that_a_record_report_or_message_names(capsys):
    from trainworthy.lifecycle.gates.catalogue import CATALOGUE
    from trainworthy.lifecycle.gates.diagnosis import ORDER
    from trainworthy.lifecycle.gates.findings import LEAKS, STATES, verdict_codes
    from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS
    from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS
    from trainworthy.lifecycle.gates.step_checks import STEP_CHECKS
    from trainworthy.lifecycle.promotion.decide import CONTROLS
    from trainworthy.lifecycle.protocol.figures import Standing

    families = {*named_in("lifecycle/leakage", "family", "FAMILY", "FILES", "STATE")}
    taxa = {*named_in("lifecycle/leakage", "taxon"), *named_in("lifecycle/engine", "taxon")}
    codes = {*named_in("lifecycle/promotion", "code")} - {"verdict_log.moved_on", "lease_lost"}
    assert {"rows_apart", "near_duplicates", "data_files"} <= families
    assert "L1.2" in taxa
    assert "champion.not_shown" in codes
    assert {leak.id for leak in LEAKS} >= families
    # And nothing is explained that there is not.
    codes |= {f"control.{name}.{state}" for name in CONTROLS for state in ("pass", "fail", "insufficient", "missing")}
    standings = {standing for standing in get_args(Standing) if standing != "not_asked"}
    codes |= {f"{rule}.{standing}" for rule in ("slice_bound", "slice_champion") for standing in standings}
    assert codes == verdict_codes().keys()
    assert {state.id for state in STATES} == {state.id for _, state in verdict_codes().values()}
    ids = {
        *families, *taxa, *codes, *ORDER, *(check.id for check in CATALOGUE),
        *(check.id.partition(".")[2] for check in CATALOGUE if "." in check.id), *(entry.id for entry in MONITORS),
        *(cause.id for cause in CAUSES), *(check.name for check in STEP_CHECKS),
        *(name for check in STAGE_CHECKS for name in (check.id, check.name, *check.fixes)),
    }  # fmt: skip
    unknown = sorted(name for name in ids if cli.main(["explain", name]))
    capsys.readouterr()
    assert unknown == []
    assert len(ids) > 200


def test_explain_of_a_short_name_tells_all_that_bear_it(capsys):
    assert cli.main(["explain", "rows_apart"]) == 0
    told = capsys.readouterr().out
    assert "wiring.rows_apart: " in told
    assert "looks for L1.2, preprocessing on training and test rows" in told
    assert cli.main(["explain", "L1.2"]) == 0
    assert "looked for by: fitted_state" in capsys.readouterr().out
    assert cli.main(["explain", "champion.not_shown"]) == 0
    assert "the interval lies on both sides" in capsys.readouterr().out
    assert cli.main(["explain", "guardrail.brokn"]) == 1
    assert "did you mean 'guardrail.broken'?" in capsys.readouterr().err
    assert cli.main(["explain", "champion.pass"]) == 1


@pytest.mark.parametrize(
    ("name", "near"), [("los_spike", "loss_spike"), ("stage.reference", "stage.references"), ("contrl", "control")]
)
def test_explain_of_an_unknown_monitor_or_stage_check_offers_the_near_one(capsys, name, near):
    assert cli.main(["explain", name]) == 1
    assert f"did you mean {near!r}?" in capsys.readouterr().err


def test_explain_knows_every_function_that_check_tries(capsys):
    from trainworthy.lifecycle.engine.preflight.function_trials import FIXES, OPTIONAL_FIXES

    assert [name for name in (*FIXES, *OPTIONAL_FIXES) if cli.main(["explain", name])] == []
    capsys.readouterr()


@pytest.mark.parametrize("name", ["monitor_me", "functions", "weights", "scheduler", "nothing"])
def test_explain_offers_no_name_that_only_shares_letters(capsys, name):
    assert cli.main(["explain", name]) == 1
    assert "fix: trainworthy explain lists all ids" in capsys.readouterr().err


def test_explain_of_an_unknown_check_offers_the_near_one(capsys):
    assert cli.main(["explain", "inputs.finit"]) == 1
    assert "did you mean 'inputs.finite'?" in capsys.readouterr().err
