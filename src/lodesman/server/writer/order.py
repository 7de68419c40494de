"""Jobs that wait for other jobs: who may wait for whom, and what the end of a batch frees (ADR 0070)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.base.errors import InvalidJob, TooLarge, counted
from lodesman.languages.jobs.parents import ParentRange, failed_parent, parent_ranges
from lodesman.languages.jobs.spec import TERMINAL, JobSpec
from lodesman.server.store.order import DependencyRow, delete_dependency, waiting_without_parents
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, cohorts, jobs
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.writer.claim import serve_parked
from lodesman.server.writer.control import join_ranges
from lodesman.server.writer.control_outcome import ControlOutcome
from lodesman.server.writer.dependents import Dependency, SettlingJobs
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.missing_jobs import unseen_jobs
from lodesman.server.writer.settling import FREE, Settle
from lodesman.wire.vocabulary import JobState

MOST_PARENTS: Final = 1_000
"""The most submissions that one job waits for."""
_MOST_ROWS: Final = 1_000
"""The most rows read at the end of one batch."""
_FEW_ROWS: Final = 16
_FEW_MEMBERS: Final = 64
_NAMES: Final = ("After", "AfterOk")
_FORGOTTEN: Final = "what it waited for was not stored"

log = logging.getLogger(__name__)


class WaitRule(Struct, frozen=True, gc=False):
    """What members [start, stop) of a submission wait for."""

    start: int
    stop: int
    after: Sequence[ParentRange]  # until these have ended
    after_ok: Sequence[ParentRange]  # until these are Done
    cancel: bool  # if one fails they are killed, else held


def waits_of(spec: JobSpec, run: range) -> WaitRule:
    """Raises InvalidJob."""
    after, after_ok = parent_ranges(spec.after), parent_ranges(spec.after_ok)
    both = [*after, *after_ok]
    name = "After" if any(parents_range.by_index for parents_range in after) else "AfterOk"
    if any(parents_range.by_index for parents_range in both):
        if len(both) > 1:
            raise InvalidJob(
                f"{name}: a range with :index is the only one.",
                hint="Members that wait by index wait for nothing else.",
                attribute=name,
            )
        parents = both[0].last - both[0].first + 1
        if parents != len(run):
            raise InvalidJob(
                f"{name}: {counted(len(run), 'job')} cannot wait by index for {parents:,}.",
                hint="Give as many, or leave :index out: then each waits for all.",
                attribute=name,
            )
    return WaitRule(run.start, run.stop, after, after_ok, spec.on_parent_failure == "cancel")


def rows_of(
    tx: Transaction, waits: Iterable[WaitRule], owner: str, *, base: int, number: int
) -> list[DependencyRow]:
    """Parents exist already, so there are no cycles. Raises TooLarge, InvalidJob."""
    rows = []
    for wait in waits:
        own_rows: list[DependencyRow] = []
        for ok, ranges in enumerate((wait.after, wait.after_ok)):
            for parents in ranges:
                for block in _blocks(tx, parents, owner, base, _NAMES[ok]):
                    first, last = (
                        max(parents.first, block.base),
                        min(parents.last, block.base + block.count - 1),
                    )
                    own_rows.append(DependencyRow(
                        base + wait.start, first, ok, base + wait.stop - 1, last, parents.by_index, wait.cancel, number,
                        block.submission, block.base,
                    ))  # fmt: skip
        if len(own_rows) > MOST_PARENTS:
            raise TooLarge(
                f"A job would wait for jobs of {len(own_rows):,} submissions; it may for those of {MOST_PARENTS:,}.",
                hint="Submit the jobs that it waits for together, as one array or batch.",
                limit=MOST_PARENTS,
                size=len(own_rows),
            )
        if len(own_rows) > 1 and any(row.by_index for row in own_rows):
            raise InvalidJob(
                "A range with :index has jobs of several submissions.",
                hint="Name members of one array.",
                attribute="AfterOk",
            )
        rows += own_rows
    return rows


def _blocks(
    tx: Transaction, parents: ParentRange, owner: str, base: int, name: str
) -> Iterator[jobs.IdBlock]:
    """Parents must exist, be the user's own, and older. Raises InvalidJob."""
    at, left = parents.first, MOST_PARENTS
    if parents.last >= base:
        raise _not_there(max(parents.first, base), parents.last, name)
    for block in jobs.submissions_between(tx, parents.first, parents.last):
        if block.base > at or block.owner != owner:
            break
        yield block
        at, left = block.base + block.count, left - 1
        if left < 0:
            return  # too many, whatever follows
    if at <= parents.last:
        raise _not_there(at, parents.last, name)


