"""Resources and groups from TOML (docs/how-to/sites.md); other top-level tables are ignored."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

from lodesman.base.errors import SyntaxFault
from lodesman.decide.resources.draft import DELAY, RUNNING, ConfigDraft, DraftLimit, DraftNode, RawParam
from lodesman.decide.resources.model import FilePosition
from lodesman.wire.nodes import NodePath

_Path = tuple[str, ...]
_Table = Mapping[str, object]

_GROUP_KEYS = frozenset({"vo", "share", "job_sharing", "background"})
_SLIPS = {
    "site": ("sites", "resources"),
    "group": ("groups",),
    "job_description": ("jobdescription",),
    "ce_defaults": ("cedefaults",),
    "ce_type": ("ce_types", "cetype"),
}
# Those of sites and CEs.
_LIMITS = {"running_limit": RUNNING, "matching_delay": DELAY}
_TABLES = (
    "a name with dots needs quotes, and a site has ce and vo, a CE queue and vo, a queue vo; "
    f"sites and CEs have {' and '.join(_LIMITS)}, too"
)
_POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)|\s*\(at end of document\)")
_TABLE = re.compile(r"\s*\[\[?([^\[\]=]+)\]")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED = re.compile(r"[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*")
# What can open or close something that runs over line ends: comments, the four kinds of string, brackets.
_TOKEN = re.compile(
    r"""\#[^\n]*|\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[\[\]{}]|\n|=""",
    re.DOTALL,
)


