"""The JSON schema of use_case.yaml: as committed, accepting what loads, refusing a typo, explaining each key."""

import json

import jsonschema
import pytest
import yaml
from toy_project import ROOT

from trainworthy.pipeline.cli import main
from trainworthy.pipeline.schema import COMMITTED, contract_schema, schema_text, use_case_schema

FLIGHTS = ROOT / "use_cases" / "flight_delays"
TOY = ROOT / "tests" / "toy" / "use_cases" / "toy"


def values(folder, name="use_case.yaml"):
    return yaml.safe_load((folder / name).read_text())


def test_schema_committed_is_what_the_code_gives():
    wanted = "trainworthy schema > docs/schema/use_case.schema.json"
    assert COMMITTED.read_text() == schema_text(use_case_schema()), f"run: {wanted}"


def test_schema_command_prints_it_and_the_contract_s(capsys):
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == COMMITTED.read_text()
    assert main(["schema", "contract"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Open Data Contract Standard (ODCS)"


@pytest.mark.parametrize("folder", [FLIGHTS, TOY])
def test_schema_accepts_what_loads(folder):
    jsonschema.Draft202012Validator(use_case_schema()).validate(values(folder))
    jsonschema.Draft201909Validator(contract_schema()).validate(values(folder, "contract.yaml"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ownr": "team:x"}, "ownr"),
        ({"budget": {"run_usd": 0}}, "minimum"),
        ({"owner": "nobody"}, "nobody"),
        ({"split": values(TOY)["split"] | {"embargo": "1 day"}}, "1 day"),
        ({"benchmark": values(TOY)["benchmark"] | {"guardrails": [{"metric": "auc"}]}}, "auc"),
        ({"training": values(TOY)["training"] | {"batchsize": 3}}, "batchsize"),
    ],
)
def test_schema_refuses_what_does_not_load(change, told):
    errors = list(jsonschema.Draft202012Validator(use_case_schema()).iter_errors(values(TOY) | change))
    assert errors
    assert told in str(errors[0])


def test_schema_explains_each_key():
    schema = use_case_schema()
    forms = {"use_case.yaml": schema, **schema["$defs"]}
    unexplained = [
        f"{name}.{key}"
        for name, form in forms.items()
        for key, value in form["properties"].items()
        if "description" not in value
        and "description" not in schema["$defs"].get(value.get("$ref", "").split("/")[-1], {})
    ]
    assert unexplained == []


def test_schema_is_named_in_the_first_line_of_the_use_case():
    first = (FLIGHTS / "use_case.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../../docs/schema/use_case.schema.json"
    assert (FLIGHTS / first.partition("$schema=")[2]).resolve() == COMMITTED
