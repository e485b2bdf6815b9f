"""trainworthy doctor --fix and an alias that left the log: it follows, unless another state may have moved it."""

import shutil
from argparse import Namespace
from pathlib import Path

from doctor_checks import bad
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.shared.store import point
from trainworthy.pipeline.commands import doctor
from trainworthy.pipeline.doctor import examine, stores
from trainworthy.resources.mlflow import JUDGED_BY, Tracking
from trainworthy.resources.settings import read_settings

FOLLOWED = "{}: the alias champion points to version 1, as in the verdict log"


def registered(name: str, tags: dict[str, str], run_id: str | None = None) -> str:
    """A version of the model, by Trainworthy if it has the tag artifact_sha256, and by that run of Dagster's."""
    tracking = Tracking()
    if name not in [model.name for model in tracking.client.search_registered_models()]:
        tracking.client.create_registered_model(name)
    made_by = tracking.run(name, run_id, {}).run_id if run_id else None
    made = tracking.client.create_model_version(name, f"file:///{name}", run_id=made_by, tags=tags)
    return str(made.version)


def promoted(place: Path, name: str = "toy") -> None:
    """A use case whose log has version 1 as champion; nothing points there yet."""
    version = registered(name, {"artifact_sha256": "a" * 64}, "first-run")
    logged(
        log_in(place / "state", name), action="promote", model_version=version, verdict_sha256="1" * 64,
        previous_verdict_sha256=None,
    )  # fmt: skip


def point_by_hand(name: str, version: str) -> None:
    Tracking().client.set_registered_model_alias(name, "champion", version)


def aliased(name: str) -> str | None:
    model = Tracking().aliased(name)
    return model and str(model.version)


def step_of_a_run(place: Path, run_id: str) -> None:
    """This state has a record of that run's evaluation, as it has before promotion registers anything."""
    point(FolderState(place / "state"), f"records/toy/runs/{run_id}/evaluation", b"e" * 64)


TRAINED = {"artifact_sha256": "b" * 64}
JUDGED_HERE, JUDGED_ELSEWHERE = (
    TRAINED | {"verdict": "promote", JUDGED_BY: f"run-{at}"} for at in ("here", "elsewhere")
)


def test_alias_that_only_a_hand_can_have_moved_follows_the_log(place):
    promoted(place)
    step_of_a_run(place, "run-here")
    # Registered here and never entered; judged here; made by hand; another program's.
    cases = [(TRAINED, "run-here"), (JUDGED_HERE, "run-elsewhere"), ({}, None), ({}, "run-elsewhere")]
    for tags, run_id in cases:
        point_by_hand("toy", registered("toy", tags, run_id))
        assert list(stores.repair_aliases(read_settings())) == [FOLLOWED.format("toy")], (tags, run_id)
        assert aliased("toy") == "1"


def test_alias_that_another_state_may_have_moved_is_left_and_both_causes_are_named(place):
    promoted(place)
    step_of_a_run(place, "run-here")
    # Another state's run registered it, or judged what one here registered; and one of no known run.
    cases = [(TRAINED, "run-elsewhere"), (JUDGED_ELSEWHERE, "run-here"), (TRAINED, None)]
    for (tags, run_id), of_run in zip(cases, ("run-elsewhere", "run-elsewhere", None), strict=True):
        point_by_hand("toy", version := registered("toy", tags, run_id))
        (error,) = stores.repair_aliases(read_settings())
        assert isinstance(error, ChampionError)
        assert error.code == "champion.other_log"
        assert error.value == {"verdict log": ["1"], "alias": version, "of run": of_run}
        assert "another state promoted it, or somebody moved the alias by hand" in error.problem
        assert "name one TRAINWORTHY_STATE for both" in error.fix
        assert "remove the alias champion of toy in MLflow, then trainworthy doctor --fix" in error.fix
        assert aliased("toy") == version
    # As the error says.
    Tracking().client.delete_registered_model_alias("toy", "champion")
    assert list(stores.repair_aliases(read_settings())) == [FOLLOWED.format("toy")]
    # A run that MLflow does not have any more is none that is known.
    gone = Tracking().client.create_model_version("toy", "file:///toy", run_id="0" * 32, tags=TRAINED)
    assert [Tracking().run_of_version("toy", version) for version in (str(gone.version), "99")] == [None, None]


def test_one_alias_that_is_left_keeps_no_other_from_following_and_the_command_fails(place, monkeypatch, capsys):
    use_cases = place / "project" / "use_cases"
    shutil.copytree(use_cases / "toy", use_cases / "toys")
    spec = use_cases / "toys" / "use_case.yaml"
    spec.write_text(spec.read_text().replace("name: toy\n", "name: toys\n"))
    for name in ("toy", "toys"):
        promoted(place, name)
    point_by_hand("toy", registered("toy", {"artifact_sha256": "b" * 64}, "run-elsewhere"))
    monkeypatch.setattr(examine, "CHECKS", (stores.verdicts,))
    assert len(bad(stores.verdicts)) == 2
    assert doctor.run(Namespace(fix=True, verbose=False)) == 1
    out = capsys.readouterr().out
    assert "not repaired (repair_aliases): ChampionError: the alias champion of toy points to version 2" in out
    assert f"repaired: {FOLLOWED.format('toys')}" in out
    assert "2 checks: 1 failed" in out
    assert (aliased("toy"), aliased("toys")) == ("2", "1")
    Tracking().client.delete_registered_model_alias("toy", "champion")
    assert doctor.run(Namespace(fix=True, verbose=False)) == 0
    assert len(log.read(log_in(place / "state", "toy"))) == 1
