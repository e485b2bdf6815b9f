from pathlib import Path

import pytest
import toy_jobs
import yaml
from pydantic import ValidationError

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import UseCaseError
from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.lifecycle.spec_problems import spec_problem
from trainworthy.lifecycle.use_case import load_use_case


@pytest.fixture
def folder(tmp_path) -> Path:
    return toy_jobs.changed_use_case(tmp_path / "toy")


def change(folder: Path, **sections) -> None:
    """Replace values of use_case.yaml; nested mappings are merged."""
    path = folder / "use_case.yaml"
    path.write_text(yaml.safe_dump(toy_jobs.merged(yaml.safe_load(path.read_text()), sections)))


def problems(folder: Path) -> list[str]:
    with pytest.raises(UseCaseError) as caught:
        load_use_case(folder)
    for problem in caught.value.problems:
        assert problem.fix
        assert str(problem) in str(caught.value)
    return [str(problem) for problem in caught.value.problems]


def only_problem(folder: Path) -> str:
    found = problems(folder)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("name", ["toy", "flight_delays"])
def test_healthy_use_case_loads(name):
    folder = toy_jobs.TOY if name == "toy" else toy_jobs.ROOT / "use_cases" / name
    assert load_use_case(folder).name == name


def test_loading_runs_no_code_of_the_use_case(folder):
    path = folder / "model.py"
    path.write_text(path.read_text() + "\nraise RuntimeError('ran')\n")
    assert load_use_case(folder).name == "toy"


@pytest.mark.parametrize(
    ("sections", "where", "meant"),
    [
        ({"ownr": "team:x"}, "ownr", "owner"),
        ({"training": {"batchsize": 3}}, "training.batchsize", "batch_size"),
        ({"training": {"optimizer": {"lr": 1, "learning_rte": 1}}}, "training.optimizer.learning_rte", "learning_rate"),
        ({"benchmark": {"guardrails": [{"metrics": "auc", "metric": "auc", "at_least": 0.5}]}}, "metrics", "metric"),
    ],
)
def test_unknown_key_is_told_with_the_nearest_known_one(folder, sections, where, meant):
    change(folder, **sections)
    assert any(where in line and f"did you mean '{meant}'?" in line for line in problems(folder))


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"training": {"batch_size": "many"}}, "training.batch_size"),
        ({"training": {"batch_size": 0}}, "training.batch_size"),
        ({"training": {"optimizer": {"learning_rate": 0}}}, "training.optimizer.learning_rate"),
        ({"training": {"optimizer": {"learning_rate": float("inf")}}}, "training.optimizer.learning_rate"),
        ({"training": {"clip_norm": float("nan")}}, "training.clip_norm"),
        ({"training": {"optimizer": {"name": "adam"}}}, "training.optimizer.name"),
        ({"hyperparameters": {"width": float("nan")}}, "hyperparameters"),
        ({"hyperparameters": [1]}, "hyperparameters"),
        ({"split": {"embargo": "1 day"}}, "split.embargo"),
        ({"split": {"embargo": "0d"}}, "split.embargo"),
        ({"split": {"embargo": "1d\n"}}, "split.embargo"),
        ({"stages": {"smoke": 0.9}}, "stages"),
        ({"stages": {"full": 0.9}}, "stages.full"),
        ({"benchmark": {"baselines": ["prior"]}}, "benchmark"),
        ({"benchmark": {"guardrails": [{"metric": "auc"}]}}, "benchmark.guardrails"),
        ({"budget": {"run_usd": -1}}, "budget.run_usd"),
        ({"owner": "me"}, "owner"),
        ({"name": "Toy"}, "name"),
        ({"training": None}, "training"),
    ],
)
def test_wrong_value_is_told_with_its_place(folder, sections, where):
    change(folder, **sections)
    assert any(f"use_case.yaml: {where}" in line for line in problems(folder))


SHARES = {"validation": 0.2, "calibration": 0.1, "benchmark": 0.2}
GROUP = {"by": "group", "group": "shop", "salt": "v1", "shares": SHARES, "resample_by": "day"}
WINDOWS = {name: value for name, value in toy_jobs.SPEC.split.model_dump(mode="json").items() if name != "by"}


def replaced(folder: Path, key: str, value) -> None:
    path = folder / "use_case.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {key: value}))


