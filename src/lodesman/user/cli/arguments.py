"""Arguments as people write them: jobs, how long, when."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from lodesman.base.errors import InvalidRequest, LodesmanError
from lodesman.user.access.selecting import ELSEWHERE
from lodesman.user.access.selecting import Range as Range  # noqa: PLC0414 - arguments are made of them
from lodesman.user.access.selecting import duration_of as duration_of  # noqa: PLC0414
from lodesman.user.access.selecting import parse_ranges as parse_ranges  # noqa: PLC0414
from lodesman.user.access.selecting import total as total  # noqa: PLC0414
from lodesman.user.cli.words import STATES

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
# The server lists at most 10,000 rows, and one more is asked for.
MOST_LISTED = 9_999
_NODE_NAMES = ("site", "ce", "queue")


def filter_option(*names: str, about: str, metavar: str = "NAME") -> Callable[[F], F]:
    """An option whose text all that is listed must have."""
    return click.option(*names, default="", callback=_refuse_empty, metavar=metavar, help=about)


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """An empty text, as of a variable that is not set, would choose all."""
    is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if is_given and not value.strip():
        raise click.BadParameter("It is empty, and would choose all. Leave it out, or say which.")
    return value


class ParsedArgument(click.ParamType[T, Any]):
    """An argument that a function reads; its ValueError is wrong usage."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Read a text; a value stays as it is."""
        if not isinstance(value, str):
            return cast("T", value)
        try:
            return self._read(value)
        except (LodesmanError, ValueError) as fault:
            self.fail(str(fault), param, ctx)


class StateWords(click.Choice[str]):
    """States of jobs, with commas between."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises BadParameter, for a state of DIRAC with the one here."""
        return tuple(self._state(word.strip(), param, ctx) for word in value.split(","))

    def _state(self, word: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = word.capitalize()
        if name in ELSEWHERE:
            self.fail(f"{name} is a state of DIRAC, not of this program: {ELSEWHERE[name]}.", param, ctx)
        return super().convert(word, param, ctx)


def read_job(word: str) -> int:
    """Raises ValueError for what is not one job."""
    with suppress(LodesmanError, ValueError):
        (span,) = parse_ranges([word])
        if span.size == 1:
            return span.first
    raise ValueError(f"{word[:60]!r} is not one job; write its number.")


JOB = ParsedArgument("job", read_job)
DURATION = ParsedArgument("time", duration_of)
JOB_RANGES = ParsedArgument("job", lambda word: parse_ranges([word]))
PILOT_RANGES = ParsedArgument("pilot", lambda word: parse_ranges([word], what="pilot"))
_STATES = StateWords(STATES, case_sensitive=False)
FILE = click.Path(path_type=Path)
DIRECTORY = click.Path(path_type=Path, file_okay=False)


def several(*names: str, help: str, **more: Any) -> Callable[[F], F]:  # noqa: A002  # as click calls it
    """An option that may be given several times."""
    return click.option(*names, multiple=True, help=f"{help}; may be given several times.", **more)


def where_option(meaning: str) -> Callable[[F], F]:
    """`--where NAME=VALUE`."""
    return several("--where", metavar="NAME=VALUE", help=f"{meaning}, as CPUTime=1h or Tag=GPU")


utc_option = click.option("--utc", is_flag=True, help="Times of the clock in UTC instead of local time.")


def states_option(meaning: str) -> Callable[[F], F]:
    """`--state`: given several times, or with commas between."""
    return click.option(
        "--state", "states", type=_STATES, multiple=True, metavar="STATE",
        callback=lambda _context, _option, words: tuple(chain.from_iterable(words)),
        help=f"{meaning}; A,B for several.",
    )  # fmt: skip


def number_option(
    name: str, kind: click.ParamType[Any, Any], default: float, meaning: str
) -> Callable[[F], F]:
    """An option with a number in a range."""
    return click.option(name, type=kind, default=default, show_default=True, help=meaning)


def limit_option(
    default: int, most: int = MOST_LISTED, of: str = "rows", *, least: int = 1
) -> Callable[[F], F]:
    """`--limit`."""
    return number_option("--limit", click.IntRange(least, most), default, f"Maximum number of {of}.")


def merge_ranges(words: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """Ascending. Raises InvalidRequest for too many."""
    return parse_ranges(str(part) for word in words for part in word)


def node_names(names: tuple[str, ...], most: int = 3) -> dict[str, str]:
    """A site, CE or queue: one word is a path, several are names. Raises InvalidRequest."""
    if len(names) > most:
        words = f"{len(names)} names are given; the maximum number is {most}"
        raise click.UsageError(words, click.get_current_context())
    if not all(names):
        raise InvalidRequest("A name is empty.")
    return {"path": names[0]} if len(names) == 1 else dict(zip(_NODE_NAMES, names, strict=False))


_DAYS: Final = {"today": 0, "yesterday": 1}
_COMING_DAYS: Final = {"today": 0, "tomorrow": -1}
_COMING_FORMS: Final = '+2h30m, 08:00, tomorrow, "2026-12-01 08:00" or with a zone "2026-12-01 08:00+01:00"'
_CLOCK: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_FORMS: Final = '2h30m or 7d (ago), now, today, yesterday, 08:00, 2026-12-01 or "2026-12-01 08:00"'


def coming_moment(word: str) -> float:
    """UNIX seconds of a moment, or of a time from now (+2h); of a clock time the next. Raises ValueError."""
    text = " ".join(word.lower().split())
    if text.startswith("+"):
        return time.time() + duration_of(text[1:].strip())
    with suppress(ValueError, OverflowError):
        return _by_clock(text, utc=False, days=_COMING_DAYS)
    raise ValueError(f"{word[:60]!r} is not a moment; write {_COMING_FORMS}.")


def past_moment(word: str, *, utc: bool = False) -> float:
    """UNIX seconds of a moment, or of a time ago. `utc`: without a zone it is of UTC. Raises ValueError."""
    text = " ".join(word.lower().split())
    if not text.isdigit():
        with suppress(ValueError):
            return time.time() - duration_of(text)
    with suppress(ValueError, OverflowError):
        return _by_clock(text, utc=utc)
    raise ValueError(f"{word[:60]!r} is no time; write {_FORMS}.")


def _by_clock(text: str, *, utc: bool, days: Mapping[str, int] = _DAYS) -> float:
    """`days`: how long ago some words were."""
    zone = UTC if utc else None
    now = datetime.fromtimestamp(time.time(), zone)
    is_clock = _CLOCK.fullmatch(text) is not None
    day, _, clock = ("", "", text) if is_clock else text.partition(" ")
    if text == "now":
        return now.timestamp()
    if not is_clock and day not in days:
        at = datetime.fromisoformat(text.upper())
        return at.replace(tzinfo=at.tzinfo or zone).timestamp()
    at = datetime.combine(now.date() - timedelta(days.get(day, 0)), _time_of(clock), zone)
    # A clock shows each time every day: the last one that was, or the next one.
    if not day and days is _COMING_DAYS:
        return (at if at > now else at + timedelta(1)).timestamp()
    return (at if day or at <= now else at - timedelta(1)).timestamp()


def _time_of(clock: str) -> clock_time:
    return clock_time.fromisoformat(f"0{clock}" if clock[1:2] == ":" else clock or "00:00")


COMING: Final = ParsedArgument("moment", coming_moment)
PAST: Final = ParsedArgument("time", past_moment)
PAST_UTC: Final = ParsedArgument("time", partial(past_moment, utc=True))
