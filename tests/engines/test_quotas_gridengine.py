"""A real Grid Engine and this server get the same quota sets, users, projects, PEs, hosts, queues and jobs: the same start.

The execution of the real one is simulated: its master decides as always, and nothing runs. Job classes are left out: it
refuses `jcs`. LODESMAN_QUOTA_SETS: the number of random worlds, each with one to three sets and ten jobs.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from itertools import chain

import pytest
from tests.kits.gridengine_cluster import QUEUES, Submission, simulated_cluster
from tests.unit.quota.conftest import COMPLEXES, ROWS, table
from tests.unit.quota.test_quota_oracle import (
    LISTS_OF_USERS,
    PROCESSORS,
    UNIX_GROUPS,
    VOCABULARY_TEXT,
    Job,
    Program,
    World,
    allowed,
    some_job,
    some_line,
    text_of,
)
from tests.unit.quota.test_quota_vectors import LIVE, expected
from tests.unit.quota.test_quota_vectors import QUEUES as TWO_QUEUES

from lodesman.base.errors import SyntaxFault
from lodesman.decide.resources import load_resources
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.values import write_value
from lodesman.server.store.journal import Change
from lodesman.server.writer.quotas import use_limits

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.quota]

WORLDS = int(os.environ.get("LODESMAN_QUOTA_SETS", "200"))
JOBS, PARTS = 10, max(1, WORLDS // 20)
GIDS = {"physics": 100, "staff": 50}
GROUPS = {user: UNIX_GROUPS.get(user, ["physics"])[0] for user in LISTS_OF_USERS}
SITES = "\n".join(
    f'[site.{host}.ce."{queue[0]}.{host}".queue."{queue}"]\nSlots = 99\nNumberOfProcessors = 4\nCPUTime = 1000'
    for host in PROCESSORS
    for queue in QUEUES
)
GROUPS_TEXT = '[group.physics]\nvo = "lab"\n[group.staff]\nvo = "lab"\n'


def names():
    """The host groups, user lists and projects of both, by option of qconf; a group comes after those in it."""
    blocks = re.split(r"\n(?=name |group_name )", VOCABULARY_TEXT.strip())
    kind = "type ACL\nfshare 0\noticket 0\n"
    lists = [
        re.sub("(type ACL\n)?entries", f"{kind}entries", text) + "\n" for text in blocks if text[0] == "n"
    ]
    projects = [f"name {name}\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n" for name in ("p1", "p2")]
    hosts = [f"{text}\n" for text in reversed(blocks) if text[0] == "g"]
    return {"-Ahgrp": hosts, "-Au": lists, "-Aprj": projects}


@pytest.fixture(scope="module")
def real():
    accounts = {user: GIDS[group] for user, group in GROUPS.items()}
    with simulated_cluster(PROCESSORS, accounts, names(), ROWS.lstrip()) as found:
        yield found


class Ours:
    """A server with a pilot in each queue of each host."""

    def __init__(self, house) -> None:
        self.house = house
        house.user("eva", "physics", admin=True)
        for user, group in GROUPS.items():
            house.user(user, group)
        faults: list[SyntaxFault] = []
        known = read_vocabulary(
            {"names": "".join(chain.from_iterable(names().values())), "complexes": ROWS}, faults=faults
        )
        assert faults == []
        known = replace(known, complexes=COMPLEXES)
        house.core.policy = house.policy(
            load_resources([("s.toml", SITES + "\n" + GROUPS_TEXT)]), vocabulary=known
        )
        house.side.policy = house.core.policy
        assert house.do(Change(use_limits, house.core.quotas, known)) is True
        self.pilots = {
            (queue, host): house.pilot(
                host,
                ce=f"{queue[0]}.{host}",
                queue=queue,
                cores=99,
                memory_mb=99_000,
                node={"cores": 99, "host": host, "cores_total": PROCESSORS[host]},
            )
            for host in PROCESSORS
            for queue in QUEUES
        }

    def decide(self, text, jobs):
        """Whether each job starts; as its turn comes, the pilots of its places ask for work."""
        house, running, found = self.house, [], []
        self._set(text)
        for job, places in jobs:
            number = house.submitted(record_of(job, places), token=job.user)
            starts = False
            for place in places:
                if not starts and (claimed := house.claim(self.pilots[place])):
                    assert [one["id"] for one in claimed] == [number]
                    running.append((self.pilots[place], claimed[0]))
                    starts = True
            found.append(starts)
        # Those that wait go on waiting.
        assert not any(house.claim(pilot, 4) for pilot in self.pilots.values())
        for pilot, job in running:
            house.report(pilot, job)
        assert all(one["used"] == "0" for one in house.get("/v1/quotas/use")["uses"])
        house.control("kill", 1, house.counted(), token="eva")
        return found

    def _set(self, text):
        before = [one["name"] for one in self.house.get("/v1/quotas")["sets"]]
        for path, body in (("/remove", {"names": before}), ("", {"text": text})):
            if body.get("names") != []:
                answer = self.house.call("POST", f"/v1/quotas{path}", body, token="eva")
                assert answer.status == 200, answer.json


def record_of(job, places):
    found = {
        "Site": sorted({host for _, host in places}),
        "GridCE": [f"{queue[0]}.{host}" for queue, host in places],
        "Consumables": [f"{name}={value}" for name, value in job.requests.items()],
        "NumberOfProcessors": job.slots,
    }
    return found | ({"PE": job.pe} if job.pe else {}) | ({"JobGroup": job.project} if job.project else {})


def submission(job, places):
    words = ["-q", ",".join(f"{queue}@{host}" for queue, host in places)]
    if job.pe:
        words += ["-pe", job.pe, str(job.slots)]
    if job.project:
        words += ["-P", job.project]
    if job.requests:
        words += ["-l", ",".join(f"{name}={value}" for name, value in job.requests.items())]
    return Submission(job.user, words)


@pytest.mark.parametrize("row", table("quota-live.md"), ids=lambda row: row["set"])
def test_both_do_what_the_table_of_live_runs_says(real, house, row):
    places = [(queue, "h1") for queue in (QUEUES if row["set"] in TWO_QUEUES else QUEUES[:1])]
    ours, found = Ours(house), {"real": [], "ours": []}
    for text, quota_jobs in LIVE[row["set"]]:
        jobs = [
            (Job(user=one.user, project=one.project, pe=one.pe, job_class="", slots=one.slots, requests={
                name: write_value(COMPLEXES.get(name).kind, value) for name, value in one.requests.items()
            }), places)
            for one in quota_jobs
        ]  # fmt: skip
        braced = re.sub(r"(?m)^name (.*\n(?:(?!name ).*\n)*)", r"{\nname \1}\n", text)
        found["real"] += real.decide(braced, [submission(*job) for job in jobs])
        found["ours"] += ours.decide(text, jobs)
    wanted = [state == "r" for state in expected(row["result"])]
    assert found["real"] == wanted
    assert found["ours"] == wanted


def some_jobs(draw, world):
    """Jobs without classes, and without what the two are known to do differently.

    The real one counts a job whose PE is a pattern in the bucket of the PE that it gets; this server knows no PEs,
    and counts it in one of the pattern. The fault of the real one is in a test of its own.
    """
    braced = any(
        "pes" in line.filters and line.filters["pes"][0] for _, lines in world.sets for line in lines
    )
    plain = {"m*": "mpi" if braced else "mp*", "s?p": "smp" if braced else "s?p"}
    jobs = [some_job(draw) for _ in range(JOBS)]
    return [
        replace(
            job, job_class="", pe=plain.get(job.pe, job.pe),
            requests={name: text for name, text in job.requests.items() if not (job.pe and name == "vf")},
        )
        for job in jobs
    ]  # fmt: skip


def some_world(seed):
    """Without job classes, and as Grid Engine writes lists."""
    draw = random.Random(seed)
    sets = [
        (draw.random() < 0.9, [some_line(draw) for _ in range(draw.randint(1, 4))])
        for _ in range(draw.randint(1, 3))
    ]
    for _, lines in sets:
        for line in lines:
            line.filters.pop("jcs", None)
    world = World(sets)
    return world, text_of(world, draw).replace(", ", ","), some_jobs(draw, world)


def test_the_real_one_starts_no_parallel_job_whose_request_is_only_compared(real, house):
    """A fault of 8.1.9: sequential jobs start if what they request of virtual_free fits, parallel ones never."""
    text = "{\nname t\nenabled TRUE\nlimit to vf=2G\n}\n"
    at = [("all.q", "h1")]
    jobs = [
        (Job(user="u1", project="", pe=pe, job_class="", slots=1, requests={"vf": amount}), at)
        for pe in ("", "smp")
        for amount in ("1G", "3G")
    ]
    assert real.decide(text, [submission(*job) for job in jobs]) == [True, False, False, False]
    assert Ours(house).decide(text, jobs) == [True, False, True, False]


@pytest.mark.parametrize("part", range(PARTS))
def test_random_sets_let_the_same_jobs_start(real, house, part):
    ours, started = Ours(house), 0
    seeds = range(part, WORLDS, PARTS)
    for seed in seeds:
        world, text, jobs = some_world(seed)
        placed = [(job, [(job.queue, job.host)]) for job in jobs]
        really = real.decide(text, [submission(*one) for one in placed])
        program, oracle = Program(text), []
        for job in jobs:
            oracle.append(allowed(world, job))
            assert program.start(job) is oracle[-1]
            if oracle[-1]:
                world.running.append(job)
        assert really == oracle, (seed, text, jobs)
        assert ours.decide(text, placed) == really, (seed, text, jobs)
        started += sum(really)
    # The sets neither let all pass nor none.
    assert len(seeds) * JOBS * 0.2 < started < len(seeds) * JOBS * 0.95
