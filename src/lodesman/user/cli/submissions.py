"""Submissions as `lode status` shows them: one row for each, with a bar of the states of its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lodesman.user.cli.arguments import Range
from lodesman.user.cli.columns import Column, Columns, table_of
from lodesman.user.cli.tables import Styled
from lodesman.user.cli.words import FINAL, STATES, states
from lodesman.wire.job_queries import SubmissionRow
from lodesman.wire.vocabulary import JobState, MainReason

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


def bar(counts: Mapping[JobState, int], width: int = WIDTH) -> Styled:
    """How far jobs are: `#` done, `x` failed or killed, `>` with a pilot, `.` waiting, `h` held. None is left out that has
    jobs; the colour is that of the most urgent.
    """
    sizes = {sign: sum(counts.get(one, 0) for one in found) for sign, found in _SIGNS.items()}
    total = sum(sizes.values())
    if not total:
        return Styled("", "")
    shares = {sign: max(1, size * width // total) for sign, size in sizes.items() if size}
    while (left := width - sum(shares.values())) != 0:
        # To the one that has least, or from the one that has most, of what it should have.
        far = {sign: sizes[sign] * width / total - share for sign, share in shares.items()}
        sign = max(far, key=far.__getitem__) if left > 0 else max(shares, key=shares.__getitem__)
        shares[sign] += 1 if left > 0 else -1
    urgent = next(sign for sign in "xh>.#" if sign in shares)
    return Styled("".join(sign * share for sign, share in shares.items()), _STYLES[urgent])


def remark(row: SubmissionRow) -> str:
    """Why jobs wait, and how others failed: the most frequent of each."""
    why = max(row.reasons, key=row.reasons.__getitem__, default="")
    causes = [f"{jobs:,} {cause}" for cause, jobs in Counter(row.causes).most_common(2)]
    return "; ".join(filter(None, [str(why), *causes]))


def ids(row: SubmissionRow) -> str:
    """Its jobs, as commands want them."""
    return str(Range(row.first, row.first + row.jobs - 1))


def has_ended(row: SubmissionRow) -> bool:
    """Whether no job of it will do anything any more."""
    return FINAL.issuperset(row.states)


def counting(rows: Iterable[SubmissionRow], found: Counter[str]) -> Iterator[SubmissionRow]:
    """The rows, while all their jobs are counted by state, but for those that were deleted."""
    for row in rows:
        found.update(
            {state.value: jobs for state, jobs in row.states.items() if state is not JobState.DELETED}
        )
        yield row


def total(rows: Iterable[SubmissionRow]) -> Counter[str]:
    """All their jobs by state, but for those that were deleted."""
    found = Counter[str]()
    for _ in counting(rows, found):
        pass
    return found


def _in_state(state: str) -> Column[SubmissionRow]:
    return Column(state.lower(), "count", lambda row: row.states.get(JobState(state), 0))


def _counted(counts: Mapping[str, int] | Mapping[MainReason, int]) -> str:
    return ", ".join(f"{jobs:,} {name}" for name, jobs in sorted(counts.items(), key=lambda one: -one[1]))


USUAL: Final = ("submission", "jobs", "name", "age", "progress", "states", "remark")
USUAL_OF_ALL: Final = ("submission", "owner", *USUAL[1:])
USUAL_OF_SHARED: Final = ("submission", "owner", "shared_by", *USUAL[1:])
COLUMNS: Final[Columns[SubmissionRow]] = table_of(
    Column("submission", "id", lambda row: row.id),
    Column("jobs", "text", ids),
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
    Column("states", "text", lambda row: states({one.value: jobs for one, jobs in row.states.items()})),
    Column("sites", "text", lambda row: _counted(row.sites)),
    Column("causes", "text", lambda row: _counted(row.causes)),
    Column("reasons", "text", lambda row: _counted(row.reasons)),
    Column("remark", "text", remark),
    *map(_in_state, STATES),
)
