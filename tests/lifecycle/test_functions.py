"""The functions of model.py on rows made from the contract: the toy is well, and each planted fault is found."""

from pathlib import Path

import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.engine.preflight.function_trials import FIXES, Trials
from trainworthy.lifecycle.engine.preflight.functions import _whole_numbers, try_functions
from trainworthy.lifecycle.protocol.jobs import FunctionsJob, Rows
from trainworthy.lifecycle.protocol.results import FunctionsResult, TriedFunction

FUNCTIONS = tuple(FIXES)
FIT = 'return {name: [float(training[name].mean()), float(training[name].std())] for name in ("x1", "x2")}'
SHOP = '"shop": torch.tensor(shops.to_numpy(), dtype=torch.int64),'
LOSS = 'return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")'
FORWARD = 'return self.layers(torch.cat([inputs["numbers"], self.shop(inputs["shop"])], dim=1)).squeeze(1)'


def job(use_case: Path, out: Path) -> FunctionsJob:
    rows = Rows(features=("shop", "x1", "x2"), label="positive", group="day")
    return FunctionsJob(
        use_case_folder=str(use_case), out=str(out), device="cpu", rows=rows, hyperparameters={"width": 8},
        training=toy_jobs.SPEC.training, steps=250,
    )  # fmt: skip


def tried(tmp_path: Path, *replacements: tuple[str, str]) -> dict[str, TriedFunction]:
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    return {one.name: one for one in try_functions(job(use_case, tmp_path / "out")).functions}


def test_functions_of_the_toy_are_well(tmp_path):
    found = tried(tmp_path)
    assert tuple(found) == FUNCTIONS
    assert all(one.evidence and not one.faults and not one.untried for one in found.values()), found


def test_functions_of_a_loss_in_a_large_unit_are_well(tmp_path):
    found = tried(tmp_path, (LOSS, f"{LOSS} * 1e-10"))
    assert found["loss_fn"].faults == ()


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("fit_preprocessing", FIT, FIT.replace("float(training[name].std())", 'training["x1"].to_numpy()'), "no JSON"),
        ("fit_preprocessing", FIT, FIT.replace("float(training[name].std())", 'float("nan")'), "no JSON"),
        ("fit_preprocessing", FIT, "return [1.0]", "gives list, not a dict"),
        ("fit_preprocessing", FIT, 'return {"x1": [0.0, 1.0], "x2": [0.0, 1.0], 3: 1}', "way through JSON"),
        (
            "fit_preprocessing",
            FIT,
            'return training["x9"]',
            "reads 'x9': no column of the role feature in contract.yaml",
        ),
        ("fit_preprocessing", FIT, 'return training[["x1", "x9"]]', "reads 'x9': no column"),
        ("fit_preprocessing", FIT, 'return training[["x8", "x9"]]', "reads 'x8', 'x9': no column"),
        ("fit_preprocessing", FIT, 'return hyperparameters["x9"]', "no hyperparameter 'x9'"),
        ("to_tensors", SHOP, SHOP.replace("shops.to_numpy()", "shops.to_numpy()[1:]"), "64 rows became"),
        ("to_tensors", "- m) / s", '- rows["x1"].mean()) / s', "changes with the other rows"),
        ("to_tensors", "- m) / s", "- m) / (s * 0)", "numbers is not finite"),
        ("to_tensors", SHOP, SHOP + "'none': None,", "does not give a dict of tensors"),
        ("to_tensors", ".fillna(0)", ".map(lambda shop: [1, 2].index(shop))", "is not in list"),
        ("build_model", "return Network", "return str and None or Network and 3, Network", "gives tuple"),
        ("build_model", "return Network", "return nn.Identity() or Network", "no parameter can be trained"),
        ("forward", FORWARD, FORWARD.replace("squeeze(1)", "squeeze()"), "one row alone gives ()"),
        ("forward", FORWARD, FORWARD.replace("squeeze(1)", "squeeze(1).mean()"), "64 rows became ()"),
        ("forward", FORWARD, FORWARD.replace("squeeze(1)", "squeeze(1).softmax(0)"), "changes with the other rows"),
        ("forward", FORWARD, FORWARD.replace("squeeze(1)", "squeeze(1) / 0"), "not finite"),
        ("loss_fn", LOSS, LOSS.replace('"none"', '"mean"'), "64 rows became ()"),
        ("loss_fn", LOSS, LOSS.replace("outputs,", "outputs.detach(),"), "no gradient"),
        ("loss_fn", LOSS, "return outputs**2", "same for swapped targets"),
        ("loss_fn", LOSS, "return 1e-10 * outputs**2", "same for swapped targets"),
        ("loss_fn", LOSS, LOSS + ".log() * float('inf')", "not finite"),
        ("loss_fn", LOSS, LOSS.replace("return ", "return -"), "as the declared loss falls"),
        ("loss_fn", "return torch.sigmoid(outputs)", "return torch.sigmoid(-outputs)", "predict turns the outputs"),
        ("predict", "return torch.sigmoid(outputs)", "return outputs * 100", "outside [0, 1]"),
        (
            "predict",
            "return torch.sigmoid(outputs)",
            "return torch.sigmoid(outputs)[:, None]",
            "64 rows became (64, 1)",
        ),
    ],
)
def test_functions_planted_fault_is_found_with_its_line_and_a_fix(tmp_path, name, old, new, problem):
    found = tried(tmp_path, (old, new))
    (fault, *_) = found[name].faults
    assert problem in " ".join(one.problem for one in found[name].faults), found[name]
    assert fault.where.startswith("model.py:")
    assert fault.fix
    earlier = FUNCTIONS[: FUNCTIONS.index(name)]
    assert not any(found[one].faults or found[one].untried for one in earlier)


