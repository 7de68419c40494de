"""jc_list and hosts: what a pilot offers before and after its host is known, and when the configuration changes."""

from __future__ import annotations

import msgspec
import pytest
from tests.contract.test_jobs_walk import parked

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.server.reads.plan_resources import _pilots
from lodesman.server.store.journal import Change
from lodesman.server.writer.pilots import hash_token, join_pilot, prepare_pilots
from lodesman.server.writer.reoffer import Offers, set_offers
from lodesman.server.writer.sessions import PilotSession, load_sessions
from lodesman.wire.service import NewPilot

GPUS = "group_name @gpu\nhostlist node7 node8\n"
LIST = "NO_JC,[@gpu=app],[node9=NONE]"
APP = {"job_class": "app", "variant": "default"}


def offers(jc_list=LIST, groups=GPUS):
    text = f"[site.S1.ce.ce.queue.q]\nNumberOfProcessors = 8\nMemory = 16000\nJcList = {jc_list!r}\n"
    return Offers(
        Policy(load_resources([("s.toml", text)]), vocabulary=read_vocabulary({"g": groups}, faults=[])),
        ["vo"],
    )


def configure(house, now):
    return house.do(Change(set_offers, house.live, house.sessions, now))


def prepared(house):
    house.pilots += 1
    stamp = f"stamp{house.pilots}"
    new = NewPilot(
        stamp=stamp, vo="vo", site="S1", ce="ce", queue="q", request={}, join_hash=hash_token(stamp)
    )
    return stamp, *house.do(Change(prepare_pilots, house.live, [new]))


def pilot(house, host):
    """A pilot that has joined on a host."""
    stamp, number = prepared(house)
    joined = house.do(Change(join_pilot, house.live, stamp, "n", {"cores": 8, "host": host}))
    house.sessions[number] = PilotSession(joined.row, now=house.clock)
    return number


def stored(house, number):
    (text,) = house.reader.execute("SELECT request FROM pilot WHERE id = ?", (number,)).fetchone()
    return msgspec.json.decode(text)["job_classes"]


def presented(house, number):
    return house.sessions[number].offer.job_classes


@pytest.mark.parametrize(
    ("host", "classes", "jobs"),
    [("node1", ("NO_JC",), [1]), ("NODE7", ("app",), [2]), ("node9", (), []), ("", ("NO_JC",), [1])],
)
def test_the_list_of_its_host_counts_from_the_join_on(house, host, classes, jobs):
    configure(house, offers())
    house.submit()
    house.submit(key=house.key(**APP))
    number = pilot(house, host)
    assert presented(house, number) == classes
    assert tuple(stored(house, number)) == classes
    assert [one.job_id for one in house.claim(number, 8)] == jobs


def test_before_its_host_is_known_a_pilot_may_be_for_any_of_them(house):
    configure(house, offers())
    _, number = prepared(house)
    assert stored(house, number) == ["NO_JC", "app"]
    configure(house, offers("NO_JC,[@gpu=other]"))
    assert stored(house, number) == ["NO_JC", "other"]


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (offers("NO_JC,[@gpu=other],[node9=NONE]"), [("NO_JC",), ("other",), ()]),
        (offers(groups="group_name @gpu\nhostlist node1\n"), [("app",), ("NO_JC",), ()]),
        (
            offers("app,[@gpu=NO_JC],[@gpus=app]", GPUS + "group_name @gpus\nhostlist node7\n"),
            [("app",), (), ("app",)],
        ),
        (offers("app"), [("app",), ("app",), ("app",)]),
        (offers("ANY_JC,NO_JC"), [None, None, None]),
    ],
    ids=["another list", "other host groups", "ambiguous", "one list", "everything"],
)
def test_another_list_and_other_host_groups_reach_the_pilots_that_are_there(house, now, after):
    configure(house, offers())
    there = [pilot(house, host) for host in ("node1", "node7", "node9")]
    configure(house, now)
    assert [presented(house, number) for number in there] == after
    assert [stored(house, number) for number in there] == [one if one is None else list(one) for one in after]
    # As after a restart, and as a plan would have it.
    sessions = load_sessions(house.reader, now=house.clock)
    assert [sessions[number].offer.job_classes for number in there] == after
    assert configure(house, now) == 0


def test_a_pilot_that_waits_gets_a_job_that_its_host_takes_from_now_on(house):
    configure(house, offers())
    job = house.submit(key=house.key(**APP)).first
    _, answer = parked(house, pilot(house, "node1"))
    configure(house, offers("NO_JC,[@gpu=other]"))
    assert house.state(job) == "Waiting"
    configure(house, offers("NO_JC,[node1=app]"))
    assert [one.job_id for one in answer()] == [job]


def test_a_plan_presents_pilots_on_their_hosts(house):
    configure(house, offers())
    pilot(house, "node7")
    prepared(house)

    class State:
        db, now, faulty = house.reader, house.clock, ()

    views = _pilots(State, offers("NO_JC,[@gpu=other]"))
    assert sorted(one.request.job_classes for one in views) == [("NO_JC", "other"), ("other",)]
