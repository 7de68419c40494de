"""Resources and groups from TOML.

    [site."LCG.CERN.ch"]                    # parameters of the site (names with dots need quotes)
    Country = "ch"
    [site."LCG.CERN.ch".vo.lhcb]            # what holds for one VO only; CEs and queues have `vo` as well
    [site."LCG.CERN.ch".ce."ce1.cern.ch"]
    [site."LCG.CERN.ch".ce."ce1.cern.ch".queue.long]
    CPUTime = "2 d"

    [ce_defaults]                           # what CEs have if neither they nor their site say otherwise
    [ce_type.HTCondorCE]                    # the same for CEs of a type (CEType, else Backend)

    [group.lhcb_prod]                       # vo, share, job_sharing, background
    [vo.lhcb]                               # optional: a VO that no group names
    [job_description]                       # parameter types
    SoftwareTag = "list merge"

Other top-level tables belong to other parts of the program and are passed over.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping

from lodesman.errors import SyntaxFault
from lodesman.resources.build import ResourceConfig, build
from lodesman.resources.draft import Draft, DraftNode, RawParam
from lodesman.resources.model import Source
from lodesman.resources.toml_lines import Path, line_of, lines_of

GROUP_KEYS = frozenset({"vo", "share", "job_sharing", "background"})
SLIPS = {
    "sites": "site",
    "groups": "group",
    "jobdescription": "job_description",
    "resources": "site",
    "cedefaults": "ce_defaults",
    "ce_types": "ce_type",
    "cetype": "ce_type",
}

_POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)|\s*\(at end of document\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"\s*\[\[?([^\[\]=]+)\]")


def load_toml(text: str, *, source: str = "", vos: Iterable[str] = ()) -> ResourceConfig:
    """The configuration in one text.

    Raises SyntaxFault (the text), InvalidConfig (what it says; `faults` lists everything).
    """
    draft = Draft(vos)
    fill_from_toml(draft, parse_toml(text, source=source), text=text, file=source)
    return build(draft)


def parse_toml(text: str, *, source: str = "") -> dict[str, object]:
    """The tables of a text. Raises SyntaxFault."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        message = str(fault)
        place = _POSITION.search(message)
        end = text.count("\n") + 1, len(text) - text.rfind("\n")
        line, column = (int(place[1]), int(place[2])) if place and place[1] else end
        sentence = f"{_POSITION.sub('', message)}."
        section = _table_before(text, line)
        more = {"section": section} if section else {}
        raise SyntaxFault(sentence, line=line, column=column, source=source, **more) from fault
    except RecursionError as fault:
        raise SyntaxFault("values are nested too deep.", line=1, column=1, source=source) from fault


def _table_before(text: str, line: int) -> str:
    """The table in which a line stands, as far as lines tell: the text is not well formed."""
    heads = [found[1] for row in text.splitlines()[:line] if (found := _TABLE.match(row))]
    return heads[-1].strip() if heads else ""


def fill_from_toml(draft: Draft, root: Mapping[str, object], *, text: str, file: str) -> None:
    """Write what a parsed file says into the draft; `text` is looked at for line numbers."""
    reader = _TomlReader(draft, file, lines_of(text))
    for slip, right in SLIPS.items():
        for key in root:
            if key.lower() == slip:
                draft.fault(f"the table is called {right!r}", reader.source((key,)))
    reader.ce_defaults(root.get("ce_defaults", {}))
    for path, table in reader.tables(("ce_type",), root.get("ce_type", {})):
        reader.ce_type(path, table)
    for path, table in reader.tables(("site",), root.get("site", {})):
        reader.site(path, table)
    for path, table in reader.tables(("group",), root.get("group", {})):
        reader.group(path, table)
    for path, _ in reader.tables(("vo",), root.get("vo", {})):
        draft.vos.setdefault(path[-1])
    reader.declarations(root.get("job_description", {}))


