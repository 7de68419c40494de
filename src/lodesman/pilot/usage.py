"""What each payload's tree of processes has used, and what would be lost with its output."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Callable

from lodesman.base import kernel
from lodesman.base.processes import TICKS_PER_SECOND, Process, ProcessId, read_process
from lodesman.pilot.protocol import AttemptKey, PayloadUsage

# What has been handed in is forgotten with this number of ended payloads, or when somebody asks.
_FORGETS_AT = 1_000


class PendingWaste:
    """Core-seconds of ended attempts whose output the server lacks; `unsent` names them."""

    def __init__(self, unsent: Callable[[], set[AttemptKey]]) -> None:
        self._unsent = unsent
        self._seconds: dict[AttemptKey, float] = {}
        self._forgets_at = _FORGETS_AT

    def add(self, key: AttemptKey, seconds: float) -> None:
        """An attempt has ended."""
        self._seconds[key] = seconds
        if len(self._seconds) >= self._forgets_at:
            self._forget()
            self._forgets_at = 2 * len(self._seconds) + _FORGETS_AT

    def total(self) -> float:
        """Of all that are not handed in."""
        self._forget()
        return sum(self._seconds.values())

    def _forget(self) -> None:
        unsent = self._unsent()
        self._seconds = {key: seconds for key, seconds in self._seconds.items() if key in unsent}


_PSS = re.compile(rb"^Pss:\s*([0-9]+)", re.MULTILINE)
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def proportional_mb(pids: Collection[int]) -> float | None:
    """Shared pages counted once; None if unknown."""
    total_kb = 0
    for pid in pids:
        share = _PSS.search(_read_rollup(pid))
        if share is not None:
            total_kb += int(share[1])
        elif (process := read_process(pid)) is not None and process.rss_pages:
            return None
    return total_kb / 1024


def _read_rollup(pid: int) -> bytes:
    try:
        return kernel.read_file(f"/proc/{pid}/smaps_rollup")
    except OSError:
        return b""


def for_children(process: Process, earlier_seconds: float) -> Process:
    """Only the time of its children counts, without that of earlier ones."""
    ticks = process.children_ticks - int(earlier_seconds * TICKS_PER_SECOND)
    return process._replace(own_ticks=0, children_ticks=max(0, ticks), rss_pages=0)


class Account:
    """CPU time and memory of one payload's tree; CPU time never falls.

    The larger of two counts is used: what parents waited for (some ignore their children), and what was last seen of
    processes now gone (it misses what came after).
    """

    def __init__(self) -> None:
        self._reaped_seconds = 0.0
        self._seen: dict[ProcessId, int] = {}
        self._gone_ticks = 0
        self.usage = PayloadUsage()
        self.is_closed = False

    def close(self, cpu_seconds: float) -> None:
        """All of the tree is gone; `cpu_seconds`: of what was waited for in it."""
        self.reaped(cpu_seconds)
        self.is_closed = True

    def reaped(self, cpu_seconds: float) -> None:
        """The pilot waited for the warden."""
        self._reaped_seconds += cpu_seconds
        self.usage = replace(self.usage, cpu_seconds=max(self.usage.cpu_seconds, self._reaped_seconds))

    def measure(self, processes: Collection[Process]) -> PayloadUsage:
        """These processes are the whole tree."""
        now = {process.ident: process.own_ticks for process in processes}
        self._gone_ticks += sum(ticks for ident, ticks in self._seen.items() if ident not in now)
        self._seen = now
        waited = sum(process.own_ticks + process.children_ticks for process in processes)
        by_parents = self._reaped_seconds + waited / TICKS_PER_SECOND
        by_sight = (self._gone_ticks + sum(now.values())) / TICKS_PER_SECOND
        rss_mb = sum(process.rss_pages for process in processes) * _PAGE_MB
        self.usage = PayloadUsage(
            cpu_seconds=max(self.usage.cpu_seconds, by_parents, by_sight),
            rss_mb=rss_mb,
            max_rss_mb=max(rss_mb, self.usage.max_rss_mb),
        )
        return self.usage
