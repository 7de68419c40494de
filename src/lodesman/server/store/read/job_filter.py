"""Filters of jobs by name and description: a key says where a job can run, its template the rest.

The database compares plain values of keys. It bounds no cost of searching long texts, so `JobSelector` does the
rest.
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
_IN_KEY: Final = frozenset(field.name for field in fields(TaskQueueKey))
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


class _FilterFields(Protocol):
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


class TextCondition(NamedTuple):
    """A condition on a description or a key."""

    is_met: Callable[[StoredText, StepBudget], bool]  # raises SelectionTooDear
    parameter: str  # of the request, for refusals
    sql: Condition | None = None  # the same for the database


class Conditions(NamedTuple):
    """Conditions on a row of one table; all must hold."""

    exact: tuple[Condition, ...] = ()
    tests: tuple[TextCondition, ...] = ()


class JobFilter(Struct, frozen=True):
    """Conditions on the task queues `q`, templates `t` and names of jobs."""

    queue: Conditions = Conditions()
    template: Conditions = Conditions()
    name: Pattern | None = None

    @property
    def is_judged_here(self) -> bool:
        """Whether SQL leaves something to judge."""
        name = self.name is not None and not self.name.is_exact
        return name or bool(self.queue.tests or self.template.tests)

    def of_job(self) -> Condition | None:
        """Whether SQL admits a job, or run, `j`; None: any."""
        conditions: list[Condition] = []
        if self.queue.exact:
            sql, values = all_of(self.queue.exact)
            conditions.append(Condition(f"j.tq_id IN (SELECT q.id FROM task_queue q WHERE {sql})", values))
        if self.template.exact:
            sql, values = all_of(self.template.exact)
            exists = f"EXISTS (SELECT 1 FROM template t WHERE t.id = j.template_id AND {sql})"
            conditions.append(Condition(exists, values))
        return all_of(conditions) if conditions else None

    def of_submission(self) -> Condition | None:
        """Whether SQL admits a job of `s`; None: any. Equal rows are judged once."""
        condition = self.of_job()
        if condition is None:
            return None
        alike = "SELECT DISTINCT r.tq_id, r.template_id FROM job r WHERE r.id >= s.base AND r.id < s.base + s.count"
        members = f"EXISTS (SELECT 1 FROM cohort j WHERE j.submission_id = s.id AND {condition.sql})"
        return Condition(
            f"({members} OR EXISTS (SELECT 1 FROM ({alike}) j WHERE {condition.sql}))", condition.values * 2
        )


ANY_JOB: Final = JobFilter()


def asks_hidden(where: Sequence[str]) -> bool:
    """Whether it asks for values that readers of a shared submission do not see. Raises InvalidRequest."""
    return any(item.attribute.field == "environment" for item in map(read_condition, where))


def build_filter(query: _FilterFields) -> JobFilter:
    """Raises InvalidRequest, with the parameter."""
    items = [read_condition(text) for text in query.where]
    _check_number(items)
    queue, template, columns = list[TextCondition](), list[TextCondition](), list[Condition]()
    if query.job_group:
        check_name(query.job_group, "job_group")
        queue.append(_of_text("q.key", (("project",),), "", query.job_group, "job_group"))
    if query.job_class:
        queue.append(_of_class(query.job_class, "job_class"))
    for item in items:
        field = item.attribute.field
        if field == "job_class" and item.value:
            queue.append(_of_class(item.value, "where"))
        elif field in _IN_KEY:
            queue.append(_test("q.key", ((field,),), item))
        elif field == "max_attempts":
            columns.append(Condition("t.max_attempts = ?", (item.value,)))
        else:
            template.append(_test("t.body", _IN_TEMPLATE.get(field, (("spec", field),)), item))
    name = _pattern(query.name, "name") if query.name else None
    return JobFilter(_apart(queue), Conditions(tuple(columns), tuple(template)), name)


def _check_number(items: Iterable[AttributeCondition]) -> None:
    count = sum(max(1, len(item.value)) if isinstance(item.value, (tuple, Mapping)) else 1 for item in items)
    if count > _MOST_ITEMS:
        raise InvalidRequest(
            f"where: {count:,} values are asked for; one request may have {_MOST_ITEMS}.",
            hint="Give fewer items of lists, or ask in several requests.",
            parameter="where",
        )


def _apart(tests: Iterable[TextCondition]) -> Conditions:
    """The first few go to the database, if it can judge them."""
    all_tests = list(tests)
    few = list(islice((test for test in all_tests if test.sql), _FEW))
    return Conditions(
        tuple(test.sql for test in few if test.sql), tuple(test for test in all_tests if test not in few)
    )


def own_name(pattern: Pattern) -> Conditions:
    """For templates of jobs that have names of their own."""
    return Conditions(tests=(_like((_OWN_NAME,), "", pattern),))


def _of_class(name: str, parameter: str) -> TextCondition:
    """A job without a class never matches."""
    pattern = _pattern(name, parameter)

    def is_met(key: StoredText, budget: StepBudget) -> bool:
        job_class, variant = key.value(("job_class",)), key.value(("variant",)) or ""
        names = () if job_class is None else (job_class, f"{job_class}.{variant}")
        return any(pattern.is_met(class_name, budget) for class_name in names)

    return TextCondition(
        is_met, parameter, Condition(_IS_OF_CLASS, (name, name)) if pattern.is_exact else None
    )


def _test(column: str, paths: _Paths, item: AttributeCondition) -> TextCondition:
    """`paths`: where the attribute may stand; if absent, it has its default."""
    value, usual = item.value, getattr(_DEFAULTS, item.attribute.field)
    if isinstance(value, Mapping):
        return TextCondition(_has_pairs(paths[0], value), "where")
    if isinstance(value, tuple):
        return TextCondition(_has_items(paths[0], value), "where")
    if isinstance(value, bool):
        sql = f"coalesce({_in_sql(column, paths)}, 'false') {'' if value else 'NOT '}IN ('true', '1')"
        return TextCondition(
            lambda text, _: bool(_first(text, paths)) is value, "where", _if_key(column, sql)
        )
    return _of_text(column, paths, str(usual), str(value), "where")


def _of_text(column: str, paths: _Paths, usual: str, text: str, parameter: str) -> TextCondition:
    if not is_exact(text):
        return _like(paths, usual, _pattern(text, parameter))
    sql = f"coalesce({_in_sql(column, paths)}, ?) = ?"
    return TextCondition(
        lambda stored, _: _text(stored, paths, usual) == text, parameter, _if_key(column, sql, usual, text)
    )


def _like(paths: _Paths, usual: str, pattern: Pattern) -> TextCondition:
    return TextCondition(
        lambda stored, budget: pattern.is_met(_text(stored, paths, usual), budget), pattern.parameter
    )


def _in_sql(column: str, paths: _Paths) -> str:
    return ", ".join(f"CAST({member(column, *path)} AS TEXT)" for path in paths)


def _if_key(column: str, sql: str, *values: str) -> Condition | None:
    """Not for templates: they would be read anew for each job."""
    return Condition(sql, values) if column == "q.key" else None


def _first(text: StoredText, paths: _Paths) -> Any:
    values = map(text.value, paths)
    return next((value for value in values if value is not None), None)


def _text(text: StoredText, paths: _Paths, usual: str) -> str:
    value = _first(text, paths)
    return usual if value is None else str(value)


def _has_items(path: tuple[str, ...], required: Sequence[str]) -> Callable[[StoredText, StepBudget], bool]:
    exact = frozenset(filter(is_exact, required))
    patterns = [_pattern(item, "where") for item in dict.fromkeys(required) if not is_exact(item)]

    def is_met(text: StoredText, budget: StepBudget) -> bool:
        encoded = text.encoded(path)
        if not all(pattern.may_be_in(encoded, budget) for pattern in patterns):
            return False
        budget.pay_for_text(len(encoded), "where")
        items = text.items(path)
        if not required:
            return not items
        return exact.issubset(items) and all(pattern.is_met_by_any(items, budget) for pattern in patterns)

    return is_met


def _has_pairs(
    path: tuple[str, ...], required: Mapping[str, str]
) -> Callable[[StoredText, StepBudget], bool]:
    exact = {name: text for name, text in required.items() if is_exact(text)}
    patterns = {name: _pattern(text, "where") for name, text in required.items() if name not in exact}

    def is_met(text: StoredText, budget: StepBudget) -> bool:
        budget.pay_for_text(len(text.encoded(path)), "where")
        pairs = text.value(path) or {}
        if not required:
            return not pairs
        return all(pairs.get(name) == value for name, value in exact.items()) and all(
            name in pairs and pattern.is_met(str(pairs[name]), budget) for name, pattern in patterns.items()
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
    """Conditions joined by AND."""
    return Condition(
        " AND ".join(test.sql for test in tests), tuple(value for test in tests for value in test.values)
    )
