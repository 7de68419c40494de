"""Statements that change rows, what each promises, and the order in which collected ones run.

Two changes may swap places unless both touch one row, or one reads what the other inserts. A statement says by
which key it touches rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from operator import itemgetter
from typing import Any, Final, NamedTuple

Row = Sequence[Any]
"""The values of one run."""


class WrongRows(Exception):
    """A statement changed a wrong number of rows: a bug, or damaged data."""


class RowBounds(NamedTuple):
    """How many rows one run of a statement changes."""

    least: int
    most: int | None  # None: any number

    def check(self, sql: str, changed: int, runs: int = 1) -> int:
        """Returns `changed`, the rows changed by all runs. Raises WrongRows."""
        if changed < self.least * runs or (self.most is not None and changed > self.most * runs):
            bounds = self.least if self.least == self.most else f"{self.least} to {self.most}"
            raise WrongRows(f"{changed} rows were changed in {runs} runs, not {bounds} in each: {sql}")
        return changed


_NUMBERS: Final = count()
# Running so many groups one by one costs less than comparing keys of their rows.
_FEW: Final = 8
_VERB: Final = re.compile(r"\A(INSERT INTO|UPDATE|DELETE FROM) (\w+)")
ONE: Final = RowBounds(1, 1)
AT_MOST_ONE: Final = RowBounds(0, 1)
ANY: Final = RowBounds(0, None)


def exactly(count: int) -> RowBounds:
    """No more and no fewer rows."""
    return RowBounds(count, count)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Statement:
    """A statement that runs once for each of many rows, collected with others."""

    sql: str
    # The places of the changed row's primary key among the values; (): it may change any row.
    key: tuple[int, ...] = ()
    rows: RowBounds = ONE
    # Other tables that it, or a trigger, reads; no other collected statement changes their rows.
    reads: tuple[str, ...] = ()
    # The table that a trigger of it changes.
    fires: str = ""
    # Only the newest row of each key is written (counters, cursors).
    newest: bool = False
    # Its rows often mix with another statement's for the same table: keys are compared from the first.
    mixes: bool = False
    key_of: Callable[[Row], Hashable] = field(init=False, repr=False)
    table: str = field(init=False)
    # What it touches: tables (their rows) and `TABLE+` (which rows exist). Of those in `whole` any row.
    touches: frozenset[str] = field(init=False, repr=False)
    whole: frozenset[str] = field(init=False, repr=False)
    mask: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        verb, table = _VERB.findall(self.sql)[0]
        own = {table} if verb == "UPDATE" else {table, f"{table}+"}
        others = {*(f"{name}+" for name in self.reads), *filter(None, [self.fires])}
        self._set("table", table)
        self._set("touches", frozenset(own | others))
        self._set("whole", frozenset(others if self.key else own | others))
        self._set("mask", sum(1 << _number(name) for name in self.touches))
        self._set("key_of", itemgetter(*self.key) if self.key else _no_key)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def newest_of(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows that are written."""
        if not self.newest or len(rows) == 1:
            return rows
        return [*{self.key_of(row): row for row in rows}.values()]


@cache
def _number(_name: str) -> int:
    return next(_NUMBERS)


def _no_key(_row: Row) -> None:
    return None


Group = tuple[Statement, Sequence[Row]]
"""A statement and the rows that it runs for, in order."""


class _SharedRows(NamedTuple):
    rows: list[Row]
    key_of: Callable[[Row], Hashable]
    users: list[dict[Hashable, Statement]]  # which statement touches the row with a key


class Collection:
    """Rows collected in few groups, with the effect that they have one by one.

    Groups run in segments. A row that would pass one of another statement for the same row begins the next.
    """

    __slots__ = ("_checked", "_groups", "_kinds", "_newest", "_shared", "apart", "mask")

    def __init__(self) -> None:
        # Statements of which none touches a table that another one touches.
        self.apart: dict[Statement, list[Row]] = {}
        # Statements whose rows are compared by their keys, since they met.
        self._checked: dict[Statement, _SharedRows] = {}
        # What several statements of the segment touch: by table, then by key.
        self._shared: dict[str, dict[Hashable, Statement]] = {}
        # The statements of all segments.
        self._kinds: set[Statement] = set()
        # What the segment touches; 0: nothing is collected.
        self.mask = 0
        # The groups of earlier segments.
        self._groups: list[Group] = []
        # Whether only the newest rows of some statement count.
        self._newest = False

    def is_of(self, statements: AbstractSet[Statement]) -> bool:
        """Whether only rows of these statements are collected."""
        return self._kinds <= statements

    def add(self, statement: Statement, row: Row) -> None:
        """Add a row of a statement that is not in `apart`."""
        checked = self._checked.get(statement)
        if checked is None and self.mask & statement.mask:
            checked = self._share(statement)
        if checked is not None:
            rows, key_of, all_users = checked
            key = key_of(row)
            for users in all_users:
                if users.setdefault(key, statement) is not statement:
                    self._end_segment()
                    break
            else:
                rows.append(row)
                return
        self.apart[statement] = [row]
        self._begin(statement)

    def take(self) -> list[Group]:
        """Return all groups in order, and empty the collection."""
        self._end_segment()
        groups, self._groups = self._groups, []
        self._kinds.clear()
        if self._newest:
            groups = [(statement, statement.newest_of(rows)) for statement, rows in groups]
            self._newest = False
        return groups

    def _begin(self, statement: Statement) -> None:
        self.mask |= statement.mask
        self._kinds.add(statement)
        if statement.newest:
            self._newest = True

    def _end_segment(self) -> None:
        self._groups += self.apart.items()
        self.apart.clear()
        if self._checked:
            self._groups += [
                (statement, checked.rows) for statement, checked in self._checked.items() if checked.rows
            ]
            self._checked.clear()
            self._shared.clear()
        self.mask = 0

    def _share(self, statement: Statement) -> _SharedRows | None:
        """Compare keys from now on. None, and the segment ends, if that costs more than it saves, or one touches
        all rows.
        """
        users = {
            name: [user for user in (*self.apart, *self._checked) if name in user.touches]
            for name in statement.touches
        }
        touches_all = any(
            name in user.whole for name, some in users.items() for user in (statement, *some) if some
        )
        if touches_all or (len(self._groups) < _FEW and not statement.mixes):
            self._end_segment()
            return None
        # Rows collected so far come first, whatever they touch; later ones are compared.
        for name, some in users.items():
            if some and name not in self._shared:
                keys = self._shared[name] = {}
                for user in some:
                    self._check(user).users.append(keys)
        checked = self._check(statement)
        checked.users.extend(self._shared[name] for name, some in users.items() if some)
        self._begin(statement)
        return checked

    def _check(self, statement: Statement) -> _SharedRows:
        if statement not in self._checked:
            self._checked[statement] = _SharedRows(self.apart.pop(statement, []), statement.key_of, [])
        return self._checked[statement]
