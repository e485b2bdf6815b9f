import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.special import softmax
from sklearn.metrics import log_loss

from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.contract.read import contract_problems, load_contract
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.errors import DatasetError, EvaluationError
from trainworthy.lifecycle.spec.task import Target, TaskSpec
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.declared import kind_problems
from trainworthy.lifecycle.tasks.language_model import PLACES, LanguageModel
from trainworthy.lifecycle.tasks.metric import estimate, value
from trainworthy.lifecycle.tasks.ngram import ORDER, ByteNgram
from trainworthy.lifecycle.tasks.statistic_columns import as_columns, from_columns
from trainworthy.lifecycle.tasks.texts import BYTES, NOTHING, bytes_of

LENGTH = 80
KIND = kind_of(Target(kind="language_model", length=LENGTH))
# Of a contract alone: how many bytes are predicted is not known.
OF_DATA = kind_of(Target(kind="language_model"))
ROWS = np.zeros(0)
WORDS = ["the", "cat", "sat", "on", "a", "mat", "another", "über", "wall;", "it", "was", "late", "12", "34"]


def texts(rows: int = 40, seed: int = 0) -> np.ndarray:
    """Short and long ones; some are longer than what is predicted."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 30, size=rows)
    return np.array([" ".join(random.choice(WORDS, size=size)) for size in lengths], dtype=object)


def drawn(rows: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """All bytes of documents, and probabilities as predict gives them that know something of these."""
    truth = KIND.truth(texts(rows, seed))
    outputs = np.random.default_rng(seed).normal(size=(*truth.shape, BYTES)) + 5 * (
        truth[..., None] == np.arange(BYTES)
    )
    return truth, softmax(outputs, axis=2)


def known(truth: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all documents, one after another, with their probabilities."""
    return truth[truth >= 0], raw[truth >= 0]


def binned(truth: np.ndarray, raw: np.ndarray) -> float:
    held, answers = known(truth, raw)
    sure, right = answers.max(axis=1), answers.argmax(axis=1) == held
    bins = np.minimum((sure * 10).astype(int), 9)
    return sum(abs(sure[bins == one].sum() - right[bins == one].sum()) for one in range(10)) / len(held)


def nats(truth: np.ndarray, raw: np.ndarray) -> float:
    held, answers = known(truth, raw)
    return log_loss(held, answers, labels=range(BYTES))


ORACLES = {
    "log_loss": nats,
    "bits_per_byte": lambda truth, raw: nats(truth, raw) / math.log(2),
    "perplexity": lambda truth, raw: math.exp(nats(truth, raw)),
    "accuracy": lambda truth, raw: (known(truth, raw)[1].argmax(axis=1) == known(truth, raw)[0]).mean(),
    "calibration_error": binned,
}


@pytest.mark.parametrize("name", ORACLES)
def test_metric_of_texts_is_the_known_one_over_all_bytes(name):
    truth, raw = drawn()
    statistics = KIND.statistics(truth, KIND.of_predict(raw, whole=True))
    assert value(KIND.metrics[name], ROWS, statistics) == pytest.approx(ORACLES[name](truth, raw), abs=1e-9)
    again = np.repeat(np.arange(len(truth)), np.arange(len(truth)) % 3)
    weights = np.bincount(again, minlength=len(truth)).astype(float)
    weighed = value(KIND.metrics[name], ROWS, statistics, weights)
    assert weighed == pytest.approx(ORACLES[name](truth[again], raw[again]), abs=1e-9)


def test_interval_goes_by_group_and_statistics_come_back_from_a_table():
    truth, raw = drawn(rows=24)
    statistics, groups = KIND.statistics(truth, raw), np.arange(24) // 3
    table = pd.DataFrame(as_columns(KIND, "candidate", statistics))
    labels, again = KIND.checked_statistics(texts(24), from_columns(KIND, "candidate", table))
    assert np.array_equal(again, statistics)
    found = estimate(KIND.metrics["bits_per_byte"], labels, again, groups)
    assert 0 < found.low < found.value < found.high
    bins = KIND.reliability(labels, again)
    assert sum(one.rows for one in bins) == (truth >= 0).sum()


