"""Hosts of pilots: immediate failures, attempts elsewhere, and which hosts are shut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lodesman.decide.director.hosts import WINDOW_S, Failure, HostTrial, is_failure
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, by_index, keys
from lodesman.server.store.statement import ANY, AT_MOST_ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.hosts import HostName, HostRecord, HostState

# More failures or attempts than these say nothing new.
MOST_FAILURES: Final = 5_000
_MOST_ATTEMPTS: Final = 20_000
_FAILURES = "SELECT id, at, site, host, tq_id, job_id, seconds FROM quick_failure ORDER BY id DESC LIMIT ?"
_ENDED = f"""SELECT a.tq_id, p.site, p.node_host, a.outcome, a.cause, count(*) FROM attempt a
JOIN pilot p ON p.id = a.pilot_id
WHERE a.id > (SELECT coalesce(max(id), 0) FROM attempt) - ? AND a.ended_at > ? AND a.stop_reason IS NULL
AND a.tq_id IN {GIVEN} GROUP BY a.tq_id, p.site, p.node_host, a.outcome, a.cause"""
_RUNNING = f"""SELECT a.tq_id, p.site, p.node_host, count(*) FROM attempt a {by_index("attempt_live")}
JOIN pilot p ON p.id = a.pilot_id
WHERE a.ended_at IS NULL AND a.started_at <= ? AND a.tq_id IN {GIVEN} GROUP BY a.tq_id, p.site, p.node_host"""
_PILOTS = """SELECT site, node_host, count(*) FROM pilot
WHERE ended_at IS NULL AND node_host != '' AND ? IN ('', vo) GROUP BY site, node_host"""
_ON_SHUT = """SELECT p.id FROM host h JOIN pilot p ON p.site = h.site AND p.node_host = h.name
WHERE h.shut = 1 AND p.ended_at IS NULL"""
_RECORDS = "SELECT site, name, record FROM host"
_PUT = Statement(
    sql="""INSERT INTO host (site, name, shut, record) VALUES (?,?,?,?)
    ON CONFLICT (site, name) DO UPDATE SET shut = excluded.shut, record = excluded.record""",
    key=(0, 1),
)
_DROP = Statement(sql="DELETE FROM host WHERE site = ? AND name = ?", key=(0, 1), rows=AT_MOST_ONE)
_INSERT_FAILURE = Statement(
    sql="INSERT INTO quick_failure (at, site, host, tq_id, job_id, seconds) VALUES (?,?,?,?,?,?)",
)

_RECORD: Final = msgspec.json.Decoder(HostRecord)


def host_records(db: Reader) -> dict[HostName, HostRecord]:
    """All hosts that have one."""
    return {HostName(*name): _RECORD.decode(text) for *name, text in db.execute(_RECORDS)}


def host_record(db: Reader, host: HostName) -> HostRecord | None:
    """The record of a host; None without one."""
    return db.find(_RECORD.decode, "SELECT record FROM host WHERE site = ? AND name = ?", host)


def newest_failure(db: Reader) -> int:
    """The number of the last one; 0 if none is kept."""
    return int(db.only("SELECT coalesce(max(id), 0) FROM quick_failure")[0])


def quick_failures(db: Reader) -> list[tuple[int, Failure]]:
    """Attempts that failed at once, with their numbers, newest first."""
    rows = db.execute(_FAILURES, (MOST_FAILURES,))
    return [(number, Failure(at, HostName(site, host), *more)) for number, at, site, host, *more in rows]


def attempts_by_host(
    db: Reader, task_queues: Iterable[int], now: float, *, outlived_s: float
) -> list[HostTrial]:
    """Recent outcomes; a live attempt counts once it has run for `outlived_s`."""
    queues = keys(task_queues)
    outcomes = []
    for tq_id, site, host, outcome, cause, n in db.execute(_ENDED, (_MOST_ATTEMPTS, now - WINDOW_S, queues)):
        failed = is_failure(outcome, cause)
        if failed or outcome == "Done":
            outcomes.append(HostTrial(tq_id, HostName(site, host), n, n * failed))
    for tq_id, site, host, n in db.execute(_RUNNING, (now - outlived_s, queues)):
        outcomes.append(HostTrial(tq_id, HostName(site, host), n, 0))
    return outcomes


def pilots_by_host(db: Reader, vo: str = "") -> dict[HostName, int]:
    """Live pilots, of one VO or of all."""
    return {HostName(site, host): n for site, host, n in db.execute(_PILOTS, (vo,))}


def pilots_on_shut_hosts(db: Reader) -> set[int]:
    """Live pilots whose hosts get no jobs."""
    return {number for (number,) in db.execute(_ON_SHUT)}


def note_failure(tx: Transaction, failure: Failure) -> None:
    """Note an attempt that failed at once."""
    tx.later(_INSERT_FAILURE, (failure.at, *failure.host, failure.tq_id, failure.job_id, failure.seconds))


def forget_failures(tx: Transaction, number: int) -> None:
    """Forget failures up to this number."""
    tx.write("DELETE FROM quick_failure WHERE id <= ?", (number,), rows=ANY)


def put_records(tx: Transaction, changed: Iterable[HostState]) -> None:
    """A record of None deletes."""
    for host, record in changed:
        if record is None:
            tx.later(_DROP, host)
        else:
            tx.later(_PUT, (*host, int(record.shut), msgspec.json.encode(record).decode()))
