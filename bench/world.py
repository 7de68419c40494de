"""A world of a given size in a data directory, made with the program's own commands.

The large grid (`GRID`): 1,000 sites with two queues each, 300 tags, 60 platforms, 50 groups; task queues ask for
sites, platforms, tags, cores, memory and CPU time in the proportions of a large production (docs/benchmarks.md). `WISHES`
is the same, and three task queues in ten have Requirements of their own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import pool_world
from bench.stores import database

from lodesman.decide.matching import GroupShare, TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import canonical_requirements, submit_pool_id
from lodesman.decide.resources import MANUAL, compile_requirements, load_resources
from lodesman.server.loops.refresh import evaluate
from lodesman.server.store.journal import Change
from lodesman.server.store.submit_pools import PoolRow
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.accounts import add_account, issue_token
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.pilots import hash_token, join_pilot, prepare_pilots
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission, Submit
from lodesman.server.writer.submit_pools import number_queues
from lodesman.wire.accounts import SCOPES
from lodesman.wire.service import NewPilot

VO = "bench"
SITES, TAGS, PLATFORMS, GROUPS = 1_000, 300, 60, 50
TAG_WEIGHTS = [1 / (k + 1) for k in range(TAGS)]
PART = 1_000  # commands in one transaction
SHARES = (100.0, 300.0, 1000.0, 1000.0, 3000.0, 5000.0)
BODY = json.dumps(
    {
        "spec": {"name": "bench", "executable": "/bin/true", "arguments": [], "environment": {}, "std_input": "",
                 "std_output": "std.out", "std_error": "std.err", "output_sandbox": [], "cores": 1, "memory_mb": 0},
        "input": [],
        "limits": {"norm_cpu_seconds": 3600, "cpu_seconds": 0, "wall_seconds": 0, "memory_mb": 0, "output_mb": 0},
        "exclusive": False,
    },
    separators=(",", ":"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The queue where a pilot started, and what it presents."""

    vo: str
    site: str
    ce: str
    request: dict[str, Any]

    def presented(self) -> dict[str, Any]:
        """The resource as the director stores it with a pilot."""
        return {"vo": self.vo, "site": self.site, "ce": self.ce, "queue": "long", **self.request}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Makes task-queue keys (no two alike, by their number) and pilots. `shares` of the groups. `wish`: the Requirements of
    a task queue, None for none; without it no job has any. `room`: each queue has so many times the cores and memory for
    which its pilots ask in a load of claims.
    """

    name: str
    vo: str
    key: Callable[[random.Random, int], TaskQueueKey]
    pilot: Callable[[random.Random], Place]
    shares: Mapping[str, GroupShare]
    wish: Callable[[random.Random, TaskQueueKey], dict[str, Any] | None] | None = None
    room: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a world is. `rows` of the jobs wait as rows of their own, the others in arrays. `alike`: the pilots
    at each of the places of `pilots`.
    """

    queues: int = 10_000
    jobs: int = 1_000_000
    rows: int = 100_000
    pilots: int = 64
    alike: int = 1
    seed: int = 7

    def __str__(self) -> str:
        """For people."""
        return f"{self.jobs:,} waiting jobs ({self.rows:,} single rows) in {self.queues:,} task queues"


def make_key(rng: random.Random, number: int) -> TaskQueueKey:
    """One task queue of the large grid; `number` keeps keys apart."""
    group = min(int(rng.paretovariate(0.6)) - 1, GROUPS - 1)
    owner = int(rng.paretovariate(0.8)) % 20
    count = 0 if rng.random() < 0.4 else rng.choice([1, 1, 3, 20, 300, 500])
    sites = rng.sample(range(SITES), min(count, SITES))
    platforms = () if rng.random() < 0.3 else rng.sample(range(PLATFORMS), 17)
    tags = rng.choices(range(TAGS), TAG_WEIGHTS, k=rng.choice([1, 1, 2, 3]))
    return TaskQueueKey(
        owner=f"user{group}.{owner}",
        group=f"group{group:02}",
        vo=VO,
        project=f"p{number}",
        user_priority=rng.choice([1] * 6 + [0, 5, 10]),
        sites=tuple(sorted(f"site{s:04}" for s in sites)),
        platforms=tuple(sorted(f"platform{p:02}" for p in platforms)),
        tags=tuple(sorted({f"tag{t:03}" for t in tags})) if rng.random() < 0.4 else (),
        cores=rng.choice([1, 1, 1, 1, 4, 8]),
        memory_mb=rng.choice([1000, 2000, 2500, 4000, 8000, 16000]),
        norm_cpu_seconds=rng.choice([3600, 21600, 86400, 259200, 1080000]),
    )


