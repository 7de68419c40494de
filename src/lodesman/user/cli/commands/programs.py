"""Commands that are programs of their own: `lode jobstatus`, `vacate`, `site advertise`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lodesman.user.cli.session import Session


class OwnProgram(click.Command):
    """A command whose words, `--` too, another parser reads."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all words to the program."""
        ctx.args = args
        return []


@click.command("jobstatus", cls=OwnProgram)
@click.pass_context
def jobstatus(context: click.Context, /) -> int:
    """Show and check what jobs publish in $JOBSTATUS: how long they stay, and what a drain or a kill would waste.

    It needs no server. It is a program of its own: package FILE leaves it for a machine without Lodesman.
    """
    from lodesman.site.jobstatus.__main__ import main

    return main(context.args, "lode jobstatus", package=_package)


@click.command("vacate", cls=OwnProgram)
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


@click.command("advertise", cls=OwnProgram)
@click.pass_context
def advertise(context: click.Context, /) -> int:
    """Count the jobs of a site and publish them with its limits, by cron or again and again.

    It is a program of its own: --write FILE leaves it for a site where there is no Lodesman.
    """
    from lodesman.site.advertise.__main__ import main

    session = context.ensure_object(Session)
    variables = {
        "LODE_SERVER": session.address,
        "LODE_TOKEN_FILE": session.token_file,
        "LODE_CA_FILE": session.ca_file,
    }
    environ = {**os.environ, **{name: str(value) for name, value in variables.items() if value}}
    return main(context.args, "lode site advertise", environ=environ, write=_write_advertise)


def _write_advertise(target: Path) -> None:
    from lodesman.server.engines.zipapp import build_zipapp

    build_zipapp(target, "advertise")
