"""Whole jobs through real pilots of this machine, beside HyperQueue, in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench import hq
from bench.context import Context
from bench.figures import Figure
from bench.payloads import PROCESSES, Fleet, Run, Site, Work, least_makespan, mixed
from bench.stats import median

SERVER_CPU_MS = 0.5  # for each job
ONE_PILOT = Fleet()
OURS, HYPERQUEUE = "ours", "HyperQueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A row. `ratio`: to reach, against HyperQueue."""

    row: str
    what: str
    work: Work
    fleet: Fleet = ONE_PILOT
    ratio: float | None = None

    @property
    def no_op(self) -> bool:
        """Whether its jobs do nothing: in others, what the server does each second is most of its time."""
        return self.work.program == Work(jobs=1).program

    def measure(self, context: Context) -> list[Figure]:
        """Its figures."""
        work = replace(self.work, jobs=context.less(self.work.jobs, 2))
        return rated(self, _in_turn(context, self.fleet, work), context.floors.spawns)


KINDS = {
    one.row: one
    for one in (
        Kind(row="payloads", what="no-op jobs", work=Work(jobs=5_000), ratio=0.9),
        Kind(row="payloads-100000", what="no-op jobs", work=Work(jobs=100_000), ratio=2.5),
        Kind(row="payloads-10ms", what="jobs of 10 ms",
             work=Work(jobs=5_000, program="/bin/sleep", arguments="0.01")),
        Kind(row="payloads-1s", what="jobs of 1 s", work=Work(jobs=60, program="/bin/sleep", arguments="1")),
        Kind(row="payloads-8-pilots", what="no-op jobs", work=Work(jobs=5_000), fleet=Fleet(pilots=8, slots=1)),
    )
}  # fmt: skip
# The lengths of 1 s to 10 min, at a fiftieth.
MIXED_FLEET = Fleet(pilots=4, slots=2)
MIXED_SECONDS = (0.02, 12.0)
MIXED_JOBS = 400


def _in_turn(context: Context, fleet: Fleet, work: Work, *, peers: bool = True) -> dict[str, list[Run]]:
    """Each side `context.samples` times, in turn, so that all of them meet the same hour."""
    runs: dict[str, list[Run]] = {}
    if peers and context.hyperqueue is None:
        context.say("payloads: HyperQueue was not given (--hyperqueue PYTHON)")
    for _ in range(context.samples):
        with Site.started(context, fleet) as site:
            runs.setdefault(OURS, []).append(site.run(work))
        if peers and context.hyperqueue is not None:
            found = hq.run(context.hyperqueue, context.home, fleet, work)
            runs.setdefault(HYPERQUEUE, []).append(found)
    return runs


def rated(kind: Kind, runs: Mapping[str, Sequence[Run]], spawns: float) -> list[Figure]:
    """Jobs a second, CPU time of each process, and the ratio to HyperQueue. Pure."""
    ours = runs[OURS]
    top = max(ours, key=lambda run: run.rate)
    size = f"{top.jobs:,} jobs, {kind.fleet}"
    alone = "" if HYPERQUEUE in runs else "; HyperQueue was not given"
    found = [
        Figure(
            row=kind.row, what=f"{kind.what} through {kind.fleet}{alone}", unit="jobs/s", value=top.rate, size=size,
            floor_name="spawn", floor=spawns, samples=[run.rate for run in ours], details=top.cpu_ms(),
            cpu_us={name: 1e3 * top.cpu_ms()[name] for name in ("hot", "background")},
        )
    ]  # fmt: skip
    if HYPERQUEUE in runs:
        found.append(_ratio(kind, runs))
    return found + _cpu(kind, ours, size)


def _ratio(kind: Kind, runs: Mapping[str, Sequence[Run]]) -> Figure:
    pairs = [mine.rate / theirs.rate for mine, theirs in zip(runs[OURS], runs[HYPERQUEUE], strict=True)]
    best = max(runs[HYPERQUEUE], key=lambda run: run.rate)
    return Figure(
        row=f"{kind.row}-hyperqueue", what=f"against HyperQueue ({best.rate:,.0f} jobs/s), in turn", unit="x",
        value=median(pairs), target=kind.ratio, samples=pairs, details=best.cpu_ms(),
    )  # fmt: skip


def _cpu(kind: Kind, runs: Sequence[Run], size: str) -> list[Figure]:
    """CPU milliseconds for each job; other load can only add to them."""
    of = {name: [run.cpu_ms()[name] for run in runs] for name in PROCESSES}
    of["server"] = [hot + background for hot, background in zip(of["hot"], of["background"], strict=True)]
    words = {
        "hot": "hot process", "background": "background process", "pilot": "pilots themselves",
        "children": "all that pilots started", "server": "both processes of the server",
    }  # fmt: skip
    return [
        Figure(
            row=f"{kind.row}-cpu-{name}", what=f"CPU time for each job: {words[name]}", unit="ms", value=min(samples),
            target=SERVER_CPU_MS if name == "server" and kind.no_op else None, less=True, size=size, samples=samples,
        )
        for name, samples in of.items()
    ]  # fmt: skip


def measure_mixed(context: Context) -> list[Figure]:
    """Short and long jobs in one array: what the last ones wait for."""
    shortest, longest = MIXED_SECONDS
    jobs = context.less(MIXED_JOBS, 8)
    durations = mixed(jobs, 5, shortest=shortest, longest=longest)
    work = Work(jobs=jobs, program="/bin/sleep", arguments="%s", values=[str(one) for one in durations])
    runs = _in_turn(context, MIXED_FLEET, work, peers=False)
    return [makespan(runs[OURS], least_makespan(durations, MIXED_FLEET.pilots * MIXED_FLEET.slots))]


def makespan(runs: Sequence[Run], least: float) -> Figure:
    """The makespan against the least one. Pure."""
    shortest, longest = MIXED_SECONDS
    over = [run.seconds / least for run in runs]
    return Figure(
        row="payloads-mixed", unit="x", value=min(over), less=True, samples=over,
        what=f"makespan of jobs of {shortest} s to {longest:.0f} s through {MIXED_FLEET}, against no loss at all",
        details={"least_s": least, "seconds": [run.seconds for run in runs]},
    )  # fmt: skip
