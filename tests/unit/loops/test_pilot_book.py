"""Live pilots as masks: who could take a job, by the claim's own predicate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.director.site_mask import SiteMask
from lodesman.decide.matching.criteria import explain
from lodesman.server.loops.left_out import LeftOutItems
from lodesman.server.loops.limit_use import Barrier
from lodesman.server.loops.pilot_book import PilotBook
from lodesman.server.store.read.pilots import live_pilots
from lodesman.server.writer.sessions import PilotSession
from lodesman.wire.nodes import Closing, QueueId

OFFER = (
    '{{"platforms":["{platform}"],"tags":[],"cores":{cores},"memory_mb":{memory},"norm_cpu_seconds":{cpu}}}'
)
NOW = 100.0
PLACE = frozenset({QueueId("North", "ce", "q")})


@pytest.fixture
def add(base):
    """Put a pilot into the table; returns its id."""
    numbers = iter(range(1, 10_000))

    def put(
        state="Running", *, site="North", platform="el9", cores=4, vo="lab", drain=0, node="{}", busy=False,
        memory=1_000_000_000, cpu=1_000_000_000, seen=50.0,
    ):  # fmt: skip
        number = next(numbers)
        joined = 50.0 if state == "Running" else None
        offer = OFFER.format(platform=platform, cores=cores, memory=memory, cpu=cpu)
        with base.writer:
            base.writer.execute(
                """INSERT INTO pilot (id, stamp, state, vo, site, ce, queue, request, node, created_at, joined_at,
                last_seen, drain) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)""",
                (number, f"s{number}", state, vo, site, "ce", "q", offer, node,
                 40.0, joined, joined and seen, drain),
            )  # fmt: skip
            if busy:
                base.writer.execute(
                    """INSERT INTO attempt (id, job_id, number, tq_id, pilot_id, claim_token, site, claimed_at)
                    VALUES (?,?,1,1,?,'t','North',60)""",
                    (number, number, number),
                )
        return number

    return put


def end(base, number):
    with base.writer:
        base.writer.execute("UPDATE pilot SET state = 'Done', ended_at = 90 WHERE id = ?", (number,))


def test_no_live_pilots(base, make_key):
    book = PilotBook()
    book.refresh(base.db, NOW)
    found = book.usable(make_key(), None, now=NOW)
    assert (found.live, found.any_usable, found.seen_seconds_ago) == (0, False, None)


def test_pilots_are_distinguished_by_their_state(base, add, make_key):
    add(), add(busy=True), add("Submitted"), add("Prepared"), add(drain=1), add(vo="other")
    book = PilotBook()
    book.refresh(base.db, NOW)
    found = book.usable(make_key(), None, now=NOW)
    assert (found.live, found.usable_idle, found.usable_busy, found.usable_waiting, found.draining) == (
        5,
        1,
        1,
        2,
        1,
    )
    assert found.seen_seconds_ago == 50.0


def test_only_what_fits_is_usable(base, add, make_key):
    add(cores=1), add(cores=8, platform="el8")
    book = PilotBook()
    book.refresh(base.db, NOW)
    assert book.usable(make_key(cores=2), None, now=NOW).usable_idle == 1
    assert book.usable(make_key(cores=2, platforms=("el9",)), None, now=NOW).usable_idle == 0
    assert book.usable(make_key(sites=("South",)), None, now=NOW).usable_idle == 0


def test_pilots_leave_queues_that_were_closed_since_the_last_snapshot(base, add, make_key):
    add(), add(busy=True), add("Submitted"), add(seen=-1_000.0), add(drain=1), add(site="South")
    book = PilotBook()
    book.refresh(base.db, NOW)
    mask = SiteMask([Closing("North", "", "", "x", "root", 0.0, 200.0, False)])
    for _ in range(2):  # searched once, and again
        found = book.usable(make_key(), None, now=NOW, drained=mask.drained(100.0))
        assert (found.usable_idle, found.usable_busy, found.usable_waiting, found.silent, found.draining) == (
            1,
            0,
            0,
            0,
            5,
        )
    found = book.usable(make_key(), None, now=NOW, drained=mask.drained(200.0))
    assert (found.usable_idle, found.usable_busy, found.usable_waiting, found.silent, found.draining) == (
        2,
        1,
        1,
        1,
        1,
    )


def test_pilots_offer_no_more_than_is_left_until_a_closing_begins(base, add, make_key):
    add(), add(site="South")
    book = PilotBook()
    book.refresh(base.db, NOW)
    key = make_key(norm_cpu_seconds=600)
    before = book.inhabited(frozenset({QueueId("North", "ce", "q")}))
    mask = SiteMask([Closing("North", "", "", "x", "root", 0.0, None, False, NOW + 500.0)])
    book.refresh(base.db, NOW, mask=mask)
    assert book.usable(key, None, now=NOW).usable_idle == 1
    assert book.usable(make_key(norm_cpu_seconds=400), None, now=NOW).usable_idle == 2
    # They are there all the same: no job is called impossible for that.
    assert book.inhabited(frozenset({QueueId("North", "ce", "q")})) == before
    book.refresh(base.db, NOW + 200.0, mask=mask)
    assert book.usable(make_key(norm_cpu_seconds=400), None, now=NOW + 200.0).usable_idle == 1
    book.refresh(base.db, NOW + 200.0)
    assert book.usable(key, None, now=NOW + 200.0).usable_idle == 2


def test_a_pool_is_served_by_the_places_that_serve_it_now(base, add, make_key):
    add(site="North"), add(site="South")
    book = PilotBook()
    book.refresh(base.db, NOW)
    key = make_key(submit_pool="req1:x")
    assert book.usable(key, {("South", "ce", "q")}, now=NOW).usable_idle == 1
    assert book.usable(key, frozenset(), now=NOW).usable_idle == 0


def test_a_pilot_that_joins_is_known_by_its_node(base, add, make_key):
    number = add("Submitted", cores=16)
    book = PilotBook()
    book.refresh(base.db, NOW)
    assert book.usable(make_key(cores=16), None, now=NOW).usable_waiting == 1
    with base.writer:
        base.writer.execute(
            "UPDATE pilot SET state = 'Running', joined_at = 60, node = '{\"cores\":8}' WHERE id = ?",
            (number,),
        )
    book.refresh(base.db, NOW)
    assert [book.usable(make_key(cores=n), None, now=NOW).usable_idle for n in (8, 16)] == [1, 0]


def test_an_ended_pilot_is_dropped_and_its_slot_is_used_again(base, add, make_key):
    book = PilotBook()
    for _ in range(3):
        number = add()
        book.refresh(base.db, NOW)
        assert book.usable(make_key(), None, now=NOW).usable_idle == 1
        end(base, number)
    book.refresh(base.db, NOW)
    assert book.usable(make_key(), None, now=NOW).live == 0


def test_a_node_that_has_less_than_its_queue_counts_for_what_it_has(base, add, make_key):
    add(node='{"memory_mb":2000,"cores":2}', memory=8_000)
    book = PilotBook()
    book.refresh(base.db, NOW)
    wishes = [{"memory_mb": 2_000}, {"memory_mb": 2_001}, {"cores": 2}, {"cores": 3}]
    assert [book.usable(make_key(**wish), None, now=NOW).usable_idle for wish in wishes] == [1, 0, 1, 0]


def test_a_queue_that_declares_no_memory_has_no_pilot_for_a_job_that_asks_some(base, add, make_key):
    """It would read `now` for ever: the claim says no."""
    add(memory=0, node='{"memory_mb":64000}')
    book = PilotBook()
    book.refresh(base.db, NOW)
    assert book.usable(make_key(), None, now=NOW).usable_idle == 1
    assert not book.usable(make_key(memory_mb=1), None, now=NOW).any_usable


def test_what_is_left_of_a_life_counts_and_gets_less(base, add, make_key):
    add(node='{"life_s":1000.0,"cpu_scaling_factor":2.0}')  # it joined at 50
    book = PilotBook()
    left = []
    for now in (50.0, 51.0, 540.0, 551.0, 2_000.0):
        book.refresh(base.db, now)
        left.append([book.usable(make_key(norm_cpu_seconds=cpu), None, now=NOW) for cpu in (1_980, 960, 1)])
    idle = [[one.usable_idle + one.silent for one in row] for row in left]
    assert idle == [[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 0]]
    assert book._table.narrow(1, make_key()) == 0


@pytest.mark.parametrize(("busy", "seen", "counts"), [
    (False, 100.0, (1, 0, 0)), (True, 100.0, (0, 1, 0)), (False, 99.0, (0, 0, 1)), (True, 99.0, (0, 0, 1)),
])  # fmt: skip
def test_a_silent_pilot_does_not_count(base, add, make_key, busy, seen, counts):
    add(busy=busy, seen=seen)
    book = PilotBook()
    book.refresh(base.db, 400.0)
    found = book.usable(make_key(), None, now=NOW)
    assert (found.usable_idle, found.usable_busy, found.silent) == counts
    assert found.any_usable == (counts[2] == 0)
    assert bool(book.inhabited(PLACE)) == (counts[2] == 0)
    assert book.usable(make_key(cores=9), None, now=NOW).silent == 0


def test_what_runs_counts_where_the_job_could_follow_it(base, add, make_key):
    """Of pilots that take jobs and that fit, not of those that leave, are silent, closed or limited."""
    add(busy=True), add(busy=True, drain=1), add(busy=True, platform="el8"), add()
    other, barred = add(busy=True, site="South"), add(busy=True)
    with base.writer:
        base.writer.execute("UPDATE attempt SET claimed_at = 70, tq_id = 2 WHERE pilot_id = ?", (other,))
    book = PilotBook()
    book.refresh(base.db, NOW)
    key = make_key(platforms=("el9",))
    assert book.running(key, None).begun == {(1, 1): [60.0, 60.0], (2, 1): [70.0]}
    first, there = book.running(key, PLACE, barred=Barrier([barred]))
    assert there == {(1, 1): [60.0]}
    assert (
        book.running(key, PLACE, barred=Barrier([barred])).pilots == first != book.running(key, None).pilots
    )
    assert book.running(make_key(cores=9), None).begun == {}
    book.refresh(base.db, 400.0)
    assert book.running(key, None).begun == {}, "they are silent"


def test_a_pilot_on_its_way_is_not_silent(base, add, make_key):
    add("Submitted")
    book = PilotBook()
    book.refresh(base.db, 10.0**6)
    assert book.usable(make_key(), None, now=NOW).usable_waiting == 1


def test_a_queue_that_changed_changes_the_pilots_that_are_there(base, add, make_key):
    number = add(platform="el9")
    book = PilotBook()
    book.refresh(base.db, NOW)
    with base.writer:
        text = OFFER.format(platform="el8", cores=4, memory=0, cpu=100)
        base.writer.execute("UPDATE pilot SET request = ? WHERE id = ?", (text, number))
    book.refresh(base.db, NOW)
    assert [book.usable(make_key(platforms=(one,)), None, now=NOW).usable_idle for one in ("el8", "el9")] == [
        1,
        0,
    ]


def _whole(session):
    return session.empty(NOW)


worlds = st.lists(
    st.tuples(
        st.sampled_from(["Running", "Submitted"]), st.sampled_from(["North", "South"]),
        st.sampled_from(["el8", "el9", ""]), st.integers(0, 4), st.booleans(),
    ),
    max_size=6,
)  # fmt: skip
wishes = st.fixed_dictionaries(
    {},
    optional={
        "cores": st.integers(1, 4),
        "platforms": st.sampled_from([("el8",), ("el8", "el9")]),
        "sites": st.sampled_from([("North",), ("South",)]),
    },
)


@at_most(40)
@given(worlds, wishes)
def test_usable_is_what_the_claim_would_say(base, add, make_key, world, wish):
    with base.writer:
        base.writer.execute("DELETE FROM pilot")
    for state, site, platform, cores, drain in world:
        add(state, site=site, platform=platform, cores=cores, drain=int(drain))
    book = PilotBook()
    book.refresh(base.db, NOW)
    key = make_key(**wish)
    expected = 0
    for row in live_pilots(base.db):
        expected += not row.drain and not explain(key, _whole(PilotSession(row, now=0.0)))
    found = book.usable(key, None, now=NOW)
    assert found.usable_idle + found.usable_busy + found.usable_waiting == expected


@pytest.mark.parametrize("column", ["request", "node", "state"])
def test_a_damaged_row_costs_its_own_pilot_alone(base, add, make_key, column):
    book, left_out = PilotBook(), LeftOutItems()
    for _ in range(3):
        add()
    with base.writer:
        base.writer.execute(f"UPDATE pilot SET {column} = '{{' WHERE id = 2")
    before = base.db.only("SELECT request, node, state FROM pilot WHERE id = 1")
    for live, named in ((2, {"pilot 2"}), (2, {"pilot 2"}), (3, set())):
        if not named:
            with base.writer:
                base.writer.execute("UPDATE pilot SET request = ?, node = ?, state = ? WHERE id = 2", before)
        with left_out.step("the snapshot") as left:
            book.refresh(base.db, NOW, left=left)
        assert set(left_out.named()) == named
        assert book.usable(make_key(), None, now=NOW).live == live
