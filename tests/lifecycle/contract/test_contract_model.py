"""Reading contract.yaml: a healthy one, each mistake, and several at once."""

import copy
import re

import pytest
import yaml

from trainworthy.lifecycle.contract.read import contract_problems, load_contract
from trainworthy.lifecycle.contract.rule import NO_ROW
from trainworthy.lifecycle.errors import UseCaseError


def column(name, logical_type="number", role="feature", **rest):
    properties = {"role": role, "availableAt": "PT0S", **rest.pop("properties", {})}
    custom = [{"property": key, "value": value} for key, value in properties.items()]
    return {"name": name, "logicalType": logical_type, "customProperties": custom, **rest}


HEALTHY = {
    "apiVersion": "v3.1.0",
    "kind": "DataContract",
    "id": "loans",
    "version": "1.0.0",
    "status": "active",
    "team": {"name": "credit"},
    "customProperties": [
        {"property": "label", "value": {"name": "late", "version": 1, "column": "delay", "greaterThan": 30}},
        {"property": "timeline", "value": ["application", "prediction", "payment"]},
    ],
    "schema": [
        {
            "name": "loans",
            "quality": [{"metric": "rowCount", "mustBeGreaterThan": 10}],
            "properties": [
                column("id", "integer", "key", primaryKey=True),
                column("income", properties={"unit": "EUR", "availableAt": "application"}),
                column("sex", "string", "other", properties={"sensitive": True}),
                column("delay", role="target_source", properties={"unit": "days", "availableAt": "payment"}),
            ],
        }
    ],
}


@pytest.fixture
def written(tmp_path):
    """A function that writes HEALTHY after a change and gives the file."""

    def write(change=lambda values: None):
        values = copy.deepcopy(HEALTHY)
        change(values)
        path = tmp_path / "contract.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        return path

    return write


def only(path):
    problems = contract_problems(path)
    assert len(problems) == 1, "\n".join(map(str, problems))
    return problems[0]


def table(values):
    return values["schema"][0]


def test_contract_healthy_file_gives_columns_label_and_key(written):
    contract = load_contract(written())
    assert contract.feature_columns == ("income",)
    assert contract.sensitive_columns == ("sex",)
    assert contract.primary_key == ("id",)
    assert contract.label.greater_than == 30
    assert contract.column("delay").unit == "days"
    assert [rule.id for rule in contract.rules][:4] == ["not_empty", "primary_key", "id.type", "id.required"]


def test_contract_missing_file_is_a_problem(tmp_path):
    assert only(tmp_path / "contract.yaml").problem == "the file is missing"


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "- a\n", "", "!!python/object:os.system {}", "a: \x00"])
def test_contract_text_that_is_no_plain_mapping_is_a_problem(tmp_path, text):
    path = tmp_path / "contract.yaml"
    path.write_text(text)
    assert contract_problems(path)


def test_contract_repeated_key_is_named(tmp_path):
    path = tmp_path / "contract.yaml"
    path.write_text("version: '1'\nversion: '2'\n")
    assert "'version' is given twice" in only(path).problem


