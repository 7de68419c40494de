"""What waiting tells: nothing by itself, a line on standard error, or a function of the caller's."""

import asyncio
import io
from typing import Any, cast

import pytest

from lodesman.base.errors import InvalidRequest
from lodesman.user.python import progress
from lodesman.user.python.asynchronous import AsyncClient
from lodesman.user.python.core import ServerCore
from lodesman.user.python.jobs import Job, Jobs
from lodesman.wire import calls
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import MOST_RANGES, Waited

WAITS, RUNS, DONE, FAILED = JobState.WAITING, JobState.RUNNING, JobState.DONE, JobState.FAILED


class Scripted:
    """A server whose jobs go on at each question."""

    def __init__(self, *states: dict[JobState, int]) -> None:
        self.states = list(states)
        self.asked: list[tuple[str, int]] = []

    def __copy__(self) -> "Scripted":
        return self

    def call(self, call: Any, query: Any) -> Waited:
        assert call is calls.WAIT
        self.asked.append((query.jobs, query.seconds))
        states = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        left = states.get(WAITS, 0) + states.get(RUNS, 0)
        return Waited(over=not left, left=left, states=states)


STORY = ({WAITS: 2, RUNS: 0}, {WAITS: 2}, {RUNS: 1, WAITS: 1}, {RUNS: 1, DONE: 1}, {DONE: 1, FAILED: 1})


def waiting(*states):
    server = Scripted(*states)
    return server, ServerCore(cast("Any", server))


def test_nothing_is_told_and_the_server_asked_once_unless_somebody_wants_to_know(capsys):
    server, core = waiting({DONE: 2})
    assert Jobs(core, [7, 8]).wait()
    assert Job(core, 7).wait(progress=False)
    assert server.asked == [("7-8", 50), ("7", 50)]
    assert capsys.readouterr() == ("", "")


def test_a_function_gets_the_states_first_and_whenever_they_change():
    server, core = waiting(*STORY)
    told: list[Any] = []
    assert Jobs(core, [7, 8]).wait(progress=told.append)
    assert told == [{WAITS: 2}, {RUNS: 1, WAITS: 1}, {RUNS: 1, DONE: 1}, {DONE: 1, FAILED: 1}]
    assert server.asked == [("7-8", 0), *[("7-8", progress.TELL_SECONDS)] * 4]


def test_what_the_function_raises_ends_the_wait_and_a_time_limit_holds():
    def stop(_states: object) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        Jobs(waiting(*STORY)[1], [7, 8]).wait(progress=stop)
    told: list[Any] = []
    assert not Jobs(waiting({WAITS: 1})[1], [7]).wait(0, progress=told.append)
    assert told == [{WAITS: 1}]


def test_of_more_jobs_than_a_question_names_all_are_told():
    apart = range(1, 4 * MOST_RANGES, 2)
    _, core = waiting({DONE: 5})
    told: list[Any] = []
    assert Jobs(core, apart).wait(progress=told.append)
    assert told == [{DONE: 10}], "of both parts, whenever one of them is looked at"


def test_a_line_on_a_terminal_is_drawn_again_in_place_and_stays(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(progress.sys, "stderr", screen)
    assert Jobs(waiting(*STORY)[1], [7, 8]).wait(progress=True)
    first, *others = screen.getvalue().split("\r")[1:]
    assert first == "[....................]  0 of 2 ended: 2 Waiting\x1b[K"
    assert others[-1] == "[####################]  2 of 2 ended: 1 Done, 1 Failed\x1b[K\n"
    assert len(others) == 3


def test_in_a_file_there_is_a_line_at_first_each_minute_and_at_the_end():
    file, now = io.StringIO(), [0.0]
    line = progress.ProgressLine(file, lambda: now[0])
    for at, states in enumerate(STORY):
        now[0] = at * 25.0
        line.show(states)
    line.close()
    line.close()
    assert [one.partition("ended: ")[2] for one in file.getvalue().splitlines()] == [
        "2 Waiting", "1 Done, 1 Running", "1 Done, 1 Failed",
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["bar", 7, [1]])
def test_what_is_neither_is_refused(wrong):
    with pytest.raises(InvalidRequest, match="neither True nor a function"):
        Jobs(waiting({DONE: 1})[1], [7]).wait(progress=wrong)


def test_coroutines_are_told_too(monkeypatch):
    monkeypatch.setattr("lodesman.user.python.asynchronous.TELL_SECONDS", 0)
    server = Scripted(*STORY)

    class Watching:
        def when_ended(self, job: int, act: Any) -> None:
            acts.append(act)

    acts: list[Any] = []
    told: list[Any] = []

    async def main() -> None:
        client = AsyncClient("http://127.0.0.1:9", token="none")
        client._client.core = ServerCore(cast("Any", server))
        client._watcher = cast("Any", Watching())

        def tell(states: Any) -> None:
            told.append(states)
            if states == {DONE: 1, FAILED: 1}:
                for act in acts:
                    act(Waited(over=True, left=0, states={}))

        await client.wait([Job(client._client.core, 7), Job(client._client.core, 8)], progress=tell)

    asyncio.run(main())
    assert told == [{WAITS: 2}, {RUNS: 1, WAITS: 1}, {RUNS: 1, DONE: 1}, {DONE: 1, FAILED: 1}]
