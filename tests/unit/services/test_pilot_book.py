"""Live pilots as masks: who could take a job, by the claim's own predicate."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.matching import fits
from lodesman.services.sessions import PilotSession
from lodesman.services.why.pilot_book import NO_POOLS, WHOLE, PilotBook
from lodesman.store import pilots

OFFER = '{{"platforms":["{platform}"],"tags":[],"cores":{cores},"memory_mb":0,"norm_cpu_seconds":0}}'


@pytest.fixture
def add(base):
    """Put a pilot into the table; returns its id."""
    numbers = iter(range(1, 10_000))

    def put(
        state="Running", *, site="North", platform="el9", cores=4, vo="lab", drain=0, node="{}", busy=False
    ):
        number = next(numbers)
        joined = 50.0 if state == "Running" else None
        with base.writer:
            base.writer.execute(
                """INSERT INTO pilot (id, stamp, state, vo, site, ce, queue, request, node, created_at, joined_at,
                last_seen, drain) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)""",
                (number, f"s{number}", state, vo, site, "ce", "q", OFFER.format(platform=platform, cores=cores), node,
                 40.0, joined, joined, drain),
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


def test_nobody_lives(base, make_key):
    book = PilotBook()
    book.refresh(base.db)
    found = book.usable(make_key(), None)
    assert (found.live, found.any, found.heard_at) == (0, False, None)


def test_pilots_are_told_apart_by_what_they_do(base, add, make_key):
    add(), add(busy=True), add("Submitted"), add("Prepared"), add(drain=1), add(vo="other")
    book = PilotBook()
    book.refresh(base.db)
    found = book.usable(make_key(), None)
    assert (found.live, found.idle, found.busy, found.coming, found.draining) == (5, 1, 1, 2, 1)
    assert found.heard_at == 50.0


def test_only_what_fits_is_usable(base, add, make_key):
    add(cores=1), add(cores=8, platform="el8")
    book = PilotBook()
    book.refresh(base.db)
    assert book.usable(make_key(cores=2), None).idle == 1
    assert book.usable(make_key(cores=2, platforms=("el9",)), None).idle == 0
    assert book.usable(make_key(sites=("South",)), None).idle == 0


def test_a_pool_is_served_by_the_places_that_serve_it_now(base, add, make_key):
    add(site="North"), add(site="South")
    book = PilotBook()
    book.refresh(base.db)
    key = make_key(submit_pool="req1:x")
    assert book.usable(key, {("South", "ce", "q")}).idle == 1
    assert book.usable(key, frozenset()).idle == 0


def test_a_pilot_that_joins_is_known_by_its_node(base, add, make_key):
    number = add("Submitted", cores=0)
    book = PilotBook()
    book.refresh(base.db)
    assert book.usable(make_key(cores=8), None).coming == 0
    with base.writer:
        base.writer.execute(
            "UPDATE pilot SET state = 'Running', joined_at = 60, node = '{\"cores\":16}' WHERE id = ?",
            (number,),
        )
    book.refresh(base.db)
    assert book.usable(make_key(cores=8), None).idle == 1


def test_who_ended_is_forgotten_and_its_slot_is_used_again(base, add, make_key):
    book = PilotBook()
    for _ in range(3):
        number = add()
        book.refresh(base.db)
        assert book.usable(make_key(), None).idle == 1
        end(base, number)
    book.refresh(base.db)
    assert book.usable(make_key(), None).live == 0


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


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds, wishes)
def test_usable_is_what_the_claim_would_say(base, add, make_key, world, wish):
    with base.writer:
        base.writer.execute("DELETE FROM pilot")
    for state, site, platform, cores, drain in world:
        add(state, site=site, platform=platform, cores=cores, drain=int(drain))
    book = PilotBook()
    book.refresh(base.db)
    key = make_key(**wish)
    expected = 0
    for values in base.db.execute(f"SELECT {pilots.COLUMNS} FROM pilot"):
        row = pilots.row_of(values)
        expected += not row.drain and fits(key, PilotSession(row, {}, now=0.0).request(WHOLE, NO_POOLS))
    found = book.usable(key, None)
    assert found.idle + found.busy + found.coming == expected