@pytest.mark.parametrize(
    ("change", "place", "fix"),
    [
        (lambda v: v.update(nmae="x"), "contract.yaml: nmae", "'name'"),
        (lambda v: v["team"].update(membrs=[]), "contract.yaml: team.membrs", "'members'"),
        (lambda v: table(v).update(qualty=[]), "contract.yaml: schema[0].qualty", "'quality'"),
        (lambda v: table(v)["properties"][1].update(requird=True), "contract.yaml: income.requird", "'required'"),
        (
            lambda v: table(v)["properties"][1].update(logicalTypeOptions={"minimun": 0}),
            "contract.yaml: income.logicalTypeOptions.minimun",
            "'minimum'",
        ),
        (
            lambda v: table(v)["properties"][1].update(quality=[{"metric": "nullValues", "mustBe": 0, "unti": "rows"}]),
            "contract.yaml: income.quality[0].unti",
            "'unit'",
        ),
        (
            lambda v: table(v)["properties"][1]["customProperties"].append({"property": "senstive", "value": True}),
            "contract.yaml: income.customProperties.senstive",
            "'sensitive'",
        ),
        (
            lambda v: v["customProperties"].append({"property": "lable", "value": 1}),
            "contract.yaml: customProperties.lable",
            "'label'",
        ),
        (
            lambda v: v["customProperties"][0]["value"].update(greater_than=1),
            "contract.yaml: customProperties.label.greater_than",
            "'greaterThan'",
        ),
        (
            lambda v: table(v)["properties"][1].update(
                quality=[
                    {"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": [1], "pattern_": "a"}},
                ]
            ),
            "contract.yaml: income.quality[0].arguments.pattern_",
            "'pattern'",
        ),
    ],
)
def test_contract_unknown_key_is_named_once_with_the_nearest(written, change, place, fix):
    problem = only(written(change))
    assert problem.where == place
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("quality", "text"),
    [
        ({"metric": "nulValues", "mustBe": 0}, "nullValues"),
        ({"metric": "nullValues"}, "exactly one of mustBe"),
        ({"metric": "nullValues", "mustBe": 0, "mustBeLessThan": 3}, "exactly one of mustBe"),
        ({"metric": "nullValues", "mustBe": "none"}, "how many rows"),
        ({"metric": "nullValues", "mustBe": True}, "how many rows"),
        ({"metric": "nullValues", "mustBe": 0, "unit": "percentage"}, "percent"),
        ({"metric": "nullValues", "mustBeLessThan": 101, "unit": "percent"}, "correct the bound"),
        ({"metric": "nullValues", "mustBeBetween": [5, 2]}, "correct the bound"),
        ({"metric": "nullValues", "mustBeLessThan": float("nan")}, "finite"),
        ({"metric": "nullValues", "mustBe": 0, "severity": "eror"}, "'error'"),
        ({"metric": "nullValues", "mustBe": 0, "query": "select 1"}, "standard's form"),
        ({"metric": "rowCount", "mustBe": 1}, "below the table"),
        ({"metric": "invalidValues", "mustBe": 0}, "validValues and pattern"),
        ({"metric": "invalidValues", "mustBe": 0, "arguments": {"pattern": "("}}, "correct the pattern"),
        ({"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": []}}, "list what is valid"),
        ({"metric": "missingValues", "mustBe": 0}, "mean missing"),
        ({"type": "sql", "query": "select 1", "mustBe": 0}, "library metric"),
        ({"type": "custom", "engine": "soda", "implementation": "x"}, "engine: trainworthy"),
        ({"type": "custom", "engine": "trainworthy", "implementation": {"rule": "les_or_equal"}}, "'less_or_equal'"),
        (
            {"type": "custom", "engine": "trainworthy", "implementation": {"rule": "equal", "columns": ["id"]}},
            "write [a, b]",
        ),
        (
            {
                "type": "custom",
                "engine": "trainworthy",
                "implementation": {"rule": "equal", "columns": ["id", "incom"]},
            },
            "'income'",
        ),
        (
            {
                "type": "custom",
                "engine": "trainworthy",
                "implementation": {"rule": "hour_in_zone", "columns": ["id", "income"], "zone": "New York"},
            },
            "IANA",
        ),
    ],
)
def test_contract_unusable_quality_item_is_one_problem(written, quality, text):
    problem = only(written(lambda values: table(values)["properties"][1].update(quality=[quality])))
    assert text in str(problem)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c.update(logicalType="array"), "logicalType"),
        (lambda c: c.pop("logicalType"), "logicalType"),
        (lambda c: c.update(logicalTypeOptions={"multipleOf": 2}), "no effect"),
        (lambda c: c.update(logicalTypeOptions={"minimum": 3, "maximum": 1}), "above the maximum"),
        (lambda c: c.update(logicalTypeOptions={"minimum": 3, "exclusiveMinimum": 1}), "same side"),
        (lambda c: c.update(logicalType="date", logicalTypeOptions={"minimum": "soon"}), "not a date"),
        (lambda c: c.update(logicalType="string", logicalTypeOptions={"pattern": "["}), "regular expression"),
        (lambda c: c.update(name="id"), "declared twice"),
        (lambda c: c["customProperties"].pop(0), "the role is missing"),
        (lambda c: c["customProperties"][0].update(value="featur"), "'feature'"),
        (lambda c: c["customProperties"][1].update(value="1 hour"), "ISO 8601"),
        (lambda c: c["customProperties"][1].update(value="P1M"), "ISO 8601"),
        (lambda c: c["customProperties"].append({"property": "sensitive", "value": "yes"}), "true or false"),
        (lambda c: c["customProperties"].append({"property": "allowedDrift", "value": 0}), "a number above 0"),
        (lambda c: c["customProperties"].append({"property": "allowedDrift", "value": "0.2"}), "a number above 0"),
        (lambda c: c["customProperties"].append({"property": "allowedDrift", "value": True}), "a number above 0"),
        (lambda c: c["customProperties"].append({"property": "allowedDrift", "value": None}), "a number above 0"),
        (lambda c: c["customProperties"].append({"property": "unit", "value": 3}), "unit's name"),
    ],
)
def test_contract_unusable_column_is_a_problem(written, change, text):
    problems = contract_problems(written(lambda values: change(table(values)["properties"][1])))
    assert any(text in str(problem) for problem in problems)