@pytest.mark.parametrize(
    ("split", "where", "told"),
    [
        ({"by": "tme", **WINDOWS}, "split.by", "did you mean 'time'?"),
        (WINDOWS, "split.by", "the key is missing"),
        ({"by": ["time"], **WINDOWS}, "split.by", "there is no such kind"),
        ("time", "split", "must hold keys and values"),
        ({**GROUP, "slat": "v1"}, "split.slat", "did you mean 'salt'?"),
        ({**GROUP, "embargo": "1d"}, "split.embargo", "unknown key"),
        ({**GROUP, "shares": {**SHARES, "benchmrk": 0.1}}, "split.shares.benchmrk", "did you mean 'benchmark'?"),
        ({**GROUP, "shares": {**SHARES, "benchmark": 0.7}}, "split.shares", "leave at least 0.01 for training"),
        ({**GROUP, "salt": ""}, "split.salt", "at least 1 character"),
        ({"by": "time_and_group", **WINDOWS}, "split.group", "the key is missing"),
        ({"by": "time", **WINDOWS, "embargo": "36m"}, "split.embargo", "14d or 36h"),
        *(
            ({"by": "time", **WINDOWS, "benchmark": {"window": "30d", **policy}}, f"split.benchmark{where}", told)
            for policy, where, told in [
                ({"roll": "pined"}, ".roll", "there is no such value"),
                ({"roll": "pinned"}, "", "give start with roll: pinned"),
                ({"roll": "each_version", "start": "2013-09-01"}, "", "give start with roll: pinned"),
                ({"roll": {"every": "90d"}}, ".roll.from", "the key is missing"),
                ({"roll": {"evry": "90d", "from": "2013-06-01"}}, ".roll.evry", "did you mean 'every'?"),
                ({"roll": {"every": "90d", "from": "June"}}, ".roll.from", "date"),
            ]
        ),
    ],
)
def test_wrong_split_is_told_at_the_place_that_was_written(folder, split, where, told):
    replaced(folder, "split", split)
    assert any(line.startswith(f"use_case.yaml: {where}:") and told in line for line in problems(folder))


@pytest.mark.parametrize(
    ("weights", "where", "told"),
    [
        ("balancd", "training.class_weights", "there is no such value"),
        ({"positve": 3}, "training.class_weights.positve", "did you mean 'positive'?"),
        ({"positive": 0}, "training.class_weights.positive", "must be more than 0"),
    ],
)
def test_wrong_class_weights_are_told_at_the_place_that_was_written(folder, weights, where, told):
    change(folder, training={"class_weights": weights})
    assert any(line.startswith(f"use_case.yaml: {where}:") and told in line for line in problems(folder))


@pytest.mark.parametrize(
    ("monitors", "where", "told"),
    [
        ({"los_spike": "stop"}, ".los_spike", "did you mean 'loss_spike'?"),
        ({"plateau": "stop"}, ".plateau", "known: exploding_gradients, gradient_spike, hang"),
        ({"non_finite": "skip_bach"}, ".non_finite", "did you mean 'skip_batch'?"),
        ({"non_finite": "ignore"}, ".non_finite", "known: lower_rate, roll_back"),
    ],
)
def test_wrong_action_of_a_monitor_is_told_with_what_was_meant(folder, monitors, where, told):
    change(folder, training={"monitors": monitors})
    line = only_problem(folder)
    assert line.startswith(f"use_case.yaml: training.monitors{where}:")
    assert told in line


@pytest.mark.parametrize(("written", "meant"), [("logloss", "log_loss"), ("roc_auc", "auc")])
def test_misspelt_metric_is_told_with_what_was_meant(folder, written, meant):
    guardrail = {"metric": written, "at_most": 0.5}
    change(folder, benchmark={"guardrails": [guardrail]})
    line = only_problem(folder)
    assert line.startswith("use_case.yaml: benchmark.guardrails.0.metric: no metric of kind binary")
    assert f"did you mean '{meant}'?" in line


