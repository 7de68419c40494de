"""The workload that DIRAC's TaskQueueDB is measured with, in the terms of this program.

4 VOs of 5 groups (two share their jobs), 60 owners, 100 sites with 3 CEs each, 8 platforms, DIRAC's 13 steps of CPU
time, tags of processors and of features, floors of memory; every set of requirements differs from all others.
"""

from __future__ import annotations

import random

from bench.world import Place, Workload

from lodesman.decide.matching import GroupShare, TaskQueueKey

VOS = [f"vo{n}" for n in range(4)]
# Name and share of the groups of a VO; those above 1,000 share their jobs.
KINDS = {"prod": 5000.0, "mc": 3000.0, "user0": 1000.0, "user1": 1000.0, "user2": 1000.0}
COUNTRIES = ("ch", "fr", "de", "it", "uk", "es", "nl", "pl", "us", "jp")
SITES = [f"LCG.Site{n:03}.{COUNTRIES[n % 10]}" for n in range(100)]
CPU_STEPS = (360, 1800, 3600, 21600, 43200, 86400, 172800, 259200, 345600, 518400, 691200, 864000, 1080000)
JOB_TYPES = ("User", "MCSimulation", "MCReconstruction", "Merge", "DataProcessing", "Test")
COMMON = ("x86_64-el7", "x86_64-el8", "x86_64-el9", "x86_64_v2-el9", "x86_64_v3-el9", "x86_64_v4-el9")
RARE = ("aarch64-el9", "ppc64le-el9")
FEATURES = ("GPU", "SSD", "HighIO", "cvmfs-el9", "Apptainer", "InfiniBand")
PRIORITIES = (1, 1, 1, 1, 1, 1, 2, 3, 5, 9)


def ce_of(site: str, number: int) -> str:
    """One of the CEs of a site."""
    return f"ce{number}.{site.lower()}"


def make_key(rng: random.Random, number: int) -> TaskQueueKey:
    """One set of requirements; `number` keeps sets apart."""
    vo, kind = rng.choice(VOS), rng.choice(list(KINDS))
    owner = rng.randrange(3 if KINDS[kind] > 1000 else 60)
    sites, banned = _sites(rng)
    near = sites and rng.random() < 0.08
    return TaskQueueKey(
        owner=f"user{owner:02}",
        group=f"{vo}_{kind}",
        vo=vo,
        project=f"set{number}",
        job_type=rng.choice(JOB_TYPES),
        user_priority=rng.choice(PRIORITIES),
        sites=sites,
        banned_sites=banned,
        grid_ces=(ce_of(rng.choice(sites), rng.randrange(3)),) if near else (),
        platforms=_platforms(rng),
        tags=_tags(rng),
        memory_mb=rng.choice([2000, 4000, 4000, 8000]) if rng.random() < 0.2 else 0,
        norm_cpu_seconds=rng.choice(CPU_STEPS),
    )


def _sites(rng: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sites and banned sites: 45 % name some, 20 % ban some."""
    drawn = rng.random()
    if drawn < 0.45:
        return tuple(sorted(rng.sample(SITES, rng.choice([1, 1, 2, 3, 5, 8, 12])))), ()
    if drawn < 0.65:
        return (), tuple(sorted(rng.sample(SITES, rng.choice([1, 1, 2, 4]))))
    return (), ()


def _platforms(rng: random.Random) -> tuple[str, ...]:
    if rng.random() >= 0.7:
        return ()
    if rng.random() < 0.93:
        return tuple(sorted(rng.sample(COMMON, rng.choice([1, 1, 2, 3]))))
    return (rng.choice(RARE),)


def _tags(rng: random.Random) -> tuple[str, ...]:
    tags = [f"{rng.choice([2, 4, 8, 8, 8, 16])}Processors"] if rng.random() < 0.25 else []
    tags += [rng.choice(FEATURES)] if rng.random() < 0.15 else []
    return tuple(sorted(tags))


def make_pilot(rng: random.Random) -> Place:
    """A generic pilot of one VO: it serves all groups of it."""
    site = rng.choice(SITES)
    processors = rng.choice([1, 1, 1, 8, 8, 16])
    tags = [f"{k}Processors" for k in range(1, processors + 1)]
    tags += ["MultiProcessor"] if processors > 1 else []
    tags += rng.sample(FEATURES, rng.choice([0, 0, 1, 2]))
    request = {
        "platforms": [rng.choice(COMMON * 4 + RARE)],
        "tags": sorted(tags),
        "cores": processors,
        "memory_mb": rng.choice([2000, 4000, 16000, 64000]),
        "norm_cpu_seconds": rng.choice([86400, 172800, 259200, 345600, 518400]),
    }
    return Place(vo=rng.choice(VOS), site=site, ce=ce_of(site, rng.randrange(3)), request=request)


PEER = Workload(
    name="peer",
    vo=VOS[0],
    key=make_key,
    pilot=make_pilot,
    shares={
        f"{vo}_{kind}": GroupShare(share=share, job_sharing=share > 1000)
        for vo in VOS
        for kind, share in KINDS.items()
    },
)
