"""Queues with software, disks and processors, and different sets of Requirements that jobs may have."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from lodesman.decide.matching.submit_pool import canonical_requirements, submit_pool_id
from lodesman.decide.resources import TypeTable, compile_requirements
from lodesman.server.store.submit_pools import PoolRow

VO = "bench"
SITES = 1_000
TYPES = '[job_description]\nSoftware = "list"\nDisk = "number GB"\nRoot = "version"\n'
APPLICATIONS, MODELS, REGIONS = 100, 12, 20
MEMORY = (1_000, 2_000, 3_000, 4_000, 6_000, 8_000)


def parameters(rng: random.Random) -> str:
    """The further parameters that one queue declares, in TOML."""
    software = sorted({f"app{rng.randrange(APPLICATIONS)}" for _ in range(20)})
    return (
        f"Memory = {rng.choice((2_000, 4_000, 8_000, 16_000, 64_000))}\n"
        f"Disk = {rng.randrange(10, 500)}\n"
        f"Software = {json.dumps(software)}\n"
        f'Root = "6.{rng.randrange(20, 36)}.{rng.randrange(10)}"\n'
        f'CPUModel = "m{rng.randrange(MODELS)}"\n'
        f"GPU = {rng.choice(('true', 'false'))}\n"
    )


def resources(seed: int = 3, *, sites: int = SITES) -> str:
    """Two queues a site, in TOML: 2,000 queues."""
    rng = random.Random(seed)
    lines = [TYPES, f'[group.g]\nvo = "{VO}"']
    for number in range(sites):
        site = f'site."s{number:04}"'
        lines.append(f'[{site}]\nVO = ["{VO}"]\nRegion = "r{number % REGIONS}"')
        lines += [f"[{site}.ce.ce.queue.{queue}]\n{parameters(rng)}" for queue in ("long", "short")]
    return "\n".join(lines)


def make_requirements(rng: random.Random) -> dict[str, Any]:
    """A set of one to seven requirements."""
    wanted: dict[str, Any] = {}
    if rng.random() < 0.7:
        wanted["Memory"] = rng.choice(MEMORY)
    if rng.random() < 0.6:
        wanted["Disk"] = f"{rng.randrange(1, 400)} GB"
    if rng.random() < 0.6:
        wanted["Software"] = [f"app{rng.randrange(APPLICATIONS)}" for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.4:
        wanted["Root"] = f"6.{rng.randrange(20, 36)}"
    if rng.random() < 0.3:
        wanted["CPUModel"] = [f"m{rng.randrange(MODELS)}" for _ in range(3)]
    if rng.random() < 0.2:
        wanted["Region"] = f"r{rng.randrange(REGIONS)}"
    if rng.random() < 0.2 or not wanted:
        wanted["GPU"] = rng.random() < 0.5
    return wanted


def make_pools(count: int, types: TypeTable, seed: int = 5) -> Iterator[PoolRow]:
    """`count` different pools, not evaluated yet."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        wanted = make_requirements(rng)
        number = submit_pool_id(compile_requirements(wanted, types), VO)
        if number not in seen:
            seen.add(number)
            yield PoolRow(
                number, VO, canonical_requirements(compile_requirements(wanted, types)), 0, 0.0, None
            )


def attributes(sites: int = SITES, seed: int = 11) -> str:
    """Queues that declare 30 attributes each, in TOML: 20 with 4 values, 9 numbers with up to 500, and a list."""
    rng = random.Random(seed)
    lines = ['[job_description]\nTags = "list"', f'[group.g]\nvo = "{VO}"']
    for number in range(sites):
        site = f'site."s{number:04}"'
        lines.append(f'[{site}]\nVO = ["{VO}"]')
        for queue in ("long", "short"):
            lines.append(f"[{site}.ce.ce.queue.{queue}]")
            lines += [f'A{key:02} = "v{rng.randrange(4)}"' for key in range(20)]
            lines += [f"N{key} = {rng.randrange(5 << key)}" for key in range(9)]
            lines.append(f"Tags = {json.dumps(sorted({f't{rng.randrange(40)}' for _ in range(6)}))}")
    return "\n".join(lines)


def make_expressions(count: int, types: TypeTable, seed: int = 13) -> Iterator[PoolRow]:
    """`count` different expressions about those attributes, of two to seven clauses, some about several of them."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        text = " && ".join(_clause(rng) for _ in range(rng.randrange(2, 8)))
        criteria = compile_requirements({"Constraint": text}, types)
        number = submit_pool_id(criteria, VO)
        if number not in seen:
            seen.add(number)
            yield PoolRow(number, VO, canonical_requirements(criteria), 0, 0.0, None)


def _clause(rng: random.Random) -> str:
    key = rng.randrange(9)
    most = 5 << key
    about = (
        f"N{key} >= {rng.randrange(most // 2)}",
        f'A{rng.randrange(20):02} != "v{rng.randrange(4)}"',
        f'member("t{rng.randrange(40)}", Tags)',
        f'(A{rng.randrange(20):02} == "v{rng.randrange(4)}" || N{key} > {rng.randrange(most)})',
        f"N{key} * 2 + N{rng.randrange(9)} > {rng.randrange(most)}",
    )
    return rng.choices(about, (4, 4, 1, 2, 1))[0]


def many_keys(count: int, sites: int = SITES, seed: int = 7) -> tuple[str, dict[str, Any]]:
    """Queues that declare `count` parameters each, in TOML, and a set of Requirements that asks for all of them."""
    rng = random.Random(seed)
    lines = [f'[group.g]\nvo = "{VO}"']
    for number in range(sites):
        site = f'site."s{number:04}"'
        lines.append(f'[{site}]\nVO = ["{VO}"]')
        for queue in ("long", "short"):
            lines.append(f"[{site}.ce.ce.queue.{queue}]")
            lines += [f'P{key:03} = "v{rng.randrange(4)}"' for key in range(count)]
    wanted = {f"P{key:03}": [f"v{value}" for value in rng.sample(range(4), 3)] for key in range(count)}
    return "\n".join(lines), wanted
