"""The sequences of a parametric description and the value of member k, without expanding them.

DIRAC's rule is v(0) = start, v(k+1) = v(k) * factor + step. Whole numbers follow it exactly, in closed form
(factor other than 1, 0 and -1 leaves 64 bits within some 130 members, so powers stay small). With fractions
the closed form is evaluated in decimal with 50 digits and rounded once, where the original adds up binary
rounding errors: the third of 0.1, 0.2, ... is 0.3 here. Either way member k costs O(1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from lodesman.jobs.faults import PositionMap, invalid
from lodesman.jobs.parsed import INT_MAX, INT_MIN, shown
from lodesman.jobs.spec import NamedSequence, ParametricMembers
from lodesman.jobs.values import Mistake, kind_of, whole

MAX_MEMBERS = 1_000_000
MAX_NAMED = 100
_LABEL = re.compile(r"[a-z0-9_.-]*\Z")
_LARGEST = 1e100
_STEPS = 200
_DECIMAL = Context(prec=50, traps=[])
_COUNT = whole(1, MAX_MEMBERS)
_COUNT_RIGHT = f"a whole number from 1 to {MAX_MEMBERS}, or a list with one value for each member"
_PARTS = {"parameterstart": "start", "parameterstep": "step", "parameterfactor": "factor"}

Given = Mapping[str, tuple[str, Any]]


def read_members(parameters: Given, places: PositionMap) -> ParametricMembers:
    """Read what starts with `Parameter` (lower-case name -> spelling, value). Raises InvalidJob."""
    if len(parameters) > 4 * MAX_NAMED:
        name = next(iter(parameters.values()))[0]
        mistake = Mistake(f"is one of {len(parameters)} attributes of parameters")
        raise invalid(name, mistake, places, right=f"at most {MAX_NAMED} sequences")
    labels = dict.fromkeys(_label(lower, name, places) for lower, (name, _value) in parameters.items())
    parts = {label: _read_parts(label, parameters, places) for label in labels}
    count = _common_count(parameters, places)
    names = {label: _spelling(label, parameters) for label in labels}
    for label, sequence in parts.items():
        _check_range(names[label], sequence, count, places)
    unnamed = parts.pop("", None) or NamedSequence()
    return ParametricMembers(
        count=count,
        start=unnamed.start,
        step=unnamed.step,
        factor=unnamed.factor,
        values=unnamed.values,
        named={names[label]: sequence for label, sequence in parts.items()},
        unnamed="parameters" in parameters,
    )


def value_at(sequence: NamedSequence | ParametricMembers, index: int) -> Any:
    """The value of member `index` (from 0): a text, number or truth value."""
    if sequence.values is not None:
        return sequence.values[index]
    start, step, factor = sequence.start, sequence.step, sequence.factor
    if isinstance(start, int) and isinstance(step, int) and isinstance(factor, int):
        return _whole_at(start, step, factor, index)
    return start if index == 0 else _fraction_at(start, step, factor, index)


def _whole_at(start: int, step: int, factor: int, index: int) -> int:
    if factor == 1:
        return start + index * step
    if start * factor + step == start:
        return start
    power: int = factor**index
    return start * power + step * (power - 1) // (factor - 1)


def _fraction_at(start: float, step: float, factor: float, index: int) -> float:
    first, add, times = (Decimal(repr(part)) for part in (start, step, factor))
    context = _DECIMAL
    if times == 1:
        return float(context.add(first, context.multiply(add, Decimal(index))))
    power = context.power(times, index)
    steps = context.divide(context.subtract(power, Decimal(1)), context.subtract(times, Decimal(1)))
    return float(context.add(context.multiply(first, power), context.multiply(add, steps)))


def _label(lower: str, name: str, places: PositionMap) -> str:
    label = lower.partition(".")[2]
    if lower.endswith(".") or not _LABEL.match(label):
        mistake = Mistake("names a sequence that no placeholder can name")
        raise invalid(name, mistake, places, right="a name of letters, digits, '_', '-' and '.'")
    return label


def _spelling(label: str, parameters: Given) -> str:
    for base in ("parameters", *_PARTS):
        if f"{base}.{label}" in parameters:
            return parameters[f"{base}.{label}"][0].partition(".")[2]
    return label


def _named(base: str, label: str) -> str:
    return f"{base}.{label}" if label else base


def _read_parts(label: str, parameters: Given, places: PositionMap) -> NamedSequence:
    name, value = parameters.get(_named("parameters", label), ("", None))
    found = {part: parameters[_named(base, label)] for base, part in _PARTS.items()
             if _named(base, label) in parameters}  # fmt: skip
    if isinstance(value, list):
        for other, _value in found.values():
            mistake = Mistake(f"stands beside the values that {shown(name)} lists")
            raise invalid(other, mistake, places, right="either a list or start, step and factor")
        return NamedSequence(values=_listed(name, value, places))
    if not name and not label:
        first = next(iter(found.values()))[0]
        raise invalid(
            first, Mistake("stands without Parameters"), places, right="Parameters = the number of jobs"
        )
    numbers: dict[str, Any] = {part: _number(*given, places) for part, given in found.items()}
    return NamedSequence(**numbers)


def _listed(name: str, values: list[Any], places: PositionMap) -> tuple[Any, ...]:
    if not values:
        raise invalid(name, Mistake("is an empty list"), places, right=_COUNT_RIGHT)
    wrong = next((index for index, value in enumerate(values) if not _is_scalar(value)), None)
    if wrong is not None:
        mistake = Mistake(f"has {kind_of(values[wrong])} as value {wrong}, which stands for nothing")
        raise invalid(name, mistake, places, right="texts, finite numbers of 64 bits or truth values")
    return tuple(values)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, int):
        return INT_MIN <= value <= INT_MAX
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _number(name: str, value: Any, places: PositionMap) -> int | float:
    number = value
    if isinstance(value, str):
        try:
            number = (
                int(value) if value.strip().lstrip("+-").isdecimal() and len(value) < 20 else float(value)
            )
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise invalid(name, Mistake(f"is {kind_of(value)} and no number"), places, right="a number")
    if not (INT_MIN <= number <= INT_MAX if isinstance(number, int) else abs(number) <= _LARGEST):
        mistake = Mistake("is too large")
        raise invalid(name, mistake, places, right="a whole number of 64 bits, or a fraction up to 1e100")
    return number


def _common_count(parameters: Given, places: PositionMap) -> int:
    counts: dict[str, int] = {}
    for lower, (name, value) in parameters.items():
        if lower.partition(".")[0] != "parameters":
            continue
        try:
            counts[name] = _COUNT(len(value) if isinstance(value, list) else value)
        except Mistake as mistake:
            raise invalid(name, mistake, places, right=_COUNT_RIGHT) from None
        first = next(iter(counts))
        if counts[name] != counts[first]:
            message = f"has {counts[name]} values, but {shown(first)} has {counts[first]}"
            raise invalid(name, Mistake(message), places, right="sequences of one length")
    if not counts:
        name = next(iter(parameters.values()))[0]
        raise invalid(
            name, Mistake("stands without Parameters"), places, right="Parameters = the number of jobs"
        )
    return next(iter(counts.values()))


def _check_range(name: str, sequence: NamedSequence, count: int, places: PositionMap) -> None:
    """Every member must have a 64-bit or finite value; listed ones are checked where they are used."""
    if sequence.values is not None:
        return
    wrong = _first_out_of_range(sequence, count)
    if wrong is not None:
        mistake = Mistake(f"leaves the range of numbers at member {wrong}")
        raise invalid(_named("Parameters", name), mistake, places, right="a smaller count, step or factor")


def _first_out_of_range(sequence: NamedSequence, count: int) -> int | None:
    """The first member whose value is out of range (for fractions: the last member, if any is)."""
    whole_numbers = all(isinstance(part, int) for part in (sequence.start, sequence.step, sequence.factor))
    if not whole_numbers:
        return None if math.isfinite(value_at(sequence, count - 1)) else count - 1
    if sequence.factor == 1:
        # Values move one way: the last is the largest.
        return None if INT_MIN <= value_at(sequence, count - 1) <= INT_MAX else count - 1
    for index in range(min(count, _STEPS)):
        if not INT_MIN <= value_at(sequence, index) <= INT_MAX:
            return index
    # What has not left 64 bits by now stands still or alternates.
    return None