def test_texts_all_their_bytes_and_labels_are_judged_at_the_same_places():
    some = texts()
    truth, labels = KIND.truth(some), KIND.checked_labels(some)
    assert labels.shape == (40, PLACES)
    assert np.array_equal(KIND.checked_labels(truth), labels)
    assert np.array_equal(KIND.checked_labels(labels), labels)
    assert np.array_equal(KIND.checked_labels(KIND.targets(truth)), labels)
    places = np.arange(PLACES) * LENGTH // PLACES
    assert np.array_equal(labels, truth[:, places])
    raw = drawn(40)[1]
    assert np.array_equal(KIND.of_predict(raw), raw[:, places])
    assert bytes(truth[0][truth[0] >= 0].astype(np.uint8)) == some[0].encode()[:LENGTH]


def test_loss_of_a_row_is_the_mean_over_its_judged_bytes():
    truth, raw = drawn()
    labels, answers = KIND.checked(truth, KIND.of_predict(raw))
    wanted = [
        np.mean([-math.log(answer[byte]) for byte, answer in zip(row, of_row, strict=True) if byte >= 0])
        for row, of_row in zip(labels, answers, strict=True)
    ]
    assert KIND.row_loss(labels, answers) == pytest.approx(wanted, abs=1e-12)
    prior = KIND.prior(labels)
    counts = Counter(labels[labels >= 0].tolist())
    assert prior[3, ord("t")] == pytest.approx((counts[ord("t")] + 1) / (sum(counts.values()) + BYTES))
    assert np.isfinite(KIND.row_loss(labels, np.broadcast_to(prior, answers.shape))).all()


def test_ngram_is_witten_bells_and_sums_to_one():
    some = texts(60)
    training, asked = pd.DataFrame({"text": some[:50]}), pd.DataFrame({"text": some[50:]})
    predict = KIND.fit_baseline("linear", training, ["text"], KIND.checked_labels(some[:50]), 0)
    assert isinstance(predict, ByteNgram)
    found = predict.whole(asked)
    assert found.sum(axis=2) == pytest.approx(np.ones(found.shape[:2]), abs=1e-12)
    assert np.array_equal(predict(asked), KIND.of_predict(found))
    followed = [defaultdict(Counter) for _ in range(ORDER + 1)]
    for text in some[:50]:
        data = text.encode()[:LENGTH]
        for at, byte in enumerate(data):
            padded = (None,) * ORDER + tuple(data[:at])
            for order, of_order in enumerate(followed):
                of_order[padded[len(padded) - order :]][byte] += 1
    for row, text in enumerate(some[50:53]):
        data = text.encode()[:LENGTH]
        for at in range(len(data)):
            padded, shares = (None,) * ORDER + tuple(data[:at]), np.full(BYTES, 1 / BYTES)
            for order, of_order in enumerate(followed):
                counts = of_order.get(padded[len(padded) - order :], {})
                cases, different = sum(counts.values()), len(counts)
                if cases:
                    own = np.zeros(BYTES)
                    own[list(counts)] = list(counts.values())
                    shares = (own + different * shares) / (cases + different)
            assert found[row, at] == pytest.approx(shares, abs=1e-12)