def test_functions_loss_that_is_not_finite_is_not_told_as_one_that_reads_no_labels(tmp_path):
    found = tried(tmp_path, (LOSS, LOSS + ".log() * float('inf')"))["loss_fn"].faults
    assert [fault.problem for fault in found if "swapped" in fault.problem] == []


def test_functions_misspelled_column_is_told_with_the_nearest_input(tmp_path):
    (fault,) = tried(tmp_path, (FIT, 'return training["shp"]'))["fit_preprocessing"].faults
    assert fault.problem == "reads 'shp': no column of the role feature in contract.yaml"
    assert fault.fix == "did you mean 'shop'?"


def test_functions_rows_that_are_written_into_are_told_with_how_to_copy(tmp_path):
    (fault,) = tried(tmp_path, (FIT, f"training['x1'].to_numpy()[0] = 0.0\n    {FIT}"))["fit_preprocessing"].faults
    assert fault.problem == "changes the rows that it is given"
    assert "rows.to_numpy(copy=True)" in fault.fix


def test_functions_error_of_ones_own_names_the_line_before_what_the_function_has_to_do(tmp_path):
    (fault,) = tried(tmp_path, (FIT, "return {}['a']"))["fit_preprocessing"].faults
    assert fault.fix.startswith("correct that line; take the training rows")


def test_functions_faults_in_several_are_told_at_once(tmp_path):
    found = tried(
        tmp_path,
        ("float(training[name].std())", 'training[name].std().astype("float32")'),
        (LOSS, LOSS.replace('"none"', '"mean"')),
        ("return torch.sigmoid(outputs)", "return outputs * 100"),
    )
    assert [name for name, one in found.items() if one.faults] == ["fit_preprocessing", "loss_fn", "predict"]


def test_functions_after_one_that_raises_are_named_untried(tmp_path):
    found = tried(tmp_path, ("return Network", "raise RuntimeError('no network')\n    return Network"))
    (fault,) = found["build_model"].faults
    lines = (tmp_path / "toy" / "model.py").read_text().splitlines()
    assert (
        fault.where
        == f"model.py:{lines.index('    raise RuntimeError(' + repr('no network') + ')') + 1} in build_model"
    )
    assert all(found[name].untried for name in ("forward", "loss_fn", "predict"))


