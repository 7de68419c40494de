"""`lode site test`: test jobs on the queues of a site, and what they found."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from lodesman.answers import calls
from lodesman.cli.arguments import named, number_option
from lodesman.cli.session import Session, with_session
from lodesman.cli.tables import Cell, Styled, is_terminal, note, show_table
from lodesman.cli.words import counted, path_of
from lodesman.errors import LodesmanError

if TYPE_CHECKING:
    from lodesman.answers.site_tests import SiteCheck, SiteTest

_POLL_SECONDS = 0.5
_COLOURS = {"ok": "green", "failed": "bold red", "unknown": "bold yellow"}
_TITLES = ("queue", "check", "result", ">seconds", "detail")
_EXAMPLES = """\b
Examples:
  lode site test LCG.North                                  its open queues, up to 20
  lode site test LCG.North --queue ce7/long --timeout 1800  one queue, where jobs wait for long"""


@click.command("test", epilog=_EXAMPLES)
@click.argument("names", nargs=-1, required=True, metavar="SITE[/CE[/QUEUE]]")
@click.option(
    "--queue", "below", default="", metavar="CE/QUEUE", help="Only this queue, also if it is closed."
)
@number_option("--timeout", click.IntRange(1, 86_400), 300, "Seconds that a test job may wait and run.")
@with_session
def test_site(session: Session, /, *, names: tuple[str, ...], below: str, timeout: int) -> int:
    """Send test jobs to a site and check the way of a pilot (administrators).

    Submit, status, output and cancel; from the node Python, scratch space, the clock, and whether the server is reached
    by TLS. Nothing is left there. The exit code is 1 if a check failed. Ctrl-C cancels the test jobs.
    """
    from lodesman.answers.site_tests import SiteTestBody

    if below and len(names) > 1:
        raise click.UsageError(
            "Give the queue as a word or with --queue, not both.", click.get_current_context()
        )
    where = {"path": f"{names[0]}/{below}"} if below else named(names)
    test = session.call(calls.TEST_SITE, body=SiteTestBody(**where, seconds=float(timeout)))
    test = _follow(session, test)
    failed = sum(one.result == "failed" for one in test.checks)
    code = 1 if failed else 0
    session.exit_if_json(test, code)
    _show(test, failed)
    return code


def _follow(session: Session, test: SiteTest) -> SiteTest:
    """Until it has ended; whatever ends this command ends the test."""
    from lodesman.answers.site_tests import SiteTestAt

    here, shown = SiteTestAt(test.test), dict[str, str]()
    try:
        while test.state in ("running", "stopping"):
            _show_progress(test.doing, shown)
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


def _show_progress(doing: dict[str, str], shown: dict[str, str]) -> None:
    """What is new since it was `shown`, for a person."""
    if is_terminal(sys.stderr):
        for queue, words in doing.items():
            if shown.get(queue) != words:
                note(f"{queue}: {words}")
    shown.update(doing)


def _show(test: SiteTest, failed: int) -> None:
    show_table(_TITLES, map(_row, test.checks))
    if not test.checks:
        note(f"{test.path} has no queues.")
    if test.left_out:
        note(f"{counted(test.left_out, 'queue')} more: test a CE of it, or a queue.")
    if test.state == "stopped":
        note("The test was stopped before its end.")
    unknown = sum(one.result == "unknown" for one in test.checks)
    also = f", {unknown} unknown" if unknown else ""
    note(f"{test.path}: {counted(len(test.checks), 'check')}, {failed} failed{also}.")


def _row(one: SiteCheck) -> Sequence[Cell]:
    result = Styled(one.result, _COLOURS[one.result])
    return [path_of(one), one.check, result, f"{one.seconds:.1f}", one.detail]
