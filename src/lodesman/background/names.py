"""Names of jobs that their submission does not tell.

Of a parametric one `render_%n` is stored once for a million jobs and shown as `render_0000017`; of a batch each job has
its name in its template, which is stored for it anyway.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

import msgspec

from lodesman.errors import LodesmanError
from lodesman.jobs import JobSpec, ParametricMembers, Template
from lodesman.store.engine import Reader
from lodesman.store.views import Row

KEEP = 64
# Submissions that list more than this are not read for the sake of a name.
MOST_BYTES = 1 << 20
IN_TEMPLATES = (
    """SELECT id, body ->> '$.spec.name' FROM template WHERE id IN (SELECT value FROM json_each(?))"""
)
MEMBERS = "SELECT CASE WHEN length(members) <= ? THEN members END FROM submission WHERE id = ?"


class MemberNames:
    """Fills the placeholders of names. Holds a read connection, so it belongs to one thread."""

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._known: OrderedDict[int, Template | None] = OrderedDict()

    def fill(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows with each job's own name; a name that cannot be filled stays as it is."""
        found = list(rows)
        nameless = {row["template"] for row in found if not row["name"]}
        own = self._in_templates(nameless) if nameless else {}
        for row in found:
            if not row["name"]:
                row["name"] = own.get(row["template"]) or ""
            if "%" in row["name"]:
                row["name"] = self._name(row)
            yield row

    def _in_templates(self, templates: set[int]) -> dict[int, str | None]:
        return dict(self._db.execute(IN_TEMPLATES, (msgspec.json.encode(sorted(templates)).decode(),)))

    def _name(self, row: Row) -> str:
        number = row["submission"]
        if number not in self._known:
            self._known[number] = self._template(number, row["name"])
            if len(self._known) > KEEP:
                self._known.popitem(last=False)
        template = self._known[number]
        if template is None:
            return str(row["name"])
        try:
            return template.expand(row["id"] - row["base"], row["id"]).name
        except LodesmanError:
            return str(row["name"])

    def _template(self, submission: int, name: str) -> Template | None:
        found = self._db.execute(MEMBERS, (MOST_BYTES, submission)).fetchone()
        if found is None or found[0] is None:
            return None
        spec = JobSpec(executable="-", name=name)
        return Template(spec, msgspec.json.decode(found[0], type=ParametricMembers))
