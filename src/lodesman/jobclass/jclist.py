"""jc_list, the attribute of a queue that says which job classes may enter it.

    jc_list = list { "," "[" host "=" list "]" }     a host, or @ and a host group
    list    = "NONE" | name { "," name }
    name    = "ANY_JC" | "NO_JC" | class | class "." variant

The value of a host beats that of its host group, which beats the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from lodesman.jobclass.attributes import UnreadableValue, split_outside_brackets
from lodesman.jobclass.language import name_problem
from lodesman.jobclass.model import DEFAULT_VARIANT
from lodesman.jobs.record import shown

ANY_JC, NO_JC = "ANY_JC", "NO_JC"
_MAX_SENTENCES = 100

Classes = Mapping[str, Collection[str]]
"""The variants of each class, by the name of the class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JcList:
    """The names of one list; none: nothing enters."""

    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return ",".join(sorted(self.names, key=lambda name: (name not in (ANY_JC, NO_JC), name))) or "NONE"


EVERYTHING = JcList(names=frozenset({ANY_JC, NO_JC}))
"""The list of a queue that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousJcList:
    """Host groups of one host say different things: the queue takes no jobs there."""

    host: str
    groups: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        groups = " and ".join(self.groups)
        return f"jc_list is ambiguous on {self.host}: {groups} differ. Give the host a list of its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJcLists:
    """The lists of one queue; host groups have their `@`."""

    default: JcList = EVERYTHING
    hosts: Mapping[str, JcList] = field(default_factory=dict)
    groups: Mapping[str, JcList] = field(default_factory=dict)

    def on(self, host: str, groups: Iterable[str] = ()) -> JcList | AmbiguousJcList:
        """The list on a host that is in these host groups."""
        if host in self.hosts:
            return self.hosts[host]
        said = {group: self.groups[group] for group in sorted(set(groups)) if group in self.groups}
        if len(set(said.values())) > 1:
            return AmbiguousJcList(host=host, groups=tuple(said))
        return next(iter(said.values()), self.default)

    def names_class(self, name: str) -> bool:
        """Whether a list has this class, or a variant of it: then the class cannot be deleted."""
        every = (self.default, *self.hosts.values(), *self.groups.values())
        return any(one.partition(".")[0] == name for each in every for one in each.names)

    def __str__(self) -> str:
        said = (f",[{host}={value}]" for host, value in (*self.hosts.items(), *self.groups.items()))
        return f"{self.default}{''.join(said)}"


class JcListAnswer(StrEnum):
    """Why a list lets a job in, or does not."""

    ANY_CLASS = "ANY_JC lets in every job of a class"
    NO_CLASS = "NO_JC lets in jobs without a class"
    NAMED = "the list names its class or variant"
    NEEDS_CLASS = "jobs without a class need NO_JC"
    NOT_NAMED = "the list names neither its class nor its variant"
    EMPTY = "the list is empty"
    AMBIGUOUS = "host groups of this host have different lists"

    @property
    def allowed(self) -> bool:
        """Whether the job may enter."""
        return self in (JcListAnswer.ANY_CLASS, JcListAnswer.NO_CLASS, JcListAnswer.NAMED)


def allows(
    jc_list: JcList | AmbiguousJcList, job_class: str | None, variant: str = DEFAULT_VARIANT
) -> JcListAnswer:
    """Whether a job of a class and variant (None: of no class) may enter a queue with this list, and why."""
    if isinstance(jc_list, AmbiguousJcList):
        return JcListAnswer.AMBIGUOUS
    names = jc_list.names
    if not names:
        return JcListAnswer.EMPTY
    if job_class is None:
        return JcListAnswer.NO_CLASS if NO_JC in names else JcListAnswer.NEEDS_CLASS
    if ANY_JC in names:
        return JcListAnswer.ANY_CLASS
    named = not names.isdisjoint((job_class, f"{job_class}.{variant}"))
    return JcListAnswer.NAMED if named else JcListAnswer.NOT_NAMED


@dataclass(frozen=True, slots=True, kw_only=True)
class JcListText:
    """What a text says: lists, or else faults; warnings name what has no effect. All are sentences."""

    lists: QueueJcLists | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_jc_list(text: str, classes: Classes | None = None) -> JcListText:
    """Read the value of the attribute. A name that `classes` does not have is a fault; None: names are not checked."""
    faults: list[str] = []
    warnings: list[str] = []

    def one_list(pieces: Iterable[str], where: str) -> JcList:
        names = [piece.strip() for piece in pieces]
        problems = islice(_name_faults(names, classes), _MAX_SENTENCES - len(faults))
        faults.extend(f"jc_list{where}: {problem}." for problem in problems)
        redundant = islice(_redundant(names), _MAX_SENTENCES - len(warnings))
        warnings.extend(f"jc_list{where}: {warning}." for warning in redundant)
        return JcList(names=frozenset(names) - {"NONE"})

    try:
        pieces = split_outside_brackets(text)
        count = next((at for at, piece in enumerate(pieces) if piece.strip().startswith("[")), len(pieces))
        default = one_list(pieces[:count] or [""], "")
        places: dict[str, JcList] = {}
        for piece in pieces[count:]:
            place, said = _bracket(piece.strip())
            if place in places:
                raise UnreadableValue(f"{shown(place)} has two brackets")
            places[place] = one_list(split_outside_brackets(said), f" on {shown(place)}")
    except UnreadableValue as fault:
        return JcListText(lists=None, faults=(*faults, f"jc_list: {fault}."), warnings=tuple(warnings))
    groups = {place: places.pop(place) for place in list(places) if place.startswith("@")}
    lists = QueueJcLists(default=default, hosts=places, groups=groups)
    return JcListText(lists=None if faults else lists, faults=tuple(faults), warnings=tuple(warnings))


def _bracket(piece: str) -> tuple[str, str]:
    inner = piece[1:-1]
    if not (piece.startswith("[") and piece.endswith("]")) or "[" in inner or "]" in inner:
        raise UnreadableValue(f"{shown(piece)!r} is no [host=list]")
    place, equals, said = inner.partition("=")
    place = place.strip()
    if not equals or not place.removeprefix("@") or any(one in ", \t" for one in place):
        raise UnreadableValue(f"{shown(piece)!r} is no [host=list]")
    return place, said


def _name_faults(names: list[str], classes: Classes | None) -> Iterator[str]:
    if "NONE" in names and len(set(names)) > 1:
        yield "NONE stands alone"
    for name, job_class, variant in _classes_of(names):
        problem = name_problem(job_class) or ("." in name and name_problem(variant))
        if problem:
            yield f"the name {shown(name)!r} {problem}"
        elif classes is None or (job_class in classes and ("." not in name or variant in classes[job_class])):
            continue
        else:
            yield f"No job class or job class variant {shown(name)!r}"


def _redundant(names: list[str]) -> Iterator[str]:
    known = set(names)
    for name, job_class, _ in _classes_of(names):
        wider = ANY_JC if ANY_JC in known else job_class
        if wider != name and wider in known:
            yield f"{shown(name)} has no effect beside {shown(wider)}"


def _classes_of(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each name that is no keyword, its class and its variant."""
    for name in dict.fromkeys(names):
        if name not in (ANY_JC, NO_JC, "NONE"):
            job_class, _, variant = name.partition(".")
            yield name, job_class, variant
