"""What a test says of an error: its class and its code, never its sentence."""

from typing import TypeVar

import pytest

from trainworthy.lifecycle.errors import TrainworthyError

Error = TypeVar("Error", bound=TrainworthyError)


def refused(kind: type[Error], code: str) -> pytest.RaisesExc[Error]:
    """As pytest.raises, of that code alone."""
    return pytest.raises(kind, check=lambda error: error.code == code)