@pytest.mark.parametrize(
    ("task", "metric", "told"),
    [
        ({"kind": "regression"}, "auc", "known: bias, mae"),
        ({"kind": "regression", "quantiles": [0.5, 0.9]}, "coverage[0.9]", "no metric that ranks models"),
        ({"kind": "multiclass"}, "recal", "known: accuracy"),
        ({"kind": "multilabel"}, "accuracy", "did you mean 'subset_accuracy'"),
    ],
)
def test_primary_metric_is_one_of_the_kind_that_ranks_models(folder, task, metric, told):
    change(folder, task=task, benchmark={"primary": {"metric": metric, "margin": 0.1}, "guardrails": []})
    line = only_problem(folder)
    assert line.startswith("use_case.yaml: benchmark.primary.metric: no metric that ranks models of kind")
    assert told in line


@pytest.mark.parametrize(
    ("benchmark", "place", "told"),
    [
        ({"guardrails": [{"metric": "log_loss", "at_least": 0.5}]}, "guardrails.0", "better when it is lower"),
        ({"guardrails": [{"metric": "auc", "at_most": 0.5}]}, "guardrails.0", "better when it is higher"),
        (
            {"guardrails": [], "slices": [{"column": "hour", "at_least": 0.5}]},
            "slices.0",
            "keeps no bad model out",
        ),
        (
            {
                "decision": {"costs": {"false_positive": 1, "false_negative": 5}},
                "guardrails": [{"metric": "decision_cost", "at_least": 1}],
            },
            "guardrails.0",
            "better when it is lower",
        ),
    ],
)
def test_bound_that_only_a_better_model_breaks_is_refused(folder, benchmark, place, told):
    change(folder, benchmark=benchmark)
    line = only_problem(folder)
    assert line.startswith(f"use_case.yaml: benchmark.{place}:")
    assert told in line


@pytest.mark.parametrize(("kind", "metric"), [("multiclass", "recall[north]"), ("multilabel", "auc[north]")])
def test_metric_of_one_class_is_left_to_the_contract(folder, kind, metric):
    change(folder, task={"kind": kind}, benchmark={"primary": {"metric": metric, "margin": 0.1}, "guardrails": []})
    assert load_use_case(folder).spec.benchmark.primary.metric == metric


@pytest.mark.parametrize(
    ("task", "training", "told"),
    [
        ({"kind": "regression"}, {"class_weights": "balanced"}, "numbers (kind: regression) have none"),
        ({"kind": "multiclass"}, {"focal_gamma": 2.0}, "belongs to a label of two values"),
        ({"kind": "multiclass"}, {"oversampling": "balanced"}, "training.class_weights: balanced weighs all classes"),
        ({"kind": "multilabel"}, {"class_weights": "balanced"}, "give loss_fn in model.py a pos_weight of each label"),
        ({"kind": "multilabel"}, {"class_weights": {"positive": 3}}, "a row of kind multilabel has several labels"),
        ({"kind": "multilabel"}, {"oversampling": "balanced"}, "a column of role weight weighs rows"),
        ({"kind": "multilabel"}, {"focal_gamma": 2.0}, "what its probabilities stand for is known for two classes"),
        ({"kind": "binary", "quantiles": [0.5]}, {}, "quantiles belong to kind: regression"),
        ({"kind": "regression", "quantiles": [0.9, 0.1]}, {}, "quantiles must rise: write [0.1, 0.9]"),
    ],
)
def test_setting_that_the_kind_does_not_know_is_told(folder, task, training, told):
    metric = "rmse" if task["kind"] == "regression" else "log_loss"
    metric = "pinball" if "quantiles" in task and task["kind"] == "regression" else metric
    change(
        folder, task=task, training=training, benchmark={"primary": {"metric": metric, "margin": 0.1}, "guardrails": []}
    )
    assert told in only_problem(folder)


@pytest.mark.parametrize("key", ["name", "owner", "training", "hyperparameters", "budget"])
def test_missing_key_is_told(folder, key):
    path = folder / "use_case.yaml"
    values = yaml.safe_load(path.read_text())
    del values[key]
    path.write_text(yaml.safe_dump(values))
    assert f"use_case.yaml: {key}: the key is missing" in only_problem(folder)


@pytest.mark.parametrize(
    ("old", "new"), [("batch_size:", "batchsize:"), ("\nowner:", "\nowners:"), ("\nbudget:", "\nbudgets:")]
)
def test_misspelled_key_is_told_once_with_the_name_that_was_meant(folder, old, new):
    path = folder / "use_case.yaml"
    path.write_text(path.read_text().replace(old, new))
    text = only_problem(folder)
    assert "unknown key" in text
    assert f"did you mean '{old.strip().removesuffix(':')}'?" in text
    assert "missing" not in text