LABELS = {"name": "t", "version": 1, "column": "sex", "type": "labels", "classes": ["a", "b"], "separator": "|"}


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (None, "definition is missing"),
        ({"name": "late", "version": 1, "column": "dely"}, "'delay'"),
        ({"name": "late", "version": "1", "column": "delay", "greaterThan": 3}, "whole number"),
        ({"name": "late", "column": "delay", "greaterThan": 3}, "label.version"),
        ({"name": "late", "version": 1, "column": "delay", "greaterThan": "3"}, "greaterThan"),
        ({"name": "late", "version": 1, "column": "income", "greaterThan": 3}, "write target_source"),
        ({"name": "late", "version": 1, "column": "delay"}, "write target"),
        ({"name": "late", "version": 1, "column": "sex", "greaterThan": 3}, "can't make a label of type event"),
        ({"name": "t", "version": 1, "column": "sex", "type": "labels", "separator": "|"}, "at least two classes"),
        ({"name": "t", "version": 1, "column": "sex", "type": "labels", "classes": ["a", "b"]}, "write separator"),
        ({**LABELS, "classes": ["a|b", "c"]}, "'a|b' holds the separator '|'"),
        ({**LABELS, "classes": ["a-", "b"], "separator": "--"}, "'a-' ends as the separator '--' begins"),
        ({**LABELS, "classes": ["a", 1]}, "1 is a number"),
        ({**LABELS, "classes": ["a", "a"]}, "a class is named twice"),
        ({**LABELS, "separator": ""}, "label.separator"),
        ({**LABELS, "separator": 3}, "label.separator"),
        ({**LABELS, "column": "delay"}, "can't make a label of type labels"),
        ({**LABELS, "type": "class"}, "a separator belongs to a label of type labels"),
        ({**LABELS, "seperator": ";"}, "separator"),
    ],
)
def test_contract_unusable_label_is_a_problem(written, label, text):
    problems = contract_problems(written(lambda values: values["customProperties"][0].update(value=label)))
    assert any(text in str(problem) for problem in problems)


def test_contract_allowed_drift_is_read_and_counts_for_the_hash(written):
    def declare(values):
        table(values)["properties"][1]["customProperties"].append({"property": "allowedDrift", "value": 0.2})

    without = load_contract(written())
    contract = load_contract(written(declare))
    assert (without.column("income").allowed_drift, contract.column("income").allowed_drift) == (None, 0.2)
    assert contract.sha256 != without.sha256


