"""Jobs by their names and by what their descriptions say: what decides where a job can run is in the key of its task queue,
the rest in its template. Texts of arrays are there as they were written, with their placeholders.

Values are compared by the database, patterns here (`Meeting`): no database bounds what a long pattern costs in a long text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.decide.matching import TaskQueueKey
from lodesman.languages.jobs import JobSpec
from lodesman.languages.jobs.likeness import Pattern, StepBudget, is_exact
from lodesman.languages.jobs.wanted import AskedAttribute, read_wanted
from lodesman.server.store.dialect import has_item, has_pair, member

_CLASS: Final = member("q.key", "job_class")  # NULL without a class
_VARIANT: Final = f"coalesce({member('q.key', 'variant')}, '')"
_IS_OF_CLASS: Final = f"({_CLASS} = ? OR ({_CLASS}) || '.' || {_VARIANT} = ?)"
_GROUP: Final = member("q.key", "project")
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


class Likeness(NamedTuple):
    """What is judged here: columns in SQL with their values, and whether what they hold is meant. None: there is nothing."""

    columns: tuple[str, ...]
    is_met: Callable[..., bool]
    """Called with the columns and a budget. Raises PatternTooDear."""
    values: tuple[Any, ...] = ()


class Conditions(NamedTuple):
    """What a row of one table has to meet, all of it."""

    exact: tuple[Condition, ...] = ()
    like: tuple[Likeness, ...] = ()


class Described(Struct, frozen=True):
    """What the task queues `q` and the templates `t` of the jobs have to meet, and their names; nothing: any."""

    queue: Conditions = Conditions()
    template: Conditions = Conditions()
    name: Pattern | None = None

    @property
    def has_patterns(self) -> bool:
        """Whether the conditions in SQL leave something to be judged."""
        name = self.name is not None and not self.name.is_exact
        return name or bool(self.queue.like or self.template.like)

    def of_job(self) -> Condition | None:
        """Whether a job `j`, or a run `j` of members, may be one of them, by all but patterns and names; None: any may."""
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
        """Whether a submission `s` has such a job; None: any may have. Rows that are alike are judged once."""
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
    """Whether it asks for values that readers of a shared submission are not shown. Raises InvalidRequest."""
    return any(one.attribute.field == "environment" for one in map(read_wanted, where))


def described_as(asked: _Asked) -> Described:
    """Raises InvalidRequest, which names the parameter."""
    queue, template = list[Condition | Likeness](), list[Condition | Likeness]()
    if asked.job_group:
        check_name(asked.job_group, "job_group")
        queue.append(_of_text(_GROUP, (), asked.job_group, "job_group"))
    if asked.job_class:
        queue.append(_of_class(asked.job_class, "job_class"))
    for one in map(read_wanted, asked.where):
        if one.attribute.field == "job_class" and one.value:
            queue.append(_of_class(one.value, "where"))
        elif one.attribute.field in _IN_KEY:
            queue += _tests("q.key", ((one.attribute.field,),), one)
        elif one.attribute.field == "max_attempts":
            template.append(Condition("t.max_attempts = ?", (one.value,)))
        else:
            field = one.attribute.field
            template += _tests("t.body", _IN_TEMPLATE.get(field, (("spec", field),)), one)
    name = _pattern(asked.name, "name") if asked.name else None
    return Described(_apart(queue), _apart(template), name)


def _apart(tests: Iterable[Condition | Likeness]) -> Conditions:
    given = list(tests)
    exact = tuple(one for one in given if isinstance(one, Condition))
    return Conditions(exact, tuple(one for one in given if isinstance(one, Likeness)))


def _of_class(name: str, parameter: str) -> Condition | Likeness:
    pattern = _pattern(name, parameter)
    if pattern.is_exact:
        return Condition(_IS_OF_CLASS, (name, name))

    def is_met(job_class: str | None, variant: str, budget: StepBudget) -> bool:
        names = () if job_class is None else (job_class, f"{job_class}.{variant}")
        return any(pattern.is_met(one, budget) for one in names)

    return Likeness((_CLASS, _VARIANT), is_met)


def _tests(
    column: str, paths: Sequence[tuple[str, ...]], wanted: AskedAttribute
) -> Iterator[Condition | Likeness]:
    """Whether an attribute has a value, which stands at one of these paths, or nowhere if it is the usual one."""
    value, usual = wanted.value, getattr(_DEFAULTS, wanted.attribute.field)
    if isinstance(value, (tuple, Mapping)):
        yield from _of_several(column, paths[0], value)
        return
    found = ", ".join(f"CAST({member(column, *path)} AS TEXT)" for path in paths)
    if isinstance(value, bool):
        yield Condition(f"coalesce({found}, 'false') {'' if value else 'NOT '}IN ('true', '1')")
    else:
        yield _of_text(f"coalesce({found}, ?)", (str(usual),), str(value), "where")


def _of_text(one: str, values: tuple[Any, ...], text: str, parameter: str) -> Condition | Likeness:
    """Letter by letter, unless `*` or `?` is among them."""
    if is_exact(text):
        return Condition(f"{one} = ?", (*values, text))
    pattern = _pattern(text, parameter)
    return Likeness((one,), lambda found, budget: found is not None and pattern.is_met(found, budget), values)


def _of_several(
    column: str, path: tuple[str, ...], wanted: tuple[str, ...] | Mapping[str, str]
) -> Iterator[Condition | Likeness]:
    """A list has each of these items, a record each of these pairs; none are wanted: it has none."""
    if not wanted:
        yield Condition(f"NOT {has_item(column, *path, condition='true')}")
    pairs = wanted.items() if isinstance(wanted, Mapping) else (("", text) for text in wanted)
    for name, text in pairs:
        if not is_exact(text):
            yield Likeness((member(column, *path),), _among(name, _pattern(text, "where")))
        elif isinstance(wanted, Mapping):
            yield Condition(has_pair(column, *path, condition="value = ?"), (name, text))
        else:
            yield Condition(has_item(column, *path, condition="value = ?"), (text,))


def _among(name: str, pattern: Pattern) -> Callable[[str | None, StepBudget], bool]:
    """Whether an item of a list is like it, or the value of this name in a record; both are given as JSON."""

    def is_met(text: str | None, budget: StepBudget) -> bool:
        if not text or not pattern.may_be_in(text, budget):
            return False
        found = msgspec.json.decode(text)
        items = [found[name]] if isinstance(found, dict) and name in found else found
        return isinstance(items, list) and pattern.is_met_by_any(map(str, items), budget)

    return is_met


def _pattern(text: str, parameter: str) -> Pattern:
    check_name(text, parameter)
    return Pattern(text, parameter)


def check_name(name: str, parameter: str = "name") -> None:
    """A name with `*` for any text and `?` for any letter. Raises InvalidRequest, which names the parameter."""
    if "[" in name or "]" in name:
        hint = "Only * and ? stand for other letters: write ? for a bracket."
        raise InvalidRequest(f"{parameter}: brackets have no meaning here.", hint=hint, parameter=parameter)


def all_of(tests: Sequence[Condition]) -> Condition:
    """All of these conditions."""
    return Condition(
        " AND ".join(one.sql for one in tests), tuple(value for one in tests for value in one.values)
    )