def test_ngram_is_better_than_shares_and_calibration_mends_a_slope():
    some = texts(300)
    training = pd.DataFrame({"text": some[:200]})
    labels = KIND.checked_labels(some)
    answers = KIND.fit_baseline("linear", training, ["text"], labels[:200], 0)(pd.DataFrame({"text": some[200:]}))
    # So that no probability is one that the logarithms' lower end changes.
    answers = 0.99 * answers + 0.01 / BYTES
    prior = np.broadcast_to(KIND.prior(labels[:200]), answers.shape)
    best = KIND.row_loss(labels[200:], answers).mean()
    assert best < 0.5 * KIND.row_loss(labels[200:], prior).mean()
    own = KIND.fit_calibration(labels[200:], answers)
    mended = KIND.calibrated(answers, own)
    flat = answers**0.4 / (answers**0.4).sum(axis=2, keepdims=True)
    state = KIND.fit_calibration(labels[200:], flat)
    assert state["slope"] == pytest.approx(own["slope"] / 0.4, rel=0.01)
    assert KIND.row_loss(labels[200:], KIND.calibrated(flat, state)).mean() == pytest.approx(
        KIND.row_loss(labels[200:], mended).mean(), abs=1e-3
    )
    assert KIND.stretched(labels[200:], flat) is not None
    assert np.allclose(KIND.calibrated(flat, KIND.uncalibrated), flat)


def test_labels_are_told_by_their_bytes_and_lengths():
    some = np.array(["aaaa bb", "aé", "some longer text of words"] * 4, dtype=object)
    assert (
        OF_DATA.in_words(some) == f"median 7 bytes, {len(set(b''.join(one.encode() for one in some)))} different ones"
    )
    assert OF_DATA.one_valued(np.array(["aaa", "a"], dtype=object)) == "one byte only (b'a')"
    assert OF_DATA.one_valued(some) == ""
    assert len(set(OF_DATA.strata(texts()))) == 4
    assert KIND.shortage(KIND.checked_labels(some), np.arange(12) % 3) == "3 groups, fewer than 8"
    event = KIND.events(KIND.checked_labels(texts()))[0]
    shares = event.of_labels(KIND.checked_labels(texts())).mean()
    assert 0.25 < shares < 0.75
    assert event.of_answers(drawn(40)[1]).shape == (40,)
    assert KIND.target_state(KIND.checked_labels(some)) == {"length": LENGTH, "bytes": 256}
    assert KIND.row_classes == 0
    assert KIND.class_rows(KIND.checked_labels(some))[ord("q")] == 0


def test_changed_texts_keep_the_bytes_before_the_place():
    some = texts()
    found = KIND.later_changed(some, KIND.checked_labels(some), 0.5)
    assert found is not None
    changed, places = found
    before, after = bytes_of(some, LENGTH), bytes_of(changed, LENGTH)
    for row, place in enumerate(places):
        assert np.array_equal(before[row, :place], after[row, :place])
        assert before[row, place] != after[row, place]
    assert KIND.later_changed(some[::-1], KIND.checked_labels(some), 0.5) is None
    assert KIND.later_changed(np.arange(40), KIND.checked_labels(some), 0.5) is None


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (np.array(["a", "  "], dtype=object), "1 of 2 documents are empty"),
        (np.array(["a", None], dtype=object), "1 of 2 documents are empty, or no texts"),
        (np.full((2, LENGTH + 1), 65), "another shape"),
        (np.full((2, LENGTH), 256), "no bytes"),
        (np.full((2, LENGTH), NOTHING), "2 of 2 documents are empty"),
        (np.zeros((0, LENGTH)), "N >= 1"),
    ],
)
def test_labels_that_are_no_texts_are_refused(labels, problem):
    with pytest.raises(EvaluationError, match=problem):
        KIND.checked_labels(labels)


