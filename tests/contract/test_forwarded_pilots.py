"""Forwarding nodes: where a pilot runs follows when it joins, on a real database (ADR 0060)."""

from __future__ import annotations

import pytest
from msgspec import json
from tests.contract.test_bound_pilots import Push, waits_untouched, whole

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId, load_resources
from lodesman.decide.resources.settings import without_processor_tags
from lodesman.server.loops.candidates import count_own_pilots
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import live_natives, pilot_by_id, pilots_in_short
from lodesman.server.writer.pilots import believed_queue
from lodesman.server.writer.reoffer import Offers, set_offers
from lodesman.server.writer.sessions import PilotSession, load_sessions

GATE, FINAL = QueueId("S1", "ce", "q"), QueueId("S2", "ce", "q")
SITES = """
[site.S1.ce.ce.queue.q]
Forwards = true
Platform = "linux"
Memory = 16000
NumberOfProcessors = 8
CPUTime = 100000
[site.S2.ce.ce.queue.q]
Platform = "el9"
Tag = ["gpu"]
Memory = 32000
NumberOfProcessors = 4
CPUTime = 5000
[site.S3]
VO = ["other"]
[site.S3.ce.ce.queue.q]
CPUTime = 100
"""
ROOMY = {"cores": 16, "memory_mb": 64_000, "platform": "el10", "host": "n7"}


@pytest.fixture(scope="module")
def policy():
    return Policy(load_resources([("sites.toml", SITES)]))


@pytest.fixture
def push(house, policy):
    house.do(Change(set_offers, house.live, house.sessions, Offers(policy)))
    return Push(house)


def join(push, policy, pilot, told, node=ROOMY):
    """It joins and names a queue, if it knows one."""
    row = pilot_by_id(push.house.reader, pilot)
    return push.join(pilot, node, found_queue=believed_queue(row, told, policy) if told else None)


@pytest.fixture
def sent(house, push):
    """A pilot that was sent to the forwarding node for any job of a task queue, as many as there are."""

    def send(*, bound=False, **key):
        job = house.submit(key=house.key(**key)).first
        (pilot,) = push.send(push.tq(job), bound=bound, forwards=True)
        return job, pilot

    return send


def offer(house, pilot):
    found = house.sessions[pilot].offer
    return found.site, found.platforms, without_processor_tags(found.tags), found.cores, found.memory_mb


@pytest.mark.parametrize("bound", [True, False])
def test_a_pilot_is_one_of_the_queue_that_it_finds(house, push, policy, sent, bound):
    job, pilot = sent(bound=bound)
    row = join(push, policy, pilot, FINAL)
    assert (row.queue_id, row.submitted_to) == (FINAL, GATE)
    assert offer(house, pilot) == ("S2", ("el9",), ("gpu",), 4, 32_000)
    claimed = push.claim(pilot) if bound else house.claim(pilot)
    assert [one.job_id for one in claimed] == [job]
    assert house.reader.only("SELECT site FROM attempt WHERE job_id = ?", (job,)) == ("S2",)
    whole(house)
    house.restart()
    assert load_sessions(house.reader, now=0.0)[pilot].offer == house.sessions[pilot].offer
    whole(house)


@pytest.mark.parametrize("told", [QueueId("X", "y", "z"), QueueId("S3", "ce", "q"), None])
def test_where_the_queue_is_not_configured_for_its_vo_its_description_counts(house, push, policy, sent, told):
    _, pilot = sent()
    row = join(push, policy, pilot, told)
    assert row.queue_id == GATE
    assert offer(house, pilot) == ("S1", ("el10",), (), 16, 64_000)


def test_what_a_node_does_not_describe_is_as_the_forwarding_node_says(house, push, policy, sent):
    _, pilot = sent()
    join(push, policy, pilot, None, {"platform": 5, "cores": "many"})
    assert offer(house, pilot) == ("S1", ("linux",), (), 8, 16_000)


def test_before_it_joins_it_counts_with_what_the_forwarding_node_promises(house, push, sent):
    _, pilot = sent()
    row = pilot_by_id(house.reader, pilot)
    found = PilotSession(row, now=0.0).offer
    assert (found.platforms, found.cores, found.memory_mb) == (("linux",), 8, 16_000)


def test_a_changed_configuration_does_not_make_a_described_pilot_forget_its_node(house, push, policy, sent):
    _, pilot = sent()
    join(push, policy, pilot, None)
    changed = Policy(load_resources([("sites.toml", SITES.replace("16000", "8000"))]))
    house.do(Change(set_offers, house.live, house.sessions, Offers(changed)))
    assert offer(house, pilot) == ("S1", ("el10",), (), 16, 64_000)
    assert json.decode(pilot_by_id(house.reader, pilot).request)["memory_mb"] == 8_000


@pytest.mark.parametrize(
    ("key", "told", "why"),
    [
        ({"sites": ("S1",)}, FINAL, "only at S1"),
        ({"cores": 6}, FINAL, "core"),
        ({"platforms": ("linux",)}, FINAL, "platform"),
        ({"platforms": ("linux",)}, None, "platform"),
        ({"norm_cpu_seconds": 9_000}, FINAL, "CPU"),
    ],
)
def test_a_bound_job_that_does_not_fit_there_waits_again_with_the_reason(
    house, push, policy, sent, key, told, why
):
    job, pilot = sent(bound=True, **key)
    join(push, policy, pilot, told)
    waits_untouched(house, job, why)
    assert push.claim(pilot) == []


def test_its_batch_system_and_the_director_know_it_where_it_was_sent(house, push, policy, sent):
    _, pilot = sent()
    join(push, policy, pilot, FINAL)
    assert [one.queue_id for one in live_natives(house.reader)] == [GATE]
    (seen,) = pilots_in_short(house.reader)
    own = count_own_pilots([(seen.state, seen.submitted_to, seen.created_at)])
    assert (seen.queue_id, own[GATE].running, FINAL in own) == (FINAL, 1, False)


def test_a_pilot_of_a_queue_that_does_not_forward_is_not_believed(house, push, policy):
    job = house.submit().first
    (pilot,) = push.send(push.tq(job))
    assert believed_queue(pilot_by_id(house.reader, pilot), FINAL, policy) is None