class _TomlReader:
    def __init__(self, draft: Draft, file: str, lines: Mapping[Path, int]) -> None:
        self._draft = draft
        self._file = file
        self._lines = lines

    def source(self, path: Path, *, section: str | None = None) -> Source:
        """The place of a path; its section is the table it stands in, or is."""
        head = _head(path) if section is None else section
        return Source(file=self._file, section=head, line=line_of(self._lines, path))

    def tables(self, path: Path, value: object) -> list[tuple[Path, Mapping[str, object]]]:
        """The tables inside a table of tables, with their paths; anything else is a fault."""
        if not isinstance(value, dict):
            self._draft.fault(f"{path[-1]} is a table of tables", self.source(path))
            return []
        section = _head(path)
        found: list[tuple[Path, Mapping[str, object]]] = []
        for name, inner in value.items():
            if isinstance(inner, dict):
                found.append(((*path, name), inner))
            else:
                place = self.source((*path, name), section=section)
                self._draft.fault(f"{name} is a value; a table [{section}.NAME] is expected", place)
        return found

    def ce_defaults(self, table: object) -> None:
        if isinstance(table, dict):
            self.params(self._draft.ce_defaults, "", ("ce_defaults",), table)
        else:
            self._draft.fault("ce_defaults is a table", self.source(("ce_defaults",)))

    def ce_type(self, path: Path, table: Mapping[str, object]) -> None:
        self.params(self._draft.node(self._draft.ce_types, path[-1], self.source(path)), "", path, table)

    def site(self, path: Path, table: Mapping[str, object]) -> None:
        node = self._draft.node(self._draft.sites, path[-1], self.source(path))
        self.node(node, path, table, "ce")
        for ce_path, ce_table in self.tables((*path, "ce"), table.get("ce", {})):
            ce = self._draft.node(node.children, ce_path[-1], self.source(ce_path))
            self.node(ce, ce_path, ce_table, "queue")
            for queue_path, queue_table in self.tables((*ce_path, "queue"), ce_table.get("queue", {})):
                queue = self._draft.node(ce.children, queue_path[-1], self.source(queue_path))
                self.node(queue, queue_path, queue_table, "")

    def node(self, node: DraftNode, path: Path, table: Mapping[str, object], below: str) -> None:
        """Take the parameters and overlays of a node, leave its children."""
        self.params(
            node, "", path, {key: table[key] for key in table if not self.is_table_of(table, key, below)}
        )
        overlays = table.get("vo")
        if isinstance(overlays, dict):
            for vo_path, vo_table in self.tables((*path, "vo"), overlays):
                self._draft.vos.setdefault(vo_path[-1])
                self.params(node, vo_path[-1], vo_path, vo_table)

    @staticmethod
    def is_table_of(table: Mapping[str, object], key: str, below: str) -> bool:
        return key == below or (key == "vo" and isinstance(table[key], dict))

    def params(self, node: DraftNode, vo: str, path: Path, table: Mapping[str, object]) -> None:
        section = _head(path)
        for key, value in table.items():
            place = self.source((*path, key), section=section)
            if isinstance(value, dict):
                hint = (
                    "a name with dots needs quotes, and a site has ce and vo, a CE queue and vo, a queue vo"
                )
                self._draft.fault(f"table {key!r} has no meaning here ({hint})", place)
            else:
                self._draft.put(node, vo, RawParam(name=key, value=value, source=place))

    def group(self, path: Path, table: Mapping[str, object]) -> None:
        self._draft.groups.setdefault(path[-1], {})
        section = _head(path)
        for key, value in table.items():
            place = self.source((*path, key), section=section)
            if key.lower() not in GROUP_KEYS:
                self._draft.fault(f"{key}: a group has {', '.join(sorted(GROUP_KEYS))}", place)
            else:
                self._draft.put_group(path[-1], RawParam(name=key, value=value, source=place))

    def declarations(self, table: object) -> None:
        if not isinstance(table, dict):
            self._draft.fault("job_description is a table", self.source(("job_description",)))
            return
        for key, value in table.items():
            path = ("job_description", key)
            self._draft.declare(RawParam(name=key, value=value, source=self.source(path)))


def _head(path: Path) -> str:
    return ".".join(map(_quoted, path))


def _quoted(part: str) -> str:
    return part if _BARE.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
