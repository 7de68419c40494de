"""The command line of `jobstatus.pyz` and of `lode jobstatus`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from .commands import GOOD, USAGE, add_commands, add_write, refuse
from .parser import PlainParser
from .vacate_command import add_parser as add_vacate

_PIPE_CLOSED = 141
_EXAMPLES = """\
examples:
  %(prog)s show /run/jobstatus/* --json
  %(prog)s show /run/jobstatus/17 --uid 1000 --allocated 8 --jobstart 1391212345
  %(prog)s check "$JOBSTATUS" --strict
  %(prog)s vacate --free 16 --backend slurm"""


def _copy(target: Path) -> None:
    target.write_bytes(Path(sys.argv[0]).read_bytes())
    target.chmod(0o755)


def parser(prog: str | None) -> argparse.ArgumentParser:
    """Of the command line."""
    command_line: argparse.ArgumentParser = PlainParser(
        prog, description="What jobs publish in $JOBSTATUS: what a site may lose by vacating them.", epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    commands = command_line.add_subparsers(metavar="COMMAND", required=True)
    add_commands(commands)
    add_write(commands)
    add_vacate(commands)
    words = "Leave this program in FILE, for a machine without Lodesman; it needs Python 3.9."
    package = commands.add_parser("package", help=words, description=words, allow_abbrev=False)
    package.add_argument("file", type=Path, metavar="FILE", help="the new file")
    package.set_defaults(run=None)
    return command_line


def main(
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
    *,
    package: Callable[[Path], None] = _copy,
) -> int:
    """Returns the exit code. `package` leaves this program in a file."""
    options = parser(prog).parse_args(arguments)
    if options.run is None:
        try:
            package(options.file)
        except OSError as fault:
            return refuse(str(fault), USAGE)
        return GOOD
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, also at the interpreter's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return code


if __name__ == "__main__":
    sys.exit(main())
