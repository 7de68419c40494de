"""SubmitPools and shares when the configuration changes: evaluated outside the writer, swapped as a whole."""

from dataclasses import replace

import msgspec
import pytest
from tests.contract.test_jobs_walk import parked

from lodesman.base.errors import Conflict
from lodesman.decide.matching import GroupShare
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements, submit_pool_id
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.server.loops.refresh import _CONFLICT_SECONDS
from lodesman.server.store.journal import Change
from lodesman.server.store.submit_pools import bits_of_queues
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.pool_map import KnownPools, PoolMap
from lodesman.server.writer.submit import NewPool
from lodesman.server.writer.submit_pools import number_queues, refresh_pools, set_shares
from lodesman.wire import inner_calls
from lodesman.wire.service import PassResult

SITES = """
[site.S1.ce.ce.queue.q]
Memory = {one}
[site.S2.ce.ce.queue.q]
Memory = {two}
"""
S1, S2 = ("S1", "ce", "q"), ("S2", "ce", "q")


def policy(one, two, more=""):
    return Policy(load_resources([("sites.toml", SITES.format(one=one, two=two) + more)]))


TYPES = policy(1, 1).config.types
POOL = submit_pool_id(compile_requirements({"Memory": 4000}, TYPES), "vo")


def with_pool(house, memory, queues, **more):
    pool = submit_pool_id(compile_requirements({"Memory": memory}, TYPES), "vo")
    new = NewPool(
        id=pool,
        requirements=spelled_requirements(compile_requirements({"Memory": memory}, TYPES)),
        vo="vo",
        queues=house.mask(queues),
    )
    return house.submit(key=house.key(submit_pool=pool), pools=[new], **more).first


def served(house, place):
    """What a queue serves: in memory and on disk they are the same."""
    found = house.live.pools.of_queue(place).pools
    assert PoolMap.load(house.reader).of_queue(place).pools == found
    rows = house.reader.execute(
        "SELECT pool_id FROM submit_pool_queue WHERE (site, ce, queue) = (?,?,?) ORDER BY pool_id", place
    )
    assert tuple(row[0] for row in rows) == found
    return found


def passes(house):
    return list(
        house.reader.execute(
            "SELECT id, at, cause, pools, changed, held, released FROM submit_pool_pass ORDER BY id"
        )
    )


@pytest.mark.parametrize(
    ("one", "two", "places"), [(4000, 2000, [S1]), (2000, 8000, [S2]), (5000, 4000, [S1, S2])]
)
def test_pools_are_evaluated_as_things_are_now(house, one, two, places):
    with_pool(house, 4000, [S1])
    house.refresh(policy(one, two))
    for place in (S1, S2):
        assert served(house, place) == ((POOL,) if place in places else ())


def test_a_queue_that_is_no_more_eligible_gets_no_job(house):
    with_pool(house, 4000, [S1])
    pilot = house.pilot("S1")
    house.refresh(policy(2000, 4000))
    assert house.claim(pilot) == []
    assert len(house.claim(house.pilot("S2"))) == 1


def test_a_request_that_was_made_before_a_refresh_gets_no_job_after_it(house):
    with_pool(house, 4000, [S1])
    command = house.claim_command(house.pilot("S1"))
    assert command.request.submit_pools == (POOL,)
    house.refresh(policy(2000, 4000))
    assert house.do(command) == []


def test_a_request_that_waits_in_a_queue_that_is_no_more_eligible_gets_no_job(house):
    _, answer = parked(house, house.pilot("S1"))
    with_pool(house, 4000, [S1])
    assert len(answer()) == 1
    parked(house, house.pilot("S1"))
    house.refresh(policy(2000, 4000))
    job = with_pool(house, 4000, [S2])
    assert house.state(job) == "Waiting"
    assert [claimed.job_id for claimed in house.claim(house.pilot("S2"))] == [job]


