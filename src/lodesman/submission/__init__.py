"""From a checked description to a task queue: the optimizers (DESIGN 1, step 5)."""

from lodesman.submission.draft import Draft, World
from lodesman.submission.obstacles import Obstacles, find_obstacles, never_text
from lodesman.submission.pipeline import optimize
from lodesman.submission.possible import possible_queues
from lodesman.submission.sending import BACKENDS, BY_HAND, CAUSES, never_sent, not_sent

__all__ = [
    "BACKENDS",
    "BY_HAND",
    "CAUSES",
    "Draft",
    "Obstacles",
    "World",
    "find_obstacles",
    "never_sent",
    "never_text",
    "not_sent",
    "optimize",
    "possible_queues",
]
