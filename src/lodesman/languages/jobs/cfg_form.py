"""How a record is written as DIRAC CFG, and what a natural CFG file means.

    3600, -1.5         a number, if it is written just as Python writes it; 007, 1.10 and 1e3 stay text
    true, False        a truth value, whatever its case
    A, B    A,    ,    a list: a comma makes it one, of two items, one, none; empty items are dropped
    "A, B"             text, with the escapes of JDL; also for an item and for a name
    jdl:{1, {2}}       a value in JDL, for what CFG cannot say (lists in lists, records in lists)

In attributes whose value is one text (`attributes.PLAIN_TEXT`) only quotes around the whole and `jdl:` have a meaning.
Writing uses the shortest form that reads back as the same value.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NoReturn

from lodesman.base.errors import SyntaxFault
from lodesman.languages.cfg import CfgOption, CfgSection, parse_cfg, write_cfg
from lodesman.languages.jobs.attributes import PLAIN_TEXT
from lodesman.languages.jobs.jdl import read_jdl_value, write_jdl_value, written_scalar
from lodesman.languages.jobs.jdl_tokens import quote, unescape
from lodesman.languages.jobs.record import (
    DEFAULT_LIMITS,
    INT_MAX,
    INT_MIN,
    ParsedRecord,
    Record,
    TextLimits,
    check_record,
    child_path,
    shown,
)

_IN_JDL: Final = "jdl:"
_ONLY_PARAMETERS: Final = "Only Parameters may have a value for each of many members."
_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)"\Z')
# One item of a list and the comma after it; a quoted item takes its commas along.
_ITEM = re.compile(r'\s*+(?:"(?P<quoted>(?:[^"\\]++|\\.)*+)"\s*+(?=,|\Z)|(?P<bare>[^,]*+))(?:,|\Z)')
_WHOLE = re.compile(r"-?[1-9][0-9]{0,18}\Z|0\Z")
_REAL = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]{2,3})?\Z")
_TRUTH = {"true": True, "false": False}
# What cannot stand in a name of CFG is written in octal, as JDL does.
_IN_NAME = str.maketrans({mark: f"\\{ord(mark):03o}" for mark in "={}"})
_BARE_NAME = re.compile(r'[^\s"#={}]([^\x00-\x1f\x7f-\x9f={}]*[^\s={}])?\Z')


def read_cfg(text: str, limits: TextLimits) -> ParsedRecord:
    """Read one description. Raises SyntaxFault."""
    section = parse_cfg(text, max_bytes=limits.text_bytes)
    positions: dict[str, tuple[int, int]] = {}
    record = _RecordReader(limits, positions).record(section, "")
    check_record(record, positions, limits)
    return ParsedRecord(record=record, positions=positions, form="cfg")


def write_cfg_record(record: Record) -> str:
    """A text that reads as exactly this record."""
    return write_cfg(_section("", record, plain=False))


class _RecordReader:
    """Only `Parameters` may have as many values as the limits of the text admit."""

    def __init__(self, limits: TextLimits, positions: dict[str, tuple[int, int]]) -> None:
        self.limits = limits
        self.positions = positions
        self.left = min(limits.nodes, DEFAULT_LIMITS.nodes)
        self.counts = True

    def record(self, section: CfgSection, path: str) -> Record:
        record: Record = {}
        all_plain = path.lower() in PLAIN_TEXT
        for entry in section.entries.values():
            name = entry.name
            if name.startswith('"'):
                quoted = _QUOTED.match(name)
                if quoted is None:
                    _fault(entry, f"the name {shown(name)} starts with a quote and does not end with one")
                name = _unescape(entry, quoted[1])
            at = child_path(path, name)
            if name in record:
                line, column = self.positions[at]
                _fault(entry, f"{shown(name)} is given twice, first at line {line}, column {column}")
            self.positions[at] = (entry.line, entry.column)
            if isinstance(entry, CfgSection):
                record[name] = self.record(entry, at)
                continue
            self.counts = bool(path) or name[:9].lower() != "parameter"
            record[name] = self.value(entry, all_plain or (not path and name.lower() in PLAIN_TEXT))
        return record

    def value(self, entry: CfgOption, plain: bool) -> Any:
        value = entry.value
        if value.startswith(_IN_JDL):
            try:
                read, count = read_jdl_value(value[len(_IN_JDL) :], self.limits)
            except SyntaxFault as fault:
                detail = fault.message.partition(": ")[2]
                _fault(entry, f"the JDL value of {shown(entry.name)} is wrong: {detail}".removesuffix("."))
            self.count(entry, count)
            return read
        quoted = _QUOTED.match(value)
        if quoted:
            return _unescape(entry, quoted[1])
        if plain:
            return value
        if "," in value:
            return self.items(entry)
        if value.startswith('"'):
            _fault(entry, f"the value of {shown(entry.name)} starts with a quote and does not end with one")
        return _scalar(value)

    def items(self, entry: CfgOption) -> list[Any]:
        items: list[Any] = []
        for item in _ITEM.finditer(entry.value):
            self.count(entry, 1)
            if item["quoted"] is not None:
                items.append(_unescape(entry, item["quoted"]))
                continue
            bare = item["bare"].strip()
            if bare.startswith('"'):
                _fault(entry, f"the item {shown(bare)} starts with a quote and does not end with one")
            if bare:
                items.append(_scalar(bare))
        return items

    def count(self, entry: CfgOption, values: int) -> None:
        if self.counts:
            self.left -= values
        if self.left < 0:
            most = min(self.limits.nodes, DEFAULT_LIMITS.nodes)
            _fault(entry, f"more than {most} values in all", _ONLY_PARAMETERS)


def _scalar(text: str) -> Any:
    if text[:1].isdigit() or text[:1] == "-":
        if _WHOLE.match(text):
            number = int(text)
            return number if INT_MIN <= number <= INT_MAX else text
        if len(text) < 32 and _REAL.match(text):
            value = float(text)
            return value if math.isfinite(value) and repr(value) == text else text
    return _TRUTH.get(text.lower(), text) if len(text) < 6 else text


def _unescape(entry: CfgOption | CfgSection, text: str) -> str:
    try:
        return unescape(text, 0, len(text))
    except SyntaxFault as fault:
        _fault(entry, fault.message.partition(": ")[2].removesuffix("."), fault.hint)


def _fault(entry: CfgOption | CfgSection, message: str, hint: str = "") -> NoReturn:
    hint = hint or r'Text with commas, quotes or outer blanks is written "like \"this\", in quotes".'
    raise SyntaxFault(f"{message}.", line=entry.line, column=entry.column, hint=hint)


def _section(name: str, record: Record, *, plain: bool) -> CfgSection:
    entries: dict[str, CfgOption | CfgSection] = {}
    for key, value in record.items():
        bare = _BARE_NAME.match(key) and key.isprintable()
        written = key if bare else quote(key).translate(_IN_NAME)
        is_plain = not name and key.lower() in PLAIN_TEXT
        if isinstance(value, dict):
            entries[written] = _section(written, value, plain=is_plain)
        else:
            entries[written] = CfgOption(name=written, value=_write_value(value, plain=plain or is_plain))
    return CfgSection(name=name, entries=entries)


def _write_value(value: Any, *, plain: bool) -> str:
    if isinstance(value, str):
        return value if _stands_bare(value, plain=plain) else quote(value)
    nested = isinstance(value, list) and any(isinstance(item, (list, dict)) for item in value)
    if plain or nested:
        return _IN_JDL + write_jdl_value(value)
    if not isinstance(value, list):
        return written_scalar(value)
    items = ", ".join(_write_value(item, plain=False) if item != "" else quote(item) for item in value)
    return items if len(value) > 1 else f"{items},"


def _stands_bare(text: str, *, plain: bool) -> bool:
    if text != text.strip() or not text.isprintable() or text.startswith(_IN_JDL):
        return False
    if plain:
        return not _QUOTED.match(text)
    return "," not in text and not text.startswith('"') and isinstance(_scalar(text), str)
