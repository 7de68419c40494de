"""One entry to the three languages of descriptions: JDL, DIRAC CFG and JSON, none of them losing anything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from lodesman.answers.vocabulary import FORMS, Form
from lodesman.errors import InvalidRequest
from lodesman.jobs.cfg_form import read_cfg, write_cfg_record
from lodesman.jobs.jdl import read_jdl, write_jdl
from lodesman.jobs.json_form import read_json, write_json
from lodesman.jobs.parsed import DEFAULT_LIMITS, Limits, ParsedRecord, as_text, check_size
from lodesman.jobs.spec import Record

T = TypeVar("T")

_READERS: Final[dict[str, Callable[..., ParsedRecord]]] = {
    "jdl": read_jdl,
    "cfg": read_cfg,
    "json": read_json,
}
_WRITERS: Final[dict[str, Callable[[Record], str]]] = {
    "jdl": write_jdl,
    "cfg": write_cfg_record,
    "json": write_json,
}
# The first thing that is no comment decides; `#` comments are known to JDL and CFG alike.
_BEFORE = re.compile(r"(?:\s++|#[^\n]*+)*+")
_JDL_START = re.compile(
    r"""\[ | // | /\* | ' | ; |
    [A-Za-z_][\w.]*+ \s*+ = \s*+ (?: [{\[] | ("(?:[^"\\\n]++|\\.)*+" | [^\s"';]++) [ \t]*+ ; )""",
    re.VERBOSE,
)
# No name of JDL begins so: it is meant as a list of JSON.
_JSON_LIST = re.compile(r"\[\s*+\{")
_JDL_LINE = re.compile(r";[ \t]*+(?:(?://|/\*|\#)[^\n]*+)?\r?$", re.MULTILINE)


def read_description(
    text: str | bytes, *, form: Form | None = None, limits: Limits = DEFAULT_LIMITS
) -> ParsedRecord:
    """Read a description in one of the three languages; without `form` the text tells which.

    Raises SyntaxFault with line and column, TooLarge, or InvalidRequest for an unknown form.
    """
    check_size(text, limits)
    if form is None:
        text = as_text(text)
        form = detect_form(text)
    return _known(_READERS, form)(text, limits=limits)


def write_description(record: Record, form: Form) -> str:
    """The record as a text that reads as exactly this record. Raises InvalidJob for what none can hold."""
    return _known(_WRITERS, form)(record)


def detect_form(text: str) -> Form:
    """Which language a text is in, by its first words: `{` is JSON, `[` or a `;` at a line's end is JDL."""
    start = _BEFORE.match(text).end()  # type: ignore[union-attr]  # matches always
    if text.startswith("{", start) or _JSON_LIST.match(text, start):
        return "json"
    if _JDL_START.match(text, start) or _JDL_LINE.search(text, start):
        return "jdl"
    return "cfg"


def _known(table: dict[str, T], form: str) -> T:
    if form not in table:
        raise InvalidRequest(
            f"{form[:40]!r} is no form of a description.", hint=f"Known are {', '.join(FORMS)}."
        )
    return table[form]
