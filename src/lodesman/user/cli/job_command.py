"""The command line of `lode submit`: descriptions, or a command after `--`, a script with `#LODE` lines, a class."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from lodesman.base.errors import LodesmanError
from lodesman.user.cli.foreign_lines import (
    HEAD_BYTES,
    add_translation,
    foreign_file,
    has_lines,
    head_of,
)
from lodesman.user.cli.tables import note
from lodesman.user.cli.taken_files import scratch_folder

STDIN = "-"
_PIPED_NAME = "script"
_MARK = "#LODE"


class JobCommand(click.Command):
    """A command about jobs. `command`: the words of a command, or of a script and its arguments, whose path is `script`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of this command stand before the command or script; they win over those of its `#LODE` lines."""
        if ctx.resilient_parsing:  # for a completion: words are still missing
            return super().parse_args(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        own, command = args[:at], args[at + 1 :]
        files = self._positionals(ctx, own)
        piped = files[:1] == [STDIN] and _begins_script(sys.stdin.buffer)
        if piped:
            files[0] = _kept(sys.stdin.buffer)
        script = files[0] if files and (piped or is_script(files[0])) else ""
        if script:
            own, command = own[: len(own) - len(files)], [*files, *command]
            self._warn_of_options(ctx, command)
        elif at < len(args) and not command:
            raise click.UsageError("After -- stands a command: lode submit -- python fit.py.", ctx)
        try:
            rest = super().parse_args(ctx, own)
        except click.NoSuchOption as wrong:
            if files and (meant := _as_command(files)):
                raise click.UsageError(meant, ctx) from wrong
            raise
        if command and ctx.params["files"]:
            first = ctx.params["files"][0]
            raise click.UsageError(f"{first} is no script: a command after -- stands alone.", ctx)
        if not (command or ctx.params["files"] or ctx.params["job_class"]):
            raise click.UsageError("Name a description or a script, or a command after --.", ctx)
        ctx.params |= {"command": tuple(command), "script": script, "piped": piped}
        if script:
            label = "standard input" if piped else script
            _add(ctx, self._of_script(ctx, script, label))
            add_translation(ctx, script, label)
        return rest

    def _positionals(self, ctx: click.Context, words: list[str]) -> list[str]:
        """The first word that is no option, and all that follow."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        found = parser.parse_args(list(words))[0].get("files")
        return list(found) if isinstance(found, tuple) else []

    def _of_script(self, ctx: click.Context, script: str, label: str) -> dict[str, Any]:
        """What the options in a script's head say, each line checked. Raises UsageError with file and line."""
        words: list[str] = []
        for number, line in _option_lines(script, label):
            try:
                words += shlex.split(line, comments=True)
                checked = self._parsed(ctx, words)
                if checked["files"]:
                    raise ValueError(f"{checked['files'][0]!r} is no option")
                if checked["jsv"]:
                    raise ValueError(
                        "--jsv names a program that runs here: give it on the command line, or in ~/.lode_request"
                    )
            except (click.UsageError, ValueError) as wrong:
                text = wrong.format_message() if isinstance(wrong, click.UsageError) else str(wrong)
                raise click.UsageError(f"{label}:{number}: {text}", ctx) from None
        return self._parsed(ctx, words)

    def _parsed(self, ctx: click.Context, words: list[str]) -> dict[str, Any]:
        found = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        super().parse_args(found, list(words))
        return found.params

    def _warn_of_options(self, ctx: click.Context, command: list[str]) -> None:
        """What follows a script is the script's, as with sbatch; it may have been meant for us."""
        known = {name for one in self.get_params(ctx) if isinstance(one, click.Option) for name in one.opts}
        meant = [word for word in command[1:] if word.partition("=")[0] in known]
        if meant:
            note(
                f"{' '.join(meant)} stands after {command[0]} and goes to it; options of lode stand before it."
            )


def _add(ctx: click.Context, others: dict[str, Any]) -> None:
    """Add options of elsewhere: those that may be given several times add up, of the others the context's own count."""
    from lodesman.languages.jobs.attributes import overlay

    for name, value in others.items():
        own = ctx.params.get(name)
        if isinstance(value, dict):
            ctx.params[name] = overlay(value, own or {})
        elif isinstance(value, tuple):
            ctx.params[name] = (*value, *(own or ()))
        elif ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            ctx.params[name] = value


def is_script(name: str) -> bool:
    """Whether a file is a job by itself: it begins with `#!`, has lines of a batch system, or may be executed and is no
    description.
    """
    path = Path(name)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return False
    if head[:2] == b"#!":
        return not foreign_file(head)
    if not path.is_file():
        return False
    return _looks_run(path, head) and not _is_description(head) and not foreign_file(head)


def _looks_run(path: Path, head: bytes) -> bool:
    return os.access(path, os.X_OK) or has_lines(head.decode("utf-8", "replace"))


def _as_command(files: list[str]) -> str:
    """What to say of words that are a command, since an option among them is unknown; '' if they name a description."""
    path, words, what = Path(files[0]), shlex.join(files), f"There is no file {files[0]}."
    if files[0] == STDIN:
        return ""
    if path.exists():
        if not path.is_file() or _is_description(path.read_bytes()[:HEAD_BYTES]):
            return ""
        what = f"{files[0]} is no description, and no script, since it does not begin with #!."
        words = f"{'python3' if path.suffix == '.py' else 'sh'} {words}"
    return f"{what} A command stands after two dashes: lode submit -- {words}."


def _begins_script(stream: Any) -> bool:
    """Whether a script is piped in, and no file that its first line hands to HTCondor; nothing is read."""
    if stream.isatty() or (head := stream.peek(2))[:2] != b"#!":
        return False
    return not foreign_file(head)


def _kept(stream: Any) -> str:
    """A script that is piped in, as a file that goes with the end of this call."""
    path = scratch_folder() / _PIPED_NAME
    path.write_bytes(stream.read())
    return str(path)


def _is_description(head: bytes) -> bool:
    from lodesman.languages.jobs import ARRAY_LIMITS, read_description

    if head[:4] == b"\x7fELF":
        return False
    try:
        read_description(head, limits=ARRAY_LIMITS)
    except LodesmanError:
        return len(head) == HEAD_BYTES or head.lstrip()[:1] in (b"[", b"{")
    return True


def _option_lines(script: str, label: str) -> Iterator[tuple[int, str]]:
    """Number and options of each `#LODE` line before the first command."""
    in_head = True
    for number, line in enumerate(head_of(script).splitlines(), 1):
        in_head = in_head and (not line.strip() or line.startswith("#"))
        if line.startswith(_MARK) and line[len(_MARK) :][:1] in ("", " ", "\t"):
            if in_head:
                yield number, line[len(_MARK) :]
            else:
                note(f"{label}:{number}: {_MARK} stands after the first command and is not read.")
