"""A world of a given size in a data directory, made with the program's own commands.

1,000 sites, 300 tags, 60 platforms, 50 groups by default; task queues ask for sites, platforms, tags, cores, memory and
CPU time in the proportions of a large production (see docs/benchmarks.md).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

from lodesman.matching import TaskQueueKey
from lodesman.services.accounts import SCOPES, AddAccount, IssueToken
from lodesman.services.live import Live
from lodesman.services.pilots import Join, NewPilot, PreparePilots, hash_token
from lodesman.services.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.store.engine import open_writer
from lodesman.store.journal import Transaction

VO = "bench"
SITES, TAGS, PLATFORMS, GROUPS = 1_000, 300, 60, 50
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


def make_key(rng: random.Random, number: int) -> TaskQueueKey:
    """One task queue; `number` keeps keys apart."""
    group = min(int(rng.paretovariate(0.6)) - 1, GROUPS - 1)
    owner = int(rng.paretovariate(0.8)) % 20
    sites = () if rng.random() < 0.4 else rng.sample(range(SITES), rng.choice([1, 1, 3, 20, 300, 500]))
    platforms = () if rng.random() < 0.3 else rng.sample(range(PLATFORMS), 17)
    tags = rng.choices(range(TAGS), [1 / (k + 1) for k in range(TAGS)], k=rng.choice([1, 1, 2, 3]))
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


def make_offer(rng: random.Random) -> dict[str, Any]:
    """What one pilot presents."""
    tags = rng.choices(range(TAGS), [1 / (k + 1) for k in range(TAGS)], k=rng.choice([0, 2, 5, 20]))
    return {
        "platform": f"platform{rng.randrange(PLATFORMS):02}",
        "tags": sorted({f"tag{t:03}" for t in tags}),
        "cores": rng.choice([1, 1, 8, 64]),
        "memory_mb": rng.choice([2500, 4000, 16000, 64000]),
        "norm_cpu_seconds": rng.choice([86400, 300000, 2000000]),
    }


class _Writer:
    """Applies commands in large transactions."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.db = open_writer(path)
        self.live = Live(self.db, rng=rng, now=time.time())

    def apply(self, commands: list[Any]) -> list[Any]:
        with self.db:
            tx = Transaction(self.db, time.time())
            results = [command.apply(tx) for command in commands]
            tx.flush()
        return results


def prepared(key: TaskQueueKey, count: int, *, single_rows: bool = False) -> PreparedSubmission:
    """A submission of `count` alike jobs: one cohort, or as many rows."""
    runs = [((i, i + 1),) for i in range(count)] if single_rows else [((0, count),)]
    return PreparedSubmission(
        owner=key.owner, group=key.group, vo=key.vo, name="bench", form="json", record="{}", members=None,
        count=count,
        cohorts=tuple(PreparedCohort(key=key, template=BODY, expand=False, max_attempts=3, runs=run) for run in runs),
    )  # fmt: skip


def build(data: Path, *, queues: int, jobs: int, rows: int, pilots: int, seed: int) -> dict[str, Any]:
    """Make the world; returns the tokens of its pilots and of an administrator."""
    rng = random.Random(seed)
    data.mkdir(parents=True, exist_ok=True)
    writer = _Writer(data / "lode.db", rng)
    keys = [make_key(rng, number) for number in range(queues)]
    commands: list[Any] = []
    for number, key in enumerate(keys):
        single = rows // queues + (number < rows % queues)
        alike = (jobs - rows) // queues + (number < (jobs - rows) % queues)
        commands += [Submit(writer.live, prepared(key, single, single_rows=True))] if single else []
        commands += [Submit(writer.live, prepared(key, alike))] if alike else []
    for start in range(0, len(commands), 1_000):
        writer.apply(commands[start : start + 1_000])
    tokens = _pilots(writer, pilots, rng)
    groups = tuple(f"group{g:02}" for g in range(GROUPS))
    admin = writer.apply([AddAccount("bench", VO, groups, True), IssueToken("bench", SCOPES, None)])[1]
    writer.db.close()
    found = {"pilots": tokens, "admin": admin}
    (data / "tokens.json").write_text(json.dumps(found))
    return found


def _pilots(writer: _Writer, count: int, rng: random.Random) -> list[str]:
    tokens = []
    new = [
        NewPilot(stamp=f"bench{n}", vo=VO, site=f"site{rng.randrange(SITES):04}", ce="ce", queue="q",
                 request=make_offer(rng), join_hash=hash_token(f"join-token-{n}"))
        for n in range(count)
    ]  # fmt: skip
    writer.apply([PreparePilots(writer.live, new)])
    for number in range(count):
        tokens.append(writer.apply([Join(writer.live, f"join-token-{number}", "nonce", {})])[0].token)
    return tokens


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
    build(
        given.data,
        queues=given.queues,
        jobs=given.jobs,
        rows=given.rows,
        pilots=given.pilots,
        seed=given.seed,
    )
    print(f"{given.jobs} jobs in {given.queues} task queues, {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
