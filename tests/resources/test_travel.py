"""What travels with a job and what comes back, by moto's server: each byte once, a file whole or not at all."""

import io
import itertools
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from kubernetes_apart import backend
from s3_servers import moto_server, reached
from travelled import Travelled, bytes_of, fails, set_time

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import BackendError, SettingsError, StateError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED, MemorySeen
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob
from trainworthy.lifecycle.storage.checkpoints import REACHED, reached_step
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes import backend as backends
from trainworthy.resources.backends.on_node import END, NodeEnd, read_end
from trainworthy.resources.backends.travel import arrival, turns
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel import mirror as mirrors
from trainworthy.resources.backends.travel.parcel import fetch, lay_out
from trainworthy.resources.backends.travel.places import ENDED, INDEX, PARCEL, Gate, Index, at_once, walked
from trainworthy.resources.worker_process import Nobody

MESSAGES = "pipes-1/messages"


@pytest.fixture(scope="module")
def server():
    with moto_server() as address:
        yield address


@pytest.fixture
def travelled(server, tmp_path, monkeypatch, request):
    # No turns but those that a test makes.
    monkeypatch.setattr(turns, "TURN_SECONDS", 3600.0)
    monkeypatch.setattr(turns, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(journeys, "GIVEN_UP_SECONDS", 0.0)
    return Travelled(tmp_path, f"{reached(monkeypatch, server)}/{request.node.name.partition('[')[0]}")


def end(travelled: Travelled, code: int = 0) -> None:
    """What on_node.py leaves."""
    travelled.write(travelled.there / f"kubernetes/1234abcd/{END}", NodeEnd(exit_code=code).model_dump_json())


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
            lay_out(travelled.bucket, self.prefix, travelled.disk)
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


FAULTS = {
    "none": lambda count: "",
    "every third fails": lambda count: "before" if count % 3 == 0 else "",
    "every third reply is lost": lambda count: "after" if count % 3 == 0 else "",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_worker_writes_comes_to_the_same_bytes_whatever_requests_fail(travelled, monkeypatch, fault):
    travelled.write(travelled.here / MESSAGES, "")
    count, failing = [0], [False]

    def faulty(kind: str, name: str) -> str:
        count[0] += failing[0]
        return FAULTS[fault](count[0]) if failing[0] else ""

    fails(monkeypatch, faulty)
    with travelled.under_way() as (journey, mirror):
        failing[0] = True
        for number in range(12):
            with (travelled.there / MESSAGES).open("a") as file:
                file.write(f"message {number}\n")
            travelled.write(travelled.there / "metrics.jsonl", "line\n" * number)
            mirror._turns._done(mirror.turn)
            journey._turns._done(journey._take)
            assert "".join(f"message {each}\n" for each in range(number + 1)).startswith(
                (travelled.here / MESSAGES).read_text()
            )
        end(travelled)
        travelled.write(travelled.there / "result.json", "answer")
        assert mirror.end(0, lambda: float("inf"))
        journey.arrived()
        assert (travelled.here / MESSAGES).read_text() == "".join(f"message {number}\n" for number in range(12))
        assert (travelled.here / "metrics.jsonl").read_text() == "line\n" * 11
        assert (travelled.here / "result.json").read_text() == "answer"
        assert read_end(travelled.here / "kubernetes/1234abcd") == NodeEnd(exit_code=0)
        failing[0] = False
    assert travelled.bucket.names("travel") == []


def test_file_with_the_bytes_of_one_that_was_sent_with_the_job_comes_in_a_turn(travelled):
    with travelled.under_way() as (journey, mirror):
        # As the artifact's model.py is the use case's.
        travelled.write(travelled.there / "artifact/code/model.py", "use_case/model.py")
        mirror.turn()
        journey._take()
        assert (travelled.here / "artifact/code/model.py").read_text() == "use_case/model.py"


def test_index_whose_reply_was_lost_is_no_reason_to_pass_over_the_next(travelled, monkeypatch):
    lost = ["index.json"]

    def faulty(kind: str, name: str) -> str:
        return "after" if kind == "put" and lost and name.endswith(lost[0]) and lost.pop() else ""

    fails(monkeypatch, faulty)
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "first")
        with pytest.raises(TimeoutError):
            mirror.turn()
        journey._take()
        travelled.write(travelled.there / "a", "second")
        mirror.turn()
        journey._take()
        assert (travelled.here / "a").read_text() == "second"


def test_request_of_an_earlier_turn_that_comes_after_the_end_hides_nothing(travelled):
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "before")
        mirror.turn()
        late = travelled.bucket.read(f"{journey.prefix}/{INDEX}")[0]
        end(travelled)
        travelled.write(travelled.there / "result.json", "answer")
        mirror.turn(0)
        travelled.bucket.put(f"{journey.prefix}/{INDEX}", late)
        journey.arrived()
        assert (travelled.here / "result.json").read_text() == "answer"


