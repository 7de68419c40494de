"""A configuration that changes reaches the pilots that are there: Tag, Platform, VO, Memory (ADR 0024)."""

import msgspec
import pytest
from tests.contract.test_jobs_walk import parked

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.decide.resources.settings import without_processor_tags
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import live_pilots
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.pilots import hash_token, join_pilot, pilots_submitted, prepare_pilots
from lodesman.server.writer.reoffer import Offers, offer_sessions, set_offers
from lodesman.server.writer.sessions import FreeResources, PilotSession, load_sessions
from lodesman.wire.service import NewPilot

QUEUE = 'Platform = "el9"\nTag = ["gpu"]\nNumberOfProcessors = 8\nMemory = 16000\n'
SITES = "[site.S1.ce.ce.queue.q]\n{one}\n[site.S2.ce.ce.queue.q]\n{two}\n"
# What changes in S1 so that a job that ran there runs there no more.
LOSSES = [
    pytest.param({"tags": ("gpu",)}, QUEUE.replace('"gpu"', '"ssd"'), id="another tag"),
    pytest.param({"tags": ("gpu",)}, QUEUE.replace('Tag = ["gpu"]', ""), id="no tag"),
    pytest.param({"platforms": ("el9",)}, QUEUE.replace("el9", "el8"), id="another platform"),
    pytest.param({"platforms": ("el9",)}, QUEUE.replace('Platform = "el9"', ""), id="no platform"),
    pytest.param({}, QUEUE + 'VO = ["other"]', id="another VO"),
    pytest.param({"memory_mb": 8_000}, QUEUE.replace("16000", "4000"), id="less memory"),
    pytest.param({"cores": 4}, QUEUE.replace("= 8", "= 2"), id="fewer cores"),
    pytest.param({}, QUEUE + 'RequiredTag = ["gpu"]', id="a required tag"),
    pytest.param({}, QUEUE + "CPUTime = 60", id="less CPU time"),
]


def offers(one, two=QUEUE):
    text = SITES.format(one=one, two=two)
    return Offers(Policy(load_resources([("s.toml", text)])), ["vo"])


def gone():
    """A configuration without S1."""
    return Offers(Policy(load_resources([("s.toml", f"[site.S2.ce.ce.queue.q]\n{QUEUE}")])), ["vo"])


def configure(house, now):
    return house.do(Change(set_offers, house.live, house.sessions, now))


def stored(house, pilot):
    (text,) = house.reader.execute("SELECT request FROM pilot WHERE id = ?", (pilot,)).fetchone()
    return msgspec.json.decode(text)


# --- the two cases of the seed (a queue that is eligible no more; one that becomes eligible) with other words ---------


@pytest.mark.parametrize(("asks", "after"), LOSSES)
def test_a_queue_that_is_no_more_eligible_gets_no_job(house, asks, after):
    configure(house, offers(QUEUE))
    first = house.submit(count=3, key=house.key(**asks)).first
    here, there = house.pilot("S1"), house.pilot("S2")
    configure(house, offers(QUEUE))
    assert [one.job_id for one in house.claim(here)] == [first]
    configure(house, offers(after))
    assert house.claim(here) == []
    assert len(house.claim(there)) == 1


@pytest.mark.parametrize(("asks", "after"), LOSSES)
def test_a_request_that_was_made_before_a_change_gets_no_job_after_it(house, asks, after):
    configure(house, offers(QUEUE))
    house.submit(key=house.key(**asks))
    command = house.claim_command(house.pilot("S1"))
    configure(house, offers(after))
    assert house.do(command) == []


@pytest.mark.parametrize(("asks", "after"), LOSSES)
def test_a_request_that_waits_in_a_queue_that_is_no_more_eligible_gets_no_job(house, asks, after):
    configure(house, offers(QUEUE))
    pilot = house.pilot("S1")
    parked(house, pilot)
    configure(house, offers(after))
    job = house.submit(key=house.key(**asks)).first
    assert house.state(job) == "Waiting"
    assert [one.job_id for one in house.claim(house.pilot("S2"))] == [job]


