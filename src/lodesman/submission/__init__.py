"""From a checked description to a task queue: the optimizers (DESIGN 1, step 5)."""

from lodesman.submission.draft import Draft, World
from lodesman.submission.pipeline import optimize

__all__ = ["Draft", "World", "optimize"]
