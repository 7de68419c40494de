"""What a shell completes: files, and names that the server knows. It waits 2 s at most, and says nothing.

Others choose many names: one that a shell could take for more than text is not offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.session import Session
from lodesman.user.cli.words import FINAL, STATES, path_of, plain
from lodesman.wire import calls
from lodesman.wire.call import Call, Nothing
from lodesman.wire.job_queries import JobsQuery
from lodesman.wire.requests import AllQuery, PilotsQuery, QueuesQuery, TaskQueuesQuery
from lodesman.wire.vocabulary import JobState

C = TypeVar("C", bound=click.Command)

_SECONDS = 2.0
_MOST = 200
# What a command can act on; it is offered nothing else.
_STATES: Mapping[str, frozenset[str]] = {
    "kill": frozenset(STATES) - FINAL,
    "wait": frozenset(STATES) - FINAL,
    "hold": frozenset({JobState.WAITING}),
    "why": frozenset({JobState.WAITING, JobState.HELD}),
    "release": frozenset({JobState.HELD}),
    "output": frozenset({JobState.DONE, JobState.FAILED}),
    "delete": FINAL,
}
# No letters but those of ASCII, and no comma: the script for fish cuts a name there.
_SAFE = re.compile(r"[A-Za-z0-9._/@:%+=][A-Za-z0-9._/@:%+=-]*")
# A name, and what a shell that shows it says beside it.
_Word = tuple[str, str]


class _Asker:
    def __init__(self, context: click.Context) -> None:
        options = context.find_root().params
        self.command = context.info_name or ""
        self._session = Session(options["server"], options["token_file"], options["ca_file"], rounds=1)

    def __call__(self, call: Call[Any, Nothing, Any], query: Any = None) -> Any:
        return self._session.call(replace(call, timeout=_SECONDS), query)

    def close(self) -> None:
        self._session.close()


def _jobs(ask: _Asker) -> Iterator[_Word]:
    states = sorted(_STATES.get(ask.command, STATES))
    query = JobsQuery(limit=_MOST, newest=True, state=",".join(states))
    return ((str(job.id), f"{job.state} {job.name}") for job in ask(calls.JOBS, query).jobs)


def _pilots(ask: _Asker) -> Iterator[_Word]:
    rows = ask(calls.PILOTS, PilotsQuery(limit=_MOST)).pilots
    return ((str(pilot.id), f"{pilot.state} {pilot.site}") for pilot in rows)


def _sites(ask: _Asker) -> Iterator[_Word]:
    return ((row.site, "") for row in ask(calls.SITES, AllQuery()).sites)


def _queues(ask: _Asker) -> Iterator[_Word]:
    return ((path_of(row), "") for row in ask(calls.QUEUES, QueuesQuery()).queues)


def _nodes(ask: _Asker) -> Iterator[_Word]:
    yield from _sites(ask)
    yield from _queues(ask)


def _subjects(ask: _Asker) -> Iterator[_Word]:
    yield from _jobs(ask)
    yield from _queues(ask)


def _hosts(ask: _Asker) -> Iterator[_Word]:
    return ((row.host, row.site) for row in ask(calls.HOSTS, AllQuery()).hosts)


def _task_queues(ask: _Asker) -> Iterator[_Word]:
    rows = ask(calls.TASK_QUEUES, TaskQueuesQuery(limit=_MOST)).task_queues
    return ((str(row.id), f"{row.owner} {row.group}") for row in rows)


def _classes(ask: _Asker) -> Iterator[_Word]:
    rows = ask(calls.JOB_CLASSES, AllQuery()).job_classes
    return ((row.job_class, row.state) for row in rows)


def _groups(ask: _Asker) -> Iterator[_Word]:
    return ((group, "") for group in ask(calls.ME).groups)


_BY_METAVAR: Mapping[str, Callable[[_Asker], Iterator[_Word]]] = {
    "JOB": _jobs, "JOB|RANGE": _jobs, "WHAT": _subjects, "ID|STAMP": _pilots, "ID|RANGE": _pilots,
    "SITE": _sites, "SITE[/CE]": _nodes, "SITE[/CE[/QUEUE]]": _nodes, "SITE/CE/QUEUE": _queues, "HOST": _hosts,
    "TQ": _task_queues, "CLASS": _classes, "GROUP": _groups,
}  # fmt: skip
_BY_NAME = {"group": _groups, "site": _sites, "job": _jobs}
_FILES = frozenset({"FILE", "FROM", "TO", "OTHER", "PATH"})


class _CompletedType(click.ParamType[Any, Any]):
    def __init__(self, inner: click.ParamType[Any, Any], find: Callable[[_Asker], Iterator[_Word]]) -> None:
        self.name, self._inner, self._find = inner.name, inner, find

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._inner.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        del param
        words: list[_Word] = []
        ask = _Asker(ctx)
        with suppress(LodesmanError, OSError):
            words.extend(self._find(ask))
        ask.close()
        names = {
            name: plain(remark)
            for name, remark in reversed(words)
            if name.startswith(incomplete) and _SAFE.fullmatch(name)
        }
        return [CompletionItem(name, help=remark or None) for name, remark in reversed(names.items())]


def equip(command: C) -> C:
    """A copy of a command, and of all below it."""
    made = copy(command)
    made.params = list(map(_equip, command.params))
    if isinstance(made, click.Group):
        made.commands = {name: equip(below) for name, below in made.commands.items()}
    return made


def _equip(param: click.Parameter) -> click.Parameter:
    name = (param.metavar or (param.name or "").upper()).split(" ")[0].replace("...", "")
    name = name[1:-1] if name.startswith("[") else name
    find = _BY_METAVAR.get(name) or _BY_NAME.get(param.name or "")
    made = copy(param)
    if find and not isinstance(param.type, click.Choice):
        made.type = _CompletedType(param.type, find)
    elif name in _FILES and type(param.type) is type(click.STRING):
        made.type = click.Path()
    return made
