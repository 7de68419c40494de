"""Functions of ClassAds for pools' policies: names of users and slots, rounded requests, times, chance."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from lodesman.languages.classad.ads import Run
from lodesman.languages.classad.texts import plain_number
from lodesman.languages.classad.values import ERROR, UNDEFINED, Value, number

_TO_DRAW: Final = 30
"""Steps."""
_NOTHING: Final = 1e-8
"""A step of at most this size rounds nothing."""


def _split_name(alone: int, name: Value) -> Value:
    """The parts around the first @; without it `alone` says which part the name is."""
    if not isinstance(name, str):
        return ERROR
    first, mark, second = name.partition("@")
    return (first, second) if mark or not alone else (second, first)


def _user_map(table: Value, user: Value, _: Value = UNDEFINED, default: Value = UNDEFINED) -> Value:
    """There are no maps here, as in a pool without any."""
    return ERROR if ERROR in (table, user) else default


def _quantize(value: Value, steps: Value) -> Value:
    amount = plain_number(value)
    if not isinstance(amount, (int, float)):
        return ERROR
    if isinstance(steps, tuple):
        last: Value = 0.0
        for last in steps:
            size = plain_number(last)
            if not isinstance(size, (int, float)):
                return ERROR
            if float(size) >= float(amount):
                return last
        steps = last
    size = plain_number(steps)
    if not isinstance(size, (int, float)):
        return ERROR
    if type(steps) is int and type(value) is int:
        return number(_up(value, steps)) if steps else value
    if abs(size) <= _NOTHING:
        return value
    try:
        share = amount / size
        return number(math.copysign(float(math.ceil(share)), share) * size)
    except OverflowError:
        return ERROR


def _up(value: int, step: int) -> int:
    raised = value + step - 1
    return abs(raised) // abs(step) * (1 if (raised < 0) == (step < 0) else -1) * step


def _interval(value: Value) -> Value:
    """Seconds as days+hours:minutes:seconds, from the first that is not 0."""
    seconds_value = plain_number(value)
    if not isinstance(seconds_value, (int, float)) or number(int(seconds_value)) is ERROR:
        return ERROR
    whole = int(seconds_value)
    minutes, seconds = divmod(abs(whole), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if whole < 0 else ""
    if days:
        return f"{sign}{days}+{hours:02}:{minutes:02}:{seconds:02}"
    if hours:
        return f"{sign}{hours}:{minutes:02}:{seconds:02}"
    return f"{sign}{minutes}:{seconds:02}" if minutes else f"{sign}{seconds}"


def _random(run: Run, most: Value = 1.0) -> Value:
    """Below `most`; the same at the same moment of the same evaluation."""
    run.spend(_TO_DRAW)
    draw = random.Random(f"{run.now}:{run.steps}")
    if isinstance(most, bool) or not isinstance(most, (int, float)) or most <= 0:
        return ERROR
    return draw.randrange(most) if isinstance(most, int) else draw.random() * most


POLICY_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Value], int, int]]] = {
    "splitusername": (partial(_split_name, 0), 1, 1),
    "splitslotname": (partial(_split_name, 1), 1, 1),
    "usermap": (_user_map, 2, 4),
    "quantize": (_quantize, 2, 2),
    "interval": (_interval, 1, 1),
}
"""By name in small letters: the function, its fewest and most arguments."""
RANDOM: Final = _random
