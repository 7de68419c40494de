"""The group `lode`, and the end of every call (docs/cli.md)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lodesman import __version__
from lodesman.base.errors import LodesmanError
from lodesman.user.access import DEFAULT_SERVER
from lodesman.user.cli.arguments import FILE
from lodesman.user.cli.catalog import COMMANDS, SECTIONS
from lodesman.user.cli.examples import examples_of
from lodesman.user.cli.faults import INTERRUPTED, PIPE_CLOSED, USAGE, advise, exit_code, refusal
from lodesman.user.cli.session import Session
from lodesman.user.cli.tables import emit_json
from lodesman.user.cli.words import plain

if TYPE_CHECKING:
    from types import TracebackType

# What people of other systems type, and the command that does it here.
_ELSEWHERE = {
    "sbatch": "submit", "srun": "submit", "qsub": "submit", "run": "submit",
    "ls": "status", "list": "status", "jobs": "status", "ps": "status", "q": "status", "squeue": "status", "qstat": "status",
    "cancel": "kill", "rm": "delete", "remove": "delete", "scancel": "kill", "qdel": "kill", "stop": "kill",
    "explain": "why", "log": "logs", "peek": "logs", "tail": "logs", "history": "status", "sacct": "status", "info": "show",
    "resubmit": "reschedule", "retry": "reschedule", "pilots": "pilot ls", "sites": "site ls", "queues": "queue ls",
    "hosts": "host ls", "users": "user ls", "groups": "group ls", "help": "--help", "version": "--version",
}  # fmt: skip
_SUGGESTION = re.compile(r"\((Did you mean .*\?)\)")
COMPLETES: Final = "_LODE_COMPLETE"
"""The variable by which a shell asks for completions."""
_EPILOG = """\
Examples:
  lode plan job hello.jdl           what would become of it
  lode submit hello.jdl             a job, or a parametric description of up to a million
  lode status                       your submissions, the newest first, with the states of their jobs
  lode wait 12-40                   until they have ended; --any: the first of them
  lode why 17                       why it waits, and what would let it run
  lode output 12-40 --dir results   what they wrote
  lode server --config lode.toml    run a server here

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not found, 4 not allowed,
5 no server answers, 6 conflict, 130 interrupted; lode wait has those of the jobs.
LODE_DEBUG=1 shows where an error arose."""


class _Sections(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = entry.load(cmd_name)
        _give_examples(command, (cmd_name,))
        if COMPLETES in os.environ:
            from lodesman.user.cli.completing import equip

            command = equip(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}. Did you mean lode {_ELSEWHERE[args[0]]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One list per section; no command is loaded for it."""
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\n" + _EPILOG + "\n")


def _give_examples(command: click.Command, path: tuple[str, ...]) -> None:
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            _give_examples(below, (*path, name))
    elif lines := examples_of(path):
        command.epilog = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def _say_version(context: click.Context, _option: click.Parameter, is_given: bool, /) -> None:
    if is_given and not context.resilient_parsing:
        from lodesman.user.cli.origin import version_text

        click.echo(f"lode {version_text(__version__, Path(__file__).parents[2])}")
        context.exit()


@click.group(
    cls=_Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version and the commit of the sources, and exit.",
)
@click.option(
    "--server",
    metavar="URL",
    envvar="LODE_SERVER",
    help=f"The server; several with commas between. Also LODE_SERVER; else that run from here, {DEFAULT_SERVER}.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    envvar="LODE_TOKEN_FILE",
    type=FILE,
    help="The file with your token. Also LODE_TOKEN_FILE; else LODE_TOKEN, ~/.config/lodesman/token, "
    "./lode-data/admin.token.",
)
@click.option(
    "--ca-file",
    metavar="FILE",
    envvar="LODE_CA_FILE",
    help="Trust these certificates (https). Also LODE_CA_FILE.",
)
@click.pass_context
def lode(
    context: click.Context, /, *, server: str | None, token_file: Path | None, ca_file: str | None
) -> None:
    """Lodesman: jobs wait in task queues, pilots on batch systems fetch them."""
    session = context.ensure_object(Session)
    session.server, session.token_file, session.ca_file = server, token_file, ca_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    session = Session()
    if not os.environ.get("LODE_DEBUG"):
        sys.excepthook = _last_words
    try:
        answer = _invoke(list(sys.argv[1:] if arguments is None else arguments), session)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; nothing more is written, also not by the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        click.echo("lode: interrupted", err=True)
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as fault:
        fault.show()
        return USAGE
    except click.ClickException as fault:
        context = getattr(fault, "ctx", None)
        path = context.command_path if context is not None else "lode"
        # Click writes choices on lines of their own, and its suggestions so: "(Did you mean one of: '--set', '--site'?)".
        text = _SUGGESTION.sub(r"\1", plain(fault.format_message().replace("\n\t", " "))).rstrip(".")
        mark = "" if text.endswith("?") else "."
        click.echo(f"lode: {text}{mark} See: {path} --help", err=True)
        return fault.exit_code
    except LodesmanError as fault:
        return _refused(fault, session)
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename else ""
        return _refused(_SystemFault(f"{where}{fault.strerror or fault}."), session)
    finally:
        session.close()
    return answer if isinstance(answer, int) else 0


def _invoke(arguments: list[str], session: Session) -> object:
    """Click's own `main` ends the process when a pipe closes."""
    if COMPLETES in os.environ:
        return lode.main(arguments, prog_name="lode")
    with lode.make_context("lode", arguments, obj=session) as context:
        return lode.invoke(context)


def _refused(fault: LodesmanError, session: Session) -> int:
    if os.environ.get("LODE_DEBUG"):
        raise  # noqa: PLE0704  # the error that is being handled
    advise(fault)
    if session.as_json:
        emit_json({"error": fault.as_dict()}, err=True)
    else:
        for line in refusal(fault):
            click.echo(line, err=True)
    return exit_code(fault)


class _SystemFault(LodesmanError, code="system"):
    """An error of the operating system."""


def _last_words(kind: type[BaseException], fault: BaseException, _trace: TracebackType | None) -> None:
    click.echo(
        f"lode: a fault in the program: {kind.__name__}: {plain(fault)}. "
        "Please report it with what LODE_DEBUG=1 shows.",
        err=True,
    )
