"""How things stand: states, sites, times, shares received against deserved, failures. Read-only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import apsw
import msgspec

from lodesman.services.policy import Policy
from lodesman.store import views
from lodesman.store.engine import only_row

SITES = """SELECT site, outcome, count(*), sum(cpu_seconds) FROM attempt WHERE ended_at IS NOT NULL GROUP BY site, outcome"""
TIMES = """SELECT s.grp, a.site, a.claimed_at - s.created_at, a.ended_at - a.started_at
FROM attempt a JOIN job j ON j.last_attempt = a.id JOIN submission s ON s.id = j.submission_id
WHERE a.ended_at IS NOT NULL ORDER BY a.id DESC LIMIT 100000"""
CLAIMS = """SELECT s.grp, a.eligible, count(*) FROM attempt a JOIN job j ON j.id = a.job_id
JOIN submission s ON s.id = j.submission_id GROUP BY s.grp, a.eligible"""
FAULTY = """SELECT j.id, 1, j.state, j.reason, s.owner, s.grp, s.vo FROM job j
JOIN submission s ON s.id = j.submission_id WHERE j.state IN ('Held', 'Failed', 'Killed') ORDER BY j.id"""
HELD = """SELECT c.base + h.start, h.stop - h.start, h.state, h.reason, s.owner, s.grp, s.vo FROM hole h
JOIN cohort c ON c.id = h.cohort_id JOIN submission s ON s.id = c.submission_id WHERE h.state != 'Moved'"""
# All waiting jobs of a task queue that no configured queue can run, under the id of the first.
HELD_QUEUES = """SELECT coalesce(
  (SELECT min(id) FROM job WHERE queued IS NOT NULL AND tq_id = h.tq_id AND state = 'Waiting'),
  (SELECT min(base + cursor) FROM cohort WHERE tq_id = h.tq_id AND cursor < stop)), n.jobs, 'Held', h.reason,
json_extract(q.key, '$.owner'), json_extract(q.key, '$.group'), json_extract(q.key, '$.vo')
FROM task_queue_hold h JOIN task_queue q ON q.id = h.tq_id JOIN queue_jobs n ON n.tq_id = h.tq_id WHERE n.jobs > 0"""
MOST_FAULTY = 2_000
ATTEMPTS = """SELECT count(*), count(DISTINCT job_id), count(*) - count(DISTINCT job_id * 10000 + number) FROM attempt"""


May = Callable[[str, str, str], bool]


def standing(db: apsw.Connection, policy: Policy, may: May) -> dict[str, Any]:
    """Everything that a summary needs, as JSON values. `may` tells whose failures (owner, group, VO) are named."""
    counts: Counter[str] = Counter()
    for _, _, state, n in views.job_counts(db):
        counts[state] += n
    attempts, jobs, twice = only_row(db, ATTEMPTS)
    return {
        "states": dict(counts),
        "sites": _sites(db),
        "groups": _groups(db, policy),
        "claims": _claims(db),
        "waiting_seconds": [row[2] for row in db.execute(TIMES)],
        "running_seconds": [row[3] for row in db.execute(TIMES) if row[3] is not None],
        "faulty": list(islice(_faulty(db, may), MOST_FAULTY)),
        "attempts": {"all": attempts, "jobs": jobs, "same_number_twice": twice},
        "pilots": _pilots(db),
    }


def _sites(db: apsw.Connection) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for site, outcome, n, cpu in db.execute(SITES):
        row = rows.setdefault(site, {"site": site, "cpu_seconds": 0.0, "outcomes": {}})
        row["outcomes"][outcome] = n
        row["cpu_seconds"] += cpu or 0.0
    return [rows[name] for name in sorted(rows)]


def _groups(db: apsw.Connection, policy: Policy) -> list[dict[str, Any]]:
    """Claims received per group, and deserved: the sum over claims of share / shares of the eligible groups.

    Only claims whose eligible groups were recorded enter both sums.
    """
    got: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    deserved: dict[str, float] = defaultdict(float)
    for group, eligible, n in db.execute(CLAIMS):
        got[group] += n
        if not eligible:
            continue
        compared[group] += n
        names = msgspec.json.decode(eligible)
        shares = {name: policy.share_of(name) for name in names}
        total = sum(shares.values())
        for name, share in shares.items():
            if total > 0:
                deserved[name] += n * share / total
    return [
        {"group": name, "share": policy.share_of(name), "claims": got[name], "compared": compared[name],
         "deserved": deserved[name]}
        for name in sorted(set(got) | set(deserved))
    ]  # fmt: skip


def _claims(db: apsw.Connection) -> list[dict[str, Any]]:
    """Claims by group and by which groups took part in the lottery (None: not recorded)."""
    return [
        {"group": group, "eligible": msgspec.json.decode(eligible) if eligible else None, "count": n}
        for group, eligible, n in db.execute(CLAIMS)
    ]


def _faulty(db: apsw.Connection, may: May) -> Iterator[dict[str, Any]]:
    for job, n, state, reason, *whose in chain(db.execute(HELD_QUEUES), db.execute(FAULTY), db.execute(HELD)):
        if may(*whose):
            yield {"id": job, "count": n, "state": state, "reason": reason}


def _pilots(db: apsw.Connection) -> list[dict[str, Any]]:
    rows = db.execute("SELECT site, state, count(*) FROM pilot GROUP BY site, state ORDER BY site, state")
    return [{"site": site, "state": state, "pilots": n} for site, state, n in rows]
