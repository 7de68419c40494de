"""Jobs that an action chooses by description: found out before the command, which takes only what is known."""

from functools import partial

import pytest
from tests.contract.test_change_jobs import change

from lodesman.server.writer import choice
from lodesman.server.writer.choice import Choice
from lodesman.server.writer.control import Control
from lodesman.wire.job_queries import Selection

BODY = '{"spec": {"name": "fit", "arguments": ["-x", "%s"]}}'


@pytest.fixture
def chosen():
    return Choice.of(Selection(where=["Arguments=x*"]), "ann")


def kill(house, chosen, *ranges):
    act = partial(Control, house.live, "kill", reason="", may=lambda *_: True, choice=chosen)
    return house.do(act(ranges=ranges))


def test_what_was_not_learned_is_left_as_it_is(house, chosen):
    house.batch([BODY % "x", BODY % "y"])
    house.submit(3, body=BODY % "x")
    out = kill(house, chosen, range(1, 6))
    assert (out.changed, out.refused, out.rest) == (0, 0, (range(1, 6),))
    chosen.learn(house.reader, [range(1, 3)])
    out = kill(house, chosen, range(1, 3), range(3, 6))
    assert (out.changed, out.rest) == (1, (range(3, 6),))
    chosen.learn(house.reader, out.rest)
    assert (kill(house, chosen, range(3, 6)).changed, house.counts()) == (3, {"Waiting": 1, "Killed": 4})


@pytest.mark.parametrize("rows", [True, False])
def test_what_changes_meanwhile_is_learned_anew(house, chosen, rows):
    house.submit(6, body=BODY % "x", rows=rows)
    if rows:
        house.claim(house.pilot(), 2)
    chosen.learn(house.reader, [range(1, 7)])
    assert change(house, 4, 5) == (2, 0)
    out = kill(house, chosen, range(1, 7))
    assert (out.changed, out.rest) == (3, (range(4, 7),))
    assert kill(house, chosen, range(4, 7)).rest == (range(4, 7),)
    chosen.learn(house.reader, out.rest)
    out = kill(house, chosen, range(4, 7))
    assert (out.changed, out.rest) == (1, ())
    assert [number for number in range(1, 7) if house.state(number) == "Waiting"] == [4, 5]


ASKED = [
    {"name": "f?t"}, {"name": "no*"}, {"job_class": "*"}, {"job_group": "*"}, {"job_class": "none"}, {"where": ["Tag=x"]},
    {"where": ["Arguments=x*", "Tag=*"]}, {"name": "*", "where": ["Arguments=*", "JobName=f*"], "job_class": "c.*"},
    {"name": "fit", "where": ["Arguments=*y"]},
]  # fmt: skip


def test_all_is_known_that_one_command_reaches(house):
    house.batch([BODY % "x", BODY % "y", "{}"])
    house.submit(3, body=BODY % "x")
    house.submit(2, rows=True)
    house.claim(house.pilot(), 2)
    for asked in ASKED:
        chosen = Choice.of(Selection(**asked), "ann")
        chosen.learn(house.reader, [range(1, 9)])
        assert (kill(house, chosen, range(1, 9)).rest, asked) == ((), asked)


def test_a_portion_is_of_so_many_kinds_of_jobs(house, chosen, monkeypatch):
    monkeypatch.setattr(choice, "MOST_ROWS", 3)
    for _ in range(3):
        house.batch([BODY % "x", BODY % "x"])
    chosen.learn(house.reader, [range(1, 7)])
    assert kill(house, chosen, range(1, 7)).rest == (range(3, 7),)
    chosen.learn(house.reader, [range(3, 7)])
    assert kill(house, chosen, range(3, 7)).rest == (range(5, 7),)


def test_members_that_are_alike_are_one_kind(house, chosen):
    for _ in range(3):
        house.submit(5_000, body=BODY % "x")
    chosen.learn(house.reader, [range(1, 15_001)])
    assert kill(house, chosen, range(1, 15_001)).changed == 15_000
