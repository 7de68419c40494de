"""What lists show of jobs and submissions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from lodesman.user.cli.arguments import Range
from lodesman.user.cli.columns import Column, Columns, table_of
from lodesman.user.cli.tables import StyledText
from lodesman.user.cli.words import FINAL, STATES, span, states
from lodesman.wire.job_queries import SubmissionRow
from lodesman.wire.jobs import Attempt, Job
from lodesman.wire.vocabulary import JobState, MainReason


def job_remark(row: Job) -> str:
    """As far as the row says."""
    if row.state == JobState.WAITING and row.main_reason:
        return f"{row.main_reason} (before: {row.reason})" if row.reason else row.main_reason
    ended = row.state in (JobState.FAILED, JobState.KILLED) and row.cause
    lacking = (row.message or "") if row.state == JobState.DONE else ""  # what its output lacks
    return row.reason or (ending_of(row) if ended else lacking)


def ending_of(row: Job | Attempt) -> str:
    """How a job or attempt ended."""
    parts = [
        row.cause or row.outcome,
        f"exit code {row.exit_code}" if row.exit_code else "",
        f"signal {row.signal}" if row.signal else "",
        row.message,
    ]
    return ", ".join(filter(None, parts))


def usual_of_jobs(*, owners: bool, start: bool) -> Sequence[str]:
    """The columns if none is named."""
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
    if row.state != JobState.WAITING:
        return None
    return f"{span(row.start.low_seconds)} to {span(row.start.high_seconds)}" if row.start else "unknown"


def _reason(row: Job) -> str | None:
    """The reason to wait by which lists are filtered, else that of its state."""
    return row.main_reason.value if row.main_reason else row.reason or None


def _place(row: Job) -> str | None:
    return "/".join(filter(None, (row.site, row.ce, row.queue))) or None


JOBS: Final[Columns[Job]] = table_of(
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
    Column("remark", "text", job_remark),
)


# --- submissions --------------------------------------------------------------------------------------------------------

WIDTH: Final = 10
# What stands for which states in a bar, in the order in which they stand there.
_SIGNS: Final[dict[str, tuple[JobState, ...]]] = {
    "#": (JobState.DONE,),
    "x": (JobState.FAILED, JobState.KILLED),
    ">": (JobState.MATCHED, JobState.RUNNING, JobState.COMPLETING, JobState.STALLED),
    ".": (JobState.WAITING,),
    "h": (JobState.HELD,),
}
_STYLES: Final = {"#": "green", "x": "red", ">": "yellow", ".": "blue", "h": "magenta"}


def bar(counts: Mapping[JobState, int], width: int = WIDTH) -> StyledText:
    """The parts that are done (`#`), failed or killed (`x`), with a pilot (`>`), waiting (`.`), held (`h`). Each is seen;
    the most urgent gives the colour.
    """
    sizes = {sign: sum(counts.get(one, 0) for one in members) for sign, members in _SIGNS.items()}
    total = sum(sizes.values())
    if not total:
        return StyledText("", "")
    shares = {sign: max(1, size * width // total) for sign, size in sizes.items() if size}
    while (left := width - sum(shares.values())) != 0:
        # To the one that has least, or from the one that has most, of what it should have.
        far = {sign: sizes[sign] * width / total - share for sign, share in shares.items()}
        sign = max(far, key=far.__getitem__) if left > 0 else max(shares, key=shares.__getitem__)
        shares[sign] += 1 if left > 0 else -1
    urgent = next(sign for sign in "xh>.#" if sign in shares)
    return StyledText("".join(sign * share for sign, share in shares.items()), _STYLES[urgent])


def _remark(row: SubmissionRow) -> str:
    why = max(row.reasons, key=row.reasons.__getitem__, default="")
    causes = [f"{jobs:,} {cause}" for cause, jobs in Counter(row.causes).most_common(2)]
    return "; ".join(filter(None, [str(why), *causes]))


def _ids(row: SubmissionRow) -> str:
    return str(Range(row.first, row.first + row.jobs - 1))


def has_ended(row: SubmissionRow) -> bool:
    """Whether all its jobs have ended."""
    return FINAL.issuperset(row.states)


def count_states(rows: Iterable[SubmissionRow], counts: Counter[str]) -> Iterator[SubmissionRow]:
    """Count all but deleted jobs as the rows pass."""
    for row in rows:
        counts.update(
            {state.value: jobs for state, jobs in row.states.items() if state is not JobState.DELETED}
        )
        yield row


def total_of(rows: Iterable[SubmissionRow]) -> Counter[str]:
    """All jobs but deleted ones."""
    counts = Counter[str]()
    for _ in count_states(rows, counts):
        pass
    return counts


def _in_state(state: str) -> Column[SubmissionRow]:
    return Column(state.lower(), "count", lambda row: row.states.get(JobState(state), 0))


def _counted(counts: Mapping[str, int] | Mapping[MainReason, int]) -> str:
    return ", ".join(f"{jobs:,} {name}" for name, jobs in sorted(counts.items(), key=lambda item: -item[1]))


def usual_of_submissions(*, owners: bool, shared: bool) -> Sequence[str]:
    """The columns if none is named."""
    first = ["submission", *(["owner"] if owners or shared else []), *(["shared_by"] if shared else [])]
    return [*first, "jobs", "name", "age", "progress", "states", "remark"]


SUBMISSIONS: Final[Columns[SubmissionRow]] = table_of(
    Column("submission", "id", lambda row: row.id),
    Column("jobs", "text", _ids),
    Column("first", "id", lambda row: row.first),
    Column("count", "count", lambda row: row.jobs),
    Column("name", "text", lambda row: row.name),
    Column("owner", "text", lambda row: row.owner),
    Column("shared_by", "text", lambda row: row.shared_by),
    Column("group", "text", lambda row: row.group),
    Column("vo", "text", lambda row: row.vo),
    Column("submitted", "moment", lambda row: row.submitted_at),
    Column("age", "age", lambda row: row.submitted_at),
    Column("progress", "text", lambda row: bar(row.states)),
    Column("states", "text", lambda row: states({state.value: jobs for state, jobs in row.states.items()})),
    Column("sites", "text", lambda row: _counted(row.sites)),
    Column("causes", "text", lambda row: _counted(row.causes)),
    Column("reasons", "text", lambda row: _counted(row.reasons)),
    Column("remark", "text", _remark),
    *map(_in_state, STATES),
)
