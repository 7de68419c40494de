"""Matching: which task queue gives its next job to a resource that asks.

Decisions: docs/adr/README.md, Matching and limits.
"""

from lodesman.decide.matching.offers import QueueOffer
from lodesman.decide.matching.request import ANY, ResourceRequest
from lodesman.decide.matching.shares import GroupShare, director_weights, parts_of
from lodesman.decide.matching.submit_pool import given_of, wanted_of
from lodesman.decide.matching.task_queue import TaskQueueKey, key_from_json, key_to_json

__all__ = [
    "ANY",
    "GroupShare",
    "QueueOffer",
    "ResourceRequest",
    "TaskQueueKey",
    "director_weights",
    "given_of",
    "key_from_json",
    "key_to_json",
    "parts_of",
    "wanted_of",
]
