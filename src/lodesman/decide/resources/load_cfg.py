"""Resources and groups from DIRAC's CFG, in its own layout and RFC #5's (docs/how-to/sites.md); limits of sites from
`JobScheduling` in `/Operations`.

A section in a site, CE or queue that is named as a VO, or stands in `VOs`, is that VO's overlay. Options in `CEs`
itself are for all CEs without their own; so with `Queues`. `Communities` is RFC #5's word for the access list `VO`.
"""

from __future__ import annotations

from difflib import get_close_matches

from lodesman.decide.resources.draft import DELAY, RUNNING, ConfigDraft, DraftLimit, DraftNode, RawParam
from lodesman.decide.resources.kinds import KIND_WORDS, boolean_of, kind_of_word
from lodesman.decide.resources.model import BadValue, FilePosition, fold
from lodesman.languages.cfg import CfgOption, CfgSection
from lodesman.wire.nodes import NodePath

# The sections of a site in which its CEs stand, and those of a CE for its queues.
_BELOW = (("CEs", "Computing"), ("Queues",))
# What else DIRAC and RFC #5 keep in a site.
_NOT_FOR_JOBS = frozenset(
    {"Storage", "Catalog", "Transfer", "DBServer", "CommunityManagement", "AssociatedSEs", "Cloud"}
)
# top sections of which something is read
CFG_SECTIONS = frozenset({"DIRAC", "Operations", "Registry", "Resources", "Resources_new"})
# DIRAC's switches for its limits; on, where they are missing.
_SWITCHES = {RUNNING: "CheckJobLimits", DELAY: "CheckMatchingDelay"}
_ALIKE = 0.7  # from here on two words may be one and a slip of the hand (difflib)


def note_vos(draft: ConfigDraft, root: CfgSection) -> None:
    """Add the VO names of `/Registry`, which tell overlays."""
    for section in root.section("/Registry/VO").sections():
        draft.vos.setdefault(section.name)
    for group in root.section("/Registry/Groups").sections():
        if vo := group.get("VO"):
            draft.vos.setdefault(vo)
    if vo := root.section("/DIRAC").get("VirtualOrganization"):
        draft.vos.setdefault(vo)
        draft.vo_of_all = draft.vo_of_all or vo


def fill_from_cfg(draft: ConfigDraft, root: CfgSection, *, file: str) -> None:
    """Write a parsed file into the draft, after `note_vos` for all files."""
    filler = _CfgFiller(draft, file)
    for path in ("/Operations/Defaults/JobDescription", "/Operations/JobDescription"):
        filler.declarations(root.section(path), path)
    for path in ("/Operations/Defaults/JobScheduling", "/Operations/JobScheduling"):
        filler.limits(root.section(path), path)
    filler.defaults(root.section("/Resources/Computing"))
    for base in ("/Resources/Sites", "/Resources_new/Sites"):
        filler.sites(root.section(base), base)
    filler.groups(root.section("/Registry/Groups"))