def test_request_of_an_earlier_turn_hides_the_newest_for_some_turns_alone(travelled, monkeypatch):
    monkeypatch.setattr(mirrors, "AGAIN_TURNS", 3)
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "before")
        mirror.turn()
        late = travelled.bucket.read(f"{journey.prefix}/{INDEX}")[0]
        travelled.write(travelled.there / "a", "after")
        mirror.turn()
        travelled.bucket.put(f"{journey.prefix}/{INDEX}", late)
        for _ in range(3):
            mirror.turn()
        journey._take()
        assert (travelled.here / "a").read_text() == "after"


def test_end_comes_last_of_all_and_not_before_each_file_is_whole(travelled, monkeypatch):
    with travelled.under_way() as (journey, mirror):
        answer = bytes_of(1, 9 * 2**20)
        travelled.write(travelled.there / "predictions.parquet", answer)
        end(travelled)
        mirror.turn(0)
        with monkeypatch.context() as patch:
            fails(patch, lambda kind, name: "before" if kind == "download" else "")
            with pytest.raises(TimeoutError):
                journey._take()
        assert read_end(travelled.here / "kubernetes/1234abcd") is None
        assert not (travelled.here / "predictions.parquet").exists()
        journey._take()
        assert read_end(travelled.here / "kubernetes/1234abcd") == NodeEnd(exit_code=0)
        assert (travelled.here / "predictions.parquet").read_bytes() == answer
        # Where shared state looks for it.
        assert travelled.bucket.has(f"files/{sha256_file(travelled.here / 'predictions.parquet')}")
    assert not list(travelled.here.rglob("*.fetching"))


def test_second_pod_of_a_start_does_nothing_and_ends_as_preempted(travelled, monkeypatch, capfd):
    monkeypatch.setattr(on_node, "main", lambda arguments: pytest.fail("a worker was started"))
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "of the first pod")
        end(travelled)
        mirror.turn(0)
        asked = fails(monkeypatch, lambda kind, name: "")
        second = ["--bucket", travelled.address, "--start", journey.prefix, "--root", str(travelled.home / "second")]
        assert arrival.main([*second, "--abandoned", "60", "--"]) == EXIT_PREEMPTED
        assert "another pod of this start" in capfd.readouterr().err
        assert {request.partition(" ")[0] for request in asked} == {"read"}
        journey.arrived()
        assert (travelled.here / "a").read_text() == "of the first pod"
        assert read_end(travelled.here / "kubernetes/1234abcd") == NodeEnd(exit_code=0)


def test_pod_whose_claim_was_written_though_its_answer_was_lost_does_the_job(travelled, monkeypatch):
    write = Bucket.write

    def answered_late(bucket: Bucket, name: str, content: bytes, version: str | None) -> None:
        for _ in range(2):
            write(bucket, name, content, version)

    journey = travelled.journey()
    with journey.under_way(travelled.named):
        monkeypatch.setattr(Bucket, "write", answered_late)
        lay_out(travelled.bucket, journey.prefix, travelled.disk)
    assert "use_case/model.py" in travelled.laid_out()