def test_a_queue_that_becomes_eligible_gets_the_job_at_once(house):
    with_pool(house, 4000, [S1])
    _, answer = parked(house, house.pilot("S2"))
    house.refresh(policy(2000, 4000))
    assert len(answer()) == 1


def test_the_time_stamp_is_one_and_moves_even_when_nothing_changed(house):
    with_pool(house, 4000, [S1])
    with_pool(house, 3000, [S1])
    keeper = house.keeper(policy(4000, 2000))
    keeper.tick(policy(4000, 2000), house.clock)
    house.clock += 900
    now = policy(4000, 2000)
    keeper = house.keeper(now)
    keeper.tick(now, house.clock)
    stamps = {row[0] for row in house.reader.execute("SELECT refreshed_at FROM submit_pool")}
    assert stamps == {house.clock}
    assert [(number, changed) for number, _, _, _, changed, _, _ in passes(house)] == [(1, 0), (2, 0)]


def test_a_pool_is_as_fresh_as_the_job_that_brought_it(house):
    house.refresh(policy(4000, 2000))
    house.clock += 10
    with_pool(house, 4000, [S1])
    assert house.reader.execute("SELECT created_at, refreshed_at FROM submit_pool").fetchone() == (
        1_010,
        1_010,
    )


def test_the_new_mapping_survives_a_restart(house):
    with_pool(house, 4000, [S1])
    house.refresh(policy(2000, 4000))
    house.restart()
    assert served(house, S2) == (POOL,)
    assert served(house, S1) == ()
    assert house.live.pools.last_pass.id == 1


def test_every_refresh_reports_its_work_and_its_trigger(house):
    with_pool(house, 4000, [S1])
    first, second = policy(4000, 2000), policy(2000, 4000)
    keeper = house.keeper(first)
    assert keeper.tick(first, house.clock) == "start"
    assert keeper.tick(first, house.clock + 899) == ""
    assert keeper.tick(first, house.clock + 900) == "interval"
    keeper = house.keeper(second)
    keeper.tick(first, house.clock) if first.digest == second.digest else keeper.tick(second, house.clock)
    told = [(number, cause, pools, changed) for number, _, cause, pools, changed, _, _ in passes(house)]
    assert told == [(1, "start", 1, 0), (2, "interval", 1, 0), (3, "start", 1, 1)]


def test_a_changed_configuration_is_a_cause_of_its_own(house):
    first = policy(4000, 2000)
    keeper = house.keeper(first)
    keeper.tick(first, house.clock)
    again = replace(policy(4000, 2000), loaded_at=house.clock)
    assert again.digest == first.digest
    assert keeper.tick(again, house.clock + 1) == "configuration"


def test_a_clock_that_was_set_back_does_not_stop_the_refresh(house):
    first = policy(4000, 2000)
    keeper = house.keeper(first)
    keeper.tick(first, house.clock)
    assert keeper.tick(first, house.clock - 5_000) == "interval"


def test_a_refresh_in_between_refuses_the_difference(house):
    with_pool(house, 4000, [S1])
    now = policy(2000, 4000)
    house.refresh(now)
    stale = PassResult(
        previous=0, answers=0, config=now.digest, cause="x", pools=1, seconds=0.0, masks={POOL: "0"}
    )
    with pytest.raises(Conflict, match="came between"):
        house.do(Change(refresh_pools, house.live, stale, now.digest))
    assert served(house, S2) == (POOL,)
    assert len(passes(house)) == 1


def test_an_evaluation_by_another_configuration_is_refused(house):
    with_pool(house, 4000, [S1])
    mine, other = policy(2000, 4000), policy(2000, 2000)
    found = PassResult(
        previous=0, answers=0, config=mine.digest, cause="x", pools=1, seconds=0.0, masks={POOL: "0"}
    )
    with pytest.raises(Conflict, match="another configuration") as caught:
        house.do(Change(refresh_pools, house.live, found, other.digest))
    assert caught.value.data == {"config": other.digest}
    assert served(house, S1) == (POOL,)
    assert passes(house) == []