def make_wish(rng: random.Random, key: TaskQueueKey) -> dict[str, Any] | None:
    """Requirements for half of the jobs that name no site: three in ten of all."""
    return pool_world.make_requirements(rng) if not key.sites and rng.random() < 0.75 else None


def make_offer(rng: random.Random) -> dict[str, Any]:
    """What one pilot presents."""
    tags = rng.choices(range(TAGS), TAG_WEIGHTS, k=rng.choice([0, 2, 5, 20]))
    return {
        "platforms": [f"platform{rng.randrange(PLATFORMS):02}"],
        "tags": sorted({f"tag{t:03}" for t in tags}),
        "cores": rng.choice([1, 1, 8, 64]),
        "memory_mb": rng.choice([2500, 4000, 16000, 64000]),
        "norm_cpu_seconds": rng.choice([86400, 300000, 2000000]),
    }


def make_place(rng: random.Random) -> Place:
    """A pilot of the large grid."""
    return Place(vo=VO, site=f"site{rng.randrange(SITES):04}", ce="ce", request=make_offer(rng))


def grid_shares(seed: int = 11) -> dict[str, GroupShare]:
    """The shares of the groups of the large grid."""
    rng = random.Random(seed)
    return {f"group{n:02}": GroupShare(share=rng.choice(SHARES)) for n in range(GROUPS)}


GRID = Workload(name="grid", vo=VO, key=make_key, pilot=make_place, shares=grid_shares())
WISHES = replace(GRID, name="wishes", wish=make_wish)


def queue_offers(seed: int = 13) -> dict[tuple[str, str], dict[str, Any]]:
    """What the queues of the large grid have, by site and queue."""
    rng = random.Random(seed)
    return {
        (f"site{number:04}", queue): make_offer(rng) for number in range(SITES) for queue in ("long", "short")
    }


def resources(workload: Workload, seed: int = 13, *, backend: str = "manual") -> str:
    """The large grid as a configuration of resources, in TOML."""
    offers, more = queue_offers(seed), random.Random(seed + 1)
    lines = [pool_world.TYPES] if workload.wish else []
    for number in range(SITES):
        site = f'site."site{number:04}"'
        lines += [f"[{site}]", f'VO = ["{workload.vo}"]']
        lines += [f'Region = "r{number % pool_world.REGIONS}"'] if workload.wish else []
        lines += [f'[{site}.ce."ce"]', f'Backend = "{backend}"']
        for queue in ("long", "short"):
            has = offers[f"site{number:04}", queue]
            lines += [
                f"[{site}.ce.ce.queue.{queue}]",
                f'Platform = "{has["platforms"][0]}"',
                f"Tag = {json.dumps(has['tags'])}",
                f"NumberOfProcessors = {has['cores'] * workload.room}",
                f"MaxRAM = {has['memory_mb'] * workload.room}",
                f"CPUTime = {has['norm_cpu_seconds']}",
                pool_world.parameters(more) if workload.wish else "",
            ]
    for name, group in workload.shares.items():
        lines += [f"[group.{name}]", f'vo = "{workload.vo}"', f"share = {group.share:.0f}"]
    return "\n".join([*lines, ""])


class _Writer:
    """Applies commands in large transactions."""

    def __init__(self, data: Path, rng: random.Random) -> None:
        self.db = database(data).writer()
        self.live = WriterState(self.db, rng=rng, now=time.time())

    def apply(self, commands: Sequence[Any]) -> list[Any]:
        with self.db:
            tx = Transaction(self.db, time.time())
            results = [command.apply(tx) for command in commands]
            tx.flush()
        self.live.queues.filled.clear()
        return results

    def apply_all(self, commands: Sequence[Any]) -> list[Any]:
        parts = range(0, len(commands), PART)
        return [result for k in parts for result in self.apply(commands[k : k + PART])]


