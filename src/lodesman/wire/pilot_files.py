"""Files of pilots that people start themselves, in queues whose backend is manual."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lodesman.wire.nodes import Place
from lodesman.wire.requests import OpenSiteBody

MOST_FILES = 100
_MOST_HOURS = 720


class PilotFilesBody(OpenSiteBody, frozen=True, kw_only=True):
    """A queue, by names or by `path`, and how many pilots of which VO ('': the caller's) may be started there. Each may join
    once, within `hours`.
    """

    count: Annotated[int, Meta(ge=1, le=MOST_FILES)] = 1
    hours: Annotated[float, Meta(gt=0, le=_MOST_HOURS)] = 12.0
    vo: str = ""


class MadePilot(Struct, frozen=True):
    """One pilot: `content` is its own file, JSON with a join token that is good once. Whoever has it gets jobs."""

    id: int
    stamp: str
    content: str


class PilotFiles(Place, frozen=True):
    """Pilots that were stored for a queue, each with its file, and the `program` that all of them run (a zipapp). They join
    at `servers`, until `expires_at` (UNIX seconds). `notices`: what may keep them from it.
    """

    vo: str
    pilots: list[MadePilot]
    expires_at: float
    servers: list[str]
    notices: list[str]
    program: bytes
