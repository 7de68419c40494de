"""Limits of sites and CEs on what runs and starts (DIRAC's RunningLimit and MatchingDelay), as configured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from lodesman.decide.resources.draft import ALL_JOBS, RUNNING, ConfigDraft
from lodesman.decide.resources.model import BadValue, FilePosition, ResourceTree, fold
from lodesman.decide.resources.units import number_in
from lodesman.wire.nodes import NodePath

FIELDS: Final[Mapping[str, str]] = {
    "JobType": "job_type",
    "Owner": "owner",
    "OwnerGroup": "group",
    "VO": "vo",
    "JobGroup": "project",
    "JobClass": "job_class",
    "UserPriority": "user_priority",
    "Platform": "platforms",
    "Tag": "tags",
    "PilotType": "pilot_type",
    "SubmitPool": "submission_pools",
    "PE": "pe",
}  # attributes of a job whose values may be limited -> fields of its task queue's key
_BY_FOLDED: Final = {fold(name): name for name in FIELDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceLimit:
    """A limit of a site or CE."""

    kind: str  # RUNNING (`number` jobs at once; 0 shuts) or DELAY (`number` seconds between two starts)
    path: NodePath
    attribute: str  # '' if all jobs count (`MaxRunningJobs`)
    value: str
    number: int
    source: FilePosition = field(compare=False)

    @property
    def name(self) -> str:
        """Unique, as a path: `RunningLimit/North/JobType/Merge`."""
        return "/".join(
            (self.kind, self.path.site, *(("CEs", self.path.ce) if self.path.ce else ()), *self._of)
        )

    @property
    def rule(self) -> str:
        """The same for all sites, or all CEs: `RunningLimit/JobType/Merge`."""
        return "/".join((self.kind, *(("CEs",) if self.path.ce else ()), *self._of))

    @property
    def _of(self) -> tuple[str, ...]:
        return (self.attribute, self.value) if self.attribute else (ALL_JOBS,)


def place_limits(draft: ConfigDraft, tree: ResourceTree) -> Iterator[PlaceLimit]:
    """What is wrong becomes the draft's faults, unknown places its notices."""
    for of, by_value in draft.limits.items():
        attribute = _BY_FOLDED.get(fold(of.attribute), "")
        if of.attribute and not attribute:
            near = get_close_matches(of.attribute, FIELDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"limits are by {', '.join(FIELDS)}"
            first = next(iter(by_value.values()))
            draft.fault(
                f"{of.kind}: {of.attribute!r} is no attribute of jobs that wait ({hint})", first.source
            )
            continue
        if tree.find(of.path) is None:
            noun = "CE" if of.path.ce else "site"
            first = next(iter(by_value.values()))
            draft.notice(f"{of.kind}: no {noun} is called {of.path}, so this limits nothing", first.source)
        for value, raw in by_value.items():
            try:
                number = number_in(raw.value)
                if number < 0 or number != int(number):
                    raise BadValue("it must be a whole number, at least 0")
            except BadValue as fault:
                draft.fault(f"{of.kind}: {attribute or value}: {fault}", raw.source)
                continue
            # Without seconds between them, starts are not limited.
            if of.kind == RUNNING or number:
                yield PlaceLimit(
                    kind=of.kind, path=of.path, attribute=attribute, value=value if attribute else "",
                    number=int(number), source=raw.source,
                )  # fmt: skip