def of_files(**properties):
    def change(values):
        column = table(values)["properties"][1]
        column["logicalType"] = properties.pop("logicalType", "string")
        column["customProperties"] += [{"property": key, "value": value} for key, value in properties.items()]

    return change


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"file": "pictur"}, "'picture'"),
        ({"file": 3}, "write one of picture"),
        ({"file": "picture", "logicalType": "number"}, "logicalType: string"),
        ({"file": "picture", "role": "entity"}, "feature, target or other"),
        ({"file": "picture", "allowedDrift": 0.2}, "can't be judged of a file"),
        ({"file": "picture", "size": [8, 0]}, "[height, width]"),
        ({"file": "mask", "size": [8]}, "[height, width]"),
        ({"file": "array", "size": [True]}, "the array's shape"),
        ({"file": "text", "size": [8, 8]}, "a text has no size"),
        ({"size": [8, 8]}, "the column names none"),
    ],
)
def test_contract_unusable_file_column_is_a_problem(written, properties, text):
    assert text in str(only(written(of_files(**properties))))


def test_contract_file_column_is_read_and_counts_for_the_hash(written):
    contract = load_contract(written(of_files(file="picture", size=[8, 6])))
    assert [(column.name, column.file, column.size) for column in contract.file_columns] == [
        ("income", "picture", (8, 6))
    ]
    text = load_contract(written(of_files()))
    assert text.file_columns == ()
    assert contract.sha256 != text.sha256


def reviewed(value):
    return lambda values: table(values)["properties"][1]["customProperties"].append(
        {"property": "reviewed", "value": value}
    )


def test_contract_review_is_read_and_counts_for_the_hash_and_silence_means_reviewed(written):
    silent, said, open_, accepted = (
        load_contract(written(change))
        for change in (lambda values: None, reviewed(True), reviewed(False), reviewed("read before the model is asked"))
    )
    assert silent.sha256 == said.sha256
    assert len({silent.sha256, open_.sha256, accepted.sha256}) == 3
    assert (silent.unreviewed_features, said.unreviewed_features) == ((), ())
    (name,) = open_.unreviewed_features
    assert accepted.unreviewed_features == ()
    assert accepted.accepted_features == {name: "read before the model is asked"}


@pytest.mark.parametrize("value", ["", " ", 1, None, ["yes"]])
def test_contract_review_that_is_no_answer_is_a_problem(written, value):
    (problem,) = contract_problems(written(reviewed(value)))
    assert problem.where.endswith(".reviewed")


def test_contract_sensitive_key_is_refused(written):
    def change(values):
        table(values)["properties"][0]["customProperties"].append({"property": "sensitive", "value": True})

    assert "rows are named by it" in only(written(change)).problem


@pytest.mark.parametrize("names", [["a", "b"], ["prediction"] * 2, ["a", "a", "prediction"], "prediction", [1]])
def test_contract_timeline_without_order_around_prediction_is_refused(written, names):
    problems = contract_problems(written(lambda values: values["customProperties"][1].update(value=names)))
    assert any("timeline" in problem.where for problem in problems)


@pytest.mark.parametrize("tables", [[], None, "loans", [{"name": "a"}, {"name": "b"}], [{"name": "loans"}], [3]])
def test_contract_without_exactly_one_described_table_is_refused(written, tables):
    assert contract_problems(written(lambda values: values.update(schema=tables)))


def test_contract_without_features_or_key_is_refused(written):
    def change(values):
        table(values)["properties"][1]["customProperties"][0]["value"] = "other"
        table(values)["properties"][0].pop("primaryKey")

    texts = [problem.problem for problem in contract_problems(written(change))]
    assert texts == ["no primary key", "no column has the role feature"]


def test_contract_many_mistakes_are_all_reported_at_once(written):
    def change(values):
        values["nmae"] = "x"
        values["customProperties"][0]["value"]["column"] = "dely"
        columns = table(values)["properties"]
        columns[1]["requird"] = True
        columns[2]["customProperties"][0]["value"] = "nothing"
        columns[3]["quality"] = [{"metric": "nullValues", "mustBe": 0, "unit": "pct"}]
        table(values)["quality"] = [{"metric": "rowCounts", "mustBe": 3}]

    with pytest.raises(UseCaseError) as caught:
        load_contract(written(change))
    places = {problem.where.removeprefix("contract.yaml: ") for problem in caught.value.problems}
    assert places == {
        "nmae",
        "customProperties.label.column",
        "income.requird",
        "sex.role",
        "delay.quality[0].unit",
        "quality[0].metric",
    }


