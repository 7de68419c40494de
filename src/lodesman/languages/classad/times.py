"""Times in ClassAds: moments with their zone's offset from UTC, and spans. The default zone is UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from lodesman.languages.classad.ads import Ad, Run, ad_of
from lodesman.languages.classad.values import ERROR, UNDEFINED, AbsTime, RelTime, Special, Value, number

_MOMENT: Final = re.compile(
    r"\s*+(\d{4})-?(\d\d)-?(\d\d)(?:[T ](\d\d):?(\d\d):?(\d\d))?\s*+(?:Z|([+-])(\d\d):?(\d\d))?\s*+", re.ASCII
)
_SPAN: Final = re.compile(
    r"\s*+(-)?(?:(\d{1,9})\+)?(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,12}(?:\.\d{1,9})?)s?\s*+", re.ASCII
)
_UNITS: Final = re.compile(
    r"\s*+(-)?(?=\d)(?:(\d{1,9})[dD])?(?:(\d{1,9})[hH])?(?:(\d{1,9})[mM])?(?:(\d{1,12}(?:\.\d{1,9})?)[sS])?\s*+",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_LETTERS: Final = 1_023
_FIELDS: Final = (("Year", 1970), ("Month", 1), ("Day", 1), ("Hours", 0), ("Minutes", 0), ("Seconds", 0))
# What would tell of the machine.
_ZONES: Final = re.compile(r"%[sZz]|%%")


def _date(seconds: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None


# --- conversions ----------------------------------------------------------------------------------------------


def _read_moment(text: str) -> Value:
    match = _MOMENT.fullmatch(text)
    if not match:
        return ERROR
    parts = [int(part or 0) for part in match.groups()[:6]]
    sign, hours, minutes = match.groups()[6:]
    ahead = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
    try:
        seconds = (datetime(*parts, tzinfo=UTC) - _EPOCH).total_seconds()  # type: ignore[arg-type,misc]  # six numbers
    except ValueError:
        return ERROR
    return AbsTime(int(seconds) - ahead, ahead)


def _read_span(text: str) -> Value:
    match = _SPAN.fullmatch(text) or _UNITS.fullmatch(text)
    if not match:
        return ERROR
    sign, *parts = match.groups()
    days, hours, minutes, seconds = [float(part or 0) for part in parts]
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return RelTime(-whole if sign else whole)


def _moment(run: Run, value: Value | None = None, ahead: Value | None = None) -> Value:
    if value is None:
        return AbsTime(int(run.now), 0)
    zone = 0
    if ahead is not None:
        offset = ahead.seconds if isinstance(ahead, RelTime) else ahead
        if isinstance(offset, (bool, str, tuple)) or not isinstance(offset, (int, float)):
            return ERROR
        zone = int(offset)
    if isinstance(value, (Special, AbsTime)):
        return value
    if isinstance(value, str) and ahead is None:
        run.spend(len(value))
        return _read_moment(value)
    seconds = value.seconds if isinstance(value, RelTime) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return ERROR
    return ERROR if number(int(seconds)) is ERROR else AbsTime(int(seconds), zone)


def _span(value: Value) -> Value:
    if isinstance(value, str):
        return _read_span(value)
    if isinstance(value, (Special, RelTime)):
        return value
    seconds = value.seconds if isinstance(value, AbsTime) else value
    return (
        ERROR
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float))
        else RelTime(float(seconds))
    )


# --- fields ---------------------------------------------------------------------------------------------------

_OF_MOMENTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "getyear": lambda date: date.year,
    "getmonth": lambda date: date.month,
    "getdayofyear": lambda date: date.timetuple().tm_yday - 1,
    "getdayofmonth": lambda date: date.day,
    "getdayofweek": lambda date: date.isoweekday() % 7,
    "gethours": lambda date: date.hour,
    "getminutes": lambda date: date.minute,
    "getseconds": lambda date: date.second,
}
"""As in UTC; days of the year and of the week begin with 0, which is a Sunday."""
_OF_SPANS: Final[Mapping[str, tuple[int, int]]] = {
    "getdays": (86_400, 1 << 62),
    "gethours": (3_600, 24),
    "getminutes": (60, 60),
    "getseconds": (1, 60),
}
"""Their seconds, and how many make the next larger one."""


def _field(name: str, value: Value) -> Value:
    if isinstance(value, AbsTime) and name in _OF_MOMENTS:
        date = _date(value.seconds)
        return ERROR if date is None else _OF_MOMENTS[name](date)
    if isinstance(value, RelTime) and name in _OF_SPANS:
        length, most = _OF_SPANS[name]
        amount = int(abs(value.seconds)) // length % most
        return -amount if value.seconds < 0 else amount
    return ERROR


def _split(value: Value) -> Value:
    if value is UNDEFINED:
        return UNDEFINED
    if isinstance(value, RelTime):
        return ad_of(_parts_of_span(value.seconds))
    dated = _find_date(value)
    if dated is None:
        return ERROR
    date, ahead = dated
    fields = zip((name for name, _ in _FIELDS), date.timetuple(), strict=False)
    return ad_of({"Type": "AbsoluteTime", **dict(fields), "Offset": ahead})


def _parts_of_span(seconds: float) -> dict[str, Value]:
    """Of a negative span the largest part that is not 0 is negative."""
    whole, rest = divmod(abs(seconds), 60)
    parts: dict[str, float] = {
        "Days": int(whole) // 1440, "Hours": int(whole) // 60 % 24, "Minutes": int(whole) % 60, "Seconds": float(rest),
    }  # fmt: skip
    if seconds < 0:
        name = next((unit for unit, part in parts.items() if part), "Seconds")
        parts[name] = -parts[name]
    return {"Type": "RelativeTime", **parts}


def _find_date(value: Value) -> tuple[datetime, int] | None:
    ahead = value.ahead if isinstance(value, AbsTime) else 0
    seconds = value.seconds if isinstance(value, AbsTime) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    date = _date(int(seconds) + ahead)
    return None if date is None else (date, ahead)


def _format(run: Run, value: Value | None = None, form: Value = "%c") -> Value:
    if not isinstance(form, str):
        return ERROR
    run.spend(len(form) * 8)
    if isinstance(value, Ad):
        date = _date_of(value)
    else:
        dated = _find_date(int(run.now) if value is None else value)
        date = dated and dated[0]
    if date is None:
        return ERROR
    zones = {"%s": str(int((date - _EPOCH).total_seconds())), "%Z": "UTC", "%z": "+0000", "%%": "%%"}
    try:
        text = date.strftime(_ZONES.sub(lambda mark: zones[mark[0]], form))
    except ValueError:
        return ERROR
    return text if len(text) <= _MOST_LETTERS else ERROR


def _date_of(ad: Ad) -> datetime | None:
    parts = [ad.constants.get(name.lower(), usual) for name, usual in _FIELDS]
    if any(type(number) is not int for number in parts):
        return None
    try:
        return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]  # six numbers
    except (ValueError, OverflowError):
        return None


TIME_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Value], int, int]]] = {
    "reltime": (_span, 1, 1),
    "splittime": (_split, 1, 1),
    "timezoneoffset": (lambda: RelTime(0.0), 0, 0),
    **{name: (partial(_field, name), 1, 1) for name in (*_OF_MOMENTS, *_OF_SPANS)},
}
"""By name in small letters: the function, its fewest and most arguments."""
CLOCK_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Value], int, int]]] = {
    "abstime": (_moment, 0, 2),
    "currenttime": (_moment, 0, 0),
    "daytime": (lambda run: RelTime(float(int(run.now) % 86_400)), 0, 0),
    "formattime": (_format, 0, 2),
}
"""The same; the run comes before the arguments."""