class _Pools:
    """The SubmitPools of a workload, as a submission of a job with such Requirements would evaluate them."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._rng = random.Random(seed)
        self._workload = workload
        self._policy = Policy(load_resources([("grid.toml", resources(workload))])) if workload.wish else None
        self.queues = list(self._policy.bits) if self._policy else []

    def of(self, key: TaskQueueKey) -> tuple[TaskQueueKey, tuple[NewPool, ...]]:
        """The key with its SubmitPool, and that pool. Without Requirements the key is unchanged."""
        workload, policy = self._workload, self._policy
        wanted = workload.wish(self._rng, key) if workload.wish else None
        if wanted is None or policy is None:
            return key, ()
        types = policy.config.types
        pool, text = (
            submit_pool_id(compile_requirements(wanted, types), key.vo),
            canonical_requirements(compile_requirements(wanted, types)),
        )
        (mask,) = evaluate(policy, [PoolRow(pool, key.vo, text, 0, 0.0, None)]).values()
        return replace(key, submit_pool=pool), (NewPool(id=pool, requirements=text, vo=key.vo, queues=mask),)


def prepared(
    key: TaskQueueKey, count: int, *, single_rows: bool = False, pools: tuple[NewPool, ...] = ()
) -> PreparedSubmission:
    """A submission of `count` alike jobs: one cohort, or as many rows."""
    runs = [((i, i + 1),) for i in range(count)] if single_rows else [((0, count),)]
    return PreparedSubmission(
        owner=key.owner, group=key.group, vo=key.vo, name="bench", form="json", record='{"Executable":"/bin/true"}',
        members=None, count=count, pools=pools,
        cohorts=tuple(PreparedCohort(key=key, template=BODY, expand=False, max_attempts=3, runs=run) for run in runs),
    )  # fmt: skip


def build(data: Path, size: Size, workload: Workload = GRID) -> dict[str, Any]:
    """Make the world in the database of a folder. Returns the tokens of its pilots and of an administrator, and writes them
    into the folder.
    """
    rng = random.Random(size.seed)
    data.mkdir(parents=True, exist_ok=True)
    writer = _Writer(data, rng)
    pools = _Pools(workload, size.seed)
    commands: list[Any] = [Change(number_queues, writer.live, pools.queues)]
    for number in range(size.queues):
        key, new = pools.of(workload.key(rng, number))
        single = size.rows // size.queues + (number < size.rows % size.queues)
        alike = size.jobs - size.rows
        alike = alike // size.queues + (number < alike % size.queues)
        commands += (
            [Submit(writer.live, prepared(key, single, single_rows=True, pools=new))] if single else []
        )
        commands += [Submit(writer.live, prepared(key, alike, pools=new))] if alike else []
    writer.apply_all(commands)
    places = [workload.pilot(rng) for _ in range(size.pilots)] * size.alike
    tokens = _pilots(writer, places)
    groups = tuple(workload.shares)
    add = Change(add_account, "bench", workload.vo, groups, admin=True)
    admin = writer.apply([add, Change(issue_token, "bench", SCOPES, seconds=None)])[1]
    writer.db.close()
    found = {"pilots": tokens, "admin": admin}
    (data / "tokens.json").write_text(json.dumps(found))
    if workload.room > 1:
        (data / "pilot.tokens").write_text("".join(_loaded(places, tokens)))
    return found


def _loaded(places: Sequence[Place], tokens: Sequence[str]) -> Iterator[str]:
    """Lines for the load of claims: a token, and the cores and MB that are free."""
    offers = queue_offers()
    for place, token in zip(places, tokens, strict=True):
        has = offers[place.site, "long"]
        yield f"{token} {has['cores']} {has['memory_mb']}\n"


def _pilots(writer: _Writer, places: Sequence[Place]) -> list[str]:
    new = [
        NewPilot(stamp=f"bench{n}", vo=place.vo, site=place.site, ce=place.ce, queue="long",
                 request=place.presented(), join_hash=hash_token(f"join-token-{n}"), backend=MANUAL)
        for n, place in enumerate(places)
    ]  # fmt: skip
    writer.apply([Change(prepare_pilots, writer.live, new)])
    joins = [
        Change(join_pilot, writer.live, f"join-token-{number}", "nonce", {}) for number in range(len(new))
    ]
    return [joined.token for joined in writer.apply_all(joins)]


def main() -> None:
    """Make a world from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=0, help="how many of the jobs are single rows")
    parser.add_argument("--pilots", type=int, default=64)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    started = time.perf_counter()
    size = Size(queues=given.queues, jobs=given.jobs, rows=given.rows, pilots=given.pilots, seed=given.seed)
    build(given.data, size)
    (given.data / "grid.toml").write_text(resources(GRID))
    sys.stdout.write(f"{size}, {time.perf_counter() - started:.1f} s\n")


if __name__ == "__main__":
    main()