def parse_toml(text: str, *, source: str = "") -> dict[str, object]:
    """Raises SyntaxFault."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        message = str(fault)
        place = _POSITION.search(message)
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(place[1]), int(place[2])) if place and place[1] else end
        sentence = f"{_POSITION.sub('', message)}."
        # The table in which the line stands, as far as lines show it: the text is not well formed.
        heads = [head[1] for row in text.splitlines()[:line] if (head := _TABLE.match(row))]
        more = {"section": heads[-1].strip()} if heads else {}
        raise SyntaxFault(sentence, line=line, column=column, source=source, **more) from fault
    except RecursionError as fault:
        raise SyntaxFault("values are nested too deep.", line=1, column=1, source=source) from fault


def fill_from_toml(draft: ConfigDraft, root: _Table, *, text: str, file: str) -> None:
    """Write a parsed file into the draft."""
    filler = _TomlFiller(draft, file, lines_of(text))
    for right, slips in _SLIPS.items():
        for key in root:
            if key.lower() in slips:
                draft.fault(f"the table is called {right!r}", filler.source((key,)))
    filler.params(draft.ce_defaults, "", ("ce_defaults",), filler.table(root, "ce_defaults"))
    for path, table in filler.tables(("ce_type",), root):
        node = draft.node(draft.ce_types, path[-1], filler.source(path))
        filler.params(node, "", path, table)
    for path, table in filler.tables(("site",), root):
        filler.node(draft.sites, path, table, ("ce", "queue"))
    for path, table in filler.tables(("group",), root):
        filler.group(path, table)
    for path, _ in filler.tables(("vo",), root):
        draft.vos.setdefault(path[-1])
    for key, value in filler.table(root, "job_description").items():
        place = filler.source(("job_description", key))
        draft.put(draft.declarations, RawParam(name=key, value=value, source=place))


class _TomlFiller:
    def __init__(self, draft: ConfigDraft, file: str, lines: Mapping[_Path, int]) -> None:
        self._draft = draft
        self._file = file
        self._lines = lines

    def source(self, path: _Path, *, section: str = "") -> FilePosition:
        return FilePosition(file=self._file, section=section or _head(path), line=line_of(self._lines, path))

    def table(self, parent: _Table, name: str, path: _Path = ()) -> _Table:
        table = parent.get(name, {})
        if isinstance(table, dict):
            return table
        self._draft.fault(f"{name} is a table", self.source(path or (name,)))
        return {}

    def tables(self, path: _Path, parent: _Table) -> Iterator[tuple[_Path, _Table]]:
        value = parent.get(path[-1], {})
        if not isinstance(value, dict):
            self._draft.fault(f"{path[-1]} is a table of tables", self.source(path))
            return
        section = _head(path)
        for name, inner in value.items():
            if isinstance(inner, dict):
                yield (*path, name), inner
            else:
                place = self.source((*path, name), section=section)
                message = f"{name} is a value; a table [{section}.NAME] is expected"
                self._draft.fault(message, place)

    def node(self, among: dict[str, DraftNode], path: _Path, table: _Table, below: _Path) -> None:
        node = self._draft.node(among, path[-1], self.source(path))
        overlaid = isinstance(table.get("vo"), dict)
        limits = _LIMITS.keys() & table.keys() if below else set[str]()
        apart = {*below[:1], *limits, "vo"} if overlaid else {*below[:1], *limits}
        self.params(node, "", path, {key: value for key, value in table.items() if key not in apart})
        for vo_path, vo_table in self.tables((*path, "vo"), table) if overlaid else ():
            self._draft.vos.setdefault(vo_path[-1])
            self.params(node, vo_path[-1], vo_path, vo_table)
        for name in sorted(limits):
            self._limits_of(_LIMITS[name], (*path, name), self.table(table, name, (*path, name)))
        for child_path, child in self.tables((*path, below[0]), table) if below else ():
            self.node(node.children, child_path, child, below[1:])

    def _limits_of(self, kind: str, path: _Path, table: _Table) -> None:
        """`JobType = { Merge = 20 }`, and `MaxRunningJobs = 100`."""
        node = NodePath(*path[1:-1:2])  # site, S, ce, C, running_limit
        for attribute, values in table.items():
            by_value = isinstance(values, dict)
            of = DraftLimit(kind, node, attribute if by_value else "")
            for name, value in values.items() if isinstance(values, dict) else ((attribute, values),):
                key = (*path, attribute, name) if by_value else (*path, name)
                self._draft.put_limit(
                    of, RawParam(name=name, value=value, source=self.source(key, section=_head(path)))
                )

    def params(self, node: DraftNode, vo: str, path: _Path, table: _Table) -> None:
        section = _head(path)
        for key, value in table.items():
            place = self.source((*path, key), section=section)
            if isinstance(value, dict):
                self._draft.fault(f"table {key!r} has no meaning here ({_TABLES})", place)
            else:
                self._draft.put(node.layers[vo], RawParam(name=key, value=value, source=place))

    def group(self, path: _Path, table: _Table) -> None:
        self._draft.groups.setdefault(path[-1], {})
        section = _head(path)
        for key, value in table.items():
            place = self.source((*path, key), section=section)
            if key.lower() not in _GROUP_KEYS:
                self._draft.fault(f"{key}: a group has {', '.join(sorted(_GROUP_KEYS))}", place)
            else:
                self._draft.put_group(path[-1], RawParam(name=key, value=value, source=place))


def _head(path: _Path) -> str:
    escaped = (part.replace("\\", "\\\\").replace('"', '\\"') for part in path)
    return ".".join(part if _BARE.fullmatch(part) else f'"{part}"' for part in escaped)


# --- the lines of tables and keys ---------------------------------------------------------------------------


def lines_of(text: str) -> dict[_Path, int]:
    """The line (from 1) of every table head and key, by path, which `tomllib` does not say."""
    lines: dict[_Path, int] = {}
    table: _Path = ()
    for line, statement in _statements(text.replace("\r\n", "\n")):
        key = _path(statement)
        is_table = statement.startswith("[")
        above = () if is_table else table
        table = key if is_table else table
        # Tables come into being by the mention of what is in them.
        for length in range(len(key), 0, -1):
            if lines.setdefault(above + key[:length], line) != line:
                break
    return lines


def line_of(lines: Mapping[_Path, int], path: _Path) -> int:
    """The line of a path or its longest known beginning; else 0."""
    beginnings = (path[:length] for length in range(len(path), 0, -1))
    return next((lines[beginning] for beginning in beginnings if beginning in lines), 0)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Line and beginning of each table head or key. Strings and brackets are followed just far enough."""
    line = 1
    start = 0
    depth = 0
    head_end = -1
    first_line = 1
    for token in _TOKEN.finditer(text + "\n"):
        mark = token[0]
        if mark == "=" and depth == 0 and head_end < 0:
            head_end = token.start()
        elif mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        elif mark == "\n" and depth <= 0:
            statement = text[start : head_end if head_end >= 0 else token.start()].strip()
            if statement and not statement.startswith("#"):
                yield first_line, statement
            start, head_end, depth, first_line = token.end(), -1, 0, line + 1
        line += mark.count("\n")


def _path(statement: str) -> _Path:
    if _DOTTED.fullmatch(statement):
        return tuple(part.strip() for part in statement.split("."))
    parts: list[str] = []
    inner: object = tomllib.loads(statement if statement.startswith("[") else f"{statement} = 0")
    while isinstance(inner, dict) and inner:
        part, inner = next(iter(inner.items()))
        parts.append(part)
    return tuple(parts)
