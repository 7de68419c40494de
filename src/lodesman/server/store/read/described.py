"""Jobs by name and by what their descriptions say. What decides where a job can run is in the key of its task queue, the
rest in its template; texts of arrays have their placeholders.

The database compares a few plain values of keys, all else happens here (`Meeting`): no database bounds the cost of
finding many values, or a long pattern, in a long text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.decide.matching import TaskQueueKey
from lodesman.languages.jobs import JobSpec
from lodesman.languages.jobs.selection import (
    AttributeCondition,
    Pattern,
    StepBudget,
    StoredText,
    is_exact,
    read_condition,
)
from lodesman.server.store.dialect import member

_CLASS: Final = member("q.key", "job_class")  # NULL without a class
_VARIANT: Final = f"coalesce({member('q.key', 'variant')}, '')"
_IS_OF_CLASS: Final = f"({_CLASS} = ? OR ({_CLASS}) || '.' || {_VARIANT} = ?)"
_IN_KEY: Final = frozenset(one.name for one in fields(TaskQueueKey))
# Where a template has them. If members differ, the template is a description (`spec`), filled in later.
_IN_TEMPLATE: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType({
    "wall_seconds": (("limits", "wall_seconds"), ("spec", "wall_seconds")),
    "max_output_mb": (("limits", "output_mb"), ("spec", "max_output_mb")),
    "exclusive": (("exclusive",), ("spec", "exclusive")),
})  # fmt: skip
_OWN_NAME: Final = ("spec", "name")
_DEFAULTS: Final = JobSpec(executable="")
# The most conditions on a key in SQL: for each the database reads the key again.
_FEW: Final = 3
_MOST_ITEMS: Final = 100

_Paths = Sequence[tuple[str, ...]]


class _Asked(Protocol):
    """The filters that lists and actions share."""

    @property
    def name(self) -> str: ...
    @property
    def job_group(self) -> str: ...
    @property
    def job_class(self) -> str: ...
    @property
    def where(self) -> Sequence[str]: ...


class Condition(NamedTuple):
    """A condition in SQL, with its values."""

    sql: str
    values: tuple[Any, ...] = ()


class Test(NamedTuple):
    """A condition on a description or a key."""

    is_met: Callable[[StoredText, StepBudget], bool]  # raises SelectionTooDear
    parameter: str  # of the request, for refusals
    sql: Condition | None = None  # the same for the database


class Conditions(NamedTuple):
    """What a row of one table has to meet, all of it."""

    exact: tuple[Condition, ...] = ()
    tests: tuple[Test, ...] = ()


class Described(Struct, frozen=True):
    """Conditions on the task queues `q` and templates `t` of jobs, and on their names."""

    queue: Conditions = Conditions()
    template: Conditions = Conditions()
    name: Pattern | None = None

    @property
    def is_judged_here(self) -> bool:
        """Whether SQL leaves something to judge."""
        name = self.name is not None and not self.name.is_exact
        return name or bool(self.queue.tests or self.template.tests)

    def of_job(self) -> Condition | None:
        """Whether SQL admits a job `j`, or a run `j` of members; None: any."""
        found: list[Condition] = []
        if self.queue.exact:
            sql, values = all_of(self.queue.exact)
            found.append(Condition(f"j.tq_id IN (SELECT q.id FROM task_queue q WHERE {sql})", values))
        if self.template.exact:
            sql, values = all_of(self.template.exact)
            one = f"EXISTS (SELECT 1 FROM template t WHERE t.id = j.template_id AND {sql})"
            found.append(Condition(one, values))
        return all_of(found) if found else None

    def of_submission(self) -> Condition | None:
        """Whether SQL admits a job of a submission `s`; None: any. Equal rows are judged once."""
        found = self.of_job()
        if found is None:
            return None
        alike = "SELECT DISTINCT r.tq_id, r.template_id FROM job r WHERE r.id >= s.base AND r.id < s.base + s.count"
        members = f"EXISTS (SELECT 1 FROM cohort j WHERE j.submission_id = s.id AND {found.sql})"
        return Condition(
            f"({members} OR EXISTS (SELECT 1 FROM ({alike}) j WHERE {found.sql}))", found.values * 2
        )


ANYTHING: Final = Described()


def asks_hidden(where: Sequence[str]) -> bool:
    """Whether it asks for values that readers of a shared submission do not see. Raises InvalidRequest."""
    return any(one.attribute.field == "environment" for one in map(read_condition, where))


def described_as(asked: _Asked) -> Described:
    """Raises InvalidRequest, with the parameter."""
    wanted = [read_condition(one) for one in asked.where]
    _check_number(wanted)
    queue, template, columns = list[Test](), list[Test](), list[Condition]()
    if asked.job_group:
        check_name(asked.job_group, "job_group")
        queue.append(_of_text("q.key", (("project",),), "", asked.job_group, "job_group"))
    if asked.job_class:
        queue.append(_of_class(asked.job_class, "job_class"))
    for one in wanted:
        field = one.attribute.field
        if field == "job_class" and one.value:
            queue.append(_of_class(one.value, "where"))
        elif field in _IN_KEY:
            queue.append(_test("q.key", ((field,),), one))
        elif field == "max_attempts":
            columns.append(Condition("t.max_attempts = ?", (one.value,)))
        else:
            template.append(_test("t.body", _IN_TEMPLATE.get(field, (("spec", field),)), one))
    name = _pattern(asked.name, "name") if asked.name else None
    return Described(_apart(queue), Conditions(tuple(columns), tuple(template)), name)


def _check_number(wanted: Iterable[AttributeCondition]) -> None:
    found = sum(max(1, len(one.value)) if isinstance(one.value, (tuple, Mapping)) else 1 for one in wanted)
    if found > _MOST_ITEMS:
        raise InvalidRequest(
            f"where: {found:,} values are asked for; one request may have {_MOST_ITEMS}.",
            hint="Give fewer items of lists, or ask in several requests.",
            parameter="where",
        )


def _apart(tests: Iterable[Test]) -> Conditions:
    """The first few that the database can judge go to the database."""
    given = list(tests)
    few = list(islice((one for one in given if one.sql), _FEW))
    return Conditions(tuple(one.sql for one in few if one.sql), tuple(one for one in given if one not in few))


def own_name(pattern: Pattern) -> Conditions:
    """For templates of jobs that have names of their own."""
    return Conditions(tests=(_like((_OWN_NAME,), "", pattern),))


def _of_class(name: str, parameter: str) -> Test:
    """A job without a class never matches."""
    pattern = _pattern(name, parameter)

    def is_met(key: StoredText, budget: StepBudget) -> bool:
        job_class, variant = key.value(("job_class",)), key.value(("variant",)) or ""
        names = () if job_class is None else (job_class, f"{job_class}.{variant}")
        return any(pattern.is_met(one, budget) for one in names)

    return Test(is_met, parameter, Condition(_IS_OF_CLASS, (name, name)) if pattern.is_exact else None)


def _test(column: str, paths: _Paths, wanted: AttributeCondition) -> Test:
    """Whether an attribute has a value; `paths`: where it may stand. Absent, it is the default."""
    value, usual = wanted.value, getattr(_DEFAULTS, wanted.attribute.field)
    if isinstance(value, Mapping):
        return Test(_has_pairs(paths[0], value), "where")
    if isinstance(value, tuple):
        return Test(_has_items(paths[0], value), "where")
    if isinstance(value, bool):
        sql = f"coalesce({_in_sql(column, paths)}, 'false') {'' if value else 'NOT '}IN ('true', '1')"
        return Test(lambda text, _: bool(_first(text, paths)) is value, "where", _if_key(column, sql))
    return _of_text(column, paths, str(usual), str(value), "where")


def _of_text(column: str, paths: _Paths, usual: str, text: str, parameter: str) -> Test:
    """Letter by letter, unless there is a `*` or `?`."""
    if not is_exact(text):
        return _like(paths, usual, _pattern(text, parameter))
    sql = f"coalesce({_in_sql(column, paths)}, ?) = ?"
    return Test(
        lambda found, _: _text(found, paths, usual) == text, parameter, _if_key(column, sql, usual, text)
    )


def _like(paths: _Paths, usual: str, pattern: Pattern) -> Test:
    return Test(lambda found, budget: pattern.is_met(_text(found, paths, usual), budget), pattern.parameter)


def _in_sql(column: str, paths: _Paths) -> str:
    return ", ".join(f"CAST({member(column, *path)} AS TEXT)" for path in paths)


def _if_key(column: str, sql: str, *values: str) -> Condition | None:
    """Not for templates: a database would read them anew for each job and condition."""
    return Condition(sql, values) if column == "q.key" else None


def _first(text: StoredText, paths: _Paths) -> Any:
    found = map(text.value, paths)
    return next((one for one in found if one is not None), None)


def _text(text: StoredText, paths: _Paths, usual: str) -> str:
    found = _first(text, paths)
    return usual if found is None else str(found)


def _has_items(path: tuple[str, ...], wanted: Sequence[str]) -> Callable[[StoredText, StepBudget], bool]:
    """Whether a list has each of these items; none wanted: it is empty."""
    exact = frozenset(filter(is_exact, wanted))
    patterns = [_pattern(one, "where") for one in dict.fromkeys(wanted) if not is_exact(one)]

    def is_met(text: StoredText, budget: StepBudget) -> bool:
        encoded = text.encoded(path)
        if not all(one.may_be_in(encoded, budget) for one in patterns):
            return False
        budget.pay_for_text(len(encoded), "where")
        items = text.items(path)
        if not wanted:
            return not items
        return exact.issubset(items) and all(one.is_met_by_any(items, budget) for one in patterns)

    return is_met


def _has_pairs(path: tuple[str, ...], wanted: Mapping[str, str]) -> Callable[[StoredText, StepBudget], bool]:
    """Whether a record has each of these pairs; none wanted: it is empty."""
    exact = {name: text for name, text in wanted.items() if is_exact(text)}
    patterns = {name: _pattern(text, "where") for name, text in wanted.items() if name not in exact}

    def is_met(text: StoredText, budget: StepBudget) -> bool:
        budget.pay_for_text(len(text.encoded(path)), "where")
        found = text.value(path) or {}
        if not wanted:
            return not found
        return all(found.get(name) == value for name, value in exact.items()) and all(
            name in found and one.is_met(str(found[name]), budget) for name, one in patterns.items()
        )

    return is_met


def _pattern(text: str, parameter: str) -> Pattern:
    check_name(text, parameter)
    return Pattern(text, parameter)


def check_name(name: str, parameter: str = "name") -> None:
    """Raises InvalidRequest for brackets; `*` and `?` are patterns."""
    if "[" in name or "]" in name:
        hint = "Only * and ? stand for other letters: write ? for a bracket."
        raise InvalidRequest(f"{parameter}: brackets have no meaning here.", hint=hint, parameter=parameter)


def all_of(tests: Sequence[Condition]) -> Condition:
    """Joined by AND."""
    return Condition(
        " AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.values)
    )
