"""Random sets, with job classes, against an evaluator by brute force that shares nothing with the program.

It works on the words of the text, knows patterns by trying, and counts what is used by going through all running jobs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.conftest import COMPLEXES, sets_of

from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.quota.evaluation import Bucket, evaluate, find_excesses
from lodesman.languages.quota.matching import QuotaJob, QuotaPlace, job_side, place_side

VOCABULARY_TEXT = """
name team
type ACL
entries u1,u2
name lab
entries u3,@staff
group_name @lx
hostlist @new H1
group_name @new
hostlist h2
group_name @old
hostlist h3
"""
GROUPS_OF_HOSTS = {"h1": ["@lx"], "h2": ["@lx", "@new"], "h3": ["@old"], "h4": []}
LISTS_OF_USERS = {"u1": ["@team"], "u2": ["@team"], "u3": ["@lab"], "u4": ["@lab"], "v5": []}
UNIX_GROUPS = {"u4": ["staff"]}
PROCESSORS = {"h1": 2, "h2": 1, "h3": 3, "h4": None}
QUEUES = ["all.q", "gpu.q"]
WORDS = {
    "users": ["u1", "u2", "u3", "u*", "*", "@team", "@lab", "v?", "u9"],
    "projects": ["p1", "p2", "p*", "*"],
    "pes": ["smp", "mpi", "m*", "*"],
    "queues": ["all.q", "gpu.q", "*.q", "*", "b.q"],
    "hosts": ["h1", "H2", "h?", "*", "@lx", "@new", "@o*", "h9"],
    "jcs": ["app1", "app1.v1", "app1.default", "app2", "app*", "*.v1", "*"],
}
LIMITS = {"slots": "0 1 2 3 5".split(), "mc": "0 1G 1536M 3G".split(), "perjob": "0 1 2".split(), "vf": "0 1G 2G".split(),
          "mdef": "1G 2G 4G".split()}  # fmt: skip
BYTES = {
    "0": 0,
    "512M": 1 << 29,
    "1G": 1 << 30,
    "1536M": 3 << 29,
    "2G": 2 << 30,
    "3G": 3 << 30,
    "4G": 4 << 30,
}


@dataclass
class Line:
    """A rule in plain words: by tag, whether it has braces, and its names as written."""

    filters: dict[str, tuple[bool, list[str]]]
    limits: list[tuple[str, str]]


@dataclass
class Job:
    user: str
    project: str
    pe: str
    job_class: str
    slots: int
    requests: dict[str, str]
    queue: str = ""
    host: str = ""


@dataclass
class World:
    sets: list[tuple[bool, list[Line]]]
    running: list[Job] = field(default_factory=list)


# --- the evaluator by brute force ---------------------------------------------------------------------


def like(pattern, text):
    """A shell pattern with * and ?, by trying."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(like(pattern[1:], text[cut:]) for cut in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and like(pattern[1:], text[1:])


def names_of(tag, job):
    """All that a name in this filter can mean of a job at its place."""
    if tag == "users":
        return [job.user, *LISTS_OF_USERS[job.user]]
    if tag == "hosts":
        return [job.host, *GROUPS_OF_HOSTS[job.host]]
    value = {"projects": job.project, "pes": job.pe, "queues": job.queue}[tag]
    return [value] if value else []


def hit(tag, word, job):
    for name in names_of(tag, job):
        if tag in ("users", "hosts"):
            same = word.startswith("@") == name.startswith("@")
            if same and like(word.lower(), name.lower()):
                return True
        elif like(word, name) or like(name, word):
            return True
    return False


def class_hit(word, job):
    name, _, variant = job.job_class.partition(".")
    return like(word, name) or like(word, f"{name}.{variant or 'default'}")


def class_filter(words, job):
    positives = [word for word in words if word[0] != "!"]
    banned = [word[1:] for word in words if word[0] == "!" and word != "!*"]
    none = "!*" in words
    if not job.job_class:
        return none or (not positives and bool(banned))
    if any(class_hit(word, job) for word in banned):
        return False
    if positives:
        return any(class_hit(word, job) for word in positives)
    return not none