def test_answers_that_are_no_probabilities_are_refused():
    truth, raw = drawn()
    for wrong in (raw[:, :-1], raw.swapaxes(1, 2), raw[..., :-1]):
        with pytest.raises(EvaluationError, match="needs 256 probabilities"):
            KIND.of_predict(wrong)
    with pytest.raises(EvaluationError, match="add up to 1"):
        KIND.checked(truth, KIND.of_predict(raw * 1.1))
    with pytest.raises(EvaluationError, match="add up to 1"):
        KIND.statistics(truth, raw * 1.1)
    with pytest.raises(EvaluationError, match="not finite"):
        KIND.statistics(truth, np.where(raw == raw.max(), np.nan, raw))
    with pytest.raises(EvaluationError, match="no probabilities of bytes"):
        KIND.statistics(truth, raw[:, :-1])
    with pytest.raises(EvaluationError, match="no feature is the text"):
        KIND.fit_baseline("linear", pd.DataFrame({"other": texts(12)[::-1]}), ["other"], KIND.checked_labels(truth), 0)


def test_answers_at_judged_places_are_judged_there_and_stand_for_those_behind_them():
    truth, raw = drawn()
    few = KIND.of_predict(raw)
    assert np.array_equal(KIND.statistics(truth, few), KIND.statistics(KIND.checked_labels(truth), few))
    assert KIND.aligned(truth, few).shape == raw.shape
    assert KIND.aligned(truth, raw) is raw
    assert KIND.served(raw)["next"][0][0] == raw[0, 0].argmax()


def test_length_is_declared_and_empty_texts_are_no_labels():
    with pytest.raises(ValueError, match="write length: 256"):
        TaskSpec(kind="language_model")
    with pytest.raises(ValueError, match="remove it"):
        TaskSpec(kind="binary", length=256)
    label = Label(name="next_bytes", version=1, column="text", type="text")
    rows = with_label(pd.DataFrame({"text": ["one", None, "two"]}), label)
    assert rows["next_bytes"].tolist() == ["one", "two"]
    with pytest.raises(DatasetError, match="empty texts"):
        with_label(pd.DataFrame({"text": ["one", " \n"]}), label)


FOLDER = Path(__file__).parents[2] / "use_cases" / "docstrings"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("role, value: feature", "role, value: target"), "is not the role of the label's column"),
        (("name: next_bytes", "name: text"), "is the name of the label's column"),
        (
            (
                "[{property: role, value: feature}",
                "[{property: sensitive, value: true}, {property: role, value: feature}",
            ),
            "a text that is predicted must not be sensitive",
        ),
        (("column: text", "column: piece"), "can't make a label of type text"),
        (("type: text}", "type: text, classes: [a, b]}"), "classes belong to type"),
    ],
)
def test_contract_of_a_text_says_what_does_not_fit(tmp_path, change, told):
    text = (FOLDER / "contract.yaml").read_text()
    assert change[0] in text
    (tmp_path / "contract.yaml").write_text(text.replace(*change))
    assert told in " ".join(problem.problem for problem in contract_problems(tmp_path / "contract.yaml"))


def test_contract_of_a_text_has_a_rule_against_empty_ones():
    (rule,) = [rule for rule in load_contract(FOLDER / "contract.yaml").rules if rule.id == "label.values"]
    assert (rule.kind, rule.columns) == ("pattern", ("text",))


def test_boosted_trees_and_weights_of_classes_are_refused():
    values = yaml.safe_load((FOLDER / "use_case.yaml").read_text())
    assert UseCaseSpec.model_validate(values).task.length == 128
    trees = values["benchmark"] | {"baselines": ["prior", "linear", "gradient_boosting"]}
    weighed = values["training"] | {"class_weights": "balanced"}
    both = UseCaseSpec.model_validate(values | {"benchmark": trees, "training": weighed})
    weights, boosted = map(str, kind_problems(both))
    assert "a text has a byte at each place" in weights
    assert "language_model has no such baseline (value: 'gradient_boosting')" in boosted


def test_bytes_beyond_the_length_are_told_since_nobody_learns_or_judges_them():
    told = LanguageModel(4).in_words(["abcdefgh", "abcd", "ab"])
    assert told.endswith("1 of 3 are longer than length: 4, and 29% of all bytes are left out")
    assert "longer" not in LanguageModel(8).in_words(["abcdefgh", "abcd", "ab"])
