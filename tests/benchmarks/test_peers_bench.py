"""What benchmarks/peers.py counts as found, on which host, and what it counts apart; the tools of others need pip."""

import pytest
import torch

from benchmarks import peers
from benchmarks.peers import APART, BEYOND_ONE_BATCH, HOSTS, PARTS, Asked, host, run, table
from benchmarks.peers_tools import Known, Said, asked, batch, losses, quick
from benchmarks.planted_networks import Detached


def said(*alarms, warnings=(), hints=()):
    return Said(frozenset(alarms), frozenset(warnings), frozenset(hints))


def test_faults_that_are_counted_apart_are_planted_ones_and_each_is_named_once():
    names = [name for of in BEYOND_ONE_BATCH.values() for name in of]
    assert len(names) == len(set(names)) == len(APART)
    assert set(names) < PARTS["planted"].networks.keys()


@pytest.mark.parametrize("name", HOSTS)
def test_host_is_known_by_its_rows(name):
    assert host(HOSTS[name](0)) == name


def test_found_is_what_the_host_without_the_fault_does_not_have():
    twin = said("a", warnings={"b"}, hints={"d"})
    one = Asked("fault", "tool", said("a", "b", warnings={"c"}, hints={"d", "e"}), twin)
    assert (one.new, one.new_alarms, one.new_hints) == ({"c"}, {"b"}, {"e"})
    assert not Asked("fault", "tool", twin, twin).new


def test_tool_that_raises_has_told_an_alarm_and_why():
    def broken(subject, known):
        raise ValueError("no\nmore")

    found = asked(broken, HOSTS["mlp"](0), Known())
    assert (found.alarms, found.raised) == ({"raised"}, "ValueError: no")


def test_planted_network_is_found_beside_its_quiet_host_and_counted(capsys):
    (one,) = run("planted", ["detached"], {"ours": quick})
    assert isinstance(PARTS["planted"].networks["detached"](0).build(), Detached)
    assert "wiring.gradients" in one.new_alarms
    assert one.twin is not None
    assert not one.twin.told
    assert table("planted", [one])["ours_missed"] == 0
    printed = capsys.readouterr().out
    assert "| ours | 1 of 1 | 1 | 0 of 0 |" in printed


def test_missed_and_alarmed_networks_are_named(capsys):
    missed = [Asked(name, "ours", said(), said()) for name in ("detached", "no_causal_mask")]
    assert table("planted", missed)["ours_missed"] == 2
    assert "missed by ours: detached; of the others: no_causal_mask" in capsys.readouterr().out
    assert table("healthy", [Asked("mlp", "ours", said("x"))])["ours_alarms"] == 1
    assert "alarmed by ours: mlp (x)" in capsys.readouterr().out


def test_watching_tools_are_shown_the_first_updates_as_the_training_makes_them():
    subject = PARTS["planted"].networks["zero_rate_early"](0)
    state = subject.state()
    found = []
    for loss in losses(subject, state, state.model):
        loss.backward()
        found.append(state.optimizers[0].param_groups[0]["lr"])
    assert found == [subject.recipe.learning_rate(step) for step in range(20)]


def test_batch_is_augmented_and_has_the_rows_that_a_tool_needs():
    subject = PARTS["planted"].networks["one_image_for_all"](0)
    image = batch(subject, 0)[0]["image"]
    assert torch.equal(image, image[:1].expand_as(image))
    assert len(batch(PARTS["healthy"].networks["batch_of_one"](0), 0)[1]) == 1
    assert len(batch(PARTS["healthy"].networks["batch_of_one"](0), 0, fewest=2)[1]) == 16


def test_short_run_goes_on_alone_where_nothing_can_be_fetched(monkeypatch, tmp_path, capsys):
    def fails(folder):
        raise peers.subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(peers, "fetched", fails)
    assert peers._tools(None, tmp_path, short=True) == peers.OURS
    assert "cannot be fetched" in capsys.readouterr().out
    with pytest.raises(peers.subprocess.CalledProcessError):
        peers._tools(None, tmp_path, short=False)
