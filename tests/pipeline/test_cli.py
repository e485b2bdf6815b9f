"""The command `trainworthy` on real state."""

import shutil


def test_cli_verdict_of_a_trained_use_case_tells_decision_reasons_cost_and_links(trained):
    done = trained.toy.call("-m", "pipeline.cli", "verdict", "toy")
    assert done.code == 0, done.out
    assert "toy: PROMOTE (model version 1)" in done.out
    for reason in trained.toy.verdict(trained.done.run_id).reasons:
        assert reason in done.out
    assert f"{trained.done.run_id}.html" in done.out
    assert f"/runs/{trained.done.run_id}" in done.out


def test_cli_verdict_of_an_unknown_use_case_offers_the_near_one(fresh):
    done = fresh.call("-m", "pipeline.cli", "verdict", "toi")
    assert (done.code, "did you mean 'toy'?" in done.out, "Traceback" in done.out) == (1, True, False)


def test_cli_verdict_before_any_run_says_what_to_run_and_writes_nothing(fresh):
    done = fresh.call("-m", "pipeline.cli", "verdict", "toy")
    assert (done.code, "-j train_toy" in done.out, "Traceback" in done.out) == (1, True, False)
    assert not fresh.var.exists()


def test_cli_datasets_lists_the_versions_of_the_project_of_the_use_cases(fresh):
    done = fresh.call("-m", "pipeline.cli", "datasets")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == ["toy_rows@v1", "toy_rows@v2"]
    assert "9,600 rows" in lines[0]
    assert "days=120, seed=1" in lines[0]


def test_cli_datasets_publish_writes_to_the_project_of_the_use_cases(toy):
    publish = ("-m", "pipeline.cli", "datasets", "publish", "toy_rows")
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
    done = fresh.call("-m", "pipeline.cli", "datasets")
    assert (done.code, "no dataset version is published yet" in done.out) == (0, True)
