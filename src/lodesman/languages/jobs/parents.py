"""Which jobs a job waits for, and what their failures do: `After` and `AfterOk`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.values import Mistake, whole

_MOST: Final = 1_000
_IDS = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?(:index)?\Z")
_ID = whole(1, 10**15)
_NAMES_PARENT: Final = ", which it waited for, is "


class ParentRange(NamedTuple):
    """Jobs that others wait for, first to last."""

    first: int
    last: int
    by_index: bool = False  # Each member of an array waits for its own one of them.


def read_parents(value: Any) -> tuple[str, ...]:
    """Job ids, ranges of them, and one range with `:index`."""
    return tuple(map(_parent, split_items(value, _MOST)))


def split_items(value: Any, most: int) -> list[Any] | tuple[Any, ...]:
    """The items of a list, of a text with commas, or one value alone. Raises Mistake for more than `most`."""
    if isinstance(value, str):
        value = [part for piece in value.split(",") if (part := piece.strip())]
    items = value if isinstance(value, (list, tuple)) else [value]
    if len(items) > most:
        raise Mistake(f"has {len(items)} items; at most {most}")
    return items


def _parent(item: Any) -> str:
    if not isinstance(item, str):
        return str(_ID(item))
    match = _IDS.match(item.strip())
    if match is None:
        raise Mistake(f"has {shown(item)!r}, which is neither a job id nor a range of them")
    if int(match[1]) > int(match[2] or match[1]) or not int(match[1]):
        raise Mistake(f"has {shown(item)!r}, a range that runs backwards or begins at 0")
    return item.strip()


def parent_ranges(texts: Iterable[str]) -> list[ParentRange]:
    """The numbers in what `read_parents` read; ranges that touch are one."""
    ranges: list[ParentRange] = []
    for first, last, by_index in sorted(map(_range, texts)):
        if ranges and first <= ranges[-1].last + 1 and not (by_index or ranges[-1].by_index):
            ranges[-1] = ParentRange(ranges[-1].first, max(ranges[-1].last, last))
        else:
            ranges.append(ParentRange(first, last, by_index))
    return ranges


def _range(text: str) -> ParentRange:
    match = _IDS.match(text)
    if match is None:
        raise ValueError(f"{text!r} was not read by `parents`")
    return ParentRange(int(match[1]), int(match[2] or match[1]), bool(match[3]))


def read_on_failure(value: Any) -> str:
    """What becomes of a job if a parent fails."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in ("hold", "cancel"):
        raise Mistake("is neither hold nor cancel")
    return word


def failed_parent(job_id: int, state: str, reason: str) -> str:
    """Why a job is held or killed whose parent did not end well."""
    return f"job {job_id}{_NAMES_PARENT}{state}{f': {reason}' if reason else ''}"


def names_failed_parent(reason: str) -> bool:
    """Whether `failed_parent` gave the reason."""
    return _NAMES_PARENT in reason
