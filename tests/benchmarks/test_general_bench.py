"""The tables that leave rules out, on runs of a few lines."""

import pytest

from benchmarks.general import mechanisms
from benchmarks.general_runs import cases
from benchmarks.general_tables import (
    Mechanism,
    anew,
    loud,
    lower_bound,
    not_needed,
    rule,
    sides,
    threshold,
    without,
)


def words(name, stage="preflight", says="alarm", cause="", observed=None, limit=None, cpu=0.1):
    return {
        "rule": name, "stage": stage, "says": says, "code": "", "cause": cause, "observed": observed,
        "threshold": limit, "step": None, "cpu": cpu,
    }  # fmt: skip


def run(name, *told, fault="", host="", named=(), causes=(), meant=()):
    return {
        "name": name, "fault": fault, "host": host, "named": named, "causes": causes, "meant": meant, "broke": "",
        "cpu": 10.0, "told": list(told),
    }  # fmt: skip


CUT = run("cut", words("wiring.gradients"), words("no_gradient", "training", cause="detached"), fault="cut",
          named=("wiring.*",), causes=("detached",))  # fmt: skip
SLOW = run("slow", words("wiring.gradients", says="pass"), words("plateau", "training", says="warning", cause="low"),
           fault="slow", named=("plateau",), causes=("low",))  # fmt: skip


def test_every_planted_fault_has_one_mechanism_and_every_pattern_a_fault():
    made, *_ = mechanisms()
    faults = {case.fault for case in cases() if case.fault}
    assert {fault: sum(one.has({"fault": fault}) for one in made) for fault in faults} == dict.fromkeys(faults, 1)
    patterns = [pattern for one in made for pattern in one.faults]
    assert not [
        pattern for pattern in patterns if not any(Mechanism("", (pattern,), ()).has({"fault": one}) for one in faults)
    ]
    assert len({case.name for case in cases()}) == len(cases())


def test_mechanism_without_its_rules_is_found_by_the_others_with_their_cause():
    found = without(Mechanism("graph", ("cut",), ("wiring.gradients",)), [CUT, SLOW], (), ("plateau",))
    assert (found.faults, found.found_with_all, found.found) == (("cut",), ("cut",), ("cut",))
    assert (found.found_by_principles, found.right) == ((), ("cut",))
    lost = without(Mechanism("graph", ("cut",), ("wiring.*", "no_gradient")), [CUT], (), ())
    assert (lost.missed, lost.right_with_all, lost.right) == (["cut"], ("cut",), ())


def test_rule_adds_what_it_alone_finds_and_what_it_finds_in_an_earlier_stage():
    healthy = run(
        "healthy", words("plateau", "training", says="warning"), words("wiring.gradients"), meant=("wiring.*",)
    )
    first = rule("wiring.gradients", [CUT, SLOW], ())
    assert (first.alone, first.earlier, round(first.saved_cpu, 1)) == ((), ("cut",), 9.9)
    assert rule("plateau", [CUT, SLOW, healthy], ()).alone == ("slow",)
    assert rule("plateau", [healthy], ()).false_warnings == ("healthy",)
    assert not rule("no_gradient", [CUT], ()).adds
    beside = rule("wiring.gradients", [CUT], (), ("no_*",))
    assert (beside.beyond, beside.before) == ((), ("cut",))
    assert rule("wiring.gradients", [CUT], (), ("plateau",)).beyond == ("cut",)
    assert rule("no_gradient", [CUT], (), left_out=("wiring.gradients",)).alone == ("cut",)


def test_of_two_rules_that_find_the_same_one_is_not_needed():
    twice = run("twice", words("a", cpu=2.0), words("b", cpu=1.0), fault="twice")
    assert not_needed([twice], (), lambda name: False) == ["a"]
    assert not_needed([twice], (), lambda name: name == "a") == ["b"]


def test_warning_of_many_healthy_runs_finds_nothing():
    healthy = [run(f"{n}", *([words("plateau", says="warning")] if n < 2 else [])) for n in range(20)]
    assert loud(healthy) == {"plateau"}
    assert loud(healthy + healthy[2:] + healthy[2:]) == set()
    assert without(Mechanism("rate", ("slow",), ()), [SLOW], {"plateau"}, ()).missed == ["slow"]


def test_threshold_is_set_by_the_healthy_runs_of_other_hosts():
    healthy = [run(host, words("size", says="pass", observed=size, limit=10.0), host=host)
               for host, size in (("a", 1.0), ("b", 2.0), ("c", 4.0))]  # fmt: skip
    faults = [run("near", words("size", says="pass", observed=5.0, limit=10.0), fault="near", host="x"),
              run("far", words("size", observed=30.0, limit=10.0), fault="far", host="x")]  # fmt: skip
    known = sides([*healthy, *faults])
    found = threshold(known["size", True])
    assert (found.extreme, found.faulty, found.still, found.lost, found.newly) == (0.4, (3.0,), ("far",), (), ("near",))
    assert found.hosts == ("c",)
    assert [anew(one, known)["told"][0]["says"] for one in (*healthy, *faults)] == [
        "pass",
        "pass",
        "alarm",
        "alarm",
        "alarm",
    ]


@pytest.mark.parametrize(("hits", "tries", "bound"), [(0, 0, 0.0), (0, 5, 0.0), (10, 10, 0.787), (85, 100, 0.782)])
def test_lower_bound_is_wilsons(hits, tries, bound):
    assert lower_bound(hits, tries) == pytest.approx(bound, abs=2e-3)