def fits(line, job):
    for tag, (_, words) in line.filters.items():
        if tag == "jcs":
            if not class_filter(words, job):
                return False
            continue
        if any(hit(tag, word[1:], job) for word in words if word[0] == "!"):
            return False
        positives = [word for word in words if word[0] != "!"]
        if positives and not any(hit(tag, word, job) for word in positives):
            return False
    return True


def first(lines, job):
    return next((number for number, line in enumerate(lines) if fits(line, job)), None)


def own_values(line, job):
    values = {"users": job.user, "projects": job.project, "pes": job.pe, "queues": job.queue, "hosts": job.host,
              "jcs": job.job_class.partition(".")[0]}  # fmt: skip
    return [values[tag] for tag, (braced, _) in sorted(line.filters.items()) if braced]


def taken(resource, job):
    if resource == "slots":
        return job.slots
    if resource == "perjob":
        return int(job.requests.get("perjob", "0"))
    return BYTES[job.requests.get(resource, "1G" if resource == "mdef" else "0")] * job.slots


def most(text, host):
    if not text.startswith("$"):
        return BYTES.get(text) if text in BYTES else int(text)
    factor, _, more = text.removeprefix("$num_proc*").partition("+")
    known = PROCESSORS[host]
    return float("inf") if known is None else known * float(factor) + int(more)


def allowed(world, job):
    for enabled, lines in world.sets:
        number = first(lines, job) if enabled else None
        if number is None:
            continue
        line = lines[number]
        for resource, text in line.limits:
            if resource == "vf":
                if "vf" in job.requests and BYTES[job.requests["vf"]] > most(text, job.host):
                    return False
                continue
            wanted = taken(resource, job)
            used = sum(
                taken(resource, other)
                for other in world.running
                if first(lines, other) == number and own_values(line, other) == own_values(line, job)
            )
            if wanted and used + wanted > most(text, job.host):
                return False
    return True


# --- random worlds --------------------------------------------------------------------------------------


def some_line(draw):
    filters = {}
    for tag, words in WORDS.items():
        if draw.random() < 0.3:
            names = draw.sample(words, draw.randint(1, min(3, len(words))))
            names = [f"!{name}" if draw.random() < 0.3 else name for name in names]
            if "!*" not in names and draw.random() < 0.15:
                names.append("!*")
            filters[tag] = (draw.random() < 0.5, names)
    resources = draw.sample(sorted(LIMITS), draw.randint(1, 2))
    limits = [(resource, draw.choice(LIMITS[resource])) for resource in resources]
    if "hosts" in filters and filters["hosts"][0] and draw.random() < 0.5:
        limits = [("slots", draw.choice(["$num_proc*1+1", "$num_proc*0.5+0", "$num_proc*2+0"]))]
    return Line(filters, limits)


def some_job(draw):
    requests = {}
    if draw.random() < 0.5:
        requests["mc"] = draw.choice(["0", "512M", "1G"])
    if draw.random() < 0.3:
        requests["perjob"] = draw.choice("01")
    if draw.random() < 0.3:
        requests["vf"] = draw.choice(["0", "1G", "3G"])
    if draw.random() < 0.3:
        requests["mdef"] = draw.choice(["0", "512M"])
    pe = draw.choice(["", "", "smp", "mpi", "m*", "s?p"])
    return Job(
        user=draw.choice(sorted(LISTS_OF_USERS)),
        project=draw.choice(["", "", "p1", "p2"]),
        pe=pe,
        job_class=draw.choice(["", "", "app1", "app1.v1", "app2", "app2.v1"]),
        slots=draw.choice([1, 2, 4]) if pe else 1,
        requests=requests,
        queue=draw.choice(QUEUES),
        host=draw.choice(sorted(GROUPS_OF_HOSTS)),
    )


