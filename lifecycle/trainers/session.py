"""What a training script is given, under the name that it imports for its annotations."""

from __future__ import annotations

from trainworthy.lifecycle.engine.trainers.session import TrainingSession

__all__ = ["TrainingSession"]