def test_turn_that_hangs_beyond_its_start_changes_nothing_in_the_folder(travelled, monkeypatch):
    travelled.write(travelled.here / MESSAGES, "")
    travelled.write(travelled.here / "old", "old")
    with travelled.under_way() as (journey, mirror):
        for name in (MESSAGES, "a"):
            travelled.write(travelled.there / name, "of the first start")
        (travelled.there / "old").unlink()
        end(travelled)
        mirror.turn(0)
        index, kept = journey._index(ENDED), {name: travelled.bucket.read(name) for name in travelled.bucket.names()}
        fails(monkeypatch, lambda kind, name: "before")
    # Each of its requests is answered only now.
    monkeypatch.undo()
    for name, stored in kept.items():
        travelled.bucket.put(name, stored[0])
    changes = (
        lambda: journey._append(MESSAGES, 18), lambda: journey._fetch("files", "a", index.files["a"]),
        lambda: journey._remove_others(index), lambda: journey._write(travelled.here / "b", "b"),
    )  # fmt: skip
    for change in changes:
        with pytest.raises(OSError, match="nobody waits for it any more"):
            change()
    assert {path.name: path.read_text() for path in travelled.here.rglob("*") if path.is_file()} == {
        "messages": "", "old": "old",
    }  # fmt: skip


def test_object_with_other_bytes_than_its_name_says_is_no_file(travelled):
    travelled.bucket.put(key := f"files/{'0' * 64}", b"others")
    travelled.write(travelled.here / "a", "as before")
    with pytest.raises(OSError, match="other bytes than its name says"):
        fetch(travelled.bucket, key, travelled.here / "a", Gate())
    assert [path.name for path in travelled.here.iterdir()] == ["a"]
    assert (travelled.here / "a").read_text() == "as before"


@pytest.mark.parametrize("name", ["../a", "/etc/a", "a/../../b", "a\\b", ""])
def test_names_that_lead_out_are_refused_on_both_sides(travelled, name):
    with travelled.under_way() as (journey, _):
        index = {"turn": 1, "files": {name: "0" * 64}, "streams": {}}
        travelled.bucket.put(f"{journey.prefix}/{INDEX}", canonical_json(index))
        with pytest.raises(OSError, match="not written by Trainworthy"):
            journey._take()
        parcel = {"code": "0" * 64, "out": "out", "folder": "f", "files": {name: "0" * 64}}
        travelled.bucket.put(f"{journey.prefix}/{PARCEL}", canonical_json(parcel))
        with pytest.raises(ValueError, match="validation error"):
            lay_out(travelled.bucket, journey.prefix, travelled.disk)


def test_folder_that_vanishes_during_a_turn_is_left_out_of_it(travelled, monkeypatch):
    copy = mirrors.shutil.copyfile

    def vanishing(source: Path, target: Path) -> None:
        if source.name == "a" and source.exists():
            for path in (travelled.there / "incidents/1").iterdir():
                path.unlink()
            (travelled.there / "incidents/1").rmdir()
        copy(source, target)

    with travelled.under_way() as (journey, mirror):
        for name in ("incidents/1/a", "incidents/1/b", "incidents/2/c"):
            travelled.write(travelled.there / name, name)
        monkeypatch.setattr(mirrors.shutil, "copyfile", vanishing)
        mirror.turn()
        journey._take()
        assert [path.name for path in sorted(travelled.here.glob("incidents/*/*"))] == ["c"]