def text_of(world, draw):
    out = []
    for number, (enabled, lines) in enumerate(world.sets):
        out += ["{", f"name s{number}", f"enabled {'TRUE' if enabled else 'FALSE'}"]
        for line in lines:
            words = []
            for tag, (braced, names) in draw.sample(sorted(line.filters.items()), len(line.filters)):
                gap = draw.choice([",", ", "]) if braced else ","
                words += [tag, f"{{{gap.join(names)}}}" if braced else ",".join(names)]
            out.append(" ".join(["limit", *words, "to", ",".join(map("=".join, line.limits))]))
        out.append("}")
    return "\n".join(out) + "\n"


class Program:
    """The program on the same world; it books what runs."""

    def __init__(self, text):
        faults = []
        self.vocabulary = read_vocabulary({"v": VOCABULARY_TEXT}, faults=faults)
        assert faults == []
        self.sets = sets_of(text)
        self.used = {}

    def hits(self, job):
        name, _, variant = job.job_class.partition(".")
        mine = QuotaJob(
            user=job.user,
            user_lists=self.vocabulary.lists_of(job.user, UNIX_GROUPS.get(job.user, [])),
            project=job.project,
            job_class=name,
            variant=variant,
            pe=job.pe,
            slots=job.slots,
            requests={
                COMPLEXES.get(key).name: COMPLEXES.get(key).value(text) for key, text in job.requests.items()
            },
        )
        known = PROCESSORS[job.host]
        place = QuotaPlace(
            queue=job.queue,
            host=job.host.upper(),
            host_groups=self.vocabulary.groups_of(job.host),
            load={} if known is None else {"num_proc": known},
        )
        found = evaluate(self.sets, mine, place, COMPLEXES)
        # The halves, combined as a caller does that has them from before.
        halves = [
            next(
                (
                    Bucket(rule.label, of_job, of_place)
                    for rule in one.rules
                    if (of_job := job_side(rule, mine)) is not None
                    and (of_place := place_side(rule, place)) is not None
                ),
                None,
            )
            for one in self.sets
            if one.enabled
        ]
        assert [one.bucket for one in found] == [bucket for bucket in halves if bucket]
        return found

    def start(self, job):
        found = self.hits(job)
        if find_excesses(found, self.used):
            return False
        for one in found:
            for charge in one.charges:
                if charge.booked:
                    key = (one.bucket, charge.resource.name)
                    self.used[key] = self.used.get(key, 0) + charge.amount
        return True

    def end(self, job):
        for one in self.hits(job):
            for charge in one.charges:
                if charge.booked:
                    self.used[one.bucket, charge.resource.name] -= charge.amount


def compare(seed, candidates):
    """Counts the comparisons, and how many of them said yes."""
    draw = random.Random(seed)
    world = World([
        (draw.random() < 0.9, [some_line(draw) for _ in range(draw.randint(1, 4))]) for _ in range(draw.randint(1, 3))
    ])  # fmt: skip
    text = text_of(world, draw)
    program = Program(text)
    started = 0
    for _ in range(candidates):
        if world.running and draw.random() < 0.2:
            program.end(world.running.pop(draw.randrange(len(world.running))))
        job = some_job(draw)
        may = allowed(world, job)
        assert program.start(job) is may, (text, job, world.running)
        if may:
            world.running.append(job)
            started += 1
    for job in world.running:
        program.end(job)
    assert set(program.used.values()) <= {0}
    return started


@given(st.integers(0, 2**32))
def test_a_few_candidates_of_random_sets_get_the_same_answer(seed):
    compare(seed, 8)


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_ten_thousand_candidates_of_random_sets_get_the_same_answer(seed):
    """A hundred for each of a hundred sets, in the usual profile."""
    compare(seed, 100)


@pytest.mark.slow
def test_random_worlds_are_neither_open_nor_shut():
    """So that the comparisons above mean something."""
    started = sum(compare(seed, 20) for seed in range(30))
    assert 150 < started < 450
