"""rollback_<use case>: back to the previous champion, or a refusal that changes nothing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from toy_project import Done, Toy
from verdict_logs import log_in, logged
from webhook_receiver import receiving

from trainworthy.lifecycle.protocol.records import STEPS, Verdict


@pytest.fixture
def replaced(toy) -> Toy:
    """The trained state, in which a version 2 then took the place of version 1."""
    replace_champion(toy)
    return toy


def replace_champion(toy: Toy) -> None:
    """Version 2 takes the place of version 1: the same files, and no training."""
    with toy.tracking() as tracking:
        first = next(model for model in tracking.versions("toy") if model.version == "1")
        second = tracking.register(tracking.run("toy", "22222222-0000", {}), "toy", first.artifact, "b" * 64, tags={})
        tracking.set_champion("toy", second.version, "1")
    (entry,) = toy.verdict_log()
    logged(
        log_in(toy.var), action="promote", model_version=second.version,
        verdict_sha256="b" * 64, previous_verdict_sha256=entry["verdict_sha256"],
    )  # fmt: skip


@pytest.fixture
def promoted_twice(second_seed, tmp_path) -> Toy:
    """Version 2, of another seed, was judged and promoted after version 1: no worse by a wide margin."""
    toy = second_seed.copied(tmp_path)
    for old, new in (("margin: 0.01", "margin: 0.1"), ("purpose: improve", "purpose: refresh")):
        toy.edit("use_case.yaml", old, new, commit=False)
    toy.commit()
    done = toy.run()
    assert done.code == 0, done.out
    return toy


def roll_back(toy: Toy) -> Done:
    """The job without a config."""
    return toy.run("rollback_toy")


def roll_back_by_command(toy: Toy, reason: str, **environment: str) -> Done:
    """The command of Trainworthy, which becomes Dagster's with the reason as its config."""
    return toy.call("-m", "trainworthy.pipeline.cli", "rollback", "toy", "--reason", reason, **environment)


def history(toy: Toy) -> list[list[str]]:
    """The rows of `trainworthy history`, titles and empty lines left out, by column."""
    done = toy.call("-m", "trainworthy.pipeline.cli", "history", "toy")
    assert done.code == 0, done.out
    return [re.split(r" {2,}", line) for line in done.out.splitlines() if line.startswith("2")]


def aliases(toy: Toy) -> dict[str, str]:
    with toy.tracking() as tracking:
        return {name: str(version) for name, version in tracking.client.get_registered_model("toy").aliases.items()}


def verdict_of(toy: Toy, entry: dict[str, Any]) -> Verdict:
    """The record that an entry of the log is about."""
    record = toy.records.get("toy", "promotion", entry["verdict_sha256"])
    assert isinstance(record, Verdict)
    return record


@contextmanager
def nothing_changed(toy: Toy) -> Iterator[None]:
    """Aliases and verdict log are afterwards what they were before."""
    before = aliases(toy), toy.verdict_log()
    yield
    assert (aliases(toy), toy.verdict_log()) == before


def refused(done: Done, *told: str) -> bool:
    """The command failed with one message that holds these texts."""
    assert done.code == 1, done.out
    for text in ("the rollback of toy stopped", *told, "fix:"):
        assert text in done.out, done.out
    return "Traceback" not in done.out


