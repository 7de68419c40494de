"""Texts of `qconf -sc`, `-shgrp`, `-su` and `-sprj`, in any order and number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from lodesman.base.errors import SyntaxFault
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, complexes_of, is_complex
from lodesman.languages.gridengine.lines import MAX_FAULTS, LogicalLine, logical_lines, note
from lodesman.languages.gridengine.vocabulary import HostGroup, Project, UserList, Vocabulary

_FIRST = {"group_name": "host group", "name": "object"}
_OF_LISTS = frozenset({"type", "entries"})
_OF_PROJECTS = frozenset({"acl", "xacl"})
_OTHERS = frozenset({"hostlist", "fshare", "oticket"}) | _OF_LISTS | _OF_PROJECTS


@dataclass(slots=True)
class _Block:
    kind: str
    name: str
    first: LogicalLine
    lines: dict[str, LogicalLine] = field(default_factory=dict)

    def items(self, key: str) -> tuple[str, ...]:
        line = self.lines.get(key)
        words = line.text.split(None, 1)[1].replace(",", " ").split() if line else []
        return () if [word.upper() for word in words] == ["NONE"] else tuple(dict.fromkeys(words))

    def fault_at(self, key: str, name: str, message: str) -> SyntaxFault:
        line = self.lines[key]
        match = re.search(rf"(?<![^\s,]){re.escape(name)}(?![^\s,])", line.text)
        return line.fault(match.start() if match else 0, message, "Take this name away, or correct it.")

    def number(self, key: str) -> int:
        line = self.lines.get(key)
        if line is None:
            return 0
        offset, word = line.words()[1]
        if not (word.isascii() and word.isdigit() and len(word) < 20):
            raise line.fault(offset, f"{key} is {word[:40]}", "It is a whole number.")
        return int(word)


def read_vocabulary(texts: Mapping[str, str], *, faults: list[SyntaxFault]) -> Vocabulary:
    """By name and text. What is wrong is added to `faults`, and left out. Raises TooLarge.

    Without any complex, those of Grid Engine 8.1.9 hold.
    """
    rows: list[LogicalLine] = []
    blocks: list[_Block] = []
    for source, text in texts.items():
        current: _Block | None = None
        for line in logical_lines(text, faults=faults, source=source):
            words = [word for _, word in line.words()]
            if is_complex(words):
                rows.append(line)
                continue
            try:
                current = _next(line, words, current, blocks)
            except SyntaxFault as fault:
                note(faults, fault)
    return _vocabulary(rows, blocks, faults)


def _next(line: LogicalLine, words: list[str], block: _Block | None, blocks: list[_Block]) -> _Block | None:
    """Returns the object of the next line."""
    key = words[0]
    if key not in _FIRST and key not in _OTHERS:
        hint = "A row of complexes has 8 columns; an object starts with group_name or name."
        raise line.fault(0, f"{key[:40]} starts no line of a complex, host group, user list or project", hint)
    if len(words) < 2:
        raise line.fault(0, f"{key} has no value", "Write NONE for an empty list.")
    if key in _FIRST:
        if len(words) > 2:
            raise line.fault(line.words()[2][0], f"the name after {key} has blanks", "One word is a name.")
        blocks.append(_Block(_FIRST[key], words[1], line))
        return blocks[-1]
    kind = "host group" if key == "hostlist" else "user list" if key in _OF_LISTS else "project"
    if block is None:
        raise line.fault(0, f"{key} belongs to no object", "group_name or name comes first.")
    if block.kind == "object" and key not in ("fshare", "oticket"):
        block.kind = kind
    elif block.kind != kind and not (key in ("fshare", "oticket") and block.kind != "host group"):
        raise line.fault(0, f"{key} is no word of the {block.kind} {block.name[:40]}", "")
    if key in block.lines:
        raise line.fault(
            0, f"{key} is given twice, first at line {block.lines[key].line}", "Keep one of them."
        )
    block.lines[key] = line
    return block


def _vocabulary(rows: list[LogicalLine], blocks: list[_Block], faults: list[SyntaxFault]) -> Vocabulary:
    groups: dict[str, HostGroup] = {}
    lists: dict[str, UserList] = {}
    projects: dict[str, Project] = {}
    kept: list[_Block] = []
    seen: dict[tuple[str, str], _Block] = {}
    for block in blocks:
        block.kind = "project" if block.kind == "object" else block.kind
        before = seen.setdefault((block.kind, block.name), block)
        try:
            if before is not block:
                at = f"{before.first.source or 'the text'}, line {before.first.line}"
                message = f"the {block.kind} {block.name[:40]} is given twice, first in {at}"
                raise block.first.fault(block.first.words()[1][0], message, "Keep one of them.")
            if block.kind == "host group":
                groups[block.name] = _host_group(block)
            elif block.kind == "user list":
                lists[block.name] = _user_list(block)
            else:
                projects[block.name] = _project(block)
        except SyntaxFault as fault:
            note(faults, fault)
            continue
        kept.append(block)
    _check_references(
        kept, {"host group": {n for k, n in seen if k == "host group"}, "project": set(lists)}, faults
    )
    _check_cycles(groups, seen, faults)
    complexes = complexes_of(rows, faults) if rows else STOCK_COMPLEXES
    return Vocabulary(complexes=complexes, host_groups=groups, user_lists=lists, projects=projects)


def _host_group(block: _Block) -> HostGroup:
    if not block.name.startswith("@") or len(block.name) < 2:
        offset = block.first.words()[1][0]
        raise block.first.fault(
            offset, f"the host group {block.name[:40]} does not start with @", "Write: @name"
        )
    return HostGroup(name=block.name, members=block.items("hostlist"))


def _user_list(block: _Block) -> UserList:
    entries = block.items("entries")
    return UserList(
        name=block.name,
        users=frozenset(entry for entry in entries if not entry.startswith("@")),
        groups=frozenset(entry[1:] for entry in entries if entry.startswith("@")),
        kinds=block.items("type") or ("ACL",),
    )


def _project(block: _Block) -> Project:
    return Project(
        name=block.name,
        acl=block.items("acl"),
        xacl=block.items("xacl"),
        oticket=block.number("oticket"),
        fshare=block.number("fshare"),
    )


def _check_references(
    blocks: list[_Block], names_of_kind: dict[str, set[str]], faults: list[SyntaxFault]
) -> None:
    for block in blocks:
        for key in ("hostlist", "acl", "xacl"):
            label, of = ("host group", True) if key == "hostlist" else ("user list", False)
            for name in block.items(key):
                if name.startswith("@") is of and name not in names_of_kind[block.kind]:
                    message = f"{block.name[:40]} names the {label} {name[:40]}, which no file defines"
                    note(faults, block.fault_at(key, name, message))


def _check_cycles(
    groups: dict[str, HostGroup], blocks: Mapping[tuple[str, str], _Block], faults: list[SyntaxFault]
) -> None:
    left = {name: [member for member in group.members if member in groups] for name, group in groups.items()}
    while len(faults) < MAX_FAULTS:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][:0:-1]
        else:
            return
        first = cycle.index(min(cycle))
        chain = [*cycle[first:], *cycle[: first + 1]]
        shown = " > ".join(name[:40] for name in chain[:10])
        message = f"the host group {chain[0][:40]} is in itself: {shown}"
        note(faults, blocks["host group", chain[0]].fault_at("hostlist", chain[1], message))
        for name in cycle:
            del left[name]
