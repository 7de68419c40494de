"""What is closed to jobs: places, by closings of now and announced ones, and hosts that get no jobs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import asdict

from lodesman.base.errors import counted
from lodesman.decide.explain.verdict import span
from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import LOCAL
from lodesman.wire.hosts import HostName, HostRecord
from lodesman.wire.nodes import ClosedQueues, Closing, utc
from lodesman.wire.why_jobs import JobPilots, JobStep

_SHOWN: Final = 5
_HOSTS_SHOWN: Final = 3
_MINUTE: Final = 60


def longest_minutes(asked: int, takes: Callable[[int], bool]) -> int:
    """The most minutes of CPUTime below the `asked` seconds of a job like it that a pilot `takes`; 0 if it takes none."""
    low, high = 0, max(0, (asked - 1) // _MINUTE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if takes(middle * _MINUTE) else (low, middle - 1)
    return low


def closings_text(found: Iterable[Closing], minutes: int, now: float) -> str:
    """Why no pilot takes a job of queues that are all closed, or are to be; `minutes`: of the longest job that one takes."""
    closings = list(found)
    names = closings_named(closings, now)
    ahead = sum(one.is_ahead(now) for one in closings)
    if not ahead:
        return f"no pilot is there and all of them are closed: {names}"
    which = "are to be closed" if ahead == len(closings) else "are closed, or are to be"
    pilots = "its CPUTime is longer than the time left" if minutes else "no pilot is there that could run it"
    return f"{pilots}, no pilot is sent that could still run then, and all of them {which}: {names}{_still(minutes)}"


def kept_slots_text(keeping: Iterable[Closing], pilots: JobPilots, now: float) -> str:
    """Why a job waits beside free slots to which no pilot is sent since these closings are announced."""
    busy, coming = counted(pilots.usable_busy, "running pilot"), counted(pilots.usable_waiting, "pilot")
    last = f"{busy} may take it, if a job there ends in time"
    if not pilots.usable_busy:
        last = f"{coming} on the way may take it, if in time"
    return f"no pilot is free, and none is sent to the slots that are: {closings_named(keeping, now)}; {last}"


def closings_named(found: Iterable[Closing], now: float) -> str:
    """The first closings, with who ordered them and why."""
    return "; ".join(f"{one.node} is {one.text_at(now)}" for one in [*found][:2])


def _still(minutes: int) -> str:
    return f"; jobs that ask for at most {minutes} min of CPUTime still start" if minutes else ""


def closings_step(
    found: Sequence[tuple[Closing, int]], eligible: int, *, may_run: bool, now: float, minutes: int = 0
) -> JobStep:
    """How many of the eligible queues are closed, or to be, by whom, why and since when. `may_run`: a pilot there can;
    `minutes`: of the longest job like it that one takes.
    """
    count, total = reduce(or_, (mask for _, mask in found), 0).bit_count(), eligible.bit_count()
    shown, more = found[:_SHOWN], max(0, len(found) - _SHOWN)
    parts = [
        f"{one.node} is {one.text_at(now)} ({counted(mask.bit_count(), 'queue')})" for one, mask in shown
    ]
    parts += [f"and {more} more"] if more else []
    to_be = " or to be closed" if any(one.is_ahead(now) for one, _ in found) else ""
    text = f"{count} of {counted(total, 'eligible queue')} closed{to_be} by administrators"
    return JobStep(
        "site_mask",
        may_run or not total or count < total,
        f"{text}: {'; '.join(parts)}{_still(minutes)}" if parts else text,
        0.0,
        queues=count,
        closings=[ClosedQueues(**asdict(one), queues=mask.bit_count()) for one, mask in shown],
        more=more,
    )


# --- hosts -----------------------------------------------------------------------------------------------


class ShutHosts(NamedTuple):
    """The hosts that get no jobs, with their records. `here`: the machine of this server, where its local pilots run."""

    records: Mapping[HostName, HostRecord] = MappingProxyType({})
    here: str = ""

    @property
    def sites(self) -> frozenset[str]:
        """Where local pilots get no jobs."""
        return frozenset(one.site for one in self.records if one.host == self.here)

    def queues(self, config: VOConfig) -> int:
        """The queues whose only host is one of these."""
        sites = self.sites
        if not sites:
            return 0
        return mask_of(
            bit for bit, one in config.by_bit.items() if one.backend == LOCAL and one.queue.site in sites
        )

    def text(self, config: VOConfig, queues: int, now: float) -> str:
        """Those where pilots of these queues may be, and why they get no jobs."""
        found = [f"{host}: {shut_text(record, now)}" for host, record in self._of(config, queues)]
        more = [f"and {counted(len(found) - _HOSTS_SHOWN, 'more host')}"] if len(found) > _HOSTS_SHOWN else []
        return "; ".join([*found[:_HOSTS_SHOWN], *more])

    def who(self, config: VOConfig, queues: int) -> str:
        """Who can open them."""
        names = [opens_host(host, record) for host, record in self._of(config, queues)[:_HOSTS_SHOWN]]
        return "; ".join(names) or "an administrator: lode host open"

    def _of(self, config: VOConfig, queues: int) -> list[tuple[HostName, HostRecord]]:
        """Those at the sites of these queues, the machine here first; it alone if all queues are local."""
        offers = [config.by_bit[bit] for bit in bits(queues) if bit in config.by_bit]
        sites = {one.queue.site for one in offers}
        found = [(host, record) for host, record in sorted(self.records.items()) if host.site in sites]
        mine = [one for one in found if one[0].host == self.here]
        if mine and all(one.backend == LOCAL for one in offers):
            return mine
        return [*mine, *(one for one in found if one not in mine)]


NONE_SHUT: Final = ShutHosts()


def shut_text(record: HostRecord, now: float) -> str:
    """Why a host gets no jobs, and until when; '' if it gets some."""
    if not record.shut:
        return ""
    if record.retry_at is None:
        return f"closed by {record.by} since {utc(record.since)}: {record.reason}"
    why = f", since {record.ground}" if record.ground else ""
    left = record.retry_at - now
    when = f"in {span(left)}" if left > 0 else "as soon as a pilot there asks"
    again = f", for the {_ordinal(record.trips)} time" if record.trips > 1 else ""
    return f"it gets no jobs{again}{why}; it is tried with one job {when}"


def opens_host(host: HostName, record: HostRecord) -> str:
    """Who can open a host that gets no jobs."""
    command = shlex.join(["lode", "host", "open", host.host, "--site", host.site])
    tried = "" if record.retry_at is None else "time, it is tried by one job; or "
    return f"{tried}an administrator: {command}"


def _ordinal(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")
