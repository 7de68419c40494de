"""`lode site test`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.arguments import filter_option, node_names, number_option
from lodesman.user.cli.columns import Column, Columns, ListShape, shaped, table_of
from lodesman.user.cli.progress import Pace
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import StyledText, is_terminal, note
from lodesman.user.cli.words import counted, path_of
from lodesman.wire import calls

if TYPE_CHECKING:
    from lodesman.wire.site_tests import SiteCheck, SiteTest

_POLL_SECONDS = 0.5
_COLOURS = {"ok": "green", "failed": "bold red", "unknown": "bold yellow"}
_CHECKS: Final[Columns[SiteCheck]] = table_of(
    Column("queue", "text", path_of),
    Column("check", "text", lambda row: row.check),
    Column(
        "result", "text", lambda row: row.result, lambda row: StyledText(row.result, _COLOURS[row.result])
    ),
    Column("seconds", "number", lambda row: row.seconds, lambda row: f"{row.seconds:.1f}"),
    Column("detail", "text", lambda row: row.detail),
)


@click.command("test")
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@filter_option("--queue", "below", metavar="CE/QUEUE", about="Only this queue, also if it is closed.")
@number_option("--timeout", click.IntRange(1, 86_400), 300, "Seconds that a test job may wait and run.")
@shaped(_CHECKS)
@with_session
def test_site(
    session: Session, /, *, names: tuple[str, ...], below: str, timeout: int, shape: ListShape
) -> int:
    """Send test jobs to a site and check the way of a pilot (administrators).

    Submit, status, output and cancel; from the node Python, scratch space, the clock, and whether the server is reached
    by TLS. Nothing is left there. The exit code is 1 if a check failed. Ctrl-C cancels the test jobs.
    """
    from lodesman.wire.site_tests import SiteTestBody

    if below and len(names) > 1:
        raise click.UsageError(
            "Give the queue as a word or with --queue, not both.", click.get_current_context()
        )
    where = {"path": f"{names[0]}/{below}"} if below else node_names(names)
    test = session.call(calls.TEST_SITE, body=SiteTestBody(**where, seconds=float(timeout)))
    test = _follow(session, test)
    failed = sum(row.result == "failed" for row in test.checks)
    code = 1 if failed else 0
    session.exit_if_json(test, code)
    _show(test, failed, shape)
    return code


def _follow(session: Session, test: SiteTest) -> SiteTest:
    """What ends this command ends the test."""
    from lodesman.wire.site_tests import SiteTestAt

    here, shown = SiteTestAt(test.test), _TestNews(silent=session.as_json)
    try:
        while test.state in ("running", "stopping"):
            shown.follow(test.doing)
            time.sleep(_POLL_SECONDS)
            test = session.call(calls.SITE_TEST, here)
    except KeyboardInterrupt:
        try:
            session.call(calls.STOP_SITE_TEST, here)
            note("The server cancels the test jobs.")
        except LodesmanError as fault:
            note(f"The server cancels the test jobs in a minute: {fault}")
        raise
    return test


class _TestNews:
    def __init__(self, *, silent: bool) -> None:
        self._silent, self._said = silent, dict[str, str]()
        self._pace = Pace(time.monotonic())

    def follow(self, doing: dict[str, str]) -> None:
        now = time.monotonic()
        if self._silent or not (is_terminal(sys.stderr) or self._pace.is_due(now, "; ".join(doing.values()))):
            return
        new = {queue: words for queue, words in doing.items() if self._said.get(queue) != words}
        for queue, words in (new or ({} if is_terminal(sys.stderr) else doing)).items():
            note(f"{queue}: {words}")
        self._said |= doing


def _show(test: SiteTest, failed: int, shape: ListShape) -> None:
    shape.show(_CHECKS, test.checks)
    if not test.checks:
        note(f"{test.path} has no queues.")
    if test.left_out:
        note(f"{counted(test.left_out, 'queue')} more: test a CE of it, or a queue.")
    if test.state == "stopped":
        note("The test was stopped before its end.")
    unknown = sum(row.result == "unknown" for row in test.checks)
    also = f", {unknown} unknown" if unknown else ""
    note(f"{test.path}: {counted(len(test.checks), 'check')}, {failed} failed{also}.")