def _not_there(first: int, last: int, name: str) -> InvalidJob:
    refusal = unseen_jobs(first, last)
    return InvalidJob(
        f"{name}: {refusal.message}", hint="A job waits for jobs of its owner that are submitted before it.",
        attribute=name, first=first, last=last,
    )  # fmt: skip


def end_batch(live: WriterState, tx: Transaction) -> None:
    """Free jobs that waited for ended ones, then serve parked claims."""
    if _step(tx, live):
        tx.answers.append((live.go_on, None))
    serve_parked(live, tx)


def _step(tx: Transaction, live: WriterState) -> bool:
    """Judge a limited number of jobs; true if there is more to do."""
    book, seen, room = live.order, 0, _MOST_ROWS
    while True:
        book.note(tx, tx.ended[seen:])
        seen = len(tx.ended)
        if room <= 0 or not (book.settling or book.due):
            return bool(book.settling or book.due)
        if book.settling:
            room -= _go_on(tx, live)
        else:
            room -= _judge(tx, live, next(iter(book.due)), room)


def free_forgotten(tx: Transaction, live: WriterState) -> int:
    """Free jobs that, by what is stored, wait for none; returns how many."""
    freed = 0
    for tq_id, key, waiting in list(live.queues.index.queues()):
        if key.waits_for_jobs and waiting:
            live.queues.claims.write_cursors(tx)
            ids = waiting_without_parents(tx.reader(), tq_id, most=_MOST_ROWS)
            if ids:
                apart_ids = join_ranges((span[0], span[-1]) for span in ids)
                freed += _settle(tx, live, apart_ids, JobState.WAITING, _FORGOTTEN).changed
                log.error("jobs waited for none", extra={"task_queue": tq_id, "first": ids[0][0]})
    return freed


def _judge(tx: Transaction, live: WriterState, dependency: Dependency, room: int) -> int:
    """Returns how many rows were read."""
    dependency.keep(tx)
    live.queues.claims.write_cursors(tx)
    used = 1
    while dependency.todo and used < room:
        run = dependency.todo.pop()
        spans, stop, read = _look(tx, dependency.row, run, most=room)
        used += read
        if stop < run.stop:
            dependency.todo.append(range(stop, run.stop))
        fault = _take(tx, live, dependency.row, spans)
        if fault:
            _free(tx, live, dependency, _on_failure(dependency.row), fault)
            return used
    return used if dependency.todo else used + _search(tx, live, dependency, room - used)


def _search(tx: Transaction, live: WriterState, dependency: Dependency, room: int) -> int:
    """Find the first parent that has not ended; returns how many rows were read."""
    used, portion = 0, _FEW_ROWS
    while dependency.search is not None and used < room:
        if dependency.search > dependency.row.last:
            _complete(tx, live, dependency)
            return used
        run = range(dependency.search, dependency.row.last + 1)
        spans, stop, read = _look(tx, dependency.row, run, most=portion)
        used, portion = used + read, min(2 * portion, _MOST_ROWS)
        pending = next((span.start for span in spans if not span.ended), None)
        dependency.search, dependency.watched = (stop, 0) if pending is None else (None, pending)
    if dependency.search is None:
        tx.drop(live.order.due, dependency)
    return used


def _take(tx: Transaction, live: WriterState, row: DependencyRow, spans: Iterable[_Span]) -> str:
    """Free, hold or cancel members by index; otherwise return the first failure."""
    for span in spans:
        fault = span.fault if row.ok else ""
        if fault and not row.by_index:
            return fault
        if row.by_index and span.ended:
            rest: tuple[range, ...] = (
                range(row.job_id + span.start - row.first, row.job_id + span.stop - row.first),
            )
            new = _on_failure(row) if fault else JobState.WAITING
            while rest:
                rest = _settle(tx, live, rest, new, fault or FREE, few=_FEW_MEMBERS).rest
    return ""


