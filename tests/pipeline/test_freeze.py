"""A confirmed blind spot becomes a slice: what is written, and that nothing else changes."""

from types import SimpleNamespace

import pytest
import yaml

from trainworthy.lifecycle.errors import RecordError, SettingsError
from trainworthy.lifecycle.protocol.figures import BlindSpot, Estimate
from trainworthy.pipeline import freeze as frozen
from trainworthy.pipeline.freeze import freeze, with_slice

DECLARED = {"where": 'origin == "EWR" and hour > 18', "champion_margin": 0.005}
KEYS = "primary: {metric: log_loss, margin: 0.005}"


@pytest.mark.parametrize(
    "benchmark",
    [
        f"benchmark:\n  # what decides\n  {KEYS}\n  slices: [origin, carrier]\n  latency_ms: 1\n",
        f"benchmark:\n  {KEYS}\n  slices: []\n  version: 3\n",
        f"benchmark:\n  {KEYS}\n  version: 3  # third\n  slices:\n    - origin  # told apart\n    - {{where: a > 1}}\n",
        f"benchmark:\n  slices:\n  - origin\n  {KEYS}\n",
        f"benchmark:\n  {KEYS}\n",
        f"benchmark: {{{KEYS}}}\n",
        f"benchmark: {{{KEYS}, slices: [origin]}}\n",
    ],
)
def test_a_slice_is_added_in_every_form_of_the_file_and_nothing_else_changes(benchmark):
    before = f"name: toy  # a comment\n{benchmark}budget: {{run_usd: 1}}\n"
    then, after = yaml.safe_load(before), with_slice(before, DECLARED, 4)
    now = yaml.safe_load(after)
    assert now["benchmark"].pop("version") == 4
    slices = now["benchmark"].pop("slices")
    assert DECLARED in slices
    assert [one for one in slices if one != DECLARED] == (then["benchmark"].pop("slices", None) or [])
    then["benchmark"].pop("version", None)
    assert now == then
    assert all(comment in after for comment in ("# a comment", "# told apart", "# what decides") if comment in before)


def test_a_rule_about_metadata_stays_what_it_is():
    declared = {"where": "`photo.brightness` <= 0.2", "champion_margin": 0.005}
    after = yaml.safe_load(with_slice(f"benchmark:\n  {KEYS}\n", declared, 2))
    assert after["benchmark"]["slices"] == [declared]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A use case whose newest evaluation found a confirmed spot and one that was not."""
    folder = tmp_path / "use_cases" / "toy"
    folder.mkdir(parents=True)
    (folder / "use_case.yaml").write_text(f"benchmark:\n  {KEYS}\n")
    benchmark = SimpleNamespace(primary=SimpleNamespace(margin=0.005), slices=(), version=1, suite=None)
    use_case = SimpleNamespace(
        folder=folder, project=tmp_path, suite_path=None, spec=SimpleNamespace(benchmark=benchmark)
    )
    spots = [
        BlindSpot(
            rule=DECLARED["where"], rows=100, groups=10, share=0.01, expected=0.0, p=0.001, confirmed=confirmed,
            excess=Estimate(value=0.2, low=0.1, high=0.3, standard_error=0.05, groups=10), examples=(1,),
        )
        for confirmed in (True, False)
    ]  # fmt: skip
    monkeypatch.setattr(frozen, "find_use_case", lambda name: use_case)
    monkeypatch.setattr(frozen, "spots_of", lambda name: tuple(spots))
    return use_case


def test_freeze_writes_the_rule_with_the_primary_margin_and_raises_the_version(toy):
    assert DECLARED["where"] in freeze("toy", 1)
    found = yaml.safe_load((toy.folder / "use_case.yaml").read_text())["benchmark"]
    assert (found["slices"], found["version"]) == ([DECLARED], 2)


@pytest.mark.parametrize(("number", "told"), [(0, "found 2"), (3, "found 2"), (2, "was not confirmed")])
def test_freeze_of_no_confirmed_spot_writes_nothing(toy, number, told):
    before = (toy.folder / "use_case.yaml").read_text()
    with pytest.raises(RecordError, match=told):
        freeze("toy", number)
    assert (toy.folder / "use_case.yaml").read_text() == before


def test_freeze_says_one_spot_as_one(toy, monkeypatch):
    monkeypatch.setattr(frozen, "spots_of", lambda name: (None,))
    with pytest.raises(RecordError, match=r"found 1 blind spot(?!s)"):
        freeze("toy", 3)


def test_freeze_leaves_a_suite_that_use_cases_share_to_a_person(toy):
    toy.spec.benchmark.suite = "shared"
    toy.suite_path = toy.project / "suites" / "shared.yaml"
    with pytest.raises(SettingsError, match="a file of its own") as error:
        freeze("toy", 1)
    assert DECLARED["where"] in error.value.fix