class _CfgFiller:
    def __init__(self, draft: ConfigDraft, file: str) -> None:
        self._draft = draft
        self._file = file

    def defaults(self, computing: CfgSection) -> None:
        for section in computing.sections():
            path = f"/Resources/Computing/{section.name}"
            place = self._source(section, path)
            if section.name == "OSCompatibility":
                message = "OSCompatibility is not read: list under Platform of a queue all that it can run"
                self._draft.notice(message, place)
                continue
            if section.name == "CEDefaults":
                node = self._draft.ce_defaults
            else:
                node = self._draft.node(self._draft.ce_types, section.name, place)
            self._params(node.layers[""], section, path)
            for inner in section.sections():
                self._passed_over(inner, f"{path}/{inner.name}", "CE defaults have no sections")

    def sites(self, sites: CfgSection, base: str) -> None:
        for section in sites.sections():
            path = f"{base}/{section.name}"
            lonely = any(name in section.entries for name in (*_BELOW[0], *_NOT_FOR_JOBS))
            grid = "" if lonely else section.name
            for site in (section,) if lonely else section.sections():
                site_path = path if lonely else f"{path}/{site.name}"
                node = self._node(self._draft.sites, site, site_path, _BELOW)
                if grid and node.grid and node.grid != grid:
                    message = f"site {site.name} stands under two grids, {node.grid} and {grid}"
                    self._draft.fault(message, self._source(site, site_path))
                node.grid = grid or node.grid

    def _node(
        self, among: dict[str, DraftNode], section: CfgSection, path: str, below: tuple[tuple[str, ...], ...]
    ) -> DraftNode:
        node = self._draft.node(among, section.name, self._source(section, path))
        self._params(node.layers[""], section, path)
        for inner in section.sections():
            inner_path = f"{path}/{inner.name}"
            if below and inner.name in below[0]:
                self._params(node.for_children, inner, inner_path)
                for child in inner.sections():
                    self._node(node.children, child, f"{inner_path}/{child.name}", below[1:])
            elif inner.name == "VOs":
                for overlay in inner.sections():
                    self._params(node.layers[overlay.name], overlay, f"{inner_path}/{overlay.name}")
            elif inner.name in self._draft.vos:
                self._params(node.layers[inner.name], inner, inner_path)
            elif inner.name not in _NOT_FOR_JOBS:
                self._passed_over(inner, inner_path, "no VO is called so")
        return node

    def _passed_over(self, section: CfgSection, path: str, why: str) -> None:
        self._draft.notice(f"section {section.name} is passed over: {why}", self._source(section, path))

    def _params(self, into: dict[str, RawParam], section: CfgSection, path: str) -> None:
        for option in section.options():
            self._draft.put(into, self._raw(option, path))

    def declarations(self, section: CfgSection, path: str) -> None:
        """Sections with a type, and options whose first word is a kind; a near kind gets a notice, as DIRAC keeps
        other things here.
        """
        for option in section.options():
            word = "".join(option.value.split()[:1])
            if kind_of_word(word):
                self._draft.put(self._draft.declarations, self._raw(option, path))
            elif near := get_close_matches(word.lower(), KIND_WORDS, 1, _ALIKE):
                hint = f"did you mean {near[0]}?"
                message = f"{option.name}: {word!r} is not a type ({hint}); it is passed over"
                self._draft.notice(message, self._source(option, path))
        for inner in section.sections():
            fields = {option.name: option.value for option in inner.options()}
            place = self._source(inner, f"{path}/{inner.name}")
            param = RawParam(name=inner.name, value=fields, source=place)
            self._draft.put(self._draft.declarations, param)

    def limits(self, scheduling: CfgSection, path: str) -> None:
        """`<kind>/<Site>/<Attribute>/<Value> = n`, and the same for a CE below `<Site>/CEs/<CE>`."""
        for kind, switch in _SWITCHES.items():
            sites = scheduling.section(kind)
            place = self._source(sites, f"{path}/{kind}")
            try:
                is_on = boolean_of(scheduling.get(switch) or True)
            except BadValue as fault:
                self._draft.fault(f"{switch}: {fault}", place)
                continue
            if sites.entries and not is_on:
                self._draft.notice(f"{kind} limits nothing: {switch} is off", place)
                continue
            for site in sites.sections():
                site_path = f"{path}/{kind}/{site.name}"
                self._limits_of(kind, NodePath(site.name), site, site_path)
                for ce in site.section("CEs").sections():
                    self._limits_of(kind, NodePath(site.name, ce.name), ce, f"{site_path}/CEs/{ce.name}")

    def _limits_of(self, kind: str, node: NodePath, section: CfgSection, path: str) -> None:
        for option in section.options():
            self._draft.put_limit(DraftLimit(kind, node, ""), self._raw(option, path))
        for inner in section.sections():
            if inner.name != "CEs" or node.ce:
                for option in inner.options():
                    raw = self._raw(option, f"{path}/{inner.name}")
                    self._draft.put_limit(DraftLimit(kind, node, inner.name), raw)

    def groups(self, groups: CfgSection) -> None:
        for section in groups.sections():
            path = f"/Registry/Groups/{section.name}"
            self._draft.groups.setdefault(section.name, {})
            for option in section.options():
                self._draft.put_group(section.name, self._raw(option, path))

    def _raw(self, option: CfgOption, path: str) -> RawParam:
        name = "VO" if fold(option.name) == "communities" else option.name
        return RawParam(name=name, value=option.value, source=self._source(option, path), commas=True)

    def _source(self, entry: CfgOption | CfgSection, path: str) -> FilePosition:
        return FilePosition(file=self._file, section=path, line=entry.line)
