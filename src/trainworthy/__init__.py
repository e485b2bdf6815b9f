"""Is this training run worth its compute, and is its model worth shipping?

A checkout has its packages at the top; here lies a link to each, so that all are imported by this one name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy import earlier_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg

__all__ = ["definitions"]

earlier_name.install()


def definitions(project: str | Path | None = None, resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Dagster's definitions of all use cases of a project, to be merged with a team's own.

        defs = dg.Definitions.merge(trainworthy.definitions(project=Path(__file__).parent), own)

    `project` is the folder with use_cases/; without it what TRAINWORTHY_PROJECT names, else the nearest folder upwards
    from the working directory. This process and those that it starts work on that project from here on. `resources`
    replaces workspace, tracking, launcher or intent by name; a resource of the team's own needs another name. The
    executor is left to the team: each job of Trainworthy brings its own.

    Raises click.ClickException, which Dagster's commands show as one message, if the project is no folder, or another
    one is in use already.
    """
    from trainworthy.pipeline.build import team_definitions

    return team_definitions(None if project is None else Path(project), resources)