def test_key_of_another_name_is_told_beside_the_missing_one(folder):
    path = folder / "use_case.yaml"
    path.write_text(path.read_text().replace("\nowner:", "\nlizard:"))
    with pytest.raises(UseCaseError) as caught:
        load_use_case(folder)
    assert [problem.problem for problem in caught.value.problems] == ["the key is missing", "unknown key"]


@pytest.mark.parametrize("text", ["", "- a\n", "name: [\n", "toy"])
def test_file_that_is_no_mapping_is_told(folder, text):
    (folder / "use_case.yaml").write_text(text)
    assert "use_case.yaml" in only_problem(folder)


def test_key_given_twice_is_told(folder):
    path = folder / "use_case.yaml"
    path.write_text(path.read_text() + "budget: {run_usd: 9}\n")
    assert "'budget'" in only_problem(folder)


@pytest.mark.parametrize("name", ["use_case.yaml", "model.py", "dataset.py", "contract.yaml"])
def test_missing_file_is_told(folder, name):
    (folder / name).unlink()
    assert f"{name}: the file is missing" in only_problem(folder)


def test_dataset_of_another_use_case_needs_no_dataset_py(tmp_path):
    folder = toy_jobs.changed_use_case(tmp_path / "use_cases" / "toy")
    stages = {"toy_rows": {"cmd": "python use_cases/other/dataset.py", "deps": ["use_cases/other/dataset.py"]}}
    (folder.parents[1] / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "dataset.py").unlink()
    assert load_use_case(folder).spec.dataset.name == "toy_rows"
    # A mistake elsewhere in the file says nothing of dataset.py.
    text = (folder / "use_case.yaml").read_text()
    (folder / "use_case.yaml").write_text(f"{text}more: 1\n")
    assert "dataset.py" not in only_problem(folder)
    (folder / "use_case.yaml").write_text(text)
    stages["toy_rows"]["deps"] = [f"{folder.parent.name}/{folder.name}/dataset.py"]
    (folder.parents[1] / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert "dataset.py: the file is missing" in only_problem(folder)


def test_imported_dataset_needs_no_dataset_py(tmp_path):
    folder = toy_jobs.changed_use_case(tmp_path / "use_cases" / "toy")
    (folder / "dataset.py").unlink()
    published = {"rows": 1, "content_hash": "0" * 64, "dvc_hash": "0" * 32 + ".dir"}
    path = tmp_path / "data" / "versions.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"toy_rows": {"v1": published | {"source": "/exports/toy_rows"}}}))
    assert load_use_case(folder).spec.dataset.name == "toy_rows"
    path.write_text(yaml.safe_dump({"toy_rows": {"v1": published | {"parameters": {"days": 9}}}}))
    assert "dataset.py: the file is missing" in only_problem(folder)
    path.write_text("toy_rows: 1\n")
    assert "dataset.py: the file is missing" in only_problem(folder)
    (tmp_path / "data" / "toy_rows.dvc").write_text("deps: [{path: /exports/toy_rows}]\n")
    assert load_use_case(folder).spec.dataset.name == "toy_rows"


def test_missing_function_is_told(folder):
    path = folder / "model.py"
    path.write_text(path.read_text().replace("def loss_fn(", "def los_fn("))
    assert "the function loss_fn is missing" in only_problem(folder)


def test_function_that_is_imported_counts_as_defined(folder):
    path = folder / "model.py"
    text = path.read_text().replace("def predict(", "def other(")
    path.write_text(text + "\nfrom somewhere import probabilities as predict\n")
    assert load_use_case(folder).name == "toy"


def test_broken_python_is_told_with_its_line(folder):
    (folder / "model.py").write_text("import torch\ndef predict(:\n")
    assert "model.py:2: not valid Python" in only_problem(folder)


def test_name_that_differs_from_the_folder_is_told(folder):
    change(folder, name="other")
    assert "differs from the folder's name" in only_problem(folder)


def test_broken_contract_alone_is_told_when_it_is_read(folder):
    path = folder / "contract.yaml"
    path.write_text(path.read_text().replace("logicalType: integer", "logicalType: whole"))
    with pytest.raises(UseCaseError, match="whole"):
        load_contract(path)


def test_everything_that_is_wrong_is_told_at_once(folder):
    change(folder, name="other", ownr="team:x", training={"batch_size": "many"}, budget={"run_usd": 0})
    model, contract = folder / "model.py", folder / "contract.yaml"
    model.write_text(model.read_text().replace("def loss_fn(", "def los_fn(").replace("def predict(", "def predct("))
    contract.write_text(contract.read_text().replace("logicalType: integer", "logicalType: whole"))
    (folder / "dataset.py").unlink()
    told = "\n".join(problems(folder))
    for part in ("folder's name", "ownr", "batch_size", "run_usd", "loss_fn", "predict", "dataset.py", "contract.yaml"):
        assert part in told


def test_keys_that_do_not_go_together_are_told_without_the_whole_file():
    with pytest.raises(ValidationError) as caught:
        toy_jobs.spec_with(compute={"loaders": 2})
    (item,) = caught.value.errors()
    told = spec_problem(item, UseCaseSpec)
    assert told.where == "use_case.yaml"
    assert told.problem.startswith("compute.loaders has no effect")
    assert told.value is None


@pytest.mark.parametrize(
    ("compute", "place", "told"),
    [
        ({"processes": 2}, "use_case.yaml: compute", "processes: 2 needs launcher: torchrun"),
        ({"launcher": "torchrun"}, "use_case.yaml: compute", "launcher: torchrun needs processes: 2 or more"),
        (
            {"launcher": "torchrun", "processes": 2, "gpus": 1}, "use_case.yaml: compute",
            "processes: 2 share gpus: 1",
        ),
        (
            {"launcher": "torchrun", "processes": 4, "nodes": 2, "gpus": 1}, "use_case.yaml: compute",
            "processes: 4 share gpus: 1 on each of nodes: 2",
        ),
        (
            {"launcher": "torchrun", "processes": 3, "nodes": 2}, "use_case.yaml: compute",
            "nodes: 2 do not divide processes: 3",
        ),
        (
            {"nodes": 2}, "use_case.yaml: compute",
            "nodes: 2 needs launcher: torchrun, kubernetes or ray; local trains on this machine",
        ),
        (
            {"launcher": "ray", "processes": 3, "nodes": 2}, "use_case.yaml: compute",
            "nodes: 2 do not divide processes: 3",
        ),
        *(
            (
                {"launcher": launcher, "processes": 2, "nodes": 2, "least_nodes": 1}, "use_case.yaml: compute",
                f"least_nodes: 1 needs launcher: ray, whose table of nodes says how many there are; remove it with "
                f"launcher: {launcher}",
            )
            for launcher in ("torchrun", "kubernetes")
        ),
        ({"least_nodes": 1}, "use_case.yaml: compute", "least_nodes: 1 needs launcher: ray"),
        (
            {"launcher": "ray", "processes": 2, "least_nodes": 1}, "use_case.yaml: compute",
            "least_nodes: 1 are no part of nodes: 1: set nodes to 2 or more, or remove it",
        ),
        (
            {"launcher": "ray", "processes": 4, "nodes": 2, "least_nodes": 3}, "use_case.yaml: compute",
            "least_nodes: 3 are no part of nodes: 2: set least_nodes to 1 to 2, or remove it",
        ),
        (
            {"launcher": "ray", "processes": 2, "nodes": 2, "least_nodes": 1, "sharding": "fsdp"},
            "use_case.yaml: compute", "least_nodes: 1 leaves one process, and sharding: fsdp divides a model over",
        ),
        (
            {"sharding": "fsdp"}, "use_case.yaml: compute",
            "sharding: fsdp divides a model over processes, of which there is one",
        ),
        ({"launcher": "torchrun", "processes": 999}, "use_case.yaml", "an update of 128 rows"),
        ({"launcher": "deepspeed"}, "use_case.yaml: compute.launcher", "deepspeed is not offered: it starts processes"),
        ({"launcher": "slurm"}, "use_case.yaml: compute.launcher", "slurm is not offered: ask Slurm for a machine"),
        ({"launcher": "loacl"}, "use_case.yaml: compute.launcher", "there is no such value"),
    ],
)  # fmt: skip
def test_processes_need_a_launcher_gpus_and_rows(compute, place, told):
    with pytest.raises(ValidationError) as refused:
        toy_jobs.spec_with(compute=compute)
    (item,) = refused.value.errors()
    problem = spec_problem(item, UseCaseSpec)
    assert problem.where == place
    assert problem.problem.startswith(told)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"trainer": "train.py"}, "compute.sharding: fsdp belongs to Trainworthy's own loop"),
        ({"training": {"ema": {"decay": 0.9}}}, "training.ema need the whole model in each process"),
        ({"training": {"compile": True}}, "training.compile need the whole model in each process"),
    ],
)
def test_what_a_divided_model_does_not_go_with_is_told(other, told):
    divided = {"launcher": "torchrun", "processes": 2, "sharding": "fsdp"}
    assert toy_jobs.spec_with(compute=divided).compute.sharding == "fsdp"
    with pytest.raises(ValidationError, match=told):
        toy_jobs.spec_with(compute=divided, **other)


