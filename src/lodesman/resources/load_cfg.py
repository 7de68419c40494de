"""Resources and groups from DIRAC's CFG.

Read are

- `/Resources/Sites/<Grid>/<Site>/CEs/<CE>/Queues/<Queue>`; a site may also stand under Sites directly;
- `/Resources/Sites/<Site>/Computing/<CE>/Queues/<Queue>`, the layout of RFC #5, and `/Resources_new`, as DIRAC called
  the tree of that layout while both were in use;
- `/Resources/Computing/CEDefaults` and `/Resources/Computing/<CEType>`: what CEs have by default;
- `/Operations/JobDescription` and `/Operations/Defaults/JobDescription` (type declarations only);
- `/Registry/VO` (the names), `/Registry/Groups`, and `/DIRAC/VirtualOrganization`, the VO of groups that name none.

A section inside a site, CE or queue that is called as a VO is, or stands in a section `VOs`, is the overlay of that VO
(RFC #5). Options that stand in `CEs` itself are for all CEs of the site that have none of their own; so with `Queues`.
`Communities` is RFC #5's word for the access list `VO`. Sections that have nothing to do with jobs are passed over,
unknown ones with a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from lodesman.cfg import CfgOption, CfgSection, parse_cfg
from lodesman.resources.build import ResourceConfig, build
from lodesman.resources.draft import Draft, DraftNode, RawParam
from lodesman.resources.kinds import KIND_WORDS, kind_of_word
from lodesman.resources.model import Source, fold

CES, COMPUTING, QUEUES, VOS = "CEs", "Computing", "Queues", "VOs"
# What else DIRAC and RFC #5 keep in a site.
NOT_FOR_JOBS = frozenset(
    {"Storage", "Catalog", "Transfer", "DBServer", "CommunityManagement", "AssociatedSEs", "Cloud"}
)
CE_DEFAULTS, OS_COMPATIBILITY = "CEDefaults", "OSCompatibility"
COMMUNITIES, ACCESS_LIST = "communities", "VO"
SITES = ("/Resources/Sites", "/Resources_new/Sites")
CFG_SECTIONS = frozenset({"DIRAC", "Operations", "Registry", "Resources", "Resources_new"})
"""Of all top sections those of which something is read."""
ALIKE = 0.7
"""From here on two words may be one and a slip of the hand (difflib)."""
JOB_DESCRIPTION = ("/Operations/Defaults/JobDescription", "/Operations/JobDescription")


def load_cfg(text: str, *, source: str = "", vos: Iterable[str] = ()) -> ResourceConfig:
    """The configuration in one text; `vos` are VO names that the text does not tell.

    Raises SyntaxFault or TooLarge (the text), InvalidConfig (what it says; `faults` lists everything).
    """
    root = parse_cfg(text, source=source)
    draft = Draft(vos)
    note_vos(draft, root)
    fill_from_cfg(draft, root, file=source)
    return build(draft)


def note_vos(draft: Draft, root: CfgSection) -> None:
    """Add the VO names that `/Registry` tells; overlays are known by them."""
    for section in _sections(root.find("/Registry/VO")):
        draft.vos.setdefault(section.name)
    for group in _sections(root.find("/Registry/Groups")):
        if vo := group.get("VO"):
            draft.vos.setdefault(vo)
    dirac = root.section("DIRAC")
    if dirac is not None and (vo := dirac.get("VirtualOrganization")):
        draft.vos.setdefault(vo)
        draft.vo_of_all = draft.vo_of_all or vo


def fill_from_cfg(draft: Draft, root: CfgSection, *, file: str) -> None:
    """Write what a parsed file says into the draft; `note_vos` comes before, for all files."""
    reader = _CfgReader(draft, file)
    for path in JOB_DESCRIPTION:
        reader.declarations(root.find(path), path)
    reader.defaults(root.find("/Resources/Computing"))
    for base in SITES:
        reader.sites(root.find(base), base)
    reader.groups(root.find("/Registry/Groups"))


class _CfgReader:
    def __init__(self, draft: Draft, file: str) -> None:
        self._draft = draft
        self._file = file

    def defaults(self, computing: object) -> None:
        for section in _sections(computing):
            path = f"/Resources/Computing/{section.name}"
            place = self._source(section, path)
            if section.name == OS_COMPATIBILITY:
                message = "OSCompatibility is not read: list under Platform of a queue all that it can run"
                self._draft.notice(message, place)
                continue
            if section.name == CE_DEFAULTS:
                node = self._draft.ce_defaults
            else:
                node = self._draft.node(self._draft.ce_types, section.name, place)
            self.params(node, "", section, path)
            for inner in section.sections():
                self.passed_over(inner, f"{path}/{inner.name}", "CE defaults have no sections")

    def sites(self, sites: object, base: str) -> None:
        for section in _sections(sites):
            path = f"{base}/{section.name}"
            if any(name in section for name in (CES, COMPUTING, *NOT_FOR_JOBS)):
                self.site(section, path, grid="")
                continue
            for site in section.sections():
                self.site(site, f"{path}/{site.name}", grid=section.name)

    def site(self, section: CfgSection, path: str, *, grid: str) -> None:
        place = self._source(section, path)
        node = self._draft.node(self._draft.sites, section.name, place)
        if grid and node.grid and node.grid != grid:
            self._draft.fault(f"site {section.name} stands under two grids, {node.grid} and {grid}", place)
        node.grid = grid or node.grid
        for child, child_path in self.node(node, section, path, (CES, COMPUTING)):
            ce_place = self._source(child, child_path)
            ce = self._draft.node(node.children, child.name, ce_place)
            for queue, queue_path in self.node(ce, child, child_path, (QUEUES,)):
                queue_place = self._source(queue, queue_path)
                made = self._draft.node(ce.children, queue.name, queue_place)
                for _ in self.node(made, queue, queue_path, ()):
                    pass

    def node(
        self, node: DraftNode, section: CfgSection, path: str, below: tuple[str, ...]
    ) -> Iterator[tuple[CfgSection, str]]:
        """Take the parameters and overlays of a node; give the sections of its children with their paths."""
        self.params(node, "", section, path)
        for inner in section.sections():
            inner_path = f"{path}/{inner.name}"
            if inner.name in below:
                for option in inner.options():
                    self._draft.put_for_children(node, self._raw(option, inner_path))
                for child in inner.sections():
                    yield child, f"{inner_path}/{child.name}"
            elif inner.name == VOS:
                for overlay in inner.sections():
                    self.params(node, overlay.name, overlay, f"{inner_path}/{overlay.name}")
            elif inner.name in self._draft.vos:
                self.params(node, inner.name, inner, inner_path)
            elif inner.name not in NOT_FOR_JOBS:
                self.passed_over(inner, inner_path, "no VO is called so")

    def passed_over(self, section: CfgSection, path: str, why: str) -> None:
        self._draft.notice(f"section {section.name} is passed over: {why}", self._source(section, path))

    def params(self, node: DraftNode, vo: str, section: CfgSection, path: str) -> None:
        for option in section.options():
            self._draft.put(node, vo, self._raw(option, path))

    def declarations(self, section: object, path: str) -> None:
        """Sections with a type, and options whose first word is a kind; DIRAC keeps other things here too, so one that
        looks like a kind gets but a notice.
        """
        if not isinstance(section, CfgSection):
            return
        for option in section.options():
            word = "".join(option.value.split()[:1])
            if kind_of_word(word):
                self._draft.declare(self._raw(option, path))
            elif near := get_close_matches(word.lower(), KIND_WORDS, 1, ALIKE):
                message = f"{option.name}: {word!r} is no type (did you mean {near[0]}?); it is passed over"
                self._draft.notice(message, self._source(option, path))
        for inner in section.sections():
            fields = {option.name: option.value for option in inner.options()}
            place = self._source(inner, f"{path}/{inner.name}")
            self._draft.declare(RawParam(name=inner.name, value=fields, source=place))

    def groups(self, groups: object) -> None:
        for section in _sections(groups):
            path = f"/Registry/Groups/{section.name}"
            self._draft.groups.setdefault(section.name, {})
            for option in section.options():
                self._draft.put_group(section.name, self._raw(option, path))

    def _raw(self, option: CfgOption, path: str) -> RawParam:
        name = ACCESS_LIST if fold(option.name) == COMMUNITIES else option.name
        return RawParam(name=name, value=option.value, source=self._source(option, path), commas=True)

    def _source(self, entry: CfgOption | CfgSection, path: str) -> Source:
        return Source(file=self._file, section=path, line=entry.line)


def _sections(found: object) -> Iterator[CfgSection]:
    return found.sections() if isinstance(found, CfgSection) else iter(())
