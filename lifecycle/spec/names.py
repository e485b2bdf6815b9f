"""Names that people give to use cases, datasets, suites, metrics and baselines."""

from typing import Annotated

from pydantic import StringConstraints

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,40}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
