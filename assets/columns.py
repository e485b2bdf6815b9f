"""The contract's columns as Dagster's catalog shows those of a table."""

import dagster as dg

from trainworthy.lifecycle.contract.model import Column, Contract
from trainworthy.lifecycle.contract.rule import never_null


def column_schema(contract: Contract) -> dg.TableSchema:
    """Name, type, what it is to a model, and whether rows may be null; constraints of several columns stay apart."""
    required = never_null(contract.rules)
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.logical_type,
                description=_description(column),
                constraints=dg.TableColumnConstraints(
                    nullable=column.name not in required, unique=contract.primary_key == (column.name,)
                ),
                tags={"role": column.role},
            )
            for column in contract.columns
        ]
    )


def _description(column: Column) -> str:
    """Role, unit and time of a column, and that its values are never shown."""
    unit = f" in {column.unit}" if column.unit else ""
    known = f", known at {column.available_at}" if column.available_at else ""
    return f"{column.role.replace('_', ' ')}{unit}{known}{', sensitive' if column.sensitive else ''}"