def _on_failure(row: DependencyRow) -> JobState:
    return JobState.KILLED if row.cancel else JobState.HELD


def _complete(tx: Transaction, live: WriterState, dependency: Dependency) -> None:
    if dependency.row.by_index or len(live.order.beside(dependency)) > 1:
        delete_dependency(tx, dependency.row)
        live.order.end(tx, dependency)
    else:
        _free(tx, live, dependency, JobState.WAITING, FREE)


def _free(tx: Transaction, live: WriterState, dependency: Dependency, new: JobState, reason: str) -> None:
    """In portions; dependencies are deleted last."""
    book, ids = live.order, range(dependency.row.job_id, dependency.row.last_job + 1)
    waiter = book.beside(dependency)
    tx.put(book.settling, ids[0], SettlingJobs((ids,), new, reason, [gone.row for gone in waiter]))
    for gone in waiter:
        book.end(tx, gone)


def _go_on(tx: Transaction, live: WriterState) -> int:
    settling = live.order.settling
    job_id, batch = next(iter(settling.items()))
    out = _settle(tx, live, batch.rest, batch.new, batch.reason)
    if out.rest:
        tx.put(settling, job_id, batch._replace(rest=out.rest))
        return _MOST_ROWS
    tx.drop(settling, job_id)
    for row in batch.rows:
        delete_dependency(tx, row)
    return 1 + min(out.changed, _MOST_ROWS // 10)


def _settle(
    tx: Transaction, live: WriterState, ids: tuple[range, ...], new: JobState, reason: str, *, few: int = 0
) -> ControlOutcome:
    return Settle(live, "settle", ids, reason, lambda *_: True, new=new, few=few).apply(tx)


# --- the states of parents -----------------------------------------------------------------------------------


class _Span(NamedTuple):
    start: int
    stop: int
    ended: bool
    fault: str = ""  # why their end is a failure, if it is one


def _look(tx: Transaction, row: DependencyRow, run: range, *, most: int) -> tuple[list[_Span], int, int]:
    """Parents, ascending; where it stopped; how many rows were read. Purged ones ended well."""
    parents = jobs.rows_between(tx, run.start, run.stop - 1, most=most)
    stop = parents[-1].id + 1 if len(parents) >= most else run.stop
    spans = [_of_row(tx, parent) for parent in parents]
    if len(parents) < stop - run.start:
        spans += _without_rows(tx, row, range(run.start, stop))
        spans.sort()
    return list(_filled(spans, run.start, stop)), stop, 1 + len(parents)


def _of_row(tx: Transaction, row: JobRow) -> _Span:
    if row.state not in TERMINAL:
        return _Span(row.id, row.id + 1, ended=False)
    is_good = row.state is JobState.DONE
    if row.state is JobState.DELETED:
        last = attempts.last_attempt(tx, row)
        is_good = last is not None and last.outcome == "Done"
    return _Span(row.id, row.id + 1, True, "" if is_good else failed_parent(row.id, row.state, row.reason))


def _without_rows(tx: Transaction, row: DependencyRow, ids: range) -> Iterator[_Span]:
    run = range(ids.start - row.base, ids.stop - row.base)
    for cohort in cohorts.cohorts_between(tx, row.parent_id, run):
        holes = cohorts.holes_between(tx, cohort.id, run)
        for part in cohorts.waiting_runs(cohort, holes, run):
            yield _Span(row.base + part.start, row.base + part.stop, ended=False)
        for hole in holes:
            start, stop = max(hole.start, run.start) + row.base, min(hole.stop, run.stop) + row.base
            if hole.state == JobState.HELD:
                yield _Span(start, stop, ended=False)
            elif hole.state != "Moved":
                yield _Span(start, stop, True, failed_parent(start, hole.state, hole.reason))


def _filled(spans: Iterable[_Span], start: int, stop: int) -> Iterator[_Span]:
    last = _Span(start, start, ended=True)
    for span in (*spans, _Span(stop, stop, ended=True)):
        for part in (_Span(last.stop, span.start, ended=True), span):
            if part.start >= part.stop:
                continue
            if part.ended == last.ended and not (part.fault or last.fault):
                last = last._replace(stop=part.stop)
                continue
            if last.start < last.stop:
                yield last
            last = part
    if last.start < last.stop:
        yield last