def test_walk_passes_over_a_folder_that_is_gone_by_then(tmp_path):
    for name in ("a/1", "b/2"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    found = walked(tmp_path)
    assert next(found)[0] == "a/1"
    (tmp_path / "b/2").unlink()
    (tmp_path / "b").rmdir()
    assert list(found) == []


@pytest.mark.parametrize(("code", "stays"), [(0, False), (75, True)])
def test_only_an_answer_removes_what_is_no_longer_there(travelled, code, stays):
    travelled.write(travelled.here / "checkpoints/step-00000003/state.pt", "three")
    travelled.write(travelled.here / "incidents/1/old", "old")
    with travelled.under_way() as (journey, mirror):
        for name in ("checkpoints/step-00000003/state.pt", "incidents/1/old"):
            (travelled.there / name).unlink()
        (travelled.there / "checkpoints/step-00000003").rmdir()
        travelled.write(travelled.there / "checkpoints/step-00000009/state.pt", "nine")
        mirror.turn()
        journey._take()
        assert reached_step(travelled.here) == 9
        assert not (travelled.here / "checkpoints/step-00000009").exists()
        end(travelled, code)
        mirror.turn(code)
        journey.arrived()
        assert (travelled.here / "incidents/1").exists() == stays
        left = {path.name for path in (travelled.here / "checkpoints").iterdir()}
        assert left == ({"step-00000003"} if stays else {"step-00000009"})


def test_step_that_was_told_counts_until_a_checkpoint_is_written_here(tmp_path):
    (tmp_path / REACHED).write_text("40")
    assert reached_step(tmp_path) == 40
    (tmp_path / "checkpoints/step-00000007").mkdir(parents=True)
    set_time(tmp_path / "checkpoints/step-00000007", 1000)
    assert reached_step(tmp_path) == 40
    set_time(tmp_path / REACHED, 500)
    assert reached_step(tmp_path) == 7
    (tmp_path / REACHED).write_text("")
    assert reached_step(tmp_path) == 7


def test_what_an_earlier_start_has_left_is_removed_with_the_next(travelled):
    earlier = travelled.journey("earlier0")
    earlier._send(travelled.named)
    assert travelled.bucket.names("travel/worker/earlier0")
    with travelled.under_way():
        pass
    assert travelled.bucket.names("travel") == []


def test_store_that_stays_away_at_the_end_is_an_error_that_says_so(travelled, monkeypatch):
    monkeypatch.setattr(journeys, "ARRIVE_SECONDS", 0.05)
    with travelled.under_way() as (journey, _):
        fails(monkeypatch, lambda kind, name: "before")
        with pytest.raises(BackendError, match="did not come from the bucket") as away:
            journey.arrived()
    assert "a training resumes" in away.value.fix
    assert [line for line in travelled.told if "does not come from its bucket" in line]


def test_object_that_another_has_removed_is_named_by_the_error(travelled, monkeypatch):
    monkeypatch.setattr(journeys, "ARRIVE_SECONDS", 0.05)
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "a")
        end(travelled)
        mirror.turn(0)
        gone = f"files/{mirror._known['a'][1]}"
        travelled.bucket.delete(gone)
        with pytest.raises(BackendError, match=f"there is no such object: .*/{gone}") as caught:
            journey.arrived()
    assert "a lifecycle rule" in caught.value.fix


def test_end_that_the_bucket_does_not_take_is_not_said_to_be_there(travelled, monkeypatch):
    with travelled.under_way() as (_, mirror):
        with monkeypatch.context() as patch:
            asked = fails(patch, lambda kind, name: "before" if name.endswith(ENDED) else "")
            assert not mirror.end(0, lambda: 0.0 if len(asked) > 1 else float("inf"))
        assert mirror.end(0, lambda: float("inf"))


def test_end_that_hangs_or_sends_a_large_file_is_waited_for_until_its_time_alone(travelled, monkeypatch):
    let_go, asked = threading.Event(), list[str]()

    def hangs(bucket: Bucket, name: str, path: Path) -> None:
        asked.append(name)
        assert let_go.wait(60)

    with travelled.under_way() as (_, mirror):
        travelled.write(travelled.there / "a", "a")
        monkeypatch.setattr(Bucket, "upload", hangs)
        # The time is asked for meanwhile: a signal may make it an earlier one.
        assert not mirror.end(0, lambda: 0.0 if asked else float("inf"))
        let_go.set()


def test_download_of_a_start_that_is_over_ends_between_two_parts(travelled, monkeypatch):
    monkeypatch.setattr("trainworthy.lifecycle.storage.durable.bucket.PART_BYTES", 4)
    travelled.bucket.put(key := f"files/{'0' * 64}", b"twelve bytes")
    gate, sizes = Gate(), list[int]()

    def go_on() -> None:
        sizes.append(len(sizes))
        if len(sizes) == 2:
            gate.close()
        gate.check()

    with pytest.raises(OSError, match="nobody waits"):
        travelled.bucket.download(key, travelled.here / "a", go_on)
    assert (travelled.here / "a").stat().st_size == 4
    with pytest.raises(OSError, match="nobody waits"):
        fetch(travelled.bucket, key, travelled.here / "b", gate)
    assert [path.name for path in travelled.here.iterdir()] == ["a"]


def test_files_at_once_keep_their_order_and_none_is_begun_after_an_error():
    assert at_once(lambda number: number * 2, range(50)) == list(range(0, 100, 2))
    begun = list[int]()

    def work(number: int) -> None:
        begun.append(number)
        raise IndexError(number)

    with pytest.raises(IndexError):
        at_once(work, range(5000))
    assert len(begun) < 100


