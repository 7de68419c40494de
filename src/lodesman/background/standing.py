"""How things stand: states, sites, times, shares received against deserved, failures. Read-only.

`gather` goes through all jobs and attempts, once each, so it is done in a thread and its facts are used for a while;
`standing` tells one caller what they may see of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from lodesman.matching.policy import Policy
from lodesman.store import views
from lodesman.store.engine import Reader, only_row

HOLES = """SELECT s.owner, s.grp, s.vo, h.state, h.reason, sum(h.stop - h.start), min(c.base + h.start)
FROM hole h JOIN cohort c ON c.id = h.cohort_id JOIN submission s ON s.id = c.submission_id
WHERE h.state != 'Moved' GROUP BY s.owner, s.grp, s.vo, h.state, h.reason"""
# All waiting jobs of a task queue that no configured queue can run, under the id of the first.
HELD_QUEUES = """SELECT json_extract(q.key, '$.owner'), json_extract(q.key, '$.group'), json_extract(q.key, '$.vo'),
'Held', h.reason, n.jobs, coalesce(
  (SELECT min(id) FROM job WHERE queued IS NOT NULL AND tq_id = h.tq_id AND state = 'Waiting'),
  (SELECT min(base + cursor) FROM cohort WHERE tq_id = h.tq_id AND cursor < stop))
FROM task_queue_hold h JOIN task_queue q ON q.id = h.tq_id JOIN queue_jobs n ON n.tq_id = h.tq_id WHERE n.jobs > 0"""
ATTEMPTS = """SELECT a.site, iif(a.ended_at IS NULL, NULL, a.outcome), s.grp, a.eligible, count(*), sum(a.cpu_seconds)
FROM attempt a LEFT JOIN job j ON j.id = a.job_id LEFT JOIN submission s ON s.id = j.submission_id
WHERE ?1 = '' OR s.vo = ?1 GROUP BY 1, 2, 3, 4"""
TIMES = """SELECT a.claimed_at - s.created_at, a.ended_at - a.started_at
FROM attempt a JOIN job j ON j.id = a.job_id AND j.last_attempt = a.id JOIN submission s ON s.id = j.submission_id
WHERE a.ended_at IS NOT NULL AND (?1 = '' OR s.vo = ?1) ORDER BY a.id DESC LIMIT ?2"""
TWICE = """SELECT count(*) - count(DISTINCT job_id * 10000 + number)
FROM (SELECT job_id, number FROM attempt ORDER BY id DESC LIMIT ?)"""
PILOTS = "SELECT site, state, count(*) FROM pilot WHERE ?1 = '' OR vo = ?1 GROUP BY site, state ORDER BY site, state"
# Times, and numbers given twice, are looked for among so many of the newest attempts.
NEWEST: Final = 100_000
MOST_FAULTY: Final = 2_000
# Of one owner's reasons the most frequent are kept, so that nobody's failures hide another's.
REASONS_OF_ONE: Final = 200
FAULTY = ("Held", "Failed", "Killed")
STARTED: Final = "started"

May = Callable[[str, str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """So many jobs of one owner that ended, or are Held, for one reason; `id` is the first of them."""

    owner: str
    group: str
    vo: str
    state: str
    reason: str
    count: int
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What `gather` found, at one moment. `claims`: (group, groups that took part or None) -> claims."""

    states: Mapping[str, int]
    sites: Sequence[Mapping[str, Any]]
    claims: Mapping[tuple[str, str | None], int]
    attempts: Mapping[str, int]
    waiting: Mapping[str, float | None]
    running: Mapping[str, float | None]
    faults: Sequence[Fault]
    pilots: Sequence[Mapping[str, Any]]


def gather(db: Reader, vo: str = "") -> Facts:
    """Everything that a summary needs, of all jobs or of those of one VO: one snapshot of the database."""
    with db:
        counts: Counter[str] = Counter()
        faults = list(_faults(db, counts, vo))
        attempts: list[Any] = db.execute(ATTEMPTS, (vo,)).fetchall()
        twice = only_row(db, TWICE, (NEWEST,))[0]
        times = db.execute(TIMES, (vo, NEWEST)).fetchall()
        pilots = db.execute(PILOTS, (vo,)).fetchall()
    claims: Counter[tuple[str, str | None]] = Counter()
    for _, _, group, eligible, n, _ in attempts:
        claims[group or "", eligible] += n
    started = counts.pop(STARTED, 0)
    return Facts(
        states=counts,
        sites=_sites(attempts),
        claims=claims,
        attempts={"all": claims.total(), "jobs": started, "same_number_twice": twice},
        waiting=spread(row[0] for row in times),
        running=spread(row[1] for row in times if row[1] is not None),
        faults=faults,
        pilots=[{"site": site, "state": state, "pilots": n} for site, state, n in pilots],
    )


