"""What is closed to jobs: places, now or by an announced closing, and hosts that get no jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import asdict

from lodesman.base.errors import counted
from lodesman.decide.explain.verdict import some_of, span
from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import LOCAL
from lodesman.wire.hosts import HostName, HostRecord
from lodesman.wire.nodes import ClosedQueues, Closing, utc
from lodesman.wire.why_jobs import JobPilots, JobStep

_SHOWN: Final = 5
_HOSTS_SHOWN: Final = 3
_MINUTE: Final = 60


def longest_minutes(cpu_seconds: int, takes: Callable[[int], bool]) -> int:
    """The most minutes of CPUTime below `cpu_seconds` of a job that a pilot `takes`; 0 if it takes none."""
    low, high = 0, max(0, (cpu_seconds - 1) // _MINUTE)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if takes(middle * _MINUTE) else (low, middle - 1)
    return low


def closings_text(closed: Iterable[Closing], minutes: int, now: float) -> str:
    """`minutes`: of the longest job that a pilot takes."""
    closings = list(closed)
    names = closings_named(closings, now)
    ahead = sum(closing.is_ahead(now) for closing in closings)
    if not ahead:
        return f"no pilot is there and all of them are closed: {names}"
    which = "are to be closed" if ahead == len(closings) else "are closed, or are to be"
    pilots = "its CPUTime is longer than the time left" if minutes else "no pilot is there that could run it"
    return f"{pilots}, no pilot is sent that could still run then, and all of them {which}: {names}{_still(minutes)}"


def kept_slots_text(keeping: Iterable[Closing], pilots: JobPilots, now: float) -> str:
    """Why a job waits beside free slots."""
    busy, coming = counted(pilots.usable_busy, "running pilot"), counted(pilots.usable_waiting, "pilot")
    last = f"{busy} may take it, if a job there ends in time"
    if not pilots.usable_busy:
        last = f"{coming} on the way may take it, if in time"
    return f"no pilot is free, and none is sent to the slots that are: {closings_named(keeping, now)}; {last}"


def closings_named(closings: Iterable[Closing], now: float) -> str:
    """The first two closings: who ordered them and why."""
    return "; ".join(f"{closing.node} is {closing.text_at(now)}" for closing in [*closings][:2])


def _still(minutes: int) -> str:
    return f"; jobs that ask for at most {minutes} min of CPUTime still start" if minutes else ""


def closings_step(
    closings: Sequence[tuple[Closing, int]],
    eligible: int,
    *,
    may_run: bool,  # a pilot may take the job
    now: float,
    minutes: int = 0,  # of CPUTime, of the longest job like it that a pilot takes
) -> JobStep:
    """The eligible queues that are or will be closed."""
    count, total = reduce(or_, (mask for _, mask in closings), 0).bit_count(), eligible.bit_count()
    texts = [
        f"{closing.node} is {closing.text_at(now)} ({counted(mask.bit_count(), 'queue')})"
        for closing, mask in closings
    ]
    to_be = " or to be closed" if any(closing.is_ahead(now) for closing, _ in closings) else ""
    text = f"{count} of {counted(total, 'eligible queue')} closed{to_be} by administrators"
    return JobStep(
        "site_mask",
        may_run or not total or count < total,
        f"{text}: {some_of(texts, _SHOWN)}{_still(minutes)}" if texts else text,
        0.0,
        queues=count,
        closings=[
            ClosedQueues(**asdict(closing), queues=mask.bit_count()) for closing, mask in closings[:_SHOWN]
        ],
        more=max(0, len(closings) - _SHOWN),
    )


# --- hosts -----------------------------------------------------------------------------------------------


class ShutHosts(NamedTuple):
    """The hosts that get no jobs."""

    records: Mapping[HostName, HostRecord] = MappingProxyType({})
    here: str = ""  # the machine of this server, where its local pilots run

    @property
    def sites(self) -> frozenset[str]:
        """Sites whose local pilots get no jobs."""
        return frozenset(host.site for host in self.records if host.host == self.here)

    def queues(self, config: VOConfig) -> int:
        """A mask of the queues whose only host is among them."""
        sites = self.sites
        if not sites:
            return 0
        return mask_of(
            bit
            for bit, offer in config.by_bit.items()
            if offer.backend == LOCAL and offer.queue.site in sites
        )

    def text(self, config: VOConfig, queues: int, now: float) -> str:
        """Why hosts of these queues get no jobs."""
        hosts = [f"{host}: {shut_text(record, now)}" for host, record in self._of(config, queues)]
        return some_of(hosts, _HOSTS_SHOWN, noun="host")

    def who(self, config: VOConfig, queues: int) -> str:
        """Who can open them."""
        names = [opens_host(host, record) for host, record in self._of(config, queues)[:_HOSTS_SHOWN]]
        return "; ".join(names) or "an administrator: lode host open"

    def _of(self, config: VOConfig, queues: int) -> list[tuple[HostName, HostRecord]]:
        """The hosts of these queues, the machine here first; it alone if all queues are local."""
        offers = [config.by_bit[bit] for bit in bits(queues) if bit in config.by_bit]
        sites = {offer.queue.site for offer in offers}
        hosts = [(host, record) for host, record in sorted(self.records.items()) if host.site in sites]
        mine = [host for host in hosts if host[0].host == self.here]
        if mine and all(offer.backend == LOCAL for offer in offers):
            return mine
        return [*mine, *(host for host in hosts if host not in mine)]


NONE_SHUT: Final = ShutHosts()


def shut_text(record: HostRecord, now: float) -> str:
    """Why and until when a host gets no jobs; '' if it gets some."""
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
    """Who can open the host."""
    command = shlex.join(["lode", "host", "open", host.host, "--site", host.site])
    tried = "" if record.retry_at is None else "time, it is tried by one job; or "
    return f"{tried}an administrator: {command}"


def _ordinal(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")
