"""The tables that leave rules out, on runs of a few lines."""

import signal
import time
from dataclasses import replace

import pandas as pd
import pytest
import torch

from benchmarks import general
from benchmarks.general import mechanisms, parts_by_fault
from benchmarks.general_exchange import NotAskedError, exchanged, job_of_subject
from benchmarks.general_runs import EXCHANGE, PILOT, _at_most, cases
from benchmarks.general_tables import (
    Mechanism,
    anew,
    loud,
    lower_bound,
    not_needed,
    part_named,
    rule,
    sides,
    threshold,
    why_not_asked,
    without,
)
from benchmarks.healthy import HEALTHY
from benchmarks.networks import mlp
from benchmarks.planted import PLANTED
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.training.prepare import prepare_rows
from trainworthy.lifecycle.gates.diagnosis import ORDER
from trainworthy.lifecycle.task import load_task
from trainworthy.lifecycle.tasks import kind_of


def words(name, stage="preflight", says="alarm", cause="", observed=None, limit=None, cpu=0.1):
    return {
        "rule": name, "stage": stage, "says": says, "code": "", "cause": cause, "observed": observed,
        "threshold": limit, "step": None, "cpu": cpu,
    }  # fmt: skip


def run(name, *told, fault="", host="", named=(), causes=(), meant=(), exchange=None, parts=()):
    return {
        "name": name, "fault": fault, "host": host, "named": named, "causes": causes, "meant": meant, "broke": "",
        "cpu": 10.0, "told": list(told), "exchange": exchange, "parts": parts,
    }  # fmt: skip


def tried(part, gain: float | None = 0.1, told=""):
    return {"part": part, "gain": gain, "code": "raised" if told else "", "told": told}


def answer(part, why_not="", broke="", exchanges=None):
    exchanges = (tried("recipe"),) if exchanges is None else exchanges
    return {"why_not": why_not, "broke": broke, "cpu": 1.0, "part": part, "exchanges": exchanges}


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


def test_every_fault_is_held_by_parts_that_are_exchanged_or_by_none():
    made, *_ = mechanisms()
    faults = {case.fault for case in cases() if case.fault}
    elsewhere = parts_by_fault()
    assert {part for some in (*elsewhere.values(), *(one.parts for one in made)) for part in some} <= set(ORDER)
    assert not [one for one in elsewhere if not any(Mechanism("", (one,), ()).has({"fault": name}) for name in faults)]
    parts = lambda fault: general._with_parts(run("", fault=fault), made, elsewhere)["parts"]
    assert (parts("gradient wrong_sign"), parts("gradient optimizer_flips")) == (("network",), ("recipe",))
    assert parts("table nothing to learn") == ()


def test_answer_of_the_exchange_stands_before_what_rules_say_where_one_gave_reason_to_ask():
    def asked(part, *told):
        mine = run("slow", *told, fault="slow", named=("plateau",), exchange=answer(part), parts=("recipe",))
        found = without(Mechanism("rate", ("slow",), ()), [mine], (), ())
        return len(found.asked), len(found.named_right), len(found.right), len(found.right_asking)

    plateau, other = words("plateau", "training"), words("wiring.logits")
    assert asked("recipe", other) == (1, 1, 0, 1)
    assert asked("network", plateau) == (1, 0, 1, 0)
    assert asked(None, plateau) == (1, 0, 1, 1)
    # Nothing is told: nobody asks.
    assert asked("recipe") == (1, 0, 0, 0)
    never = run("slow", other, fault="slow", exchange=answer(None, "no rows"), parts=("recipe",))
    assert part_named(never) is None
    assert without(Mechanism("rate", ("slow",), ()), [never], (), ()).known_or_asked == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(None), ""),
        (answer("recipe", exchanges=(tried("loss", None, "ValueError"), tried("recipe"))), ""),
        (answer(None, "no rows"), "no rows"),
        (answer(None, broke="EvaluationError", exchanges=()), "the training as it is raised EvaluationError"),
        (
            answer(None, exchanges=(tried("loss", None), tried("rows", None, "too few"))),
            "every exchange raised too few",
        ),
        (answer(None, exchanges=(tried("loss", None),)), "no part could be exchanged"),
    ],
)
def test_what_raised_counts_as_not_asked_and_says_why(given, why):
    slow = run("slow", words("wiring.logits"), fault="slow", exchange=given, parts=("recipe",))
    found = without(Mechanism("rate", ("slow",), ()), [slow], (), ())
    assert why_not_asked(given) == why
    assert (found.asked, found.known_or_asked) == (((), []) if why else (("slow",), ["slow"]))


def test_answer_that_is_always_the_same_part_is_counted_as_the_exchange_is():
    told = words("wiring.logits")
    asked = [
        run("a", told, fault="a", exchange=answer(None), parts=("recipe",)),
        run("b", told, fault="b", exchange=answer(None), parts=("rows", "recipe")),
        # Nothing is told: nobody asks.
        run("c", fault="c", exchange=answer(None), parts=("recipe",)),
    ]
    never = run("d", told, fault="d", named=("wiring.logits",))
    found = without(Mechanism("rate", ("?",), ()), [*asked, never], (), ())
    assert found.right_always == {"recipe": ("a", "b", "d"), "rows": ("b", "d")}
    assert found.right == ("d",)


