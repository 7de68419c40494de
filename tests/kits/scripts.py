"""Scripts with lines of batch systems as cases: what is submitted of each, what is refused, what has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from tests.kits.table import hold_all

from lodesman.languages.directives.scripts import Translation, translate_script, unread_lines


@dataclass(frozen=True)
class Case:
    """A script, all attributes of its job but Environment, and what is refused by line; each text is a beginning."""

    name: str
    script: str
    attributes: Mapping[str, Any]
    refused: Mapping[int, str | tuple[str, ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    noted: tuple[str, ...] = ()
    unread: list[int] = field(default_factory=list)
    interpreter: str = ""
    hold: bool = False
    job_class: str = ""


def array(first: int, last: int, step: int = 1) -> dict[str, int]:
    """The attributes of an array with these indexes."""
    return {"Parameters": (last - first) // step + 1, "ParameterStart": first, "ParameterStep": step}


def translation(script: str, given: Mapping[str, Any] | None = None) -> Translation:
    """What the lines of a script ask for."""
    found = translate_script(script, "job.sh", given or {})
    assert found is not None
    return found


def holds_all_cases(cases: Iterable[Case]) -> None:
    """Raises a group of those that do not hold."""
    hold_all(cases, _holds)


def _holds(case: Case) -> None:
    text = dedent(case.script).lstrip("\n")
    found = translation(text)
    attributes = dict(found.attributes)
    variables = attributes.pop("Environment")
    assert attributes == case.attributes
    assert {name: variables.get(name) for name in case.variables} == case.variables
    refused: dict[int, list[str]] = {}
    for one in found.refusals:
        refused.setdefault(one.option.line, []).append(f"{one.option.words} {one.reason}")
    wanted = {
        line: [words] if isinstance(words, str) else list(words) for line, words in case.refused.items()
    }
    assert {line: len(texts) for line, texts in refused.items()} == {
        line: len(texts) for line, texts in wanted.items()
    }
    for line, texts in wanted.items():
        for said, begin in zip(sorted(refused[line]), sorted(texts), strict=True):
            assert said.startswith(begin), said
    for words in case.noted:
        assert words in " ".join(found.notes)
    assert unread_lines(text) == case.unread
    assert (found.interpreter, found.hold, found.job_class) == (case.interpreter, case.hold, case.job_class)
