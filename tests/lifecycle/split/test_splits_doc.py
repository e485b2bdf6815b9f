"""The examples of docs/how-to/splits.md load, and there is one for each kind."""

import re

import jsonschema
import pytest
import toy_jobs
import yaml
from split_specs import KINDS

from trainworthy.lifecycle.spec.split import BenchmarkWindow
from trainworthy.pipeline.schema import use_case_schema

TEXT = (toy_jobs.ROOT / "docs" / "how-to" / "splits.md").read_text()
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
TOY = yaml.safe_load((toy_jobs.TOY / "use_case.yaml").read_text())
SCHEMA = jsonschema.Draft202012Validator(use_case_schema())
SPLIT = [example["split"] for example in EXAMPLES if "split" in example]


def test_each_kind_has_one_example():
    assert sorted(example["by"] for example in SPLIT) == sorted(KINDS)


@pytest.mark.parametrize("split", SPLIT, ids=lambda split: split["by"])
def test_example_of_a_split_loads(split):
    values = TOY | {"split": split}
    assert toy_jobs.SPEC.model_validate(values).split.by == split["by"]
    SCHEMA.validate(values)


@pytest.mark.parametrize("policy", re.findall(r"^\| `(\{window.*\})` \|", TEXT, re.MULTILINE))
def test_example_of_a_benchmark_policy_loads(policy):
    window = BenchmarkWindow.model_validate(yaml.safe_load(policy))
    assert isinstance(window.roll, str) or window.roll.every == "90d"
    # JSON has no dates: an editor sees text.
    SCHEMA.validate(TOY | {"split": TOY["split"] | {"benchmark": window.model_dump(mode="json", by_alias=True)}})


def test_examples_of_class_weights_load():
    (training,) = (example["training"] for example in EXAMPLES if "training" in example)
    assert toy_jobs.spec_with(training=training).training.class_weights == "balanced"
