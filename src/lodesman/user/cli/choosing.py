"""Jobs chosen by what they are, not by number: the options, and the ranges of ids of those that are meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

import click

from lodesman.base.errors import NotFound, TooLarge
from lodesman.user.access.selecting import join_ranges
from lodesman.user.cli.arguments import Range, filter_option, several, states_option, where_option
from lodesman.user.cli.session import Session
from lodesman.user.cli.words import STATES
from lodesman.wire.job_queries import Selection
from lodesman.wire.vocabulary import JobState

F = TypeVar("F", bound=Callable[..., Any])
CHOICES: Final = "--state, --name, --job-group, --class, --where, --submission"
_OPTIONS: Final = (
    states_option("Jobs in this state"),
    filter_option("--name", about="Jobs with this name; * and ? for any text or letter."),
    filter_option("--job-group", about="Jobs with this JobGroup; * and ? as in a name."),
    filter_option("--class", "job_class", about="Jobs of this class, or CLASS.VARIANT; * and ?."),
    where_option("Jobs with this attribute"),
    several(
        "--submission", "submissions", type=click.IntRange(1), metavar="N", help="Jobs of this submission"
    ),
    filter_option("--owner", about="Jobs of this user (administrators)."),
)
_NAMES: Final = ("states", "name", "job_group", "job_class", "where", "submissions", "owner")
_ALL: Final = 1_000_000_000
_MOST_RANGES: Final = 1_000


def choice_options(command: F) -> F:
    """The options that choose jobs."""
    return reduce(lambda made, option: option(made), reversed(_OPTIONS), command)


def taken_choice(options: dict[str, Any]) -> Selection | None:
    """What these options choose, which are taken out; None if only numbers count."""
    given = {name: options.pop(name) for name in _NAMES}
    found = Selection(
        [JobState(one) for one in given["states"]], given["name"], list(given["submissions"]), given["owner"],
        given["job_group"], given["job_class"], list(given["where"]),
    )  # fmt: skip
    return None if found == Selection() else found


def chosen(
    session: Session, ranges: tuple[Range, ...], choice: Selection | None, states: Iterable[JobState] = ()
) -> tuple[Range, ...]:
    """The ids of the jobs in these ranges (none: of one's own) that are chosen, as ranges; `states`: of which,
    if the choice names none. Without a choice the ranges themselves. Raises UsageError for neither, NotFound if no job is
    chosen.
    """
    if choice is None:
        if not ranges:
            raise click.UsageError(f"Name jobs, or choose them by {CHOICES}.", click.get_current_context())
        return ranges
    # The module of a list is needed for a choice only.
    from lodesman.user.cli.status import Question, fetch

    among = tuple(choice.states or states or (JobState(one) for one in STATES if one != JobState.DELETED))
    found: list[Range] = []
    numbers: Sequence[int | None] = choice.submissions or (None,)
    for number in numbers:
        asked = Question(
            ranges=ranges, states=among, name=choice.name, owner=choice.owner, submission=number, limit=_ALL,
            job_group=choice.job_group, job_class=choice.job_class, where=tuple(choice.where),
            everyone=number is not None and not choice.owner,
        )  # fmt: skip
        for job in fetch(session, asked):
            _add(found, job.id)
    return _checked(found, choice)


def _add(found: list[Range], number: int) -> None:
    """Lists ascend or descend: a job mostly follows the one before it."""
    if found and found[-1].first - 1 <= number <= found[-1].last + 1:
        found[-1] = Range(min(found[-1].first, number), max(found[-1].last, number))
    else:
        found.append(Range(number, number))


def _checked(found: Sequence[Range], choice: Selection) -> tuple[Range, ...]:
    if not found:
        who = f"{choice.owner} has" if choice.owner else "You have"
        hint = "See: lode status --jobs, with the same options." + (
            "" if choice.owner or choice.submissions else " Jobs of other users: --owner NAME."
        )
        raise NotFound(f"{who} no such job.", hint=hint)
    merged = join_ranges(found, beside=True)
    if len(merged) > _MOST_RANGES:
        raise TooLarge(
            f"The chosen jobs are in {len(merged):,} separate ranges of ids; the maximum number is {_MOST_RANGES:,}.",
            hint="Choose fewer at once, as with --submission N.",
        )
    return tuple(merged)
