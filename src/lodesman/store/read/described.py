"""Jobs by what their descriptions say, as SQL: what decides where a job can run is in the key of its task queue, the rest in
its template. Texts of arrays are there as they were written, with their placeholders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from lodesman.errors import InvalidRequest
from lodesman.jobs import JobSpec
from lodesman.jobs.wanted import AskedAttribute, read_wanted
from lodesman.matching import TaskQueueKey
from lodesman.store import Reader
from lodesman.store.dialect import GIVEN, has_item, has_pair, is_like, keys, member

# NULL without a class, so that `*` is any.
_CLASS = f"({member('q.key', 'job_class')})"
_VARIANT_OF_CLASS = f"{_CLASS} || '.' || coalesce({member('q.key', 'variant')}, '')"
_IS_OF_CLASS: Final = f"({is_like(_CLASS)} OR {is_like(_VARIANT_OF_CLASS)})"
_IS_OF_GROUP: Final = is_like(member("q.key", "project"))
_IN_KEY: Final = frozenset(one.name for one in fields(TaskQueueKey))
# Where a template has them. What members differ in is filled in later: such a template is a description (`spec`).
_IN_TEMPLATE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType({
    "wall_seconds": (("limits", "wall_seconds"), ("spec", "wall_seconds")),
    "max_output_mb": (("limits", "output_mb"), ("spec", "max_output_mb")),
    "exclusive": (("exclusive",), ("spec", "exclusive")),
})  # fmt: skip
_DEFAULTS: Final = JobSpec(executable="")


class _Asked(Protocol):
    """What lists and actions are asked for alike."""

    @property
    def job_group(self) -> str: ...
    @property
    def job_class(self) -> str: ...
    @property
    def where(self) -> Sequence[str]: ...


class _Test(NamedTuple):
    """A condition in SQL, with its values."""

    sql: str
    values: tuple[Any, ...] = ()


class Described(Struct, frozen=True):
    """What the task queues `q` and the templates `t` of the jobs have to meet, all of it; nothing: any."""

    queue: tuple[_Test, ...] = ()
    template: tuple[_Test, ...] = ()

    def of_job(self) -> _Test | None:
        """Whether a job `j`, or a run `j` of members, is one of them; None: any is."""
        found: list[_Test] = []
        if self.queue:
            sql, values = _all(self.queue)
            found.append(_Test(f"j.tq_id IN (SELECT q.id FROM task_queue q WHERE {sql})", values))
        if self.template:
            sql, values = _all(self.template)
            one = f"EXISTS (SELECT 1 FROM template t WHERE t.id = j.template_id AND {sql})"
            found.append(_Test(one, values))
        return _all(found) if found else None

    def of_submission(self) -> _Test | None:
        """Whether a submission `s` has one of them; None: any is. Rows that are alike are judged once."""
        found = self.of_job()
        if found is None:
            return None
        alike = "SELECT DISTINCT r.tq_id, r.template_id FROM job r WHERE r.id >= s.base AND r.id < s.base + s.count"
        members = f"EXISTS (SELECT 1 FROM cohort j WHERE j.submission_id = s.id AND {found.sql})"
        return _Test(f"({members} OR EXISTS (SELECT 1 FROM ({alike}) j WHERE {found.sql}))", found.values * 2)


ANYTHING: Final = Described()


class Meeting:
    """Which task queues and templates meet a description. Each is asked about once, those of a portion of jobs together."""

    def __init__(self, described: Described) -> None:
        self._queues = _MetRows("SELECT q.id FROM task_queue q WHERE q.id", described.queue)
        self._templates = _MetRows("SELECT t.id FROM template t WHERE t.id", described.template)

    def learn(self, db: Reader, jobs: Iterable[tuple[int, int]]) -> None:
        """Ask about the (task queue, template) of jobs that are not known yet."""
        pairs = set(jobs)
        self._queues.learn(db, {queue for queue, _ in pairs})
        self._templates.learn(db, {template for _, template in pairs})

    def has(self, queue: int, template: int) -> bool:
        """Whether jobs are meant of a task queue and with a template that were asked about."""
        return self._queues.has(queue) and self._templates.has(template)


class _MetRows:
    """Which rows of a table meet all tests."""

    def __init__(self, select: str, tests: Sequence[_Test]) -> None:
        self._select, self._tests = select, tests
        self._met: dict[int, bool] = {}

    def learn(self, db: Reader, ids: set[int]) -> None:
        new = ids - self._met.keys() if self._tests else set()
        if new:
            sql, values = _all(self._tests)
            rows = db.execute(f"{self._select} IN {GIVEN} AND {sql}", (keys(new), *values))
            self._met |= dict.fromkeys(new, False) | {number: True for (number,) in rows}

    def has(self, number: int) -> bool:
        return not self._tests or self._met[number]


def asks_hidden(where: Sequence[str]) -> bool:
    """Whether it asks for values that readers of a shared submission are not shown. Raises InvalidRequest."""
    return any(one.attribute.field == "environment" for one in map(read_wanted, where))


def described_as(asked: _Asked) -> Described:
    """Raises InvalidRequest, which names the parameter."""
    queue, template = list[_Test](), list[_Test]()
    if asked.job_group:
        check_name(asked.job_group, "job_group")
        queue.append(_Test(_IS_OF_GROUP, (asked.job_group,)))
    if asked.job_class:
        queue.append(_of_class(asked.job_class, "job_class"))
    for one in map(read_wanted, asked.where):
        if one.attribute.field == "job_class" and one.value:
            queue.append(_of_class(one.value, "where"))
        elif one.attribute.field in _IN_KEY:
            queue.append(_test("q.key", ((one.attribute.field,),), one))
        elif one.attribute.field == "max_attempts":
            template.append(_Test("t.max_attempts = ?", (one.value,)))
        else:
            field = one.attribute.field
            template.append(_test("t.body", _IN_TEMPLATE.get(field, (("spec", field),)), one))
    return Described(tuple(queue), tuple(template))


def _of_class(name: str, parameter: str) -> _Test:
    check_name(name, parameter)
    return _Test(_IS_OF_CLASS, (name, name))


def _test(column: str, paths: Sequence[tuple[str, ...]], wanted: AskedAttribute) -> _Test:
    """Whether an attribute has a value, which stands at one of these paths, or nowhere if it is the usual one."""
    value, usual = wanted.value, getattr(_DEFAULTS, wanted.attribute.field)
    if isinstance(value, (tuple, Mapping)):
        return _of_several(column, paths[0], value)
    found = ", ".join(f"CAST({member(column, *path)} AS TEXT)" for path in paths)
    if isinstance(value, bool):
        return _Test(f"coalesce({found}, 'false') {'' if value else 'NOT '}IN ('true', '1')")
    return _of_text(f"coalesce({found}, ?)", (str(usual),), str(value))


def _of_text(one: str, values: tuple[Any, ...], text: str) -> _Test:
    """Letter by letter, unless `*` or `?` is among them."""
    if "*" not in text and "?" not in text:
        return _Test(f"{one} = ?", (*values, text))
    check_name(text, "where")
    return _Test(is_like(one), (*values, text))


def _of_several(column: str, path: tuple[str, ...], wanted: tuple[str, ...] | Mapping[str, str]) -> _Test:
    """A list has each of these items, a record each of these pairs; none are wanted: it has none."""
    if not wanted:
        return _Test(f"NOT {has_item(column, *path, condition='true')}")
    if isinstance(wanted, Mapping):
        return _all([
            _Test(has_pair(column, *path, condition=test.sql), (name, *test.values))
            for name, text in wanted.items()
            for test in [_of_text("value", (), text)]
        ])  # fmt: skip
    tests = [_of_text("value", (), text) for text in wanted]
    return _all([_Test(has_item(column, *path, condition=test.sql), test.values) for test in tests])


def check_name(name: str, parameter: str = "name") -> None:
    """A name with `*` for any text and `?` for any letter. Raises InvalidRequest, which names the parameter."""
    if "[" in name or "]" in name:
        hint = "Only * and ? stand for other letters: write ? for a bracket."
        raise InvalidRequest(f"{parameter}: brackets have no meaning here.", hint=hint, parameter=parameter)


def _all(tests: Sequence[_Test]) -> _Test:
    return _Test(
        " AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.values)
    )
