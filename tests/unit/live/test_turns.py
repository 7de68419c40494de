"""Turns at the writer: one action a user, and a rest for all of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace

from lodesman.server.live.fairness import Turns

WORK = 0.05
# What no busy machine takes by itself.
LONG = 30.0


def timed(actions, *, jobs, others=0, work=WORK):
    """When each of some commands at once was posted and answered (seconds from the first), each of `work` seconds; with each
    the writer applies some of `others`.
    """

    async def run():
        loop, spans = asyncio.get_running_loop(), []

        async def post(_command):
            begun = loop.time()
            await asyncio.sleep(0)
            spans.append((begun, loop.time()))
            return SimpleNamespace(seconds=work)

        turns = Turns(post, lambda: len(spans) * (1 + others))
        await asyncio.gather(*(turns.command("command", jobs=jobs) for _ in range(actions)))
        return [(begun - spans[0][0], ended - spans[0][0]) for begun, ended in spans]

    return asyncio.run(run())


def test_commands_about_many_jobs_rest_as_long_as_they_worked_and_committed():
    spans = timed(3, jobs=1_000, others=1)
    assert all(later[0] - before[1] >= 2 * WORK - 0.001 for before, later in pairwise(spans))


def test_where_nothing_else_is_asked_there_is_no_rest():
    assert timed(3, jobs=1_000, work=LONG)[-1][0] < LONG


def test_commands_about_few_jobs_share_commits():
    assert timed(20, jobs=1, others=1, work=LONG)[-1][0] < LONG


def test_what_a_user_waits_for_is_forgotten_when_it_is_done():
    async def run():
        turns, order = Turns(lambda _: None, int), []

        async def act(user, name):
            async with turns.of(user):
                order.append(f"{name} begins")
                await asyncio.sleep(0)
                order.append(f"{name} ends")

        await asyncio.gather(act("ann", "first"), act("ann", "second"), act("bob", "other"))
        return order, len(turns._of)

    order, left = asyncio.run(run())
    assert order.index("first ends") < order.index("second begins")
    assert order.index("other begins") < order.index("first ends")
    assert left == 0
