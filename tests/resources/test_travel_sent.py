"""What travels with a job: all that it names, once, and nothing else; and who sent it."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest
from kubernetes_apart import backend
from travelled import Travelled, end, fails, set_time

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import SettingsError, StateError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes import backend as backends
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel.parcel import claimed, lay_out
from trainworthy.resources.backends.travel.places import Gate, at_once
from trainworthy.resources.backends.travel.road import Road
from trainworthy.resources.worker_process import Nobody


def hidden_secret(travelled: Travelled) -> None:
    for name in (".env", ".git/config", ".cache/x", "__pycache__/model.pyc", "sub/.netrc"):
        travelled.write(travelled.home / "use_case" / name, "password")


def test_parcel_has_what_the_job_names_and_nothing_hidden(travelled):
    hidden_secret(travelled)
    travelled.write(travelled.home / "use_case/words/list.txt", "a")
    (travelled.home / "use_case/link.txt").symlink_to("words/list.txt")
    travelled.write(travelled.here / "job.json", "{}")
    travelled.write(travelled.here / "checkpoints/step-00000003/state.pt", "three")
    for name in ("kubernetes/old/end.json", "fetched/step-00000001/state.pt", ".launch.lock"):
        travelled.write(travelled.here / name, "of one place")
    travelled.write(travelled.home / "prices.yaml", "not named")
    with travelled.under_way():
        assert travelled.laid_out() == {
            "use_case/model.py", "use_case/words/list.txt", "use_case/link.txt", "artifact/model.pt2",
            "var/out/job.json", "var/out/checkpoints/step-00000003/state.pt",
        }  # fmt: skip
    names = travelled.bucket.names()
    assert {name.partition("/")[0] for name in names} == {"files"}
    assert all(b"password" not in travelled.bucket.read(name)[0] for name in names)


def test_modules_around_a_use_case_are_all_sent_though_two_have_one_name(travelled, monkeypatch):
    code = "from shop import helpers\nfrom shop.deep import helpers as more\n"
    modules = ("shop/__init__.py", "shop/helpers.py", "shop/deep/__init__.py", "shop/deep/helpers.py")
    for name in modules:
        travelled.write(travelled.home / name, "")
    travelled.write(travelled.home / "shop/toy/model.py", code)
    travelled.job = travelled.job.model_copy(update={"use_case_folder": str(travelled.home / "shop/toy")})

    class Submitted:
        def __init__(self, api: object, *, journey: journeys.Journey, **given: object) -> None:
            self.prefix = journey.prefix

        def run(self) -> Ended:
            lay_out(travelled.bucket, claimed(travelled.bucket, self.prefix), travelled.disk, Gate())
            return Ended(0, MemorySeen())

    monkeypatch.setattr(backends, "connect", lambda namespace, context: io.BytesIO())
    monkeypatch.setattr(backends, "Submitted", Submitted)
    backend(travelled.home, travelled.address).run(travelled.start, Nobody(), travelled.told.append)
    assert {name for name in travelled.laid_out() if name.startswith("shop/")} == {*modules, "shop/toy/model.py"}


def test_folders_that_no_worker_reads_stay_here_also_those_of_a_diagnosis_training(travelled):
    outs = {"kept/features": "f", "training/a": "a", "training/fetched/b": "b", "training/kubernetes/old/c": "c"}
    for name, text in outs.items():
        travelled.write(travelled.home / "var" / name, text)
    train = toy_jobs.train_job(
        travelled.home, travelled.home / "var/training", use_case=travelled.home / "use_case", device="cpu",
        kept_features={"folder": str(travelled.home / "var/kept"), "split_sha256": "s"},
    )  # fmt: skip
    travelled.job = DiagnoseJob(
        use_case_folder=train.use_case_folder, out=travelled.job.out, device="cpu", training=train, parts=(), most=1
    )
    with travelled.under_way():
        assert {name for name in travelled.laid_out() if name.startswith("var/")} == {"var/training/a"}


@pytest.mark.parametrize("above", [".", "var"])
def test_folder_that_holds_those_of_other_jobs_is_refused_and_nothing_sent(travelled, above):
    folder = travelled.home / above
    travelled.job = travelled.job.model_copy(update={"artifact": str(folder)})
    whole = "artifact would be sent to another machine as a whole"
    with pytest.raises(SettingsError, match=whole) as refused, travelled.under_way():
        pass
    assert refused.value.value == str(folder)
    assert travelled.bucket.names() == []


@pytest.mark.parametrize("leads_to", ["../secret.txt", "../others", "words"])
def test_link_that_leads_out_or_to_a_folder_is_refused(travelled, leads_to):
    travelled.write(travelled.home / "secret.txt", "s")
    travelled.write(travelled.home / "others/a", "a")
    travelled.write(travelled.home / "use_case/words/list.txt", "a")
    (travelled.home / "use_case/link").symlink_to(leads_to)
    with pytest.raises(SettingsError, match="a link leads out") as refused, travelled.under_way():
        pass
    assert refused.value.value == str(travelled.home / "use_case/link")
    assert travelled.bucket.names("travel") == []


def test_name_that_cannot_travel_is_refused_here_and_left_out_there(travelled):
    travelled.write(travelled.home / "use_case/a\\b", "a")
    with pytest.raises(SettingsError, match="characters that cannot travel"), travelled.under_way():
        pass
    (travelled.home / "use_case/a\\b").unlink()
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a\\b", "odd")
        travelled.write(travelled.there / "a", "plain")
        (travelled.there / "link").symlink_to("a")
        end(travelled)
        mirror.turn(0)
        journey.arrived()
        assert [path.name for path in travelled.here.iterdir() if path.is_file()] == ["a"]


def test_folder_above_whose_name_cannot_travel_is_refused_with_what_to_do(travelled):
    travelled.write(travelled.home / "my\\files/model.pt2", "x")
    travelled.job = travelled.job.model_copy(update={"artifact": str(travelled.home / "my\\files")})
    odd = "characters that cannot travel to another machine"
    with pytest.raises(SettingsError, match=odd) as refused, travelled.under_way():
        pass
    assert refused.value.value == "my\\files/model.pt2"
    assert "another name" in refused.value.fix
    assert travelled.bucket.names() == []


def test_file_that_was_written_within_a_tick_of_the_clock_comes_as_it_was_left(travelled):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "seconds.bin", "before")
        set_time(travelled.there / "seconds.bin", 1000)
        mirror.turn()
        travelled.write(travelled.there / "seconds.bin", "after.")
        set_time(travelled.there / "seconds.bin", 1000)
        end(travelled)
        mirror.turn(0)
        journey.arrived()
        assert (travelled.here / "seconds.bin").read_text() == "after."


def test_files_that_are_there_are_not_sent_again(travelled, monkeypatch):
    with travelled.under_way():
        pass
    asked = fails(monkeypatch, lambda kind, name: "")
    with travelled.under_way():
        pass
    assert not [request for request in asked if request.startswith("upload")]


def test_file_that_changes_while_it_is_sent_is_refused_and_does_not_stay(travelled, monkeypatch):
    model = travelled.home / "use_case/model.py"

    def edited(kind: str, name: str) -> str:
        if kind == "upload" and "edited" not in model.read_text():
            model.write_text("edited")
        return ""

    monkeypatch.setattr("trainworthy.resources.backends.travel.places.AT_ONCE", 1)
    (travelled.home / "artifact/model.pt2").unlink()
    fails(monkeypatch, edited)
    with pytest.raises(StateError, match="changed while it was sent"), travelled.under_way():
        pass
    assert travelled.bucket.names() == []


def test_store_that_is_away_before_the_start_is_told_with_what_to_do(travelled, monkeypatch):
    fails(monkeypatch, lambda kind, name: "before")
    with pytest.raises(StateError, match="could not be sent to its worker") as refused, travelled.under_way():
        pass
    assert "TRAINWORTHY_STATE" in refused.value.fix
    assert "could not be removed" in travelled.told[-1]


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_of_the_credentials_is_told_as_none(travelled, monkeypatch, missing):
    monkeypatch.delenv(missing)
    with pytest.raises(StateError, match="no credentials are named"):
        travelled.journey()


def test_launcher_keeps_its_name_with_its_state_folder_also_without_hard_links(tmp_path, monkeypatch):
    def link(*given: object) -> None:
        raise PermissionError(1, "this file system has no hard links")

    monkeypatch.setattr(os, "link", link)
    road = Road("s3://models", tmp_path, tmp_path)
    assert road.launcher == Road("s3://others", tmp_path, tmp_path).launcher
    assert road.launcher != Road("s3://models", tmp_path / "other", tmp_path).launcher
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and path.name[0] != "."] == ["launcher_id"]
    assert os.path.getsize(tmp_path / "launcher_id") == 32


def test_launchers_that_begin_at_once_have_one_name(tmp_path):
    begins = threading.Barrier(8)

    def name(number: int) -> str:
        begins.wait(60)
        return Road("s3://models", tmp_path, tmp_path).launcher

    assert len(set(at_once(name, range(8)))) == 1