def test_who_is_interrupted_waits_for_no_file_and_nor_does_the_process():
    code = """
        import _thread, threading
        from trainworthy.resources.backends.travel.places import at_once

        def work(number):
            _thread.interrupt_main()
            threading.Event().wait()

        try:
            at_once(work, range(20))
        except KeyboardInterrupt:
            print("interrupted")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.returncode) == ("interrupted\n", 0)


def test_unchanged_turns_ask_the_bucket_for_nothing(travelled, monkeypatch):
    with travelled.under_way() as (_, mirror):
        travelled.write(travelled.there / "a", "a")
        mirror.turn()
        asked = fails(monkeypatch, lambda kind, name: "")
        mirror.turn()
        assert asked == []


def test_states_of_a_file_that_grows_do_not_stay_and_one_that_comes_back_is_sent_again(travelled, monkeypatch):
    monkeypatch.setattr(mirrors, "SUPERSEDED_SECONDS", 0.0)
    with travelled.under_way() as (journey, mirror):
        for content in ("one", "one two", "one two three", "one"):
            travelled.write(travelled.there / "metrics.jsonl", content)
            travelled.write(travelled.there / "stays", "as it is")
            mirror.turn()
            assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 2
            journey._take()
            assert (travelled.here / "metrics.jsonl").read_text() == content
        assert (travelled.here / "stays").read_text() == "as it is"
        # The same file, moved away and back.
        (travelled.there / "stays").rename(travelled.there / ".away")
        mirror.turn()
        (travelled.there / ".away").rename(travelled.there / "stays")
        mirror.turn()
        assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 2


def test_state_that_was_superseded_just_now_stays_for_a_launcher_that_has_read_of_it(travelled):
    with travelled.under_way() as (journey, mirror):
        for content in ("one", "two", "three"):
            travelled.write(travelled.there / "a", content)
            mirror.turn()
        assert len(travelled.bucket.names(f"{journey.prefix}/files")) == 3


def test_all_objects_of_a_start_are_removed_by_one_request(travelled, monkeypatch):
    asked = fails(monkeypatch, lambda kind, name: "")
    with travelled.under_way() as (_, mirror):
        for name in "abc":
            travelled.write(travelled.there / name, name)
        mirror.turn()
    assert len([request for request in asked if request.startswith("delete")]) == 1
    assert travelled.bucket.names("travel") == []


def test_index_is_as_small_as_it_can_be_said(travelled):
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Index(turn=0, files={}, streams={})


def test_turn_that_fails_in_whatever_way_ends_no_thread_and_is_told_once(monkeypatch):
    monkeypatch.setattr(turns, "_PAUSE_SECONDS", 0.001)
    told, failures = list[str](), [KeyError("a"), OSError("b"), StateError("c", fix="d"), ValueError("e")]

    def turn() -> None:
        if failures:
            raise failures.pop()

    made = turns.Turns(turn, "nothing comes", told.append)
    assert made.insist(turn, lambda: float("inf"))
    again = ["nothing comes, and it is tried again", "what failed and was tried again has come to be"]
    assert [line.partition(":")[0] for line in told] == again


def test_turns_go_on_though_nobody_can_be_told(monkeypatch):
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.001)
    count, came = itertools.count(), threading.Event()

    def turn() -> None:
        if next(count) < 5:
            raise OSError("away")
        came.set()

    def tell(line: str) -> None:
        raise OSError("no space left")

    with turns.Turns(turn, "nothing comes", tell).kept_up():
        assert came.wait(20)


def test_launcher_keeps_its_name_with_its_state_folder_also_without_hard_links(tmp_path, monkeypatch):
    def link(*given: object) -> None:
        raise PermissionError(1, "this file system has no hard links")

    monkeypatch.setattr(os, "link", link)
    road = journeys.Road("s3://models", tmp_path)
    assert road.launcher == journeys.Road("s3://others", tmp_path).launcher
    assert road.launcher != journeys.Road("s3://models", tmp_path / "other").launcher
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and path.name[0] != "."] == ["launcher_id"]
    assert os.path.getsize(tmp_path / "launcher_id") == 32


def test_launchers_that_begin_at_once_have_one_name(tmp_path):
    begins = threading.Barrier(8)

    def name(number: int) -> str:
        begins.wait(60)
        return journeys.Road("s3://models", tmp_path).launcher

    assert len(set(at_once(name, range(8)))) == 1
