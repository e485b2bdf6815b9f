"""What a worker writes comes back, by moto's server: each byte once, a file whole or not at all."""

import sys
from pathlib import Path

import pytest
from travelled import bytes_of, end, fails, set_time

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))

from trainworthy.lifecycle.code_identity import product_sha256
from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.failure import EXIT_PREEMPTED
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.storage.checkpoints import REACHED, reached_step
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.on_node import NodeEnd, read_end
from trainworthy.resources.backends.travel import arrival
from trainworthy.resources.backends.travel import journey as journeys
from trainworthy.resources.backends.travel import mirror as mirrors
from trainworthy.resources.backends.travel.parcel import claimed, fetch
from trainworthy.resources.backends.travel.places import ENDED, INDEX, PARCEL, Gate, walked

MESSAGES = "pipes-1/messages"


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
        assert "another node of this start" in capfd.readouterr().err
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
        assert "use_case/model.py" in claimed(travelled.bucket, journey.prefix).files


def test_turn_that_hangs_beyond_its_start_changes_nothing_in_the_folder(travelled, monkeypatch):
    travelled.write(travelled.here / MESSAGES, "")
    travelled.write(travelled.here / "old", "old")
    with travelled.under_way() as (journey, mirror):
        for name in (MESSAGES, "a"):
            travelled.write(travelled.there / name, "of the first start\n")
        (travelled.there / "old").unlink()
        end(travelled)
        mirror.turn(0)
        index, kept = journey._index(ENDED), {name: travelled.bucket.read(name) for name in travelled.bucket.names()}
        fails(monkeypatch, lambda kind, name: "before")
    # Each of its requests is answered only now.
    monkeypatch.undo()
    for name, stored in kept.items():
        travelled.bucket.put(name, stored[0])
    landing = journey._landing
    changes = (
        lambda: landing._streams.append(MESSAGES, 19, whole=False),
        lambda: landing._fetch("files", "a", index.files["a"]),
        lambda: landing._remove_others(index), lambda: landing.write(travelled.here / "b", "b"),
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
        parcel = {
            "code": product_sha256(),
            "launcher": "",
            "out": "out",
            "folder": "f",
            "folders": [],
            "files": {name: "0" * 64},
        }
        travelled.bucket.put(f"{journey.prefix}/{PARCEL}", canonical_json(parcel))
        with pytest.raises(ValueError, match="validation error"):
            claimed(travelled.bucket, journey.prefix)


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
    with travelled.under_way() as (journey, mirror):
        travelled.write(travelled.there / "a", "a")
        end(travelled)
        mirror.turn(0)
        # Given up once a turn has failed, however long that takes.
        insist, turns = journey._turns.insist, journey._turns
        monkeypatch.setattr(turns, "insist", lambda take, until: insist(take, lambda: -turns._failures or float("inf")))
        gone = f"files/{mirror._known['a'][1]}"
        travelled.bucket.delete(gone)
        with pytest.raises(BackendError, match=f"there is no such object: .*/{gone}") as caught:
            journey.arrived()
    assert "a lifecycle rule" in caught.value.fix
