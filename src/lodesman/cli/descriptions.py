"""Descriptions from files and standard input, checked before anything is sent; errors with their place."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lodesman.cli.words import plain
from lodesman.errors import InvalidRequest, LodesmanError, TooLarge

if TYPE_CHECKING:
    from lodesman.answers.jobs import Notice
    from lodesman.answers.vocabulary import Form
    from lodesman.jobs import Description, ParsedRecord

STDIN = "-"
# How the readers tell a place inside their sentences; here it stands before them.
_PLACE = re.compile(r"^line \d+, column \d+: | \(line \d+, column \d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of one description, where it came from, and where its files lie."""

    label: str
    data: bytes
    base: Path


def read_source(name: str) -> Source:
    """The bytes of a file, or of standard input for `-`. Raises InvalidRequest and TooLarge."""
    from lodesman.jobs import ARRAY_LIMITS

    most = ARRAY_LIMITS.text_bytes
    if name == STDIN:
        data, label, base = sys.stdin.buffer.read(most + 1), "standard input", Path()
    else:
        try:
            with Path(name).open("rb") as file:
                data = file.read(most + 1)
        except OSError as fault:
            raise InvalidRequest(f"cannot be read: {fault.strerror}.") from None
        label, base = name, Path(name).parent
    if len(data) > most:
        raise TooLarge(
            f"has more than {most} bytes.", hint="Send large data as an input sandbox.", limit=most
        )
    return Source(label=label, data=data, base=base)


def parse(source: Source, form: Form | None) -> ParsedRecord:
    """Read the text. Raises SyntaxFault, TooLarge."""
    from lodesman.jobs import ARRAY_LIMITS, read_description

    return read_description(source.data, form=form, limits=ARRAY_LIMITS)


def check(parsed: ParsedRecord) -> Description:
    """Check the job. Raises InvalidJob."""
    from lodesman.jobs import read_job

    return read_job(parsed.record, parsed.positions)


def placed(label: str, fault: LodesmanError) -> str:
    """The error as compilers tell theirs: file, line and column before the sentence."""
    line, column = fault.data.get("line"), fault.data.get("column")
    if not isinstance(line, int) or not isinstance(column, int):
        return plain(f"{label}: {fault}")
    return plain(f"{label}:{line}:{column}: {_PLACE.sub('', str(fault), count=1)}")


def notice(label: str, told: Notice | dict[str, object]) -> str:
    """A warning in the same form."""
    values = (
        told
        if isinstance(told, dict)
        else {name: getattr(told, name) for name in ("line", "column", "message")}
    )
    place = f":{values.get('line')}:{values.get('column')}" if values.get("line") else ""
    return plain(f"{label}{place}: warning: {values.get('message')}")
