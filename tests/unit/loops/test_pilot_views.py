"""Pilots as the director sees them: what they are now, not what they were when they were sent."""

from __future__ import annotations

import json

import pytest

from lodesman.decide.director.supply import PilotStanding
from lodesman.server.loops.standing import pilot_view
from lodesman.server.store.read.pilots import pilots_in_short

OFFER = {
    "vo": "lab", "site": "North", "ce": "cn", "queue": "q", "groups": ["physics"], "platforms": ["el9"], "tags": ["gpu"],
    "cores": 8, "memory_mb": 8_000, "norm_cpu_seconds": 100_000, "submit_pools": ["req1:x"], "submission_pool": "Local",
}  # fmt: skip


@pytest.fixture
def view(base):
    """The view of one pilot at a time, with these columns."""

    def make(now=1_000.0, *, node=None, busy=False, **columns):
        values = {
            "id": 1, "stamp": "s", "state": "Running", "vo": "lab", "site": "North", "ce": "cn", "queue": "q",
            "request": json.dumps(OFFER), "node": json.dumps(node or {}), "created_at": 10.0, "submitted_at": 20.0,
            "joined_at": 30.0, "last_seen": now, "tq_id": 7, **columns,
        }  # fmt: skip
        names = ", ".join(values)
        with base.writer:
            base.writer.execute("DELETE FROM pilot")
            base.writer.execute("DELETE FROM attempt")
            base.writer.execute(
                f"INSERT INTO pilot ({names}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
            )
            if busy:
                base.writer.execute(
                    """INSERT INTO attempt (id, job_id, number, tq_id, pilot_id, claim_token, site, claimed_at)
                    VALUES (1, 1, 1, 1, 1, 't', 'North', 60)"""
                )
        (pilot,) = pilots_in_short(base.db)
        return pilot_view(pilot, now)

    return make


def test_it_is_whom_it_serves_and_what_its_queue_is(view):
    found = view()
    request = found.request
    assert (found.pilot_id, found.submitted_at, found.tq_id) == (1, 20.0, 7)
    assert (request.vo, request.groups, request.submission_pool) == ("lab", ("physics",), "Local")
    assert (request.site, request.ce, request.queue) == ("North", "cn", "q")
    assert (request.platforms, request.tags, request.cores, request.memory_mb) == (
        ("el9",),
        ("gpu",),
        8,
        8_000,
    )
    assert request.submit_pools == ()  # read when the pilot is counted


def test_a_node_that_has_less_counts_for_what_it_has(view):
    found = view(node={"cores": 2, "memory_mb": 1_000, "platform": "vax"}).request
    assert (found.cores, found.memory_mb, found.platforms) == (2, 1_000, ("el9",))


@pytest.mark.parametrize(
    ("now", "left"), [(30.0, 19_980), (1_030.0, 18_000), (1_059.0, 17_940), (20_000.0, 0)]
)
def test_what_is_left_of_its_life_counts(view, now, left):
    node = {"life_s": 10_000.0, "cpu_scaling_factor": 2.0}
    assert view(now, node=node).request.norm_cpu_seconds == left


def test_one_on_its_way_has_all_its_life_before_it(view):
    found = view(10**6, state="Submitted", joined_at=None, last_seen=None)
    assert (found.standing, found.request.norm_cpu_seconds) == (PilotStanding.WAITING, 100_000)


@pytest.mark.parametrize(
    ("columns", "busy", "standing"),
    [
        ({}, False, PilotStanding.IDLE),
        ({}, True, PilotStanding.BUSY),
        ({"last_seen": 700.0}, False, PilotStanding.IDLE),
        ({"last_seen": 699.0}, False, PilotStanding.SILENT),
        ({"last_seen": 699.0}, True, PilotStanding.SILENT),
        ({"last_seen": 699.0, "drain": 1}, False, PilotStanding.DRAINING),
        ({"last_seen": None}, False, PilotStanding.IDLE),
        ({"state": "Submitted", "last_seen": None}, False, PilotStanding.WAITING),
        ({"state": "Prepared", "last_seen": None}, False, PilotStanding.SUBMITTING),
    ],
)
def test_one_that_is_silent_is_not_idle(view, columns, busy, standing):
    assert view(busy=busy, **columns).standing is standing
