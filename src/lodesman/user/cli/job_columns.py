"""What can be shown of a job in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lodesman.user.cli.columns import Column, Columns, table_of
from lodesman.user.cli.jobs import remark
from lodesman.user.cli.words import span
from lodesman.wire.jobs import Job
from lodesman.wire.vocabulary import JobState


def usual(*, owners: bool, start: bool) -> Sequence[str]:
    """The columns, unless others are wanted."""
    shown = ["job", "name", "state", "since", "age"]
    return [
        *shown,
        *(["starts_in"] if start else []),
        *(["owner"] if owners else []),
        "site",
        "tries",
        "remark",
    ]


def _starts(row: Job) -> str | None:
    """In what time it starts, if it waits."""
    if row.state != JobState.WAITING:
        return None
    return f"{span(row.start.low_seconds)} to {span(row.start.high_seconds)}" if row.start else "unknown"


def _reason(row: Job) -> str | None:
    """Why it waits, in the word that a list can be filtered by; of any other, why it is in its state."""
    return row.main_reason.value if row.main_reason else row.reason or None


def _place(row: Job) -> str | None:
    return "/".join(filter(None, (row.site, row.ce, row.queue))) or None


COLUMNS: Final[Columns[Job]] = table_of(
    Column("job", "id", lambda row: row.id),
    Column("name", "text", lambda row: row.name),
    Column("state", "state", lambda row: row.state.value),
    Column("since", "moment", lambda row: row.since),
    Column("age", "age", lambda row: row.since),
    Column("starts_in", "text", _starts),
    Column("owner", "text", lambda row: row.owner),
    Column("group", "text", lambda row: row.group),
    Column("vo", "text", lambda row: row.vo),
    Column("job_group", "text", lambda row: row.job_group or None),
    Column("class", "text", lambda row: row.job_class or None),
    Column("submission", "id", lambda row: row.submission),
    Column("submitted", "moment", lambda row: row.submitted_at),
    Column("claimed", "moment", lambda row: row.claimed_at),
    Column("started", "moment", lambda row: row.started_at),
    Column("ended", "moment", lambda row: row.ended_at),
    Column("site", "text", lambda row: row.site),
    Column("ce", "text", lambda row: row.ce),
    Column("queue", "text", lambda row: row.queue),
    Column("place", "text", _place),
    Column("host", "text", lambda row: row.host),
    Column("pilot", "id", lambda row: row.pilot),
    Column("tries", "count", lambda row: row.attempt),
    Column("exit", "id", lambda row: row.exit_code),
    Column("signal", "id", lambda row: row.signal),
    Column("cause", "text", lambda row: row.cause),
    Column("reason", "text", _reason),
    Column("cpu", "span", lambda row: row.cpu_seconds),
    Column("wall", "span", lambda row: row.wall_seconds),
    Column("memory", "mb", lambda row: row.max_rss_mb),
    Column("remark", "text", remark),
)
