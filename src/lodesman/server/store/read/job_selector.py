"""Which jobs a filter selects: each name, task queue and template is judged once. Task queues and templates never
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from lodesman.languages.jobs.selection import DAMAGED, StepBudget, StoredText
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, GIVEN_PAIRS, JOIN_IN_ORDER, greatest, keys
from lodesman.server.store.read.job_filter import Conditions, JobFilter, own_name

# Rows whose texts are in memory at once; a text may have 100 kB.
_AT_ONCE: Final = 100
_MOST_KEPT: Final = 50_000
# Parts of submissions. The columns after the id are those of `JobKind`.
_ROWS: Final = f"""WITH given (first, last) AS {GIVEN_PAIRS} SELECT j.id, j.tq_id, j.template_id, s.name FROM given
{JOIN_IN_ORDER} job j ON j.id >= given.first AND j.id <= given.last JOIN submission s ON s.id = j.submission_id"""
_RUNS: Final = f"""WITH given (first, last) AS {GIVEN_PAIRS}
SELECT {greatest("given.first", "c.base + c.start")}, c.tq_id, c.template_id, s.name FROM given
JOIN submission s ON s.base = (SELECT max(base) FROM submission WHERE base <= given.first)
JOIN cohort c ON c.submission_id = s.id AND c.base + c.start <= given.last AND c.base + c.stop > given.first"""
_ENOUGH: Final = (
    "SELECT count(*), max(id) FROM (SELECT id FROM job WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?) part"
)
_OVERLAPPING: Final = (
    "SELECT count(*) FROM cohort WHERE submission_id = ? AND base + start <= ? AND base + stop > ?"
)


class JobKind(NamedTuple):
    """Jobs of one task queue with one template."""

    queue: int
    template: int
    name: str  # of their submission, '' if each has a name of its own


class JobSelector:
    """Verdicts on task queues, templates and names."""

    def __init__(self, job_filter: JobFilter, budget: StepBudget) -> None:
        self._name, self._budget = job_filter.name, budget
        self._queues = _RowSelector("task_queue q", "q.key", job_filter.queue, budget)
        self._templates = _RowSelector("template t", "t.body", job_filter.template, budget)
        own = Conditions() if self._name is None else own_name(self._name)
        self._own_names = _RowSelector("template t", "t.body", own, budget)
        self._names: dict[str, bool] = {}

    def learn(self, db: Reader, jobs: Iterable[JobKind]) -> None:
        """Judge what is new, in order. Raises SelectionTooDear; earlier verdicts stay."""
        left = iter(dict.fromkeys(jobs))
        while portion := list(islice(left, _AT_ONCE)):
            named = [kind for kind in portion if not kind.name or self.has_name(kind.name)]
            self._queues.learn(db, [kind.queue for kind in named])
            rest = [kind for kind in named if self._queues.judge(kind.queue)]
            self._own_names.learn(db, [kind.template for kind in rest if not kind.name])
            rest = [kind for kind in rest if kind.name or self._own_names.judge(kind.template)]
            self._templates.learn(db, [kind.template for kind in rest])

    def has_name(self, name: str) -> bool:
        """Always true without a name. Raises SelectionTooDear."""
        if self._name is None or not name:
            return True
        if name not in self._names:
            self._names[name] = self._name.is_met(name, self._budget)
        return self._names[name]

    def judge_name(self, name: str) -> bool | None:
        """As `has_name`; None if not known yet."""
        return True if self._name is None or not name else self._names.get(name)

    def judge(self, kind: JobKind) -> bool | None:
        """None if not known yet. In the order of `learn`."""
        for verdict in (self.judge_name(kind.name), self._queues.judge(kind.queue)):
            if not verdict:
                return verdict
        is_named = True if kind.name else self._own_names.judge(kind.template)
        return self._templates.judge(kind.template) if is_named else is_named

    def forget(self) -> None:
        """Forget verdicts beyond a number."""
        if len(self._names) > _MOST_KEPT:
            self._names.clear()
        for rows in (self._queues, self._templates, self._own_names):
            rows.forget()


class _RowSelector:
    def __init__(self, table: str, column: str, conditions: Conditions, budget: StepBudget) -> None:
        self._tests, self._budget = conditions.tests, budget
        self._asks = bool(conditions.exact or conditions.tests)
        row = f"{table[-1]}.id"
        # Without tests beyond SQL no text is read.
        text = column if conditions.tests else "''"
        met = " AND ".join((f"{row} IN {GIVEN}", *(condition.sql for condition in conditions.exact)))
        self._sql = f"SELECT {row}, {text} FROM {table} WHERE {met}"
        self._values = tuple(value for condition in conditions.exact for value in condition.values)
        self._met: dict[int, bool] = {}

    def learn(self, db: Reader, ids: Sequence[int]) -> None:
        new = [row_id for row_id in dict.fromkeys(ids) if row_id not in self._met] if self._asks else []
        if new:
            texts = dict(db.execute(self._sql, (keys(new), *self._values)))
            for number in new:
                self._met[number] = number in texts and self._is_met(texts.pop(number))

    def _is_met(self, text: str) -> bool:
        """A damaged text meets nothing."""
        if not self._tests:
            return True
        self._budget.pay_for_text(len(text), self._tests[0].parameter)
        try:
            stored = StoredText(text)
            return all(test.is_met(stored, self._budget) for test in self._tests)
        except DAMAGED:
            return False

    def judge(self, number: int) -> bool | None:
        return self._met.get(number) if self._asks else True

    def forget(self) -> None:
        if len(self._met) > _MOST_KEPT:
            self._met.clear()


def count_between(db: Reader, submission: int, ids: range, most: int) -> tuple[int, int]:
    """Rows (at most `most`) plus runs of the first jobs of a part, and the last id counted."""
    rows, last = db.only(_ENOUGH, (ids[0], ids[-1], most))
    end = last if rows == most else ids[-1]
    return rows + db.only(_OVERLAPPING, (submission, end, ids[0]))[0], end


def alike_between(db: Reader, parts: Iterable[tuple[int, int]]) -> list[JobKind]:
    """Kinds of jobs in parts (first, last) of submissions, by their beginning."""
    values = (keys(parts),)
    rows = [row for sql in (_ROWS, _RUNS) for row in db.execute(sql, values)]
    return [JobKind(*row[1:]) for row in sorted(rows, key=itemgetter(0))]
