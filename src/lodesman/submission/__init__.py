"""From a checked description to a task queue: the optimizers (DESIGN 1, step 5)."""

from lodesman.submission.draft import Draft, World
from lodesman.submission.obstacles import Obstacles, find_obstacles, never_text
from lodesman.submission.pipeline import optimize
from lodesman.submission.possible import eligible_sites, possible_queues

__all__ = [
    "Draft",
    "Obstacles",
    "World",
    "eligible_sites",
    "find_obstacles",
    "never_text",
    "optimize",
    "possible_queues",
]