def test_a_refused_refresh_is_tried_again(house):
    now = policy(2000, 4000)
    with_pool(house, 4000, [S1])
    keeper = house.keeper(now)
    post, refusals = keeper._post, [Conflict("x"), Conflict("x")]

    def often_late(call, body):
        if call is inner_calls.POOL_PASS and refusals:
            raise refusals.pop()
        return post(call, body)

    keeper._post = often_late
    assert keeper.tick(now, house.clock) == "start"
    assert served(house, S2) == (POOL,)
    refusals += [Conflict("x")] * 3
    with pytest.raises(Conflict):
        keeper.tick(now, house.clock + 900)
    assert keeper.tick(now, house.clock + 902) == "interval"


def test_requirements_that_are_no_longer_readable_have_no_queue(house):
    unreadable = msgspec.json.encode({"memory": ["number", ">=", "", ["lots"]]}).decode()
    pool = NewPool(id="req1:x", requirements=unreadable, vo="vo", queues=0b1)
    house.submit(key=house.key(submit_pool="req1:x"), pools=[pool])
    house.refresh(policy(4000, 4000))
    assert served(house, S1) == ()
    assert house.live.pools.known == {"req1:x"}


def test_queues_of_any_name(house):
    names = ["a/b", "a b", "q'\"", "\\u0041", "\u00e9\u2028", "%s;--", "req1:m", "[0]", "\x7f"]
    sites = "".join(
        f"[site.{msgspec.json.encode(n).decode()}.ce.ce.queue.q]\nMemory = 4000\n" for n in names[:4]
    )
    queues = "".join(
        f"[site.T.ce.{msgspec.json.encode(n).decode()}.queue.{msgspec.json.encode(n).decode()}]\nMemory = 4000\n"
        for n in names if n != "\x7f"
    )  # fmt: skip
    now = Policy(load_resources([("sites.toml", sites + queues)]))
    with_pool(house, 4000, [])
    house.refresh(now)
    places = [tuple(queue) for queue in now.config.tree.queue_ids()]
    assert len(places) == 4 + len(names) - 1
    for place in places:
        assert served(house, place) == (POOL,)
    house.restart()
    for place in places:
        assert served(house, place) == (POOL,)


S3, S4 = ("S3", "ce", "q"), ("S4", "ce", "q")


def test_a_queue_keeps_its_bit_while_the_server_runs_and_gives_it_to_another_at_the_next_start(house):
    with_pool(house, 4000, [])
    house.refresh(policy(4000, 4000))
    house.refresh(Policy(load_resources([("s.toml", "[site.S2.ce.ce.queue.q]\nMemory = 4000\n")])))
    assert bits_of_queues(house.reader) == {S1: 0, S2: 1}
    assert (served(house, S1), served(house, S2)) == ((), (POOL,))
    more = "[site.S3.ce.ce.queue.q]\nMemory = 4000\n[site.S2.ce.ce.queue.q]\nMemory = 1\n"
    house.refresh(Policy(load_resources([("s.toml", more)])))
    assert bits_of_queues(house.reader) == {S1: 0, S2: 1, S3: 2}
    assert (served(house, S3), served(house, S2)) == ((POOL,), ())
    house.restart(S4, S2)
    # S1 is free for S4; a SubmitPool has S3, so it keeps its bit.
    assert bits_of_queues(house.reader) == {S4: 0, S2: 1, S3: 2}
    assert (served(house, S3), served(house, S4)) == ((POOL,), ())
    house.refresh(Policy(load_resources([("s.toml", more.replace("S3", "S4"))])))
    assert (served(house, S3), served(house, S4)) == ((), (POOL,))
    house.restart(S4, S2)
    assert bits_of_queues(house.reader) == {S4: 0, S2: 1}


