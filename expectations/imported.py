"""Imports Great Expectations where pyspark, if it is installed, would end the process.

pyspark 4 takes a process whose main module has neither file nor spec for its own doctests, and calls sys.exit(0) when
Spark Connect's packages are missing. A run that Dagster's daemon or UI starts is such a process.
"""

from __future__ import annotations

import sys


def import_great_expectations() -> None:
    """Import the package; while that lasts, the main module has a file."""
    main = sys.modules["__main__"]
    named = getattr(main, "__spec__", None) is not None or hasattr(main, "__file__")
    if not named:
        main.__file__ = __file__
    try:
        import great_expectations  # noqa: F401
    finally:
        if not named:
            # multiprocessing would run the file again in each process that it starts.
            del main.__file__
