"""Single jobs: state, attempts, events, output, description. Rows and untouched members have one form."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from lodesman.server.store import UNREADABLE, Reader, damaged
from lodesman.server.store.dialect import GIVEN, greatest, keys, least, member_if_whole
from lodesman.wire.jobs import Attempt, Event, HeldBy, Job, Resolution
from lodesman.wire.vocabulary import Form, JobState, MainReason

# Jobs that wait in a task queue that no configured queue can run are Held (`q`: its hold).
STATE = "CASE WHEN j.state = 'Waiting' AND q.tq_id IS NOT NULL THEN 'Held' ELSE j.state END"
_HELD_BY_QUEUE = "j.state = 'Waiting' AND q.tq_id IS NOT NULL"
# The pending reason of jobs that wait, or are Held with their task queue; NULL if not judged yet.
MAIN_REASON = """CASE WHEN j.state != 'Waiting' THEN NULL WHEN q.tq_id IS NOT NULL THEN 'impossible'
WHEN j.id < r.next_before THEN r.next_reason ELSE r.reason END"""
# CE, queue and host of a pilot; the host by its own word, else by its batch system's.
_PLACE = "p.ce, p.queue, coalesce(nullif(p.node_host, ''), nullif(p.host, ''))"
# In the order of the members of `Job`.
JOB_FACTS = f"""SELECT j.id, {STATE}, j.attempt,
CASE WHEN {_HELD_BY_QUEUE} THEN {greatest("j.since", "q.since")} ELSE j.since END,
CASE WHEN {_HELD_BY_QUEUE} THEN q.reason ELSE j.reason END,
CASE WHEN {_HELD_BY_QUEUE} THEN 'impossible' WHEN j.state != 'Held' THEN NULL
WHEN j.admin_held != 0 THEN 'admin' ELSE 'user' END,
s.owner, s.grp, s.vo, s.name, s.created_at, j.tq_id, j.template_id, j.submission_id, j.last_event, j.last_attempt,
a.site, a.pilot_id, a.claimed_at, a.started_at, a.ended_at, a.outcome, a.cause, a.exit_code, a.signal, a.cpu_seconds,
a.wall_seconds, a.max_rss_mb, CASE WHEN a.ended_at IS NULL THEN NULL ELSE a.output_sha256 END,
CASE WHEN a.ended_at IS NULL THEN NULL ELSE a.output_size END, a.message,
{_PLACE}, s.base, {MAIN_REASON}"""
OF_JOBS = "FROM job j JOIN submission s ON s.id = j.submission_id"
# Where its attempts ran.
_OF_PILOT = "LEFT JOIN pilot p ON p.id = a.pilot_id"
WITH_QUEUE_FACTS = f"""{_OF_PILOT}
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = j.tq_id"""
WITH_FACTS = f"LEFT JOIN attempt a ON a.id = j.last_attempt {WITH_QUEUE_FACTS}"
_MEMBER_COHORTS = """SELECT c.id, c.cursor, c.tq_id, c.template_id, s.owner, s.grp, s.vo, s.name, s.created_at,
s.base, s.id, q.reason, q.since,
CASE WHEN ? < r.next_before THEN r.next_reason ELSE r.reason END FROM cohort c JOIN submission s ON s.id = c.submission_id
LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE s.base = (SELECT max(base) FROM submission WHERE base <= ?) AND s.base + s.count > ?
AND c.start <= ? - s.base AND c.stop > ? - s.base ORDER BY c.id DESC LIMIT 1"""
_HOLE_AT = "SELECT state, reason, at, admin_held FROM hole WHERE cohort_id = ? AND start <= ? AND stop > ?"
_QUEUE_EVENTS = "SELECT id, at, kind, reason FROM task_queue_event WHERE tq_id = ?"
_EVENT = "SELECT at, previous, kind, data FROM event WHERE id = ?"
_RANGE_EVENTS = """SELECT id, at, kind, data FROM event
WHERE last_job IS NOT NULL AND job_id BETWEEN ? AND ? AND last_job >= ?"""
_ATTEMPT = f"""SELECT a.previous, a.id, a.number, a.pilot_id, a.site, a.claimed_at, a.started_at, a.ended_at, a.outcome,
a.cause, a.exit_code, a.signal, a.cpu_seconds, a.wall_seconds, a.max_rss_mb, a.message, {_PLACE}
FROM attempt a {_OF_PILOT} WHERE a.id = ?"""
_LAST_OUTPUT = """SELECT j.state, j.attempt, s.id, s.owner, s.grp, s.vo, a.pilot_id, a.tail, a.ended_at IS NOT NULL
FROM job j JOIN submission s ON s.id = j.submission_id LEFT JOIN attempt a ON a.id = j.last_attempt WHERE j.id = ?"""
_DESCRIPTION = """SELECT form, record, count, members IS NOT NULL, first_template, last_template FROM submission
WHERE id = ?"""
_NAMES = f"SELECT id, {member_if_whole('body', 'spec', 'name')} FROM template WHERE id IN {GIVEN}"
_MEMBERS = "SELECT CASE WHEN length(members) <= ? THEN members END FROM submission WHERE id = ?"
_CHANGEABLE_ROWS = """SELECT DISTINCT s.id, s.base, s.owner, s.grp, s.vo, j.template_id, j.tq_id FROM job j
JOIN submission s ON s.id = j.submission_id WHERE j.id BETWEEN ? AND ? AND j.state IN ('Waiting', 'Held') LIMIT ?"""
# The part [low, high) of a run counts if holes do not fill what pilots have not reached (from `open`), or if members are
# held there: those that changed, or ended, have left the run.
_RUN_PARTS = f"""SELECT s.id, s.base, s.owner, s.grp, s.vo, c.template_id, c.tq_id, c.id AS run,
{greatest("c.start", "? - c.base")} AS low, {greatest("c.cursor", "c.start", "? - c.base")} AS open,
{least("c.stop", "? - c.base")} AS high FROM submission s JOIN cohort c ON c.submission_id = s.id
WHERE s.base < ? AND s.base + s.count > ? AND c.first < ? AND c.base + c.stop > ?"""
_IN_HOLES = f"""SELECT coalesce(sum({least("h.stop", "r.high")} - {greatest("h.start", "r.open")}), 0) FROM hole h
WHERE h.cohort_id = r.run AND h.stop > r.open AND h.start < r.high"""
_HELD = "SELECT 1 FROM hole h WHERE h.cohort_id = r.run AND h.stop > r.low AND h.start < r.high AND h.state = 'Held'"
_CHANGEABLE_RUNS = f"""SELECT DISTINCT r.id, r.base, r.owner, r.grp, r.vo, r.template_id, r.tq_id FROM ({_RUN_PARTS}) r
WHERE (r.open < r.high AND r.high - r.open > ({_IN_HOLES})) OR EXISTS ({_HELD}) LIMIT ?"""
_RESOLUTION = (
    """SELECT (SELECT resolution FROM template WHERE id = ?), resolution FROM submission WHERE id = ?"""
)
_PLACES = """SELECT j.id - s.base, j.id - s.base + 1 FROM submission s
JOIN job j ON j.id >= s.base AND j.id < s.base + s.count WHERE s.id = ? AND j.template_id = ? AND j.tq_id = ?
UNION ALL SELECT start, stop FROM cohort WHERE submission_id = ? AND template_id = ? AND tq_id = ?"""
_RESOLUTIONS = msgspec.json.Decoder(dict[int, Resolution])
_NO_FACTS = dict.fromkeys(Job.__struct_fields__) | {"start": UNSET, "job_group": "", "job_class": ""}


class MemberState(NamedTuple):
    """The state of members without a row, as a `Job` shows it."""

    state: JobState
    since: float
    reason: str
    held_by: HeldBy | None
    main_reason: MainReason | None


class _LastOutput(Struct, frozen=True):
    state: JobState
    attempt: int
    submission: int
    owner: str
    group: str
    vo: str
    pilot: int | None  # this and the tail are None without an attempt
    tail: str | None
    ended: bool


def was_given_out(db: Reader, job_id: int) -> bool:
    """Whether a job ever had this id."""
    return 0 < job_id < int(db.only("SELECT next_job FROM leadership")[0])


def has_submission(db: Reader, first: int, last: int) -> bool:
    """Whether one, not purged, has one of these ids."""
    end = db.find(
        int, "SELECT base + count FROM submission WHERE base <= ? ORDER BY base DESC LIMIT 1", (last,)
    )
    return end is not None and end > first


_MAIN_REASONS: Final = frozenset(MainReason)


def job_by_id(db: Reader, job_id: int) -> Job | None:
    """None if it was never submitted, or is purged."""
    for read in (_row, _member, _row, _member):  # a member may be taken, or released, between two reads
        job = read(db, job_id)
        if job is not None:
            return job
    return None


def job_of(*row: Any) -> Job:
    """Read a job from columns of JOB_FACTS. Raises ValueError."""
    values = list(row)
    values[1], values[-1] = JobState(row[1]), _main_reason(row[-1])
    return Job(*values)


def untaken_member(job_id: int, state: MemberState, **facts: Any) -> Job:
    """A member of an array that no pilot took."""
    return Job(**{**_NO_FACTS, "id": job_id, "attempt": 0, **state._asdict(), **facts})


def _main_reason(text: str | None) -> MainReason | None:
    return None if text not in _MAIN_REASONS else MainReason(text)


def _row(db: Reader, job_id: int) -> Job | None:
    row = db.execute(f"{JOB_FACTS} {OF_JOBS} {WITH_FACTS} WHERE j.id = ?", (job_id,)).fetchone()
    if row is None:
        return None
    try:
        return job_of(*row)
    except UNREADABLE as fault:
        raise damaged(f"job {job_id}", fault) from None


def _member(db: Reader, job_id: int) -> Job | None:
    """None if it was taken."""
    row = db.execute(_MEMBER_COHORTS, (job_id,) * 5).fetchone()
    if row is None:
        return None
    cohort, cursor, tq_id, template, owner, group, vo, name, created, base, submission, *hold = row
    hole = db.execute(_HOLE_AT, (cohort, job_id - base, job_id - base)).fetchone()
    if hole[0] == "Moved" if hole else job_id - base < cursor:
        return None
    state = hole_state(*hole) if hole else run_state(created, *hold)
    return untaken_member(
        job_id, state, owner=owner, group=group, vo=vo, name=name, submitted_at=created, task_queue=tq_id,
        template=template, submission=submission, base=base,
    )  # fmt: skip


def run_state(created: float, held: str | None, since: float | None, reason: str | None) -> MemberState:
    """The state of untouched members. `held`, `since`: why, and since when, no configured queue can run them."""
    if held is None or since is None:
        return MemberState(JobState.WAITING, created, "", None, _main_reason(reason))
    return MemberState(JobState.HELD, max(created, since), held, "impossible", MainReason.IMPOSSIBLE)


def hole_state(state: str, reason: str, since: float, admin_held: int) -> MemberState:
    """The state of members of a hole."""
    by: HeldBy = "admin" if admin_held else "user"
    return MemberState(JobState(state), since, reason, by if state == "Held" else None, None)


# --- events and attempts -------------------------------------------------------------------------------


def events_of_job(db: Reader, job: Job) -> list[Event]:
    """Oldest first: of the job, of ranges with it, of its task queue."""
    events: list[tuple[int, Event]] = []
    number = job.last_event
    while number is not None:
        at, previous, kind, data = db.only(_EVENT, (number,))
        events.append((number, _event(at, kind, data)))
        number = previous
    ranges = db.execute(_RANGE_EVENTS, (job.base, job.id, job.id))
    events.extend((row[0], _event(*row[1:])) for row in ranges)
    return _with_task_queue(db, job.task_queue, events)


def _with_task_queue(db: Reader, tq_id: int, events: list[tuple[int, Event]]) -> list[Event]:
    of_queue = {
        int(number): Event(at, kind, reason=reason, task_queue=tq_id)
        for number, at, kind, reason in db.execute(_QUEUE_EVENTS, (tq_id,))
    }
    out: list[Event] = []
    # Waiting, Held with its task queue, or '' for neither.
    state, held = "", None
    # By number, not by time: clocks jump.
    for number, event in sorted([*events, *of_queue.items()], key=lambda pair: pair[0]):
        if number in of_queue:
            held = event if event.event == "Held" else None
            if state in ("", event.event):
                continue
            state = event.event
        elif event.event == "Held" and state == "Held" and not event.by:
            continue
        elif event.event in ("Submitted", "Waiting"):
            state = "Waiting"
        else:
            state = "Held" if event.event == "Held" and not event.by else ""
        out.append(event)
        if state == "Waiting" and held is not None:
            out.append(msgspec.structs.replace(held, at=event.at))
            state = "Held"
    return out


def _event(at: float, kind: str, data: str | None) -> Event:
    details = msgspec.json.decode(data) if data else {}
    return msgspec.convert({"at": at, "event": kind, **details}, Event)


def attempts_of_job(db: Reader, job: Job) -> list[Attempt]:
    """Its attempts, first to last."""
    attempts, number = [], job.last_attempt
    while number is not None:
        number, *values = db.only(_ATTEMPT, (number,))
        attempts.append(Attempt(*values))
    return attempts[::-1]


def last_output(db: Reader, job_id: int) -> _LastOutput | None:
    """None for a member that no pilot took."""
    row = db.execute(_LAST_OUTPUT, (job_id,)).fetchone()
    if row is None:
        return None
    values = list(row)
    values[0], values[-1] = JobState(row[0]), bool(row[-1])
    return _LastOutput(*values)


# --- descriptions ----------------------------------------------------------------------------------------


class ChangeableJobs(NamedTuple):
    """Waiting or held jobs with one template and one task queue."""

    submission: int
    base: int
    owner: str
    group: str
    vo: str
    template: int
    tq_id: int


def changeable_jobs(db: Reader, first: int, last: int, *, most: int) -> list[ChangeableJobs]:
    """Kinds of waiting and held jobs with first <= id <= last."""
    rows = db.execute(_CHANGEABLE_ROWS, (first, last, most))
    kinds = {ChangeableJobs(*row): None for row in rows}
    end = last + 1
    runs = db.execute(_CHANGEABLE_RUNS, (first, first, end, end, first, end, first, most))
    return [*kinds | {ChangeableJobs(*row): None for row in runs}]


def description_of(db: Reader, submission: int) -> tuple[Form, str, int, int, int, int]:
    """(language, description or '', number of jobs, whether it is parametric, first and last template); changed
    jobs have other templates.
    """
    return db.only(_DESCRIPTION, (submission,))


def resolution_of(db: Reader, submission: int, template: int, index: int) -> Resolution | None:
    """What a class made of a description, by index, or of a changed job, by template."""
    changed, text = db.only(_RESOLUTION, (template, submission))
    if changed:
        return msgspec.json.decode(changed, type=Resolution)
    return _RESOLUTIONS.decode(text).get(index) if text else None


def resolutions_of_kind(db: Reader, kind: ChangeableJobs) -> list[Resolution]:
    """Different ones: jobs of a batch may differ in who set what."""
    changed, text = db.only(_RESOLUTION, (kind.template, kind.submission))
    if changed or not text:
        return [msgspec.json.decode(changed, type=Resolution)] if changed else []
    by_index = _RESOLUTIONS.decode(text)
    if description_of(db, kind.submission)[3]:
        return list(by_index.values())
    out: list[Resolution] = []
    for start, stop in db.execute(_PLACES, (kind.submission, kind.template, kind.tq_id) * 2):
        for resolution in filter(None, map(by_index.get, range(start, stop))):
            if resolution not in out:
                out.append(resolution)
    return out


class StoredTemplate(NamedTuple):
    """What jobs have in common."""

    fill: int  # what is filled into the body (`store.write.jobs.Fill`)
    max_attempts: int
    body: str  # what pilots are given, as JSON
    retry: str | None  # `jobs.retries`
    resolution: str | None = None  # what their class made of changed jobs (`wire.jobs.Resolution`)


def stored_template(db: Reader, number: int) -> StoredTemplate:
    """A template by number."""
    columns = "expand, max_attempts, body, retry, resolution"
    return StoredTemplate(*db.only(f"SELECT {columns} FROM template WHERE id = ?", (number,)))


def retry_of(db: Reader, template: int) -> str | None:
    """After which ends jobs are tried again (`jobs.retries`)."""
    (text,) = db.only("SELECT retry FROM template WHERE id = ?", (template,))
    return text  # type: ignore[no-any-return]


def stored_members(db: Reader, submission: int) -> tuple[int, str]:
    """First id of a parametric submission, members as JSON."""
    return db.only("SELECT base, members FROM submission WHERE id = ?", (submission,))


def names_in_templates(db: Reader, templates: Collection[int]) -> dict[int, str | None]:
    """Names of jobs with templates of their own."""
    return dict(db.execute(_NAMES, (keys(sorted(templates)),)))


def members_of(db: Reader, submission: int, *, most_bytes: int) -> str | None:
    """JSON; None if it is larger."""
    row = db.execute(_MEMBERS, (most_bytes, submission)).fetchone()
    return None if row is None else row[0]


def known_jobs(db: Reader, ids: Iterable[int]) -> set[int]:
    """Those of the ids that have a row."""
    return {row[0] for row in db.execute(f"SELECT id FROM job WHERE id IN {GIVEN}", (keys(ids),))}