def _sites(attempts: Sequence[Any]) -> list[Mapping[str, Any]]:
    """What became of the attempts that ended at each site."""
    sites: dict[str, dict[str, Any]] = {}
    for site, outcome, _, _, n, cpu in attempts:
        if outcome is not None:
            row = sites.setdefault(site, {"site": site, "cpu_seconds": 0.0, "outcomes": Counter()})
            row["outcomes"][outcome] += n
            row["cpu_seconds"] += cpu or 0.0
    return [sites[name] for name in sorted(sites)]


def _faults(db: Reader, counts: Counter[str], of_vo: str) -> Iterator[Fault]:
    """Held, failed and killed jobs by owner and reason; on the way all jobs are counted by state, and those STARTED."""
    found: dict[tuple[str, str, str], list[Fault]] = defaultdict(list)

    def add(row: Sequence[Any]) -> None:
        owner, group, vo, state, reason, count, first = row
        one = Fault(owner=owner, group=group, vo=vo, state=state, reason=reason or "", count=count, id=first)
        found[owner, group, vo].append(one)

    def seen(query: str) -> Iterator[Any]:
        return (row for row in db.execute(query) if not of_vo or row[2] == of_vo)

    for *row, state, started in seen(views.ROWS_BY_REASON):
        counts[row[3]] += row[5]
        counts[STARTED] += started
        # What is Held with its task queue is told by that.
        if state in FAULTY:
            add(row)
    for row in seen(HOLES):
        counts[row[3]] += row[5]
        if row[3] in FAULTY:
            add(row)
    runs = db.execute(views.STATES_OF_VO[1], (of_vo,)) if of_vo else db.execute(views.STATE_OF_RUNS)
    for _, _, state, n in runs:
        counts[state] += n
    for row in seen(HELD_QUEUES):
        add(row)
    for rows in found.values():
        yield from sorted(rows, key=lambda one: -one.count)[:REASONS_OF_ONE]


def spread(durations: Iterable[Any]) -> dict[str, float | None]:
    """How long it took, in seconds, by nearest rank: of `count`, half less than `p50`, and so on; None of nothing."""
    ordered = sorted(value for value in durations if math.isfinite(value))
    count = len(ordered)
    ranks = {f"p{part}": max(0, -(-count * part // 100) - 1) for part in (50, 90, 95, 99, 100)}
    found = {name: ordered[rank] if ordered else None for name, rank in ranks.items()}
    return {"count": count, **{"most" if name == "p100" else name: value for name, value in found.items()}}


def standing(facts: Facts, policy: Policy, may: May) -> dict[str, Any]:
    """The facts as JSON values. `may` tells whose failures (owner, group, VO) are named."""
    seen = (one for one in facts.faults if may(one.owner, one.group, one.vo))
    faulty = sorted(islice(seen, MOST_FAULTY), key=lambda one: one.id)
    return {
        "states": facts.states,
        "sites": facts.sites,
        "groups": _groups(facts, policy),
        "claims": [
            {"group": group, "eligible": msgspec.json.decode(eligible) if eligible else None, "count": n}
            for (group, eligible), n in facts.claims.items()
        ],
        "waiting_seconds": facts.waiting,
        "running_seconds": facts.running,
        "faulty": [
            {"id": one.id, "count": one.count, "state": one.state, "reason": one.reason} for one in faulty
        ],
        "attempts": facts.attempts,
        "pilots": facts.pilots,
    }


def _groups(facts: Facts, policy: Policy) -> list[dict[str, Any]]:
    """Claims received per group, and deserved: the sum over claims of share / shares of the eligible groups.

    Only claims whose eligible groups were recorded enter both sums.
    """
    got: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    deserved: dict[str, float] = defaultdict(float)
    for (group, eligible), n in facts.claims.items():
        got[group] += n
        if not eligible:
            continue
        compared[group] += n
        shares = {name: policy.share_of(name) for name in msgspec.json.decode(eligible)}
        total = sum(shares.values())
        for name, share in shares.items():
            if total > 0:
                deserved[name] += n * share / total
    return [
        {"group": name, "share": policy.share_of(name), "claims": got[name], "compared": compared[name],
         "deserved": deserved[name]}
        for name in sorted(set(got) | set(deserved))
    ]  # fmt: skip