def test_contract_hash_changes_with_meaning_and_not_with_words(written):
    base = load_contract(written())
    words = load_contract(written(lambda values: values.update(version="2.0.0", name="other", team={"name": "new"})))
    stricter = load_contract(written(lambda v: table(v)["quality"][0].update(mustBeGreaterThan=11)))
    later = load_contract(written(lambda v: v["customProperties"][0]["value"].update(greaterThan=31)))
    hours = load_contract(written(lambda v: table(v)["properties"][3]["customProperties"][2].update(value="hours")))
    assert words.sha256 == base.sha256
    assert len({base.sha256, stricter.sha256, later.sha256, hours.sha256}) == 4
    assert stricter.label_sha256 == base.label_sha256
    assert len({base.label_sha256, later.label_sha256, hours.label_sha256}) == 3


def test_label_without_limit_adds_a_rule_for_zero_and_one(written):
    def change(values):
        values["customProperties"][0]["value"].pop("greaterThan")
        table(values)["properties"][3]["customProperties"][0]["value"] = "target"

    contract = load_contract(written(change))
    rule = contract.rules[-1]
    assert (rule.id, rule.kind, rule.parameters["values"]) == ("label.values", "allowed", [0, 1])


@pytest.mark.parametrize("separator", ["|", ", ", "."])
def test_labels_of_a_row_are_held_to_their_names_each_once(written, separator):
    def change(values):
        label = LABELS | {"classes": ["a", "ab", "(x)", "b c"], "separator": separator}
        values["customProperties"][0]["value"] = label
        table(values)["properties"][3]["customProperties"][0]["value"] = "other"
        (sex,) = [one for one in table(values)["properties"] if one["name"] == "sex"]
        sex["customProperties"] = [{"property": "role", "value": "target"}]

    contract = load_contract(written(change))
    rule = contract.rules[-1]
    assert (rule.id, rule.kind, rule.parameters["bound"]) == ("label.values", "pattern", NO_ROW)
    found = re.compile(rule.parameters["pattern"]).search
    right = [[], ["a"], ["ab"], ["ab", "a"], ["a", "ab", "(x)", "b c"], ["b c", "(x)"]]
    wrong = [["c"], ["a", "a"], ["a", "ab", "a"], ["ab", "(x)", "ab"], ["a", ""], ["", "a"], ["", ""], ["a\n"], ["A"]]
    assert [names for names in right if not found(separator.join(names))] == []
    assert [names for names in wrong if found(separator.join(names))] == []
    other = load_contract(written(lambda values: (change(values), values["customProperties"][0]["value"].update(
        separator=";"))))  # fmt: skip
    assert contract.label_sha256 != other.label_sha256


def places(node, path=()):
    """Paths of all nodes of a document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


@pytest.mark.parametrize("planted", [None, 3, True, "x", [], {}, [None], {"x": None}, [{"x": 1}]], ids=repr)
def test_contract_any_node_replaced_by_a_wrong_value_never_raises_another_error(written, planted):
    document = copy.deepcopy(HEALTHY)
    document["schema"][0]["properties"][1]["logicalTypeOptions"] = {"minimum": 0}
    document["schema"][0]["quality"].append(
        {"type": "custom", "engine": "trainworthy", "implementation": {"rule": "equal", "columns": ["id", "income"]}}
    )
    for path in list(places(document))[1:]:
        changed = copy.deepcopy(document)
        node = changed
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = planted

        def change(values, changed=changed):
            values.clear()
            values.update(changed)

        problems = contract_problems(written(change))
        assert all(problem.where.startswith("contract.yaml") and problem.fix for problem in problems)
