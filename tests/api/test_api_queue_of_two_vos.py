"""`lode why` of a queue that is another one for each VO: the job, the queue and the director say the same."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from lodesman.decide.resources import load_resources

SITES = """
[site.W]
VO = ["lab", "other"]
[site.W.ce.c.queue.q]
Backend = "local"
Memory = 8000
[site.W.ce.c.queue.q.vo.lab]
{lines}
[group.physics]
vo = "lab"
[group.guests]
vo = "other"
"""
WHERE = {"site": "W", "ce": "c", "queue": "q"}
MANUAL = "pilots there are started manually"


@pytest.fixture
def told(house, backend):
    """The answers about a waiting job of VO lab, its task queue and the CE queue, after an iteration."""
    director = house.director(backend)
    house.side.director = director
    house.user("olaf", "guests", vo="other")

    def look(lines):
        policy = house.policy(load_resources([("s.toml", SITES.format(lines=lines))]))
        house.core.policy = house.side.policy = director.policy = policy
        director.tick(house.now)
        job = house.submitted({})
        house.submitted({}, token="olaf")
        ask = urlencode({"queue": "W/c/q"})
        return (
            house.get(f"/v1/jobs/{job}/why?{ask}"),
            house.get(f"/v1/queues/why?{urlencode(WHERE)}"),
            house.get(f"/v1/jobs/{job + 1}/why?{ask}", "olaf"),
        )

    return look


def test_pilots_that_are_started_manually_for_one_vo_are_not_expected_from_the_director(told):
    job, queue, other = told("Backend = 'manual'")
    assert (job["verdict"], job["main_reason"]) == ("not now", "no-room-for-pilots")
    assert job["summary"].endswith(f"no pilot is there and none may be sent now: {MANUAL} (1 queue).")
    assert "an administrator: lode pilot file" in job["who"]
    assert (job["queue"]["eligible"], job["queue"]["room"], job["queue"]["gate"]) == (True, 0, MANUAL)
    assert (queue["verdict"], queue["main_reason"]) == ("not now", "manual-pilots")
    assert other["verdict"] == "now"
    assert other["queue"]["gate"] == ""


def test_a_queue_that_is_open_to_both_has_room_for_both(told):
    job, queue, other = told("Memory = 4000")
    assert {one["verdict"] for one in (job, queue, other)} == {"now"}
    assert (job["queue"]["gate"], other["queue"]["gate"]) == ("", "")


@pytest.mark.parametrize("lines", ["Slots = 0", "MaxTotalJobs = 0"])
def test_a_queue_that_is_shut_to_one_vo_is_never_for_its_jobs(house, told, lines):
    with pytest.raises(AssertionError, match="impossible"):
        told(lines)
    name = lines.split()[0]
    answer = house.submit({})
    assert (answer.code, f"{name} excludes 1 of 1" in answer.json["error"]["message"]) == (
        "impossible",
        True,
    )