def test_a_site_before_all_others_changes_no_stored_mask(house):
    with_pool(house, 4000, [S2])
    house.refresh(policy(1, 4000))
    more = "[site.S0.ce.ce.queue.q]\nMemory = 1\n" + SITES.format(one=1, two=4000)
    house.refresh(Policy(load_resources([("s.toml", more)])))
    assert [changed for *_, changed, _, _ in passes(house)] == [0, 0]
    assert (served(house, S2), served(house, ("S0", "ce", "q"))) == ((POOL,), ())


def test_bits_of_a_batch_that_failed_are_given_again(house):
    tx = Transaction(house.writer, house.clock)
    assert number_queues(tx, house.live, [S3]) == {S1: 0, S2: 1, S3: 2}
    tx.roll_back_memory()
    assert house.live.pools.bits == bits_of_queues(house.reader) == {S1: 0, S2: 1}
    assert house.mask([S4]) == 0b100


def test_a_copy_of_the_pools_follows_each_change(house):
    copy = KnownPools(house.reader)
    assert copy.look().of_queue(S1).pools == ()
    with_pool(house, 4000, [S1])
    assert copy.look().of_queue(S1).pools == (POOL,)
    assert copy.look() is copy.look()
    house.refresh(policy(1, 4000))
    assert (copy.look().of_queue(S1).pools, copy.look().of_queue(S2).pools) == ((), (POOL,))


# With another unit stored pools have other identifiers, and these are refused before any refresh.
GB = '[job_description]\nMemory = "number GB"\n'


@pytest.mark.parametrize("mine", [policy(2000, 4000), policy(2, 4, GB)], ids=["pass", "renewals"])
def test_a_configuration_that_the_other_process_has_not_read_yet_is_waited_for(house, mine, caplog):
    """Each process reads the files itself; one may be first."""
    with_pool(house, 4000, [S1])
    keeper = house.keeper(policy(4000, 4000))
    before = passes(house)
    with caplog.at_level("WARNING"):
        for seconds in (0.0, 2.0, _CONFLICT_SECONDS - 0.1):
            assert keeper.tick(mine, house.clock + seconds) == ""
    assert (passes(house), caplog.text) == (before, "")
    keeper._post = house.keeper(mine)._post  # now it has read them, too
    assert keeper.tick(mine, house.clock + 40.0) == "start"
    assert (len(served(house, S1)), len(served(house, S2))) == (0, 1)


def test_processes_that_differ_for_long_are_a_failure_and_no_try_is_wasted(house):
    with_pool(house, 4000, [S1])
    keeper, mine = house.keeper(policy(4000, 4000)), policy(2000, 4000)
    post, asked = keeper._post, []
    keeper._post = lambda call, body: asked.append(call) or post(call, body)
    assert keeper.tick(mine, 1_000.0) == ""
    assert asked.count(inner_calls.POOL_PASS) == 1
    for now in (1_000.0 + _CONFLICT_SECONDS, 2_000.0):
        with pytest.raises(Conflict, match="another configuration"):
            keeper.tick(mine, now)
    assert keeper.tick(mine, 900.0) == ""  # a clock that was set back
    keeper._post = house.keeper(mine)._post
    assert keeper.tick(mine, 3_000.0) == "start"
    keeper._post = post
    assert keeper.tick(policy(1, 4000), 3_001.0) == ""  # the next change has its own time


def test_new_shares_hold_from_the_next_claim_on(house):
    house.submit(200, key=house.key(group="a"))
    house.submit(200, key=house.key(group="b"))
    pilot = house.pilot(cores=1000)
    house.do(Change(set_shares, house.live, {"a": GroupShare(share=1_000_000), "b": GroupShare(share=1)}))
    claimed = house.claim(pilot, 50)
    assert sum(c.job_id <= 200 for c in claimed) >= 48
    house.do(Change(set_shares, house.live, {"a": GroupShare(share=1), "b": GroupShare(share=1_000_000)}))
    claimed = house.claim(pilot, 50)
    assert sum(c.job_id > 200 for c in claimed) >= 48
