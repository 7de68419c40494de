"""Resources and groups from DIRAC's CFG.

Read are `/Resources/Sites/<Grid>/<Site>/CEs/<CE>/Queues/<Queue>` (a site may also stand under Sites
directly), `/Operations/JobDescription` and `/Operations/Defaults/JobDescription` (type declarations only),
`/Registry/VO` (the names) and `/Registry/Groups`. A section inside a site, CE or queue that is called as a
VO is, or stands in a section `VOs`, is the overlay of that VO (RFC #5). Options that stand in `CEs` itself are for all
CEs of the site that have none of their own; so with `Queues`. Other sections are passed over with
a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lodesman.cfg import CfgOption, CfgSection, parse_cfg
from lodesman.resources.build import ResourceConfig, build
from lodesman.resources.draft import Draft, DraftNode, RawParam
from lodesman.resources.kinds import kind_of_word
from lodesman.resources.model import Source, fold

CES, QUEUES, VOS = "CEs", "Queues", "VOs"
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


def fill_from_cfg(draft: Draft, root: CfgSection, *, file: str) -> None:
    """Write what a parsed file says into the draft; `note_vos` comes before, for all files."""
    reader = _CfgReader(draft, file)
    for path in JOB_DESCRIPTION:
        reader.declarations(root.find(path), path)
    reader.sites(root.find("/Resources/Sites"))
    reader.groups(root.find("/Registry/Groups"))


class _CfgReader:
    def __init__(self, draft: Draft, file: str) -> None:
        self._draft = draft
        self._file = file

    def sites(self, sites: object) -> None:
        for section in _sections(sites):
            path = f"/Resources/Sites/{section.name}"
            if CES in section:
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
        for child, child_path in self.node(node, section, path, CES):
            ce_place = self._source(child, child_path)
            ce = self._draft.node(node.children, child.name, ce_place)
            for queue, queue_path in self.node(ce, child, child_path, QUEUES):
                queue_place = self._source(queue, queue_path)
                made = self._draft.node(ce.children, queue.name, queue_place)
                for _ in self.node(made, queue, queue_path, ""):
                    pass

    def node(
        self, node: DraftNode, section: CfgSection, path: str, below: str
    ) -> Iterator[tuple[CfgSection, str]]:
        """Take the parameters and overlays of a node; give the sections of its children with their paths."""
        self.params(node, "", section, path)
        for inner in section.sections():
            inner_path = f"{path}/{inner.name}"
            if inner.name == below:
                for child in inner.sections():
                    yield self.with_options_for_all(inner, child), f"{inner_path}/{child.name}"
            elif inner.name == VOS:
                for overlay in inner.sections():
                    self.params(node, overlay.name, overlay, f"{inner_path}/{overlay.name}")
            elif inner.name in self._draft.vos:
                self.params(node, inner.name, inner, inner_path)
            else:
                message = f"section {inner.name} is passed over: no VO is called so"
                self._draft.notice(message, self._source(inner, inner_path))

    @staticmethod
    def with_options_for_all(group: CfgSection, child: CfgSection) -> CfgSection:
        """A CE (queue) with the options that stand in `CEs` (`Queues`) itself, where it has none of its own."""
        own = {fold(option.name) for option in child.options()}
        common = tuple(option for option in group.options() if fold(option.name) not in own)
        return replace(child, entries=(*child.entries, *common)) if common else child

    def params(self, node: DraftNode, vo: str, section: CfgSection, path: str) -> None:
        for option in section.options():
            self._draft.put(node, vo, self._raw(option, path))

    def declarations(self, section: object, path: str) -> None:
        """Sections with a type, and options whose first word is a kind; DIRAC keeps other things here too."""
        if not isinstance(section, CfgSection):
            return
        for option in section.options():
            if kind_of_word(option.value.partition(" ")[0]):
                self._draft.declare(self._raw(option, path))
        for inner in section.sections():
            fields = {option.name: option.value for option in inner.options()}
            place = self._source(inner, f"{path}/{inner.name}")
            self._draft.declare(RawParam(name=inner.name, value=fields, source=place))

    def groups(self, groups: object) -> None:
        for section in _sections(groups):
            path = f"/Registry/Groups/{section.name}"
            into = self._draft.groups.setdefault(section.name, {})
            for option in section.options():
                self._draft.put_once(into, self._raw(option, path))

    def _raw(self, option: CfgOption, path: str) -> RawParam:
        return RawParam(name=option.name, value=option.value, source=self._source(option, path), commas=True)

    def _source(self, entry: CfgOption | CfgSection, path: str) -> Source:
        return Source(file=self._file, section=path, line=entry.line)


def _sections(found: object) -> Iterator[CfgSection]:
    return found.sections() if isinstance(found, CfgSection) else iter(())