@pytest.mark.parametrize("raised", [IndexError("index 5 is out of bounds"), IndexError("index out of range in self")])
def test_functions_index_beyond_a_table_names_the_whole_numbers_of_made_rows(tmp_path, raised):
    def forward():
        raise raised

    rows = pd.DataFrame({"period": pd.array([0, 5, None], "Int64"), "shop": ["a", "b", "c"], "x": 0.5})
    made = {"none": pd.array([None] * 3, "Int64")}
    trials = Trials(tmp_path, ("period",), whole_numbers=_whole_numbers(rows.assign(**made)))
    trials.of("forward", forward)
    (fault,) = trials.tried[0].faults
    assert str(raised) in fault.problem
    assert fault.fix.startswith(
        "rows are made here by contract.yaml, whole numbers from end to end of what it allows (period 0 to 5): if one "
        "is the index, narrow the range there to what there is; else correct that line"
    )
    assert fault.fix.endswith(FIXES["forward"])
    trials.of(
        "predict",
        lambda: (_ for _ in ()).throw(IndexError("Dimension out of range (expected to be in range of [-1, 0])")),
    )
    assert "whole numbers" not in trials.tried[1].faults[0].fix


@pytest.mark.parametrize("line", ["raise RuntimeError('at import')", "import not_installed", "raise SystemExit(3)"])
def test_functions_of_a_model_that_cannot_be_imported_name_its_line(tmp_path, line):
    found = tried(tmp_path, ("SHOPS = [", f"{line}\nSHOPS = ["))
    (fault,) = found["model.py"].faults
    assert fault.where.startswith("model.py:")
    assert all(found[name].untried for name in FUNCTIONS)


def test_functions_run_in_the_worker(tmp_path):
    asked = job(toy_jobs.TOY, tmp_path)
    assert toy_jobs.run_worker(asked) == (0, {})
    assert isinstance(read_result(tmp_path, asked), FunctionsResult)


PLACE = "def predict(outputs):"
OPTIMIZERS = """
def build_optimizers(model, optimizer):
    body = torch.optim.AdamW(model.layers.parameters(), lr=optimizer["learning_rate"])
    return [body, torch.optim.SGD(model.shop.parameters(), lr=optimizer["learning_rate"] / 10)]
"""
RATE = """
def learning_rate(step, steps, training):
    return training["optimizer"]["learning_rate"] * min(step / 10, 1 - step / steps)
"""
AUGMENT = """
def augment(inputs, targets, generator):
    inputs["numbers"] += 0.1 * torch.randn(inputs["numbers"].shape, generator=generator)
    return inputs, 0.9 * targets
"""


def optional(tmp_path: Path, function: str) -> TriedFunction:
    """The trial of a toy with this function before predict."""
    found = tried(tmp_path, (PLACE, f"{function}\n\n{PLACE}"))
    return found[function.partition("def ")[2].partition("(")[0]]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (OPTIMIZERS, "AdamW, SGD; 5 of 5 trainable tensors"),
        (RATE, "over 250 steps"),
        (AUGMENT, "draws from its generator alone"),
        # A mixed batch, and one that does nothing.
        (AUGMENT.replace("0.9 * targets", "0.5 * (targets + targets.flip(0))"), "generator alone"),
        ("def augment(inputs, targets, generator):\n    return inputs, targets", "generator alone"),
    ],
)
def test_optional_function_that_is_well_says_what_it_gives(tmp_path, function, told):
    found = optional(tmp_path, function)
    assert told in found.evidence
    assert not found.faults
    assert not found.untried


