"""`lode share` and `lode unshare`: who may read a submission without changing anything of it."""

from __future__ import annotations

import click

from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import Cell, note, say, show_table
from lodesman.user.cli.words import joined
from lodesman.wire import calls
from lodesman.wire.job_queries import ReadersBody, SubmissionAt, SubmissionReader, SubmissionReaders
from lodesman.wire.nodes import utc

_submission = click.argument("submission", type=click.IntRange(1), metavar="SUBMISSION")


@click.command()
@_submission
@click.argument("readers", nargs=-1, metavar="[USER|@GROUP]...")
@with_session
def share(session: Session, /, *, submission: int, readers: tuple[str, ...]) -> None:
    """Let users and groups of your VO read a submission; without any, show who may.

    They see its jobs, why these wait, their descriptions (values of Environment are hidden), logs and output, and can change
    nothing. It holds at once, until: lode unshare SUBMISSION USER. See what is shared with you: lode status --shared
    """
    if not readers:
        found = session.answer(calls.READERS, SubmissionAt(submission))
        show_table(("reader", "since", "by"), map(_row, found.readers))
        if not found.readers:
            note(f"Submission {submission} is not shared.")
        return
    _say(session.answer(calls.SET_READERS, body=ReadersBody(submission, list(readers))))


@click.command()
@_submission
@click.argument("readers", nargs=-1, required=True, metavar="USER|@GROUP...")
@with_session
def unshare(session: Session, /, *, submission: int, readers: tuple[str, ...]) -> None:
    """Let users and groups read a submission no more. It holds at once; what they have fetched stays with them."""
    _say(session.answer(calls.SET_READERS, body=ReadersBody(submission, list(readers), "remove")))


def _say(found: SubmissionReaders) -> None:
    readers = joined(one.reader for one in found.readers)
    say(f"Submission {found.submission} is {f'shared with: {readers}' if found.readers else 'not shared'}.")


def _row(one: SubmissionReader) -> list[Cell]:
    return [one.reader, utc(one.at), one.by]
