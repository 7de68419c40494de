"""What a pilot is given for an attempt: the stored template, with its placeholders filled in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import apsw
import msgspec

from lodesman.jobs import ParametricMembers, Template, members_from_json, spec_from_json
from lodesman.services.claim import Claimed
from lodesman.services.payloads import Uploads, payload
from lodesman.store.engine import only_row

KEEP = 4_096
TEMPLATE = "SELECT expand, body FROM template WHERE id = ?"
MEMBERS = "SELECT base, members FROM submission WHERE id = ?"

V = TypeVar("V")


class _Kept(Generic[V]):
    """The last `KEEP` values by number, made by `make` when they are asked for."""

    def __init__(self, make: Callable[[int], V]) -> None:
        self._make = make
        self._values: OrderedDict[int, V] = OrderedDict()

    def get(self, number: int) -> V:
        """The value, from memory if it is still there."""
        known = self._values.get(number)
        if known is None:
            known = self._values[number] = self._make(number)
            if len(self._values) > KEEP:
                self._values.popitem(last=False)
        return known


class Templates:
    """Renders claimed attempts as JSON. Holds a read connection, so it belongs to one thread."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._bodies = _Kept(self._read_body)
        self._members = _Kept(self._read_members)
        self._fillers: OrderedDict[int, tuple[Template, Uploads]] = OrderedDict()

    def render(self, claimed: list[Claimed], *, drain: bool) -> bytes:
        """The body of the answer to a claim."""
        jobs = b",".join([self._job(one) for one in claimed])
        return b'{"jobs":[' + jobs + b'],"drain":' + (b"true}" if drain else b"false}")

    def _job(self, one: Claimed) -> bytes:
        expand, body = self._bodies.get(one.template_id)
        if expand:
            body = self._filled(one, body)
        return b'{"id":%d,"attempt":%d,' % (one.job_id, one.attempt) + body[1:]

    def _filled(self, one: Claimed, body: bytes) -> bytes:
        base, members = self._members.get(one.submission_id)
        template, uploads = self._filler(one.template_id, members, body)
        spec = template.expand(one.job_id - base, one.job_id)
        return msgspec.json.encode(payload(spec, uploads))

    def _filler(self, template_id: int, members: ParametricMembers, body: bytes) -> tuple[Template, Uploads]:
        """A template ready to be filled; a template belongs to one submission, so to one set of members."""
        known = self._fillers.get(template_id)
        if known is None:
            stored = msgspec.json.decode(body)
            known = Template(spec_from_json(stored["spec"]), members), stored["uploads"]
            self._fillers[template_id] = known
            if len(self._fillers) > KEEP:
                self._fillers.popitem(last=False)
        return known

    def _read_body(self, template_id: int) -> tuple[bool, bytes]:
        row = only_row(self._db, TEMPLATE, (template_id,))
        return bool(row[0]), row[1].encode()

    def _read_members(self, submission_id: int) -> tuple[int, ParametricMembers]:
        base, text = only_row(self._db, MEMBERS, (submission_id,))
        return base, members_from_json(msgspec.json.decode(text))
