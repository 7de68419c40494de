"""The words of `lode submit`: descriptions, a command, a script with options, a class."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.user.cli.tables import note
from lodesman.user.cli.taken_files import scratch_folder

if TYPE_CHECKING:
    from lodesman.languages.jobs import Record


STDIN = "-"
_PIPED_NAME = "script"
_MARK = "#LODE"


class JobCommand(click.Command):
    """About descriptions, or a `command`: a program, or the `script` and its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options stand before the command or script; they win over `#LODE` lines."""
        if ctx.resilient_parsing:  # for a completion: words are still missing
            return super().parse_args(ctx, args)
        at = args.index("--") if "--" in args else len(args)
        own, command = args[:at], args[at + 1 :]
        files = self._positionals(ctx, own)
        piped = files[:1] == [STDIN] and _begins_script(sys.stdin.buffer)
        if piped:
            files[0] = _keep_piped(sys.stdin.buffer)
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
            _add_options(ctx, self._of_script(ctx, script, label))
            add_translation(ctx, script, label)
        return rest

    def _positionals(self, ctx: click.Context, words: list[str]) -> list[str]:
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        files = parser.parse_args(list(words))[0].get("files")
        return list(files) if isinstance(files, tuple) else []

    def _of_script(self, ctx: click.Context, script: str, label: str) -> dict[str, Any]:
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
        context = click.Context(self, info_name=ctx.info_name, parent=ctx.parent)
        super().parse_args(context, list(words))
        return context.params

    def _warn_of_options(self, ctx: click.Context, command: list[str]) -> None:
        """What follows a script is the script's, as with sbatch."""
        names = {
            name
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            for name in option.opts
        }
        meant = [word for word in command[1:] if word.partition("=")[0] in names]
        if meant:
            note(
                f"{' '.join(meant)} stands after {command[0]} and goes to it; options of lode stand before it."
            )


def _add_options(ctx: click.Context, others: dict[str, Any]) -> None:
    """Repeatable ones add up; of others the context's own count."""
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
    """Begins with `#!`, has lines of a batch system, or is executable and no description."""
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
    """'' if they name a description."""
    path, words, fault = Path(files[0]), shlex.join(files), f"There is no file {files[0]}."
    if files[0] == STDIN:
        return ""
    if path.exists():
        if not path.is_file() or _is_description(path.read_bytes()[:HEAD_BYTES]):
            return ""
        fault = f"{files[0]} is no description, and no script, since it does not begin with #!."
        words = f"{'python3' if path.suffix == '.py' else 'sh'} {words}"
    return f"{fault} A command stands after two dashes: lode submit -- {words}."


def _begins_script(stream: Any) -> bool:
    """False for a file of HTCondor; nothing is read."""
    if stream.isatty() or (head := stream.peek(2))[:2] != b"#!":
        return False
    return not foreign_file(head)


def _keep_piped(stream: Any) -> str:
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
    in_head = True
    for number, line in enumerate(head_of(script).splitlines(), 1):
        in_head = in_head and (not line.strip() or line.startswith("#"))
        if line.startswith(_MARK) and line[len(_MARK) :][:1] in ("", " ", "\t"):
            if in_head:
                yield number, line[len(_MARK) :]
            else:
                note(f"{label}:{number}: {_MARK} stands after the first command and is not read.")


HEAD_BYTES, _MORE_BYTES = 256 << 10, 32 << 20
_READ_ANYWHERE = re.compile(rb"^#(?:\$\s*-|BSUB\s)", re.MULTILINE)
_GO_ON = "Or go on without it: --ignore-foreign."


def head_of(path: str) -> str:
    """'' if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def has_lines(text: str) -> bool:
    """Lines of a batch system."""
    if "#" not in text:
        return False
    from lodesman.languages.directives.scripts import translate_script

    return translate_script(text, "script", {}) is not None


def _lines_behind(path: str) -> list[int]:
    try:
        with Path(path).open("rb") as file:
            head, more = file.read(HEAD_BYTES), file.read(_MORE_BYTES)
    except (OSError, ValueError):
        return []
    match = _READ_ANYWHERE.search(more)
    return [(head + more[: match.start()]).count(b"\n") + 1] if match else []


def _is_folder(path: str) -> bool:
    """Variables are read as the batch systems do."""
    try:
        return Path(os.path.expandvars(path)).is_dir()
    except (OSError, ValueError):
        return False


def add_translation(ctx: click.Context, script: str, label: str) -> None:
    """What lines of batch systems ask for, after the options; says it."""
    from lodesman.languages.directives.scripts import translate_script, unread_lines

    text, params = head_of(script).removeprefix("\ufeff"), ctx.params
    attributes = params.get("attributes") or {}
    translation = translate_script(
        text, PurePosixPath(script).name, attributes, job_class=params["job_class"], is_folder=_is_folder
    )
    for number in unread_lines(text):
        note(f"{label}:{number}: this line stands after the first command, where no batch system reads it.")
    for number in _lines_behind(script):
        note(
            f"{label}:{number}: this line and those behind it are not read: they are behind the first {HEAD_BYTES >> 10} KB."
        )
    if translation is None:
        return
    refused = [
        InvalidRequest(
            f"{refusal.option.words} {refusal.reason}",
            hint=f"{refusal.hint} {_GO_ON}".strip(),
            line=refusal.option.line,
            column=1,
        )
        for refusal in translation.refusals
    ]
    if refused and params["ignore_foreign"]:
        for refusal in translation.refusals:
            note(f"{label}:{refusal.option.line}: ignored: {refusal.option.words} {refusal.reason}")
    if not refused or params["ignore_foreign"]:
        for remark in translation.notes:
            note(f"{label}: {remark}")
    params |= {
        "attributes": dict(translation.attributes), "hold": params["hold"] or translation.hold,
        "interpreter": translation.interpreter, "literal": translation.literal,
        "job_class": params["job_class"] or translation.job_class,
        "refused": () if params["ignore_foreign"] else tuple(refused),
    }  # fmt: skip


def with_interpreter(record: Record, *, interpreter: str, literal: bool) -> Record:
    """`literal`: percent signs stand for themselves."""
    from lodesman.languages.directives.variables import escape_percents

    if interpreter:
        words: Any = record.get("Arguments", [])
        record = {**record, "Executable": interpreter, "Arguments": [record["Executable"], *words]}
    return dict(escape_percents(record)) if literal else record


def note_unread(command: Sequence[str]) -> None:
    """The lines of a script behind `--` are not read."""
    for word in command[:2]:
        if Path(word).is_file() and has_lines(head_of(word)):
            note(f"{word} stands after --, so its lines of batch systems are not read: lode submit {word}.")


def foreign_file(data: bytes) -> LodesmanError | None:
    """What to say of a file of HTCondor."""
    from lodesman.languages.jobs.foreign import fault_of_file

    return fault_of_file(data[:HEAD_BYTES].decode("utf-8", "replace"))