def planted(function: str, old: str, new: str) -> str:
    assert old in function
    return function.replace(old, new)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (planted(OPTIMIZERS, "return [body, ", "return ["), "in no optimizer: layers.0.weight"),
        (planted(OPTIMIZERS, "model.layers.", "model."), "in more than one optimizer: shop.weight"),
        (planted(OPTIMIZERS, "return [body, ", "return body\n    return ["), "gives AdamW, not a list"),
        (planted(OPTIMIZERS, "return [body, ", "return []\n    return ["), "gives no optimizer"),
        (planted(OPTIMIZERS, "return [body, ", "return [body, 'sgd', "), "gives str, no torch optimizer"),
        (planted(OPTIMIZERS, 'lr=optimizer["learning_rate"])', "lr=float('inf'))"), "rates of groups are"),
        (planted(OPTIMIZERS, '["learning_rate"]', '["rate"]'), "KeyError: 'rate'"),
        (planted(RATE, "1 - step / steps", "1 - step / 100"), "has the rate -"),
        (planted(RATE, "1 - step / steps", "1 / (step - 200 or 1) ** 0.5"), "complex"),
        (planted(RATE, "step / 10", "0"), "the rate is 0 in every step"),
        (planted(RATE, "return ", "return float('nan') + "), "has the rate nan"),
        (planted(RATE, "return ", "return None and "), "TypeError"),
        (planted(AUGMENT, ", generator=generator", ""), "equal generators give different batches"),
        (planted(AUGMENT, "0.1 *", "__import__('random').random() *"), "equal generators give different batches"),
        (planted(AUGMENT, "return inputs, ", "return {'number': inputs['numbers']}, "), "inputs numbers, shop became"),
        (planted(AUGMENT, "return inputs, ", "return "), "does not give (inputs, targets)"),
        (planted(AUGMENT, "0.9 * targets", "targets[:-1]"), "targets (64,) became (63,)"),
        (planted(AUGMENT, "0.9 * targets", "targets / 0"), "targets is not finite"),
        (planted(AUGMENT, "return inputs", "inputs['numbers'] = inputs['numbers'][:, :1]\n    return inputs"),
         "the network cannot take its batch"),
        (planted(AUGMENT, "return inputs", "inputs['numbers'] = inputs['numbers'].double()\n    return inputs"),
         "the network cannot take its batch"),
    ],
)  # fmt: skip
def test_optional_function_planted_fault_is_found_with_its_line_and_a_fix(tmp_path, function, problem):
    found = optional(tmp_path, function)
    assert problem in " ".join(fault.problem for fault in found.faults), found
    assert all(fault.where.startswith("model.py:") and fault.fix for fault in found.faults)


def test_optional_function_is_untried_where_the_training_section_cannot_be_read(tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (PLACE, f"{RATE}{OPTIMIZERS}{AUGMENT}\n\n{PLACE}"))
    unread = job(use_case, tmp_path / "out").model_copy(update={"training": None})
    found = {one.name: one for one in try_functions(unread).functions}
    assert "use_case.yaml" in found["learning_rate"].untried
    assert "use_case.yaml" in found["build_optimizers"].untried
    assert found["augment"].evidence


def test_loss_without_labels_is_well_where_that_is_declared(tmp_path):
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (LOSS, "return outputs.square()"))
    asked = job(use_case, tmp_path / "out")
    claims = asked.claims.model_copy(update={"labels": "unused"})
    for given, faults in ((asked, 1), (asked.model_copy(update={"claims": claims}), 0)):
        found = {one.name: one for one in try_functions(given).functions}
        assert len(found["loss_fn"].faults) == faults, found["loss_fn"].faults


@pytest.mark.parametrize("loss", [LOSS, 'return nn.functional.mse_loss(outputs, targets, reduction="none")'])
def test_functions_outputs_with_a_last_side_of_1_are_told_at_forward_and_what_follows_behind(tmp_path, loss):
    """One loss raises on them, the other makes a square of them."""
    found = tried(tmp_path, (LOSS, loss), (FORWARD, FORWARD.removesuffix(".squeeze(1)")))
    (fault,) = found["forward"].faults
    assert fault.problem == "outputs have the shape (64, 1), and loss_fn and predict take (64,): one number a row"
    assert "outputs.squeeze(1)" in fault.fix
    for name in ("loss_fn", "predict"):
        assert [one.fix for one in found[name].faults] == [
            "follows from forward, which gives (64, 1): correct that first"
        ]


def test_functions_outputs_with_a_last_side_of_1_are_well_where_they_are_taken(tmp_path):
    flat = "return torch.sigmoid(outputs.squeeze(1))"
    wide = (FORWARD, FORWARD.removesuffix(".squeeze(1)"))
    found = tried(
        tmp_path, wide, (LOSS, LOSS.replace("outputs,", "outputs.squeeze(1),")), ("return torch.sigmoid(outputs)", flat)
    )
    assert [one.name for one in found.values() if one.faults] == []
    # A loss that takes them alone is at fault by itself.
    found = tried(tmp_path / "other", wide, ("return torch.sigmoid(outputs)", flat))
    assert [one.name for one in found.values() if one.faults] == ["loss_fn"]
    assert "correct that line" in found["loss_fn"].faults[0].fix