def _busy(seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        pass


def test_case_is_ended_by_processor_time_and_where_it_waits_by_the_clock():
    with pytest.raises(TimeoutError), _at_most(60, 0.05):
        time.sleep(30)
    with pytest.raises(TimeoutError), _at_most(0.05, 60):
        _busy(30)
    assert [signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF)] == [0.0, 0.0]


def test_tables_tell_which_cases_and_pilots_broke(capsys):
    broken = [
        {**run("cut", fault="cut"), "pilot_broke": "ValueError"},
        {**run("well", exchange=answer(None, broke="EvaluationError", exchanges=())), "pilot_broke": "KeyError"},
    ]
    figures = general._tables(broken)
    printed = capsys.readouterr().out
    assert "pilots ended by an error, faults: 1: cut (ValueError)" in printed
    assert "pilots ended by an error, healthy: 1: well (KeyError)" in printed
    assert "not asked, healthy: 1 the training as it is raised EvaluationError" in printed
    assert figures["healthy_asked"] == 0


def test_case_of_tensors_is_the_use_case_that_it_stands_for(tmp_path):
    subject = HEALTHY["several_inputs"](0)
    job = job_of_subject("several_inputs", subject, tmp_path)
    rows, task = pd.read_parquet(job.training_file), load_task(tmp_path)
    tensors = task.to_tensors(rows[list(job.rows.features)], {})
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        name: tensor.dtype for name, tensor in subject.training.inputs.items()
    }
    assert all(torch.equal(tensors[name], tensor) for name, tensor in subject.training.inputs.items())
    assert torch.equal(torch.tensor(rows["label"].to_numpy()).float(), subject.training.targets)
    assert job.training.epochs * subject.plan.steps_per_epoch == subject.plan.last_step
    model = task.build_model({}, {})
    assert torch.equal(model(tensors), subject.build()(subject.training.inputs))
    assert job.rows.target.kind == "binary"


@pytest.mark.parametrize(
    ("host", "kind"), [("unet", "segmentation"), ("gpt", "language_model"), ("multi_label", "multilabel")]
)
def test_masks_texts_and_several_labels_are_use_cases_with_the_subjects_own_loss(host, kind, tmp_path):
    subject = HEALTHY[host](0)
    job = job_of_subject(host, subject, tmp_path)
    prepared = prepare_rows(job, load_task(tmp_path), "", read_rows(job.training_file, job.rows).iloc[:8], "cpu")
    few, outputs = prepared.data.take(torch.arange(8)), subject.build()(subject.training.take(torch.arange(8)).inputs)
    assert job.rows.target.kind == kind
    assert all(torch.equal(few.inputs[name], tensor[:8]) for name, tensor in subject.training.inputs.items())
    own = subject.recipe.loss_fn(outputs, subject.training.targets[:8])
    torch.testing.assert_close(prepared.task.loss_fn(outputs, few.targets), own)
    answers = kind_of(job.rows.target).of_predict(prepared.task.predict(outputs).detach().numpy())
    assert answers.shape[1:] == kind_of(job.rows.target).answer_shape


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: HEALTHY["three_class_masks"](0), "of no kind"),
        (lambda: HEALTHY["autoencoder"](0), "not what is learned"),
        (lambda: PLANTED["same_batch"][0](0), "the loop's"),
        (lambda: replace(mlp(0), predict=None).subject(), "answers of"),
    ],
)
def test_case_that_is_no_use_case_is_not_asked(make, why, tmp_path):
    with pytest.raises(NotAskedError, match=why):
        job_of_subject("", make(), tmp_path)


def test_answers_of_the_exchange_are_kept_and_asked_once(tmp_path, monkeypatch):
    def refuses(folder):
        raise NotAskedError("no rows")

    def breaks(folder):
        raise ValueError("planted")

    assert exchanged(refuses)["why_not"] == "no rows"
    assert exchanged(breaks)["broke"] == "ValueError"
    (case, *_), made = cases(short=True), list[str]()
    monkeypatch.setattr(general, "cases", lambda short: [case])
    monkeypatch.setattr(general, "ran", lambda case: made.append("ran") or run(case.name, fault=case.fault))
    asked = {"name": f"{EXCHANGE}{case.name}", **answer("recipe")}
    monkeypatch.setattr(general, "asked", lambda case: made.append("asked") or asked)
    pilot = {"name": f"{PILOT}{case.name}", "broke": "", "told": [words("stage.references", "pilot", "warning")]}
    monkeypatch.setattr(general, "piloted", lambda case: made.append("piloted") or pilot)
    both = [general._runs(tmp_path / "runs.jsonl", short=False, stored=False) for _ in range(2)]
    assert made == ["ran", "asked", "piloted"]
    assert [part_named(found) for (found,) in both] == ["recipe", "recipe"]
    assert [one["rule"] for one in both[1][0]["told"]] == ["stage.references"]


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
