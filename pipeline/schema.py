"""The JSON schemas of a use case's two YAML files, for editors and for people."""

from __future__ import annotations

import json
from typing import Any

from trainworthy.lifecycle.spec.use_case import UseCaseSpec
from trainworthy.resources.settings import PRODUCT

# What `trainworthy schema` prints, committed, so that editors find it: tests hold both equal.
COMMITTED = PRODUCT / "docs" / "schema" / "use_case.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def use_case_schema() -> dict[str, Any]:
    """The schema of use_case.yaml, from the forms that read it."""
    schema = UseCaseSpec.model_json_schema()
    return {"$schema": DIALECT, **schema, "title": "use_case.yaml of Trainworthy"}


def contract_schema() -> dict[str, Any]:
    """The schema of the Open Data Contract Standard, by which contract.yaml is read."""
    from trainworthy.lifecycle.contract.odcs import odcs_schema

    return odcs_schema()


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as the committed file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
