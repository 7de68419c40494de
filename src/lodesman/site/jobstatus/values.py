"""The nine keys that a job publishes: from bytes of files and back. Pure.

Lenient readers repair and flag what has one sensible reading; strict ones refuse it. What has none both refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Union

KEYS = (
    "used_CPU",
    "last_job_start",
    "first_exp_job_end",
    "last_exp_job_end",
    "last_max_job_end",
    "add_uncom_time",
    "add_final_exp_waste",
    "can_postpone_last_job",
    "priority_factor",
)
"""Names of files (requirements 3.1 to 3.9 of the seed), in its order."""

LONGEST = 64
"""Bytes of a file at most."""
SKEW_SECONDS = 5
"""How far last_job_start may be ahead of the reader's clock."""
DOUBTFUL_SKEW_SECONDS = 300
"""How far ahead lenient readers bear, with a flag."""

_POSTPONE = "can_postpone_last_job"
_MAY_BE_NEGATIVE = ("add_uncom_time", "add_final_exp_waste")
_WHOLE = re.compile(rb"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(rb"([+-]?[0-9]{1,18})\.([0-9]*)")
_TRUTHS = {b"True": True, b"False": False}
_LENIENT_TRUTHS = {b"1": True, b"true": True, b"0": False, b"false": False}

Value = Union[bool, int]
Flags = tuple[str, ...]


class InvalidStatus(ValueError):
    """A status without a sensible reading. `key`: the file at fault.

    `reason`: no-status, too-long, not-a-number, not-true-or-false, negative, start-in-future; of strict readers also float,
    spelling, used-above-allocated, ends-out-of-order.
    """

    def __init__(self, reason: str, key: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.reason = reason
        self.key = key


@dataclass(frozen=True)
class Status:
    """What one job publishes, in the order of KEYS. None: not published, which is never zero."""

    used_cpu: int | None = None  # cores that payloads use
    last_job_start: int | None = None  # last start or commit, UNIX seconds
    first_exp_job_end: int | None = None  # earliest expected end, UNIX seconds
    last_exp_job_end: int | None = None  # latest expected end, UNIX seconds
    last_max_job_end: int | None = None  # latest enforced end, UNIX seconds
    add_uncom_time: int | None = None  # core-seconds of the allocation (decision 6)
    add_final_exp_waste: int | None = None  # core-seconds of the allocation
    can_postpone_last_job: bool | None = None  # payloads may still start
    priority_factor: int | None = None

    def items(self) -> dict[str, Value | None]:
        """By the names of their files."""
        return {key: getattr(self, field.name) for key, field in zip(KEYS, fields(self))}

    @staticmethod
    def of(values: Mapping[str, Value]) -> Status:
        """By names of files; others are ignored."""
        members = {field.name: values[key] for key, field in zip(KEYS, fields(Status)) if key in values}
        return Status(**members)  # type: ignore[arg-type]


@dataclass(frozen=True)
class KeyValue:
    """The value of one file. `flag`: what a lenient reader took, as `what:KEY`."""

    value: Value
    flag: str | None = None


def parse(key: str, data: bytes, *, strict: bool = False) -> KeyValue:
    """The value in the bytes of this file, without ASCII white space at its ends.

    A decimal point is rounded down (`float`), other spellings of truths (`spelling`) and negative core-seconds (`negative`)
    are taken; strict readers refuse all three. Raises InvalidStatus.
    """
    if len(data) > LONGEST:
        raise InvalidStatus("too-long", key)
    value, flag = _truth(data.strip()) if key == _POSTPONE else _number(key, data.strip())
    if flag and strict:
        raise InvalidStatus(flag, key)
    return KeyValue(value, flag and f"{flag}:{key}")


def _truth(text: bytes) -> tuple[bool, str | None]:
    if text in _TRUTHS:
        return _TRUTHS[text], None
    if text in _LENIENT_TRUTHS:
        return _LENIENT_TRUTHS[text], "spelling"
    raise InvalidStatus("not-true-or-false", _POSTPONE)


def _number(key: str, text: bytes) -> tuple[int, str | None]:
    decimal = _DECIMAL.fullmatch(text)
    if not decimal and not _WHOLE.fullmatch(text):
        raise InvalidStatus("not-a-number", key)
    number = int(decimal[1] if decimal else text)
    if decimal and text.startswith(b"-") and decimal[2].strip(b"0"):
        number -= 1
    if number < 0 and key != "priority_factor":
        if key not in _MAY_BE_NEGATIVE:
            raise InvalidStatus("negative", key)
        return number, "negative"
    return number, "float" if decimal else None


def read(files: Mapping[str, bytes], *, strict: bool = False) -> tuple[Status, Flags]:
    """From files by name, with flags. Raises InvalidStatus."""
    parsed = {key: parse(key, files[key], strict=strict) for key in KEYS if key in files}
    flags = tuple(sorted(value.flag for value in parsed.values() if value.flag))
    return Status.of({key: value.value for key, value in parsed.items()}), flags


def render(key: str, value: Value) -> bytes:
    """Raises ValueError for a value that no reader would take."""
    data = b"%s\n" % str(value if key == _POSTPONE else int(value)).encode()
    if parse(key, data, strict=True).value != value:
        raise ValueError(f"{key}: {value!r} is not a value of this key")
    return data


def repair(
    status: Status, *, now: float, allocated: int | None, strict: bool = False
) -> tuple[Status, Flags]:
    """What a reader goes by, and flags.

    Ends are put in order, used cores are at most those allocated, 3.8 is True and 3.9 is 0 if not published, a start up to
    300 s in the future is taken (`skew`). Raises InvalidStatus; strict for each.
    """
    if status.used_cpu is None:
        raise InvalidStatus("no-status", "used_CPU")
    flags = []
    ahead = 0 if status.last_job_start is None else status.last_job_start - now
    if ahead > (SKEW_SECONDS if strict else DOUBTFUL_SKEW_SECONDS):
        raise InvalidStatus("start-in-future", "last_job_start")
    if ahead > SKEW_SECONDS:
        flags.append("skew")
    if allocated is not None and status.used_cpu > allocated:
        status = replace(status, used_cpu=allocated)
        flags.append("used-above-allocated")
    ordered = _in_order(status)
    if ordered != status:
        flags.append("ends-out-of-order")
    if strict and flags:
        raise InvalidStatus(flags[0], "used_CPU" if flags[0].startswith("used") else "last_exp_job_end")
    postpone, priority = ordered.can_postpone_last_job, ordered.priority_factor
    whole = replace(ordered, can_postpone_last_job=postpone is not False, priority_factor=priority or 0)
    return whole, tuple(sorted(flags))


def _in_order(status: Status) -> Status:
    """The first end no later than the last, the enforced one no earlier than either."""
    first, last, enforced = status.first_exp_job_end, status.last_exp_job_end, status.last_max_job_end
    if first is not None and last is not None:
        first = min(first, last)
    latest = first if last is None else last
    if enforced is not None and latest is not None:
        enforced = max(enforced, latest)
    return replace(status, first_exp_job_end=first, last_max_job_end=enforced)
