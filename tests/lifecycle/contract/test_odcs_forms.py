"""Wide contracts are judged by their forms of columns: what the schema must be for that, and that it holds."""

import copy
import json

import pytest
import toy_jobs
import yaml

from trainworthy.lifecycle.contract.odcs import odcs_schema, read_document


def bounds(part, found):
    """What the schema asks of every minimum and maximum that a column may have."""
    if isinstance(part, dict):
        options = part.get("properties", {}).get("logicalTypeOptions", {})
        found += [options["properties"][key] for key in ("minimum", "maximum") if key in options.get("properties", {})]
        for inner in part.values():
            bounds(inner, found)
    elif isinstance(part, list):
        for inner in part:
            bounds(inner, found)
    return found


def test_standard_asks_nothing_of_names_bounds_and_the_list_of_columns_but_their_types():
    definitions = odcs_schema()["$defs"]
    assert set(definitions["SchemaElement"]["properties"]["name"]) <= {"type", "description"}
    assert set(definitions["SchemaObject"]["properties"]["properties"]) <= {"type", "description", "items"}
    asked = bounds(definitions, [])
    assert len(asked) >= 4
    assert all(set(one) <= {"type", "description"} for one in asked), json.dumps(asked)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({"logicalTypeOptions": {"minimum": "low", "maximum": 5}}, "wrong type"),
        ({"name": 5}, "wrong type"),
        ({"requird": True}, "did you mean"),
        ({"logicalTypeOptions": {"minimum": 0, "maximum": float("inf")}}, "not finite"),
    ],
)
def test_one_wrong_column_among_many_of_one_form_is_told(tmp_path, change, told):
    values = yaml.safe_load((toy_jobs.TOY / "contract.yaml").read_text())
    columns = values["schema"][0]["properties"]
    column = next(one for one in columns if one["name"] == "x1")
    many = [{**copy.deepcopy(column), "name": f"x1_{number}", "logicalTypeOptions": {"minimum": -number, "maximum": 9}}
            for number in range(20)]  # fmt: skip
    for one in many:
        one["quality"] = [
            {**rule, "id": f"{rule['id']}_{one['name']}"} for rule in one.get("quality", []) if "id" in rule
        ]
    many[11] |= change
    columns += many
    path = tmp_path / "contract.yaml"
    path.write_text(yaml.safe_dump(values))
    problems = [str(problem) for problem in read_document(path).problems]
    assert (problems == []) == (told is None), problems
    if told:
        assert len(problems) == 1
        assert told in problems[0]
