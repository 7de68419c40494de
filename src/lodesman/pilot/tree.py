"""Whose process is this, and what has each payload's tree used? Pure: a picture of /proc to answers.

A payload's processes are found by descent, by session, by what was known of them before, and by the
mark in their environment (`LODESMAN_JOB`). Orphans come to the pilot, which is their subreaper.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lodesman.pilot.protocol import Key

# A process for ever: (pid, start time in ticks since boot). A pid alone may be used again.
Ident = tuple[int, int]
ZOMBIE = "Z"


@dataclass(frozen=True)
class Process:
    """One line of /proc/<pid>/stat. CPU in clock ticks: of its own, and of children it waited for."""

    pid: int
    ppid: int
    group: int
    session: int
    state: str
    started: int
    own_ticks: int
    children_ticks: int
    rss_pages: int

    @property
    def ident(self) -> Ident:
        """What names this process and no later one."""
        return (self.pid, self.started)


def parse_stat(text: str) -> Process | None:
    """Read /proc/<pid>/stat; the name in it may hold blanks and parentheses. None if it is cut short."""
    before, bracket, after = text.rpartition(")")
    fields = after.split()
    pid = before.split(" ", 1)[0]
    if not bracket or len(fields) < 22 or not pid.isdigit():
        return None
    return Process(
        pid=int(pid),
        ppid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0],
        started=int(fields[19]),
        own_ticks=int(fields[11]) + int(fields[12]),
        children_ticks=int(fields[13]) + int(fields[14]),
        rss_pages=int(fields[21]),
    )


def owners(
    table: Mapping[int, Process], sessions: Mapping[int, Key], known: Mapping[Ident, Key], *, me: int
) -> dict[int, Key]:
    """The payload that each process (by pid) belongs to, for those that belong to one.

    `sessions` are the sessions that the pilot made for payloads (the number is the first process's pid, and
    is not used again while the session has members); `known` is what was found out before.
    """
    found: dict[int, Key] = {}
    strangers: set[int] = set()
    for pid in table:
        path = []
        at = pid
        while at in table and at not in found and at not in strangers and at != me:
            process = table[at]
            key = known.get(process.ident) or sessions.get(process.session)
            if key is not None:
                found[at] = key
                break
            path.append(at)
            strangers.add(at)  # until shown otherwise; also ends a loop in a torn picture
            at = process.ppid
        if at in found:
            found.update(dict.fromkeys(path, found[at]))
            strangers.difference_update(path)
    return found


def strays(table: Mapping[int, Process], owned: Mapping[int, Key], *, me: int | None) -> list[Process]:
    """Processes that may be a payload's although descent does not say so: they left session and parent.

    They are children of the pilot `me` if it adopts orphans; `me` None: if not, they may be anywhere.
    """
    found = [process for process in table.values() if process.pid not in owned]
    return found if me is None else [process for process in found if process.ppid == me]


def descendants(table: Mapping[int, Process], ancestor: int) -> list[Process]:
    """All processes below one."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process)
    below: list[Process] = []
    todo = [ancestor]
    while todo:
        found = children.pop(todo.pop(), [])
        below += found
        todo += [process.pid for process in found]
    return below


@dataclass
class Suspicion:
    """Strays without a mark: each belongs to one of the payloads that ran when it was first seen."""

    _may_be: dict[Ident, frozenset[Key]] = field(default_factory=dict)

    def settle(self, unmarked: Collection[Ident], running: Collection[Key]) -> dict[Ident, Key]:
        """Those for which one payload is left; the rest is settled when the other payloads have ended."""
        settled = {}
        kept = {}
        for ident in unmarked:
            before = self._may_be.get(ident, frozenset(running))
            still = before & frozenset(running)
            if len(still) == 1 or (not still and before):
                settled[ident] = min(still or before)
            else:
                kept[ident] = still
        self._may_be = kept
        return settled


@dataclass(frozen=True)
class Usage:
    """What a payload's tree has used until now, and holds now."""

    cpu_seconds: float = 0.0
    rss_mb: float = 0.0
    max_rss_mb: float = 0.0
    processes: int = 0


class Account:
    """CPU time and memory of one payload's tree, over all looks; never falls.

    Two counts are kept and the larger is believed. One trusts what parents were told of the children
    they waited for (exact, unless a parent ignores its children); the other adds what was last seen of
    processes that are gone (misses what happened between two looks).
    """

    def __init__(self, *, ticks_per_second: int, page_bytes: int) -> None:
        self._ticks_per_second = ticks_per_second
        self._page_mb = page_bytes / (1 << 20)
        self._reaped_seconds = 0.0
        self._seen: dict[Ident, int] = {}
        self._gone_ticks = 0
        self.usage = Usage()

    def reaped(self, cpu_seconds: float) -> None:
        """The pilot itself waited for a process of the tree: its CPU time, its waited children's included."""
        self._reaped_seconds += cpu_seconds
        self._raise(self._reaped_seconds)

    def look(self, processes: Collection[Process], *, shared_mb: float | None = None) -> Usage:
        """Take a look at the tree. `shared_mb`: its memory where shared pages count once, if known."""
        now = {process.ident: process.own_ticks for process in processes}
        self._gone_ticks += sum(ticks for ident, ticks in self._seen.items() if ident not in now)
        self._seen = now
        told = sum(process.own_ticks + process.children_ticks for process in processes)
        self._raise(
            max(
                self._reaped_seconds + told / self._ticks_per_second,
                (self._gone_ticks + sum(now.values())) / self._ticks_per_second,
            )
        )
        rss_mb = sum(process.rss_pages for process in processes) * self._page_mb
        if shared_mb is not None:
            rss_mb = min(rss_mb, shared_mb)
        alive = sum(process.state != ZOMBIE for process in processes)
        self.usage = Usage(self.usage.cpu_seconds, rss_mb, max(rss_mb, self.usage.max_rss_mb), alive)
        return self.usage

    def _raise(self, cpu_seconds: float) -> None:
        old = self.usage
        if math.isfinite(cpu_seconds) and cpu_seconds > old.cpu_seconds:
            self.usage = Usage(cpu_seconds, old.rss_mb, old.max_rss_mb, old.processes)
