"""Readers of submissions: the hot process changes them, the reading process shows them."""

from __future__ import annotations

from functools import partial

from lodesman.server.http.auth import sees_all
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.http.read_side import ReadSide
from lodesman.server.live.core import Core
from lodesman.server.store.accounts import list_users
from lodesman.server.store.journal import Change
from lodesman.server.store.readers import readers_of
from lodesman.server.writer.groups import group_named, known_groups
from lodesman.server.writer.readers import add_readers, own_submission, remove_readers
from lodesman.wire import calls
from lodesman.wire.call import Nothing
from lodesman.wire.job_queries import ReadersBody, SubmissionAt, SubmissionReaders


@serves(calls.SET_READERS)
async def _set_readers(core: Core, request: Request[Nothing, ReadersBody]) -> SubmissionReaders:
    """Who may read no more gets nothing more, also of answers that are under way."""
    body, who = request.body, request.who
    user = None if sees_all(who) else who.name
    _, vo = own_submission(core.reader, body.submission, user)
    if body.how == "add":
        known = known_groups(core.policy, list_users(core.reader))
        known = {name: one for name, one in known.items() if not one.vos or vo in one.vos}
        for name in body.readers:
            if name.startswith("@"):
                group_named(known, name[1:])
        command = Change(partial(add_readers, by=who.name), body.submission, body.readers, user)
    else:
        command = Change(partial(remove_readers), body.submission, body.readers, user)
    word = "with" if body.how == "add" else "no more with"
    detail = f"{word} {', '.join(body.readers)}"
    await core.commands.run(request.audited(command, "submission-shared", str(body.submission), detail))
    if body.how == "remove":
        core.principals.end_readers(frozenset(body.readers))
    return SubmissionReaders(body.submission, readers_of(core.reader, body.submission))


@serves(calls.READERS)
async def _readers(side: ReadSide, request: Request[SubmissionAt, Nothing]) -> SubmissionReaders:
    """For its owner, and for administrators."""
    number = request.query.submission
    own_submission(side.db, number, None if sees_all(request.who) else request.who.name)
    return SubmissionReaders(number, readers_of(side.db, number))
