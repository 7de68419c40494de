"""Options that are attributes of a job; they win over a description's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lodesman.base.errors import counted
from lodesman.user.cli.arguments import ParsedArgument

if TYPE_CHECKING:
    pass

Given = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])
_NUMBER = re.compile(r"[0-9.]+\Z")
_STEPS = re.compile(r"([0-9]{1,15})-([0-9]{1,15})(?::([0-9]{1,15}))?\Z")
_LONGEST = 1_000_000
_WHOLE = re.compile(r"-?[0-9]{1,18}\Z")
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


def _read_as(name: str, word: Any) -> Any:
    from lodesman.languages.jobs import by_name
    from lodesman.languages.jobs.values import Mistake

    attribute = by_name(name)
    assert attribute is not None  # noqa: S101 - the names stand below
    try:
        return attribute.read(word)
    except Mistake as wrong:
        raise ValueError(f"{name} {wrong}. Give {attribute.right}.") from None


def _time(name: str) -> Callable[[str], Given]:
    def read(word: str) -> Given:
        # A bare number is minutes for Slurm, and seconds for Grid Engine and in a description.
        if _NUMBER.match(word):
            raise ValueError(f"{word!r} has no unit: write {word}m, {word}h or {word}s.")
        return {name: _read_as(name, word)}

    return read


def _array(word: str) -> Given:
    """Indexes, and after a percent sign how many run at once."""
    word, percent, most = word.replace(" ", "").partition("%")
    return {**_indexes(word), **({"AtMost": _read_as("AtMost", most)} if percent else {})}


def _indexes(word: str) -> Given:
    """1-500, 0-90:10, or a list of these and of numbers."""
    match = _STEPS.match(word)
    if match:
        first, last, step = _steps(match)
        count = (last - first) // step + 1
        if count > _LONGEST:
            raise ValueError(
                f"{word} has {count:,} jobs; a submission has at most {_LONGEST:,}. Submit it in parts, such as "
                f"{first}-{first + step * (_LONGEST - 1)}{f':{step}' if step > 1 else ''}."
            )
        return {"Parameters": count, "ParameterStart": first, "ParameterStep": step}
    if _WHOLE.match(word):
        raise ValueError(
            f"{word} is one number: write 1-{word} for {counted(int(word), 'job')}, or {word}-{word} for one job with that "
            "index."
        )
    values: list[int] = []
    for part in word.split(","):
        match = _STEPS.match(part)
        if match:
            first, last, step = _steps(match)
            values.extend(range(first, min(last, first + step * _LONGEST) + 1, step))
        elif part.isdecimal() and len(part) < 16:
            values.append(int(part))
        else:
            raise ValueError(f"{part[:60]!r} is no range: write 1-500, 0-90:10 (every tenth) or 1,5,7-9.")
    if len(values) != len(set(values)):
        raise ValueError("an index is given twice.")
    return {"Parameters": values}


def _each_line(name: str) -> Given:
    """A member for each line that is not blank."""
    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise ValueError(
            f"{name} cannot be read: {getattr(fault, 'strerror', None) or 'it is no text'}."
        ) from None
    values = [line.strip() for line in lines if line.strip()]
    if not values:
        raise ValueError(f"{name} has no line.")
    return {"Parameters": values}


def _steps(match: re.Match[str]) -> tuple[int, int, int]:
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or not step:
        raise ValueError(f"{match[0]} has no member.")
    return first, last, step


def _setting(word: str) -> Given:
    """NAME=VALUE as in JDL, texts also without quotes."""
    from lodesman.base.errors import SyntaxFault
    from lodesman.languages.jobs import by_name
    from lodesman.languages.jobs.jdl import read_jdl_value

    name, equals, text = word.partition("=")
    name, text = name.strip(), text.strip()
    if not equals or not _ATTRIBUTE.match(name):
        raise ValueError(f"{word[:60]!r} is not NAME=VALUE, as in CPUTime=1h.")
    value: Any = text
    if text[:1] in tuple('{["') or _WHOLE.match(text) or text.lower() in ("true", "false"):
        try:
            value = read_jdl_value(text)[0]
        except SyntaxFault as wrong:
            raise ValueError(f"{name}: {wrong.message}") from None
    attribute = by_name(name)
    return {attribute.name if attribute else name: value}


def _variable(word: str) -> Given:
    """NAME=VALUE; NAME alone: that of this shell."""
    from lodesman.languages.jobs.attributes import AddedVariables

    name, equals, value = word.partition("=")
    if not equals and name not in os.environ:
        raise ValueError(f"{word[:60]!r} is not NAME=VALUE, and no variable of this shell.")
    value = value if equals else os.environ[name]
    return {"Environment": AddedVariables(_read_as("Environment", {name: value}))}


def _attribute(
    *names: str,
    read: Callable[[str], Given],
    metavar: str,
    help: str,  # noqa: A002  # as click calls it
    keep: Callable[[click.Context, click.Parameter, tuple[Given, ...]], None] | None = None,
) -> Callable[[F], F]:
    return click.option(
        *names, type=ParsedArgument(names[0], read), multiple=True, expose_value=False, callback=keep or _keep,
        metavar=metavar, help=help,
    )  # fmt: skip


def _keep(context: click.Context, _parameter: click.Parameter, values: tuple[Given, ...]) -> None:
    """Of a repeated option the last counts."""
    from lodesman.languages.jobs.attributes import overlay

    for value in values:
        context.params["attributes"] = overlay(context.params.get("attributes", {}), value)


def _keep_all(context: click.Context, parameter: click.Parameter, values: tuple[Given, ...]) -> None:
    """The values of a repeated option add up."""
    lists: dict[str, list[Any]] = {}
    for one in values:
        for name, value in one.items():
            lists.setdefault(name, []).extend(value)
    _keep(context, parameter, (lists,) if lists else ())


def _parents(name: str) -> Callable[[str], Given]:
    return lambda word: {name: list(_read_as(name, word))}


def _named(name: str) -> Callable[[str], Given]:
    return lambda word: {name: _read_as(name, word)}


_OPTIONS = (
    _attribute("--cores", read=_named("NumberOfProcessors"), metavar="N", help="Cores. [default: 1]"),
    _attribute("--memory", read=_named("Memory"), metavar="SIZE", help="Memory for all cores, as 4G; a number is in MB."),
    _attribute("--time", read=_time("WallTime"), metavar="TIME", help="Wall time at most: 90m, 2h, 1-12:00:00."),
    _attribute(
        "--cpu-time", read=_time("CPUTime"), metavar="TIME",
        help="CPU time at most, all cores together, on the reference machine. [default: 24h]",
    ),
    _attribute("--site", read=lambda word: {"Site": word}, metavar="NAMES", help="Sites, one of which must run it: A,B."),
    _attribute("--tag", read=lambda word: {"Tag": word}, metavar="NAMES", help="Tags that the queue must have: A,B."),
    _attribute("--job-group", read=_named("JobGroup"), metavar="NAME", help="The JobGroup, by which jobs are chosen."),
    _attribute("--name", read=lambda word: {"JobName": word}, metavar="TEXT", help="The name of the job."),
    _attribute(
        "--array", read=_array, metavar="RANGE",
        help="A job for each index, 1-500, 0-90:10, or 1-500%10 (at most 10 at once), as one submission; "
        "LODE_ARRAY_INDEX and %s are the index.",
    ),
    _attribute(
        "--each-line", read=_each_line, metavar="FILE",
        help="A job for each line of a file, as one submission; %s is the line.",
    ),
    _attribute("--at-most", read=_named("AtMost"), metavar="N", help="At most N jobs of the submission run at once."),
    _attribute(
        "--after", read=_parents("After"), metavar="JOB|RANGE", keep=_keep_all,
        help="Wait until these jobs have ended: 12 or 12,15-20; several times.",
    ),
    _attribute(
        "--after-ok", read=_parents("AfterOk"), metavar="JOB|RANGE", keep=_keep_all,
        help="Wait until these jobs are Done. 12-511:index: each member of an array for one of them.",
    ),
    _attribute(
        "--on-parent-failure", read=_named("OnParentFailure"), metavar="hold|cancel",
        help="What becomes of the job if one of --after-ok fails. [default: hold]",
    ),
    _attribute(
        "--env", read=_variable, metavar="NAME[=VALUE]",
        help="A variable of the job's environment, beside the description's; NAME alone: as it is here. Several times.",
    ),
    _attribute("--set", read=_setting, metavar="NAME=VALUE", help="Any attribute, as CPUTime=1h; several times."),
    click.option(
        "--keep", multiple=True, metavar="PATTERN",
        help="A file that the job writes and that is kept as its output; several times.",
    ),
    click.option(
        "--files", "taken", multiple=True, metavar="PATH",
        help="A file, folder or pattern ('*.txt') that the job takes along; several times.",
    ),
    click.option(
        "--no-files", "named_only", is_flag=True, help="Take along no file only because the command names it."
    ),
)  # fmt: skip


def attribute_options(command: F) -> F:
    """The options that stand for a description."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
