"""Matching: which task queue gives its next job to a resource that asks."""

from lodesman.matching.offers import QueueOffer
from lodesman.matching.request import ANY, ResourceRequest
from lodesman.matching.shares import GroupShare, director_weights, parts_of
from lodesman.matching.submit_pool import given_of, wanted_of
from lodesman.matching.task_queue import TaskQueueKey, key_from_json, key_to_json

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
