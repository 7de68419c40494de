"""Raw configuration values become parameter values of the declared type."""

from __future__ import annotations

import math

from lodesman.answers.vocabulary import Kind
from lodesman.resources.criterion import split_list
from lodesman.resources.kinds import ParameterType, scalar_of
from lodesman.resources.model import ANY, BadValue, Scalar, Value, as_text, without_repetition


def typed_value(raw: object, declared: ParameterType | None, *, commas: bool = False) -> Value:
    """The value: numbers in the declared unit, lists as tuples, texts without outer blanks; ANY stays.

    With `commas`, a text with commas is a list of values unless it is declared a string. An undeclared text
    stays a text even if it spells a number. Raises BadValue.
    """
    if isinstance(raw, list | tuple):
        return without_repetition(value for item in raw for value in _of_item(item, declared))
    if declared is not None and declared.kind is Kind.LIST:
        return without_repetition(_of_item(raw, declared))
    separates = commas and (declared is None or declared.kind is not Kind.STRING)
    if separates and isinstance(raw, str) and "," in raw:
        parts = [_scalar(part, declared) for part in split_list(raw)]
        return parts[0] if len(parts) == 1 else without_repetition(parts)
    return _scalar(raw, declared)


def _of_item(item: object, declared: ParameterType | None) -> list[Scalar]:
    if isinstance(item, str) and declared is not None and declared.kind is Kind.LIST:
        return list(split_list(item))
    return [_scalar(item, declared)]


def _scalar(raw: object, declared: ParameterType | None) -> Scalar:
    if not isinstance(raw, str | int | float):
        raise BadValue("expected a text, a number, a truth value or a list of these")
    if isinstance(raw, str) and raw.strip() == ANY:
        return ANY
    if isinstance(raw, float) and not math.isfinite(raw):
        raise BadValue(f"{raw!r} is no finite number")
    if declared is not None:
        return scalar_of(raw, declared.kind, declared.unit)
    return as_text(raw) if isinstance(raw, str) else raw
