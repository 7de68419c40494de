"""`./demo`: 220 real jobs on three sites on this machine."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.faults import INTERRUPTED, PIPE_CLOSED, exit_code
from lodesman.user.cli.words import plain


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--results",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-results"),
    show_default=True,
    help="Where the results go.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="The server's TCP port. [default: any free one]"
)
@click.option(
    "--store",
    type=click.Choice(["sqlite", "postgresql"]),
    default="sqlite",
    show_default=True,
    help="The database; postgresql starts one of Debian's package for the demo alone.",
)
@click.option(
    "--backend",
    type=click.Choice(["local", "slurm", "gridengine", "htcondor", "arc", "all"]),
    default="local",
    show_default=True,
    help="Where pilots run: here, on the batch system that the environment names, or on one that the demo starts; "
    "all: a site on each that there is.",
)
@click.option("--keep", is_flag=True, help="Keep the server's data directory.")
@click.option(
    "--workload",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Other jobs, listed as in examples/workload/workload.toml.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")
def demo(*, as_json: bool, **options: Any) -> int:
    """Run 220 real jobs on three sites on this machine, with live progress and a summary.

    A server or pilot that is killed meanwhile is replaced. The exit code is 0 if every job ended as expected,
    130 after Ctrl-C, SIGTERM or SIGHUP; then nothing is left running.
    """
    from examples.demo.run import run_demo

    try:
        return run_demo(as_json=as_json, **options)
    except BrokenPipeError:
        raise
    except LodesmanError as fault:
        error, code = fault.as_dict(), exit_code(fault)
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        error, code = {"code": "system", "message": f"{where}{fault.strerror or fault}."}, 1
    text = json.dumps({"error": error}) if as_json else f"demo: {error['message']} {error.get('hint', '')}"
    click.echo(text if as_json else "\n".join(map(plain, text.rstrip().split("\n"))), err=True)
    return code


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns its exit code."""
    try:
        with demo.make_context("./demo", sys.argv[1:] if arguments is None else arguments) as context:
            code: int = demo.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as fault:
        fault.show()
        return fault.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("demo: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Nothing more is written, not even when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


if __name__ == "__main__":
    sys.exit(main())
