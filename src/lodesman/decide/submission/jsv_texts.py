"""A job's values as texts that a verifier (JSV) sees and changes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from lodesman.decide.submission.native_table import task_numbers
from lodesman.decide.submission.resolution import JsvView
from lodesman.languages.gridengine.values import UnreadableValue
from lodesman.languages.jobclass import JobValue, entries_of
from lodesman.languages.jobclass.attributes import AttributeKind, kind_of, read_list

_CLASS: Final = "jc"
_TASKS: Final = ("t_min", "t_max", "t_step")
_SLOTS: Final = ("pe_min", "pe_max")
_STEP_AT: Final = 2


class JsvTexts(NamedTuple):
    """A job before a script."""

    command: str
    arguments: tuple[str, ...]
    parameters: Mapping[str, str]  # by name, `jc` among them
    environment: Mapping[str, str]


def texts_of(view: JsvView) -> JsvTexts:
    """The script sees each number of slots and tasks."""
    values = view.values
    parameters = {_CLASS: view.job_class} if view.job_class else {}
    for name, value in values.items():
        if name == "pe_range":
            parameters |= dict.fromkeys(_SLOTS, _text(name, value))
        elif name == "t" and (tasks := task_numbers(_text(name, value))):
            parameters |= dict(zip(_TASKS, map(str, tasks), strict=True))
        elif name not in ("CMDNAME", "CMDARG", "v"):
            parameters[name] = _text(name, value)
    return JsvTexts(
        command=_text("CMDNAME", values.get("CMDNAME", "")),
        arguments=tuple(text or "" for text in entries_of("CMDARG", values.get("CMDARG")).values()),
        parameters=parameters,
        environment={name: text or "" for name, text in entries_of("v", values.get("v")).items()},
    )


def view_of(before: JsvView, left: JsvTexts) -> JsvView:
    """What the script made of a job; rejected if a value cannot be read.

    An unchanged text stays: a comma in it makes no list.
    """
    sent = texts_of(before)
    values: dict[str, JobValue] = {
        name: value for name, value in before.values.items() if name not in sent.parameters
    }
    if left.command != sent.command:
        values["CMDNAME"] = left.command
    if left.arguments != sent.arguments:
        values["CMDARG"] = left.arguments
    if left.environment != sent.environment:
        values["v"] = dict(left.environment)
    for name, text in left.parameters.items():
        if name not in (_CLASS, *_SLOTS, *_TASKS):
            same = name in before.values and sent.parameters.get(name) == text
            try:
                values[name] = before.values[name] if same else _read(name, text)
            except UnreadableValue as wrong:
                return replace(before, rejected=f"JSV sets {name} to a value that cannot be read: {wrong}")
    for name, parts, mark in (("pe_range", _SLOTS, "{}-{}"), ("t", _TASKS, "{}-{}:{}")):
        new = [left.parameters.get(part, "") for part in parts]
        if new != [sent.parameters.get(part, "") for part in parts]:
            # One that is missing is as the one before it.
            filled = [
                number or (new[at - 1] if 0 < at < _STEP_AT else "") or "1" for at, number in enumerate(new)
            ]
            values[name] = mark.format(*filled) if any(new) else ""
    return JsvView(values=values, job_class=left.parameters.get(_CLASS, ""))


def _text(name: str, value: JobValue) -> str:
    if isinstance(value, str):
        return value
    return ",".join(key if text is None else f"{key}={text}" for key, text in entries_of(name, value).items())


def _read(name: str, text: str) -> JobValue:
    return text if kind_of(name) is AttributeKind.SCALAR else read_list(kind_of(name), text)
