"""`lode jobstatus` and `lode vacate`: what jobs publish for their machine. The program that travels as jobstatus.pyz reads
their words.
"""

from __future__ import annotations

from pathlib import Path

import click

from lodesman.user.cli.arguments import Unread


@click.command("jobstatus", cls=Unread)
@click.pass_context
def jobstatus(context: click.Context, /) -> int:
    """Show and check what jobs publish in $JOBSTATUS: how long they stay, and what a drain or a kill would waste.

    It needs no server. It is a program of its own: package FILE leaves it for a machine without Lodesman.
    """
    from lodesman.site.jobstatus.__main__ import main

    return main(context.args, "lode jobstatus", package=_package)


@click.command("vacate", cls=Unread)
@click.pass_context
def vacate(context: click.Context, /) -> int:
    """Choose the jobs of a batch system that free enough cores and lose least, by what they publish in $JOBSTATUS.

    It needs no server, and does nothing without --apply. `lode vacate simulate` shows what it saves on a site's own log.
    """
    from lodesman.site.jobstatus.vacate_command import main

    return main(context.args, "lode vacate")


def _package(target: Path) -> None:
    from lodesman.server.engines.zipapp import build_zipapp

    build_zipapp(target, "jobstatus")