@pytest.mark.parametrize(("asks", "before"), LOSSES)
def test_a_queue_that_becomes_eligible_gets_the_job_at_once(house, asks, before):
    configure(house, offers(before))
    job = house.submit(key=house.key(**asks)).first
    pilot = house.pilot("S1")
    configure(house, offers(before))
    _, answer = parked(house, pilot)
    assert configure(house, offers(QUEUE)) >= 1
    assert [one.job_id for one in answer()] == [job]


def test_a_queue_that_becomes_eligible_waits_for_jobs_as_it_is_now(house):
    configure(house, offers(QUEUE.replace('"gpu"', '"ssd"')))
    _, answer = parked(house, house.pilot("S1"))
    configure(house, offers(QUEUE))
    job = house.submit(key=house.key(tags=("gpu",))).first
    assert [one.job_id for one in answer()] == [job]


# --- a queue that is gone, and one that comes back --------------------------------------------------------------------


def test_a_pilot_of_a_queue_that_is_gone_gets_nothing_until_it_is_back(house):
    configure(house, offers(QUEUE))
    pilot = house.pilot("S1")
    house.submit(count=2)
    configure(house, gone())
    assert house.claim(pilot) == []
    assert stored(house, pilot)["cores"] == 0
    _, answer = parked(house, pilot)
    configure(house, offers(QUEUE))
    assert len(answer()) == 1
    assert len(house.claim(pilot)) == 1


def test_what_waits_longest_is_served_first(house):
    configure(house, gone())
    pilots_here = [house.pilot("S1") for _ in range(3)]
    configure(house, gone())
    answers = []
    for pilot in pilots_here:
        answers.append(parked(house, pilot)[1])
        house.clock += 1
    (job, other) = house.submit(), house.submit()
    configure(house, offers(QUEUE))
    assert [[one.job_id for one in answer()] for answer in answers[:2]] == [[job.first], [other.first]]
    house.submit()
    assert len(answers[2]()) == 1


def test_a_pilot_of_no_known_queue_offers_what_its_node_reports(house):
    house.do(Change(prepare_pilots, house.live, [NewPilot(
        stamp="free", vo="vo", site="S1", ce="", queue="", request={}, join_hash=hash_token("free-join"),
    )]))  # fmt: skip
    joined = house.do(Change(join_pilot, house.live, "free-join", "nonce", {"cores": 8, "platform": "el9"}))
    session = house.sessions[joined.row.id] = PilotSession(joined.row, now=house.clock)
    configure(house, gone())
    assert (session.offer.cores, session.offer.platforms) == (8, ("el9",))


# --- who else has to know ---------------------------------------------------------------------------------------------


def test_what_is_stored_is_what_is_offered_and_survives_a_restart(house):
    configure(house, offers(QUEUE))
    pilot = house.pilot("S1")
    configure(house, offers(QUEUE.replace("el9", "el8").replace("16000", "4000")))
    offer = house.sessions[pilot].offer
    assert (offer.platforms, offer.memory_mb) == (("el8",), 4_000)
    house.restart()
    again = load_sessions(house.reader, now=0.0)
    assert again[pilot].offer == offer


def test_a_pilot_on_its_way_joins_with_what_its_queue_is_then(house):
    house.do(Change(prepare_pilots, house.live, [NewPilot(
        stamp="late", vo="vo", site="S1", ce="ce", queue="q", join_hash=hash_token("late-join"),
        request={"vo": "vo", "owner": "ann", "tags": ["gpu"], "cores": 8, "memory_mb": 1, "norm_cpu_seconds": 1},
    )]))  # fmt: skip
    house.do(Change(pilots_submitted, house.live, {"late": ("native", "")}))
    configure(house, offers(QUEUE.replace('"gpu"', '"ssd"')))
    joined = house.do(Change(join_pilot, house.live, "late-join", "nonce", {"cores": 4}))
    session = PilotSession(joined.row, now=0.0)
    assert (without_processor_tags(session.offer.tags), session.offer.memory_mb, session.offer.cores) == (
        ("ssd",),
        16_000,
        4,
    )
    assert stored(house, joined.row.id)["owner"] == "ann"


