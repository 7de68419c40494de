"""Job classes as their owners wrote them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lodesman.languages.jobclass import JobClass
from lodesman.server.store import Reader
from lodesman.server.store.statement import ONE
from lodesman.server.store.transaction import Transaction

_ALL = "SELECT name, text, disabled, revision FROM job_class ORDER BY name"
_CHANGES = "SELECT name, changed_at, changed_by FROM job_class"
_OF_USER = "SELECT name FROM job_class WHERE changed_by = ?"
_PUT = """INSERT INTO job_class (name, text, disabled, revision, changed_at, changed_by) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET text = excluded.text, disabled = excluded.disabled, revision = excluded.revision,
changed_at = excluded.changed_at, changed_by = excluded.changed_by"""
_SWITCH = "UPDATE job_class SET disabled = ?, changed_at = ?, changed_by = ? WHERE name = ?"


class StoredClass(NamedTuple):
    """A class in its canonical text."""

    name: str
    text: str
    disabled: frozenset[str]  # variants
    revision: int


class ClassChange(NamedTuple):
    """The last change of a class."""

    at: float  # UNIX seconds
    by: str


def job_classes(db: Reader) -> list[StoredClass]:
    """Classes by name; the template only if it was ever changed."""
    return [
        StoredClass(name, text, frozenset(filter(None, disabled.split(","))), revision)
        for name, text, disabled, revision in db.execute(_ALL)
    ]


def class_changes(db: Reader) -> dict[str, ClassChange]:
    """The last changes by name of the class."""
    return {name: ClassChange(at, by) for name, at, by in db.execute(_CHANGES)}


def classes_changed_by(tx: Transaction, user: str) -> set[str]:
    """Classes that this user changed last."""
    return {name for (name,) in tx.read(_OF_USER, (user,))}


def put_class(tx: Transaction, job_class: JobClass, text: str, by: str) -> None:
    """Store a class. `text`: canonical."""
    row = (job_class.name, text, _names(job_class.disabled), job_class.revision)
    tx.write(_PUT, (*row, tx.now, by), rows=ONE)


def switch_class(tx: Transaction, name: str, disabled: Collection[str], by: str) -> None:
    """Set the disabled variants."""
    tx.write(_SWITCH, (_names(disabled), tx.now, by, name), rows=ONE)


def _names(variants: Collection[str]) -> str:
    return ",".join(sorted(variants))


def drop_class(tx: Transaction, name: str) -> None:
    """Delete a class."""
    tx.write("DELETE FROM job_class WHERE name = ?", (name,), rows=ONE)
