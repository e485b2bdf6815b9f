"""`preflight_toy` as a pull request has it: exit code, table, annotation and JUnit XML, whatever ends it."""

import re
from xml.etree import ElementTree

import pytest
from toy_project import Done, Toy


@pytest.fixture
def github(monkeypatch, toy):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(toy.root))
    # The server of workers keeps the environment that it was started with: this one is no other test's.
    monkeypatch.setattr("trainworthy.resources.fork_server._started", [])


def suite(toy: Toy) -> ElementTree.Element:
    found = ElementTree.parse(toy.var / "reports" / "toy" / "preflight.xml").getroot().find("testsuite")
    assert found is not None
    return found


def cases(toy: Toy) -> dict[str, ElementTree.Element]:
    return {f"{case.get('classname')}.{case.get('name')}": case for case in suite(toy).iter("testcase")}


def table_of(done: Done, step: str) -> list[str]:
    return done.out.split(f"toy stopped at {step}")[1].splitlines()


def test_preflight_job_of_a_planted_fault_exits_1_with_table_annotation_and_xml(toy, github):
    toy.edit("model.py", "return torch.sigmoid(outputs)", 'raise ValueError("planted: 100 %")')
    done = toy.run("preflight_toy")
    assert done.code == 1
    lines = table_of(done, "preflight")
    (first,) = [line for line in lines if "one_batch.predict" in line]
    assert first.startswith("  error         one_batch.predict ")
    # A path stays whole, to be copied.
    assert [line for line in lines[:-1] if len(line) > 100 and not line.startswith("report: ")] == []
    annotations = [line for line in done.out.splitlines() if line.startswith("::error ")]
    (annotation,) = [line for line in annotations if "title=one_batch.predict::" in line]
    assert annotation.startswith("::error file=use_cases/toy/model.py,line=41,title=one_batch.predict::")
    assert "100 %25" in annotation
    broken = cases(toy)["toy.one_batch.predict"].find("error")
    assert broken is not None
    assert "planted: 100 %" in (broken.text or "")
    # Cheap checks that call predict break as well.
    assert (suite(toy).get("failures"), suite(toy).get("errors")) == ("0", str(len(annotations)))
    page = (toy.var / "reports" / "toy" / f"{done.run_id}.html").read_text()
    assert "What did preflight try out?" in page
    assert "Likely cause" in page


def test_preflight_job_that_passes_says_so_in_a_line_and_names_the_xml(toy):
    done = toy.run("preflight_toy")
    assert done.code == 0, done.out[-3000:]
    (line,) = [line for line in done.out.splitlines() if " checks of " in line]
    assert "passed" in line
    assert "failed" not in line
    assert f"JUnit: {toy.var}/reports/toy/preflight.xml" in done.out
    assert (suite(toy).get("failures"), suite(toy).get("errors")) == ("0", "0")
    # Compute is no part of an identity: a CPU's pass is not taken over for a job that will use CUDA.
    toy.edit("use_case.yaml", "compute: {device: cpu, sku", "compute: {device: cuda, sku")
    again = toy.run("preflight_toy")
    assert again.code == 0, again.out[-3000:]
    # The training before it took so long for this step; the first two are reused.
    assert re.search(r"step 3 of 3, about \d+ seconds left", again.out)
    assert "insufficient  " in again.out
    assert "does not clear a CUDA job" in cases(toy)["toy.overfit.ten_batches"].find("skipped").get("message")


def test_preflight_job_that_stops_before_preflight_leaves_its_own_xml_and_annotations(toy, github):
    path = toy.var / "reports" / "toy" / "preflight.xml"
    path.write_text("<testsuites/>")
    known = "minimum: -10, maximum: 10}\n        customProperties: [{property: role, value: feature}, "
    toy.edit("contract.yaml", f"{known}{{property: availableAt, value: PT0S}}]",
             f"{known}{{property: availableAt, value: P1D}}]")  # fmt: skip
    assert toy.run("preflight_toy").code == 1
    assert cases(toy)["toy.snapshot.availability"].find("failure") is not None
    path.write_text("<testsuites/>")
    toy.edit("use_case.yaml", "epochs: 6", "epoch: 6")
    done = toy.run("preflight_toy")
    assert done.code == 1
    assert cases(toy)["toy.use_case.use_case.yaml: training.epoch"].find("failure") is not None
    annotations = [line for line in done.out.splitlines() if line.startswith("::error ")]
    assert any("file=use_cases/toy/use_case.yaml,line=" in line and "did you mean 'epochs'?" in line
               for line in annotations), done.out  # fmt: skip


def test_preflight_job_of_sums_that_cannot_work_starts_no_worker(toy):
    toy.edit("use_case.yaml", "batch_size: 128", "batch_size: 128\n  accumulate: 64")
    done = toy.run("preflight_toy")
    assert done.code == 1
    lines = table_of(done, "preflight")
    assert any("configuration.steps" in line for line in lines)
    assert any("more were not tried" in line for line in lines)
    assert "preflight: one batch" not in done.out


def test_preflight_job_with_a_folder_for_copies_that_is_not_there_starts_no_worker_and_with_one_fits(toy):
    unmounted, volume = toy.root / "unmounted", toy.root / "volume"
    done = toy.run("preflight_toy", TRAINWORTHY_DURABLE=str(unmounted))
    assert done.code == 1
    assert any("configuration.stores_reachable" in line for line in table_of(done, "preflight"))
    assert "preflight: one batch" not in done.out
    assert not unmounted.exists()
    volume.mkdir()
    done = toy.run("preflight_toy", TRAINWORTHY_DURABLE=str(volume))
    assert done.code == 0, done.out[-3000:]
    assert list(volume.iterdir()) == []