def test_rollback_verifies_the_version_before_and_makes_it_champion_and_a_second_one_is_refused(replaced):
    assert aliases(replaced) == {"champion": "2", "rollback": "1"}
    before = replaced.verdict_log()
    with receiving() as receiver:
        done = roll_back_by_command(replaced, "late  flights\nwere missed", TRAINWORTHY_WEBHOOK=receiver.url)
    assert done.code == 0, done.out
    # Version 2 was promoted without a run: its verdict is sent by the first run after it.
    verdict, rollback = receiver.taken
    assert (verdict["subject"], rollback["subject"], rollback["dataset"]) == ("verdict", "rollback", "toy_rows@v1")
    assert "version 1 again, version 2 is withdrawn: late flights were missed" in rollback["evidence"]
    for told in ("the champion is version 1 again", "50 golden requests answered", "to move the alias"):
        assert told in done.out
    assert aliases(replaced) == {"champion": "1"}
    *kept, entry = replaced.verdict_log()
    assert kept == before
    assert (entry["action"], entry["model_version"]) == ("rollback", "1")
    assert (entry["verdict_sha256"], entry["reason"]) == (before[0]["verdict_sha256"], "late flights were missed")

    observed = replaced.observed(done.run_id)
    assert list(observed) == ["promotion"]
    shown = observed["promotion"]
    assert (shown["rollback/from_version"], shown["rollback/to_version"]) == ("2", "1")
    assert shown["rollback/reason"] == "late flights were missed"
    assert 0 <= shown["rollback/largest_difference"] <= 1e-5
    assert shown["rollback/seconds"] > shown["rollback/alias_seconds"] > 0

    first, second, third = history(replaced)
    assert first[2:] == ["version 1", "toy_rows@v1", "promote", verdict_of(replaced, before[0]).reasons[0]]
    # Its record is not there, and that is told where its words would stand.
    assert (second[2:5], "record is missing" in second[5]) == (["version 2", "?", "promote"], True)
    assert third[1:] == ["now", "version 1", "toy_rows@v1", "rollback", "late flights were missed"]
    assert (first[1], second[1]) == (second[0], third[0])

    with nothing_changed(replaced):
        assert refused(roll_back(replaced), "there is no earlier champion than version 1")


@pytest.mark.parametrize("name", ["golden.parquet", "model.pt2"])
def test_rollback_to_an_artifact_that_was_changed_is_refused_and_changes_nothing(replaced, name):
    with replaced.tracking() as tracking:
        folder: Path = next(model.artifact for model in tracking.versions("toy") if model.version == "1")
    (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"x")
    with nothing_changed(replaced):
        done = roll_back(replaced)
        assert refused(done, "files of the artifact were changed", name)
    assert replaced.observed(done.run_id) == {}


def test_rollback_without_any_champion_says_so_and_writes_no_log(fresh):
    assert refused(roll_back(fresh), "there is no champion to roll back")
    assert fresh.verdict_log() == []
    assert not (fresh.var / "mlflow").exists()


@pytest.mark.slow
def test_rollback_of_a_trained_model_keeps_its_training_from_being_promoted_again(promoted_twice):
    toy = promoted_twice
    assert [entry["action"] for entry in toy.verdict_log()] == ["promote", "promote"]
    assert roll_back(toy).code == 0
    again = toy.run()
    assert again.code == 0, again.out
    verdict, entry = toy.verdict(again.run_id), toy.verdict_log()[2]
    assert (verdict.decision, verdict.model_version, verdict.champion) == ("reject", "2", "1")
    day = entry["written_at"][:10]
    assert verdict.reasons[0] == f"Version 2 was rolled back on {day}: no reason was given."
    assert verdict.previous_verdict_sha256 == entry["verdict_sha256"] == toy.verdict_log()[0]["verdict_sha256"]
    assert aliases(toy) == {"champion": "1"}
    shown = toy.materialized(again.run_id)
    assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} == set(STEPS[:-1])

    # Asked the same again, the verdict stands.
    third = toy.run()
    assert toy.verdict(third.run_id) == verdict
    assert [entry["action"] for entry in toy.verdict_log()] == ["promote", "promote", "rollback", "reject"]
    *live, held = history(toy)
    assert [row[2:] for row in live[1:]] == [
        ["version 2", "toy_rows@v1", "promote", verdict_of(toy, toy.verdict_log()[1]).reasons[0]],
        ["version 1", "toy_rows@v1", "rollback", "no reason was given"],
    ]
    assert held[1:] == ["version 2", "toy_rows@v1", "reject", verdict.reasons[0]]