def test_fewer_nodes_have_as_many_processes_on_each_and_train_by_the_loop():
    compute = {"launcher": "ray", "processes": 8, "nodes": 4, "least_nodes": 3, "sharding": "fsdp"}
    spec = toy_jobs.spec_with(compute=compute)
    assert (spec.compute.processes_each, spec.compute.fewest_nodes, spec.compute.fewest_processes) == (2, 3, 6)
    all_of_them = toy_jobs.spec_with(compute={**compute, "least_nodes": None}).compute
    assert (all_of_them.fewest_nodes, all_of_them.fewest_processes) == (4, 8)
    with pytest.raises(ValidationError, match="least_nodes: 3 has no effect beside trainer"):
        toy_jobs.spec_with(compute={**compute, "sharding": "none"}, trainer="train.py")


def test_gpus_are_those_of_each_node():
    asked = {"launcher": "torchrun", "processes": 4, "nodes": 2, "gpus": 2}
    assert toy_jobs.spec_with(compute=asked).compute.nodes == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_pod_may_have_one_process_or_several(processes):
    compute = toy_jobs.spec_with(compute={"launcher": "kubernetes", "processes": processes}).compute
    assert compute.elsewhere
    assert not toy_jobs.SPEC.compute.elsewhere


def test_own_metrics_and_baselines_have_to_be_defined(folder):
    own = {"baselines": ["prior", "linear", "by_hand"], "metrics": {"cost": {"better": "less"}}}
    change(folder, benchmark=own)
    found = problems(folder)
    assert len(found) == 2
    assert any("baselines: by_hand: no baseline of that name" in line for line in found)
    assert any("metrics: cost: metrics.py defines no function of that name" in line for line in found)
    (folder / "metrics.py").write_text("def cost(labels, answers, rows):\n    return answers\n")
    with (folder / "model.py").open("a") as model:
        model.write("\n\ndef baseline_by_hand(training, labels):\n    return lambda rows: rows['x1']\n")
    change(folder, benchmark={**own, "primary": {"metric": "cost", "margin": 0.1}})
    assert load_use_case(folder).spec.benchmark.metrics["cost"].better == "less"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"baselines": ["prior", "linear", "label"]}, "baselines: label: the name stands for something else"),
        ({"baselines": ["prior", "linear", "champion"]}, "baselines: champion: the name stands for something else"),
        ({"metrics": {"brier": {"better": "more"}}}, "metrics: brier: a metric of the kind has this name"),
    ],
)
def test_own_names_that_stand_for_something_else_are_refused(folder, changes, told):
    (folder / "metrics.py").write_text("def brier(labels, answers, rows):\n    return answers\n")
    change(folder, benchmark=changes)
    assert any(told in line for line in problems(folder))


@pytest.mark.parametrize(
    ("task", "decision", "told"),
    [
        ({"kind": "binary"}, {"cost_matrix": {"late": {"early": 5}}}, "fix: give costs"),
        ({"kind": "multiclass"}, {"threshold": 0.3}, "fix: give cost_matrix"),
        ({"kind": "regression"}, {"cost_matrix": {"late": {"early": 5}}}, "fix: remove it"),
    ],
)
def test_decision_that_the_kind_cannot_make_is_told_with_what_it_can(folder, task, decision, told):
    primary = {"metric": "rmse" if task["kind"] == "regression" else "log_loss", "margin": 0.1}
    change(folder, task=task, benchmark={"decision": decision, "primary": primary, "guardrails": []})
    line = only_problem(folder)
    assert line.startswith("use_case.yaml: benchmark.decision: ")
    assert told in line
