"""Reads the native text of resource quota sets.

    { NEWLINE name N, [description text], [enabled TRUE | FALSE], one a line, then lines: limit [name R] {tag filter} to
    resource=value {, resource=value} NEWLINE }

As the real parser, save that outer braces may be missing and lists in braces may have blanks (both as Univa prints
them), and that empty filters, repeated rule names, repeated set names and limits without a value are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lodesman.base.errors import InvalidConfig, SyntaxFault
from lodesman.languages.gridengine.complexes import Complex, Complexes
from lodesman.languages.gridengine.lines import LogicalLine, logical_lines, note
from lodesman.languages.gridengine.values import (
    ComplexType,
    Number,
    Value,
    is_numeric,
    read_value,
    write_value,
)
from lodesman.languages.quota.rules import FilterTag, LoadTerm, QuotaFilter, QuotaLimit, QuotaRule, QuotaSet

_TOKEN = re.compile(r"[^\s{}]*\{[^{}]*\}[^\s{}]*|[^\s{}]+|[{}]")
_TERM = re.compile(
    r"([+-]?)(?:\$([A-Za-z_][\w.]*)(?:\*([0-9]{1,18}(?:\.[0-9]{1,18})?))?|([0-9]{1,18}(?:\.[0-9]{1,18})?))"
)
_ENABLED = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_KEYWORDS = frozenset({"NONE", "ALL", "TEMPLATE"})
_TAGS = frozenset(tag.value for tag in FilterTag)
_LONGEST = 255  # letters of a name


@dataclass(slots=True)
class _OpenSet:
    first: LogicalLine
    braced: bool
    closed: bool = False
    whole: bool = True
    fields: dict[str, LogicalLine] = field(default_factory=dict)
    limits: list[LogicalLine] = field(default_factory=list)


def read_quota_sets(
    text: str, complexes: Complexes, *, faults: list[SyntaxFault], source: str = ""
) -> tuple[QuotaSet, ...]:
    """In order. What is wrong is added to `faults`, and its set left out. Raises TooLarge.

    A line with characters that no text has is left out alone: of a text with faults, use nothing.
    """
    reader = _QuotaReader(complexes, faults)
    sets: dict[str, QuotaSet] = {}
    for block in reader.blocks(logical_lines(text, faults=faults, source=source)):
        read = reader.quota_set(block, sets)
        if read is not None:
            sets[read.name] = read
    return tuple(sets.values())


class _QuotaReader:
    """A fault in one filter or limit hides none in another."""

    __slots__ = ("complexes", "faults", "line", "whole")

    line: LogicalLine

    def __init__(self, complexes: Complexes, faults: list[SyntaxFault]) -> None:
        self.complexes = complexes
        self.faults = faults
        self.whole = True

    def slip(self, offset: int, message: str, hint: str = "") -> None:
        note(self.faults, self.line.fault(offset, message, hint))
        self.whole = False

    def blocks(self, lines: Iterator[LogicalLine]) -> list[_OpenSet]:
        """Without outer braces, a set begins where the limits of another end."""
        open_sets: list[_OpenSet] = []
        for self.line in lines:
            text, last = self.line.text, open_sets[-1] if open_sets else None
            if text == "}" and last is not None and last.braced and not last.closed:
                last.closed = True
                continue
            begins = (
                last is None or last.closed or (not last.braced and last.limits and text.split()[0] == "name")
            )
            if begins or text == "{" or last is None:
                last = _OpenSet(self.line, text == "{")
                open_sets.append(last)
            if text != "{":
                self.whole = True
                self.take(last, text.split(None, 1))
                last.whole &= self.whole
        return open_sets

    def take(self, block: _OpenSet, words: list[str]) -> None:
        key = words[0]
        if key == "limit":
            block.limits.append(self.line)
        elif key not in ("name", "description", "enabled"):
            hint = "A set has name, description, enabled and limit, each on a line, and may stand in braces."
            self.slip(0, f"unknown attribute name {key[:40]}", hint)
        elif key in block.fields:
            self.slip(0, f"attribute {key} appears more than once", "Keep one of them.")
        elif block.limits:
            self.slip(0, f"{key} stands after a limit", "Put it before the limits.")
        elif len(words) < 2:
            self.slip(0, f"{key} has no value")
        else:
            block.fields[key] = self.line

    def quota_set(self, block: _OpenSet, others: Mapping[str, QuotaSet]) -> QuotaSet | None:
        self.whole, self.line = block.whole, block.first
        if block.braced and not block.closed:
            self.slip(0, "this { is never closed", "Put } on a line of its own.")
        if self.whole and not block.limits:
            self.slip(0, "the resource quota set has no rules", "Add: limit to slots=1")
        if self.whole and "name" not in block.fields:
            self.slip(0, "the resource quota set has no name", "Add: name some_name")
        texts = {key: line.text.split(None, 1)[1] for key, line in block.fields.items()}
        name, enabled = texts.get("name", ""), _ENABLED.get(texts.get("enabled", "FALSE").lower())
        if name:
            self.name(block.fields["name"], name, others)
        if enabled is None:
            self.line = block.fields["enabled"]
            self.slip(self.line.words()[1][0], f"enabled is {texts['enabled'][:40]}", "Write TRUE or FALSE.")
        rules: dict[str, QuotaRule] = {}
        for number, self.line in enumerate(block.limits, 1):
            rule = self.rule(name, number)
            if rule.label in rules:
                message = f"the rule {rule.label} is there twice, first at line {rules[rule.label].line}"
                self.slip(0, message, "Give it another name; rules without one are numbered from 1.")
            rules.setdefault(rule.label, rule)
        if not self.whole:
            return None
        return QuotaSet(
            name=name,
            description=texts.get("description", "NONE"),
            enabled=bool(enabled),
            says_enabled="enabled" in texts,
            rules=tuple(rules.values()),
            line=block.first.line,
        )

    def name(self, line: LogicalLine, name: str, others: Mapping[str, QuotaSet]) -> None:
        self.line = line
        offset = line.words()[1][0]
        if len(name.split()) > 1 or "/" in name:
            self.slip(offset, f"the name {name[:40]!r} has a blank or a slash")
        elif name.upper() in _KEYWORDS:
            self.slip(offset, f"{name} is a keyword and no name")
        elif name in others:
            message = f"the set {name[:40]} is given twice, first at line {others[name].line}"
            self.slip(offset, message, "Give it another name.")

    def rule(self, set_name: str, number: int) -> QuotaRule:
        name = ""
        filters: dict[FilterTag, QuotaFilter] = {}
        limits: tuple[QuotaLimit, ...] = ()
        tokens = ((match.start(), match[0]) for match in _TOKEN.finditer(self.line.text, len("limit")))
        for offset, word in tokens:
            if word == "to":
                limits = self.limits(offset + len(word), filters)
                break
            if word != "name" and word not in _TAGS:
                hint = "A filter is: users, projects, pes, queues, hosts or jcs, and a list; blanks only in braces."
                self.slip(offset, f"unknown attribute name {word[:40]}", hint)
                break
            at, text = next(tokens, (offset, ""))
            if word in filters or (word == "name" and name):
                self.slip(offset, f"attribute {word} appears more than once", "Keep one of them.")
            elif not text:
                self.slip(offset, f"{word} is the last word", "A limit ends with: to resource=value")
            elif word == "name":
                name = text
            else:
                filters[FilterTag(word)] = self.filter(FilterTag(word), at, text)
        else:
            self.slip(0, "this limit has no 'to'", "A limit ends with: to resource=value")
        if "/" in name or "{" in name or "}" in name:
            self.slip(0, f"the name {name[:40]} has a slash or a brace")
        return QuotaRule(
            label=f"{set_name}/{name or number}",
            name=name,
            filters=filters,
            limits=limits,
            line=self.line.line,
        )

    def filter(self, tag: FilterTag, offset: int, text: str) -> QuotaFilter:
        braced = len(text) > 1 and text[0] == "{" and text[-1] == "}"
        inside = text[1:-1] if braced else text
        if text.startswith("!{"):
            self.slip(offset, f"invalid {tag} filter {text[:40]}", "Write the ! before each name: {!a,!b}")
            return QuotaFilter()
        if "{" in inside or "}" in inside:
            self.slip(offset, f"no valid expanded list: {text[:40]}", "Write: {a,b}")
            return QuotaFilter()
        items = dict.fromkeys(item.strip() for item in inside.split(","))
        names = tuple(item for item in items if item and not item.startswith("!"))
        excluded = tuple(item[1:] for item in items if item.startswith("!"))
        odd = [
            item for item in (*names, *excluded) if not item or item.startswith("!") or len(item.split()) > 1
        ]
        long = next((item for item in (*names, *excluded) if len(item) > _LONGEST), "")
        if long:
            message = f"{long[:40]}... in the {tag} filter has {len(long):,} letters"
            self.slip(offset, message, f"A name or a pattern has at most {_LONGEST}.")
        elif odd:
            self.slip(
                offset, f"invalid {tag} filter: {odd[0][:40] or '!'} is no name", "Commas separate names."
            )
        elif not items.keys() - {""}:
            self.slip(offset, f"the list of {tag} is empty", "Without the word, all match.")
        return QuotaFilter(names=names, excluded=excluded, braced=braced)

    def limits(self, offset: int, filters: dict[FilterTag, QuotaFilter]) -> tuple[QuotaLimit, ...]:
        read: list[QuotaLimit] = []
        for item in self.line.text[offset:].split(","):
            text = item.strip()
            at = offset + len(item) - len(item.lstrip())
            offset += len(item) + 1
            resource, mark, value = text.partition("=")
            if not mark or not resource or not value or len(text.split()) > 1:
                message = f"a limit is resource=value, and not {text[:40]!r}"
                self.slip(at if text else min(at, len(self.line.text)), message, "Commas separate limits.")
                continue
            entry = self.complexes.get(resource)
            if entry is None:
                hint = "qconf -sc prints those that there are."
                self.slip(at, f"{resource[:40]} references not existing complex attribute", hint)
            elif "$" in value:
                read += self.dynamic(entry, at, value, filters.get(FilterTag.HOSTS, QuotaFilter()))
            else:
                read += self.static(entry, at, value)
        return tuple(read)

    def static(self, entry: Complex, at: int, text: str) -> Iterator[QuotaLimit]:
        try:
            value = entry.value(text)
        except InvalidConfig as fault:
            self.slip(at, fault.message.rstrip("."), fault.hint)
            return
        if entry.is_consumable and not isinstance(value, str):
            if value == math.inf:
                self.slip(
                    at, f"{entry.name} is consumable and cannot be limited to infinity", "Leave it out."
                )
                return
            if value < 0:
                self.slip(at, f"{entry.name} is consumable but has a negative value")
                return
        # Times are written in seconds, and all else as it was read, as the real parser does.
        shown = write_value(entry.kind, value) if entry.kind is ComplexType.TIME else text
        yield QuotaLimit(resource=entry.name, text=shown, value=value)

    def dynamic(self, entry: Complex, at: int, text: str, hosts: QuotaFilter) -> Iterator[QuotaLimit]:
        if not hosts.braced:
            self.slip(at, "dynamic limits are only supported for per host rules", "Write: hosts {...}")
            return
        terms, end = [], 0
        while end < len(text):
            term = _TERM.match(text, end)
            if term is None or (end and not term[1]):
                hint = "Write: $complex*number, joined by + or -."
                self.slip(at, f"dynamic limit {text[:40]} is no sum", hint)
                return
            sign, name, weight, plain = term.groups()
            load = self.complexes.get(name) if name else None
            if name and (load is None or not is_numeric(load.kind)):
                message = f"dynamic limit references {'text' if load else 'not existing complex'} attribute {name[:40]}"
                self.slip(at, message)
                return
            size = read_value(ComplexType.DOUBLE, weight or plain or "1")
            terms.append(LoadTerm(weight=_apply_sign(size, sign), name=load.name if load else ""))
            end = term.end()
        if not is_numeric(entry.kind):
            self.slip(at, f"{entry.name} is of type {entry.kind}, which has no dynamic limit")
            return
        yield QuotaLimit(resource=entry.name, text=text, terms=tuple(terms))


def _apply_sign(size: Value, sign: str) -> Number:
    number = 0 if isinstance(size, str) else size
    return -number if sign == "-" else number
