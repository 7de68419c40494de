"""What `lode why` is asked about: a job, a pilot or a CE queue, told from each other by how they are written."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import click

from lodesman.cli.arguments import JobId

STAMP = re.compile(r"[0-9a-f]{24}")
QUEUE = re.compile(
    r"[^/]+/.*[^/].*/[^/]+", re.DOTALL
)  # names may hold slashes; the server knows which they are
PREFIXES = ("job", "pilot", "queue")


class Subject(NamedTuple):
    """`kind` is job, pilot or queue; `name` a number, a number or stamp, or SITE/CE/QUEUE."""

    kind: str
    name: str


class SubjectType(click.ParamType[Subject, Any]):
    """A job (12), a pilot (pilot:12, its stamp) or a CE queue (SITE/CE/QUEUE)."""

    name = "what"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Subject:
        """The subject of one word. A usage error for what is none."""
        if isinstance(value, Subject):
            return value
        prefix, colon, rest = value.partition(":")
        if colon and prefix in PREFIXES:
            return self._named(prefix, rest, param, ctx)
        if value.count("/") >= 2:
            return self._named("queue", value, param, ctx)
        if STAMP.fullmatch(value):
            return Subject("pilot", value)
        return self._named("job", value, param, ctx)

    def _named(
        self, kind: str, name: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Subject:
        if kind == "job":
            return Subject("job", str(JobId().convert(name, param, ctx)))
        if kind == "queue" and not _may_be_queue(name):
            self.fail(f"{name[:60]!r} is no queue; write SITE/CE/QUEUE.", param, ctx)
        if not name or (kind == "pilot" and "/" in name):
            self.fail(f"{name[:60]!r} is no {kind}.", param, ctx)
        return Subject(kind, name)


def _may_be_queue(name: str) -> bool:
    """Whether there are three names. They may hold slashes themselves: the server knows which do."""
    parts = name.split("/")
    return bool(parts[0] and parts[-1] and any(parts[1:-1]))


def the_one(what: Subject | None, pilot: str | None, queue: str | None) -> Subject:
    """The one thing that is asked about; beside a job the queue only says where. Raises UsageError for none or several."""
    is_job = what is not None and what.kind == "job"
    asked = [what, pilot and Subject("pilot", pilot), queue and not is_job and Subject("queue", queue)]
    found = [one for one in asked if one]
    if len(found) != 1:
        raise click.UsageError("Name one job, one pilot or one queue.", click.get_current_context())
    return found[0]
