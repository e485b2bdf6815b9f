"""The functions of a model.py that reads files are tried on files made from the contract."""

import copy
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from test_file_rows import CONTRACT
from test_golden_files import MODEL

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.sample import sample_rows
from trainworthy.lifecycle.contract.sample_files import with_sample_files
from trainworthy.lifecycle.data.file_rows import look_at
from trainworthy.lifecycle.engine.preflight.functions import try_functions
from trainworthy.lifecycle.protocol.jobs import FunctionsJob, Rows
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def contract_of(folder, **properties):
    """CONTRACT with a feature of this kind of file and size in place of its picture."""
    values = copy.deepcopy(CONTRACT)
    custom = [one for one in values["schema"][0]["properties"][1]["customProperties"] if one["property"] in ("role",)]
    custom += [{"property": key, "value": value} for key, value in properties.items()]
    values["schema"][0]["properties"][1]["customProperties"] = custom
    folder.mkdir(exist_ok=True)
    (folder / "contract.yaml").write_text(yaml.safe_dump(values))
    return load_contract(folder / "contract.yaml")


def functions(folder, model=MODEL, **claims):
    (folder / "model.py").write_text(model)
    job = FunctionsJob(
        use_case_folder=str(folder), out=str(folder), device="cpu", hyperparameters={},
        rows=Rows(features=("picture",), label="bright", group="day"), claims=PreflightSpec(**claims),
    )  # fmt: skip
    return {one.name: one for one in try_functions(job).functions}


def test_functions_that_read_pictures_are_well_and_a_fault_is_told(tmp_path):
    contract_of(tmp_path, file="picture", size=[8, 8])
    assert all(one.evidence and not one.faults for one in functions(tmp_path).values())
    found = functions(tmp_path, MODEL.replace('.convert("RGB")', '.convert("L").resize((4, 4))'))
    assert "to_tensors" in found
    assert found["to_tensors"].faults


def test_functions_that_reshape_what_they_had_to_permute_are_told(tmp_path):
    contract_of(tmp_path, file="picture", size=[8, 8])
    model = MODEL.replace(".permute(0, 3, 1, 2)", ".reshape(-1, 3, 8, 8)")
    (fault,) = functions(tmp_path, model)["to_tensors"].faults
    assert fault.problem == "x of shape (3, 8, 8) holds picture of shape (8, 8, 3) with its axes mixed by a reshape"
    assert fault.fix.startswith("exchange axes by transpose or permute")
    meant = {"inputs.channels_first": "the files are stored so"}
    assert functions(tmp_path, model, not_applicable=meant)["to_tensors"].faults == ()


def test_functions_of_arrays_without_a_size_are_not_tried_and_say_why(tmp_path):
    contract_of(tmp_path, file="array")
    assert "no size of picture" in functions(tmp_path)["to_tensors"].untried


@pytest.mark.parametrize(
    ("kind", "size"), [("picture", None), ("picture", [8, 6]), ("mask", [5, 4]), ("array", [2, 3]), ("text", None)]
)
def test_made_files_are_sound_files_of_their_kind(tmp_path, kind, size):
    contract = contract_of(tmp_path, file=kind, **({"size": size} if size else {}))
    folder = tmp_path / "files"
    folder.mkdir()
    rows = with_sample_files(sample_rows(contract, ("picture", "label")), contract, folder)
    assert all(Path(path).is_file() for path in rows["picture"])
    seen = [look_at(tmp_path.resolve(), contract.column("picture"), f"files/{path.name}") for path in rows["picture"]]
    assert {one.wrong for one in seen} == {""}
    assert len({one.sha256 for one in seen}) > 4
    if kind == "picture":
        assert np.asarray(Image.open(rows["picture"][0])).shape == (*(size or (32, 32)), 3)
