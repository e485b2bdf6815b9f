"""The name of before TrainingSession, for scripts that import it; it goes with the next release."""

from __future__ import annotations

import warnings

from trainworthy.lifecycle.engine.trainers.session import TrainingSession as Flight

warnings.warn("Flight is TrainingSession of trainworthy.lifecycle.trainers.session now", FutureWarning, stacklevel=2)

__all__ = ["Flight"]