def test_a_pilot_that_is_stored_by_an_older_configuration_is_stored_as_its_queue_is_now(house):
    """The director's process takes a change in a little later than this one."""
    configure(house, offers(QUEUE.replace('"gpu"', '"ssd"')))
    pilot = house.pilot("S1", tags=["gpu"])
    assert without_processor_tags(stored(house, pilot)["tags"]) == ("ssd",)
    assert without_processor_tags(house.sessions[pilot].offer.tags) == ("ssd",)


def test_a_session_whose_join_was_answered_in_between_is_caught_up_with(house):
    configure(house, offers(QUEUE))
    pilot = house.pilot("S1")
    late = {pilot: house.sessions.pop(pilot)}
    now = offers(QUEUE.replace("el9", "el8"))
    configure(house, now)
    assert late[pilot].offer.platforms == ("el9",)
    offer_sessions(late.values(), now)
    assert late[pilot].offer.platforms == ("el8",)


def test_nothing_is_written_of_pilots_whose_queue_did_not_change(house):
    configure(house, offers(QUEUE))
    here, there = house.pilot("S1"), house.pilot("S2")
    before = {pilot: house.sessions[pilot].offer for pilot in (here, there)}
    house.do(Change(set_offers, house.live, house.sessions, offers(QUEUE)))
    assert configure(house, offers(QUEUE)) == 0
    assert all(house.sessions[pilot].offer is offer for pilot, offer in before.items())
    assert configure(house, offers(QUEUE.replace("el9", "el8"))) == 1
    assert house.sessions[there].offer is before[there]


def test_a_pilot_that_ended_keeps_what_it_had(house):
    configure(house, offers(QUEUE))
    pilot = house.pilot("S1")
    house.end_pilot(pilot)
    configure(house, gone())
    assert stored(house, pilot)["cores"] == 8


def test_an_unconfigured_vo_is_computed_on_request(house):
    now = offers(QUEUE + 'VO = ["vo"]', QUEUE)
    assert now("new", ("S1", "ce", "q")).cores == 0
    assert now("new", ("S2", "ce", "q")).cores == 8
    assert now("new", ("S2", "ce", "")) is None


def test_a_change_that_is_rolled_back_leaves_everything_as_it_was(house):
    configure(house, offers(QUEUE.replace('"gpu"', '"ssd"')))
    house.submit(key=house.key(tags=("gpu",)))
    pilot = house.pilot("S1")
    parked(house, pilot)
    before, live = house.sessions[pilot].offer, house.live
    said = live.pilots.offers
    house.journal.close()
    house.writer.begin()
    tx = Transaction(house.writer, house.clock)
    set_offers(tx, live, house.sessions, offers(QUEUE))
    assert live.parked.of_pilot(pilot) is None
    assert tx.answers
    tx.flush()
    house.writer.roll_back()
    tx.roll_back_memory()
    assert house.sessions[pilot].offer is before
    assert live.pilots.offers is said
    ticket = live.parked.of_pilot(pilot)
    assert without_processor_tags(ticket.request.tags) == ("ssd",)
    assert without_processor_tags(stored(house, pilot)["tags"]) == ("ssd",)
    index = live.queues.index
    tq_id = index.find(house.key(tags=("gpu",)))
    assert index.waiting(tq_id) == 1
    assert list(live.parked.woken({tq_id: 1})) == []
    house.writer.close()
    house.reader.close()


def test_many_equal_pilots_are_computed_once(house):
    configure(house, offers(QUEUE))
    numbers = [house.pilot("S1") for _ in range(20)]
    configure(house, offers(QUEUE.replace("el9", "el8")))
    rows = live_pilots(house.reader)
    assert {row.id for row in rows} == set(numbers)
    assert len({row.request for row in rows}) == 1
    assert house.claim(numbers[0], free=FreeResources(1, 1, 1)) == []
