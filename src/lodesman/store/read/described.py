"""Jobs by what their descriptions say: what decides where a job can run is in the key of its task queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from lodesman.errors import InvalidRequest
from lodesman.store import Reader
from lodesman.store.dialect import GIVEN, is_like, keys, member

# NULL without a class, so that `*` is any.
_CLASS = f"({member('q.key', 'job_class')})"
_VARIANT_OF_CLASS = f"{_CLASS} || '.' || coalesce({member('q.key', 'variant')}, '')"
_IS_OF_CLASS: Final = f"({is_like(_CLASS)} OR {is_like(_VARIANT_OF_CLASS)})"
_IS_OF_GROUP: Final = is_like(member("q.key", "project"))


class _Asked(Protocol):
    """What lists and actions are asked for alike."""

    @property
    def job_group(self) -> str: ...
    @property
    def job_class(self) -> str: ...


class _Test(NamedTuple):
    """A condition in SQL, with its values."""

    sql: str
    values: tuple[Any, ...]


class Described(Struct, frozen=True):
    """What the task queues `q` of the jobs have to meet, all of it; nothing: any."""

    queue: tuple[_Test, ...] = ()

    def of_job(self) -> _Test | None:
        """Whether a job `j`, or a run `j` of members, is one of them; None: any is."""
        if not self.queue:
            return None
        sql, values = _all(self.queue)
        return _Test(f"j.tq_id IN (SELECT q.id FROM task_queue q WHERE {sql})", values)

    def of_submission(self) -> _Test | None:
        """Whether a submission `s` has one of them; None: any is."""
        found = self.of_job()
        if found is None:
            return None
        members = f"EXISTS (SELECT 1 FROM cohort j WHERE j.submission_id = s.id AND {found.sql})"
        rows = (
            f"EXISTS (SELECT 1 FROM job j WHERE j.id >= s.base AND j.id < s.base + s.count AND {found.sql})"
        )
        return _Test(f"({members} OR {rows})", found.values * 2)


ANYTHING: Final = Described()


class Meeting:
    """Which task queues meet a description. Each is asked about once, those of a portion of jobs together."""

    def __init__(self, described: Described) -> None:
        self._described = described
        self._queues: dict[int, bool] = {}

    def learn(self, db: Reader, queues: Iterable[int]) -> None:
        """Ask about those that are not known yet."""
        new = set(queues) - self._queues.keys() if self._described.queue else ()
        if new:
            sql, values = _all(self._described.queue)
            rows = db.execute(
                f"SELECT q.id FROM task_queue q WHERE q.id IN {GIVEN} AND {sql}", (keys(new), *values)
            )
            self._queues |= dict.fromkeys(new, False) | {number: True for (number,) in rows}

    def has(self, queue: int) -> bool:
        """Whether jobs of a task queue are meant that was asked about."""
        return not self._described.queue or self._queues[queue]


def described_as(asked: _Asked) -> Described:
    """Raises InvalidRequest, which names the parameter."""
    tests: list[_Test] = []
    if asked.job_group:
        check_name(asked.job_group, "job_group")
        tests.append(_Test(_IS_OF_GROUP, (asked.job_group,)))
    if asked.job_class:
        check_name(asked.job_class, "job_class")
        tests.append(_Test(_IS_OF_CLASS, (asked.job_class, asked.job_class)))
    return Described(tuple(tests))


def check_name(name: str, parameter: str = "name") -> None:
    """A name with `*` for any text and `?` for any letter. Raises InvalidRequest, which names the parameter."""
    if "[" in name or "]" in name:
        hint = "Only * and ? stand for other letters: write ? for a bracket."
        raise InvalidRequest(f"{parameter}: brackets have no meaning here.", hint=hint, parameter=parameter)


def _all(tests: Collection[_Test]) -> _Test:
    return _Test(
        " AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.values)
    )
