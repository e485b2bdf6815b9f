"""trainworthy schema: the JSON schemas of the YAML files, for editors."""

from __future__ import annotations

import argparse

from trainworthy.pipeline.commands import Subparsers


def add(commands: Subparsers) -> None:
    """Declare the command."""
    parser = commands.add_parser("schema", help="the JSON schema of use_case.yaml, or of contract.yaml, for editors")
    parser.add_argument("file", nargs="?", choices=("use_case", "contract"), default="use_case")
    parser.set_defaults(command=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the schema."""
    from trainworthy.pipeline.schema import contract_schema, schema_text, use_case_schema

    print(schema_text(contract_schema() if parsed.file == "contract" else use_case_schema()), end="")
    return 0
