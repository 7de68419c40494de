"""Matching: which task queue gives its next job to a resource that asks.

`criteria` says who may run what, `index` keeps the task queues as bits, `lottery` draws by share, `matcher`
takes jobs, `parked` holds the requests that wait.
"""

from lodesman.matching.criteria import explain
from lodesman.matching.matcher import Matcher
from lodesman.matching.offers import QueueOffer, offers_of
from lodesman.matching.parked import Parked
from lodesman.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.matching.shares import GroupShare, director_weights, parts_of
from lodesman.matching.submit_pool import (
    canonical_requirements,
    read_again,
    spelled_requirements,
    submit_pool_id,
    wanted_of,
    wanted_values,
)
from lodesman.matching.task_queue import TaskQueueKey, key_from_json, key_of, key_to_json

__all__ = [
    "ANY",
    "PRIVATE",
    "GroupShare",
    "Matcher",
    "Parked",
    "QueueOffer",
    "ResourceRequest",
    "TaskQueueKey",
    "canonical_requirements",
    "director_weights",
    "explain",
    "key_from_json",
    "key_of",
    "key_to_json",
    "offers_of",
    "parts_of",
    "read_again",
    "spelled_requirements",
    "submit_pool_id",
    "wanted_of",
    "wanted_values",
]
