"""jc_list, the attribute of a queue that says which job classes may enter it.

    jc_list = list { "," "[" host "=" list "]" }     a host, or @ and a host group
    list    = "NONE" | name { "," name }
    name    = "ANY_JC" | "NO_JC" | class | class "." variant

The value of a host beats that of its host group, which beats the first one. Names of hosts do not depend on case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct, field

from lodesman.languages.gridengine.values import UnreadableValue, class_name_problem, split_outside_brackets
from lodesman.languages.gridengine.vocabulary import Vocabulary

ANY_JC, NO_JC = "ANY_JC", "NO_JC"
_KEYWORDS = frozenset({ANY_JC, NO_JC})
_MAX_SENTENCES = 100
_SHOWN = 40

JcList = frozenset[str]
"""The names of one list; none: nothing enters."""


def offered_classes(jc_list: JcList) -> tuple[str, ...] | None:
    """The names, keywords first; None if every job may enter."""
    if jc_list >= _KEYWORDS:
        return None
    return tuple(sorted(jc_list, key=lambda name: (name not in _KEYWORDS, name)))


class AmbiguousJcList(Struct, frozen=True, kw_only=True):
    """Host groups of one host differ: the queue takes no jobs there."""

    host: str
    groups: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        groups = " and ".join(self.groups)
        return f"jc_list is ambiguous on {self.host}: {groups} differ; give the host a list of its own"


class QueueJcLists(Struct, frozen=True, kw_only=True):
    """The lists of one queue."""

    default: JcList = _KEYWORDS
    hosts: Mapping[str, JcList] = field(default_factory=dict)  # In lower case.
    groups: Mapping[str, JcList] = field(default_factory=dict)  # With their `@`.

    def on(self, host: str, groups: Iterable[str] = ()) -> JcList | AmbiguousJcList:
        """`groups`: the host's groups."""
        host = host.lower()
        if host in self.hosts:
            return self.hosts[host]
        lists = {group: self.groups[group] for group in sorted(set(groups)) if group in self.groups}
        if len(set(lists.values())) > 1:
            return AmbiguousJcList(host=host, groups=tuple(lists))
        return next(iter(lists.values()), self.default)

    def _all(self) -> Iterator[JcList]:
        yield self.default
        yield from self.hosts.values()
        yield from self.groups.values()

    @property
    def anywhere(self) -> JcList:
        """What may enter on some host."""
        return JcList().union(*self._all())

    def classes(self) -> list[str]:
        """Named classes and variants."""
        return sorted(self.anywhere - _KEYWORDS)

    def names_class(self, name: str) -> bool:
        """Whether a list has this class or its variant, so that it cannot be deleted."""
        return any(job_class.partition(".")[0] == name for job_class in self.classes())

    def ambiguous(self, vocabulary: Vocabulary) -> Iterator[AmbiguousJcList]:
        """The hosts of known groups where the list is ambiguous."""
        for host in sorted({host for group in self.groups for host in vocabulary.hosts_of(group)}):
            jc_list = self.on(host, vocabulary.groups_of(host))
            if isinstance(jc_list, AmbiguousJcList):
                yield jc_list

    def __str__(self) -> str:
        brackets = (
            f",[{host}={_text(value)}]" for host, value in (*self.hosts.items(), *self.groups.items())
        )
        return f"{_text(self.default)}{''.join(brackets)}"


def _text(jc_list: JcList) -> str:
    names = offered_classes(jc_list - _KEYWORDS) or ()
    return ",".join((*sorted(jc_list & _KEYWORDS), *names)) or "NONE"


class JcListText(Struct, frozen=True, kw_only=True):
    """Lists, or else faults. All texts are sentences."""

    lists: QueueJcLists | None
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # What has no effect.


def read_jc_list(text: str) -> JcListText:
    """Whether the classes exist is not checked."""
    faults: list[str] = []
    warnings: list[str] = []

    def one_list(pieces: Iterable[str], where: str) -> JcList:
        names = [piece.strip() for piece in pieces]
        problems = list(islice(_name_faults(names), _MAX_SENTENCES - len(faults)))
        faults.extend(f"jc_list{where}: {problem}." for problem in problems)
        if not problems:  # else a name may be no text
            redundant = islice(_redundant(names), _MAX_SENTENCES - len(warnings))
            warnings.extend(f"jc_list{where}: {warning}." for warning in redundant)
        return JcList(names) - {"NONE"}

    try:
        pieces = split_outside_brackets(text)
        count = next((at for at, piece in enumerate(pieces) if piece.strip().startswith("[")), len(pieces))
        default = one_list(pieces[:count] or [""], "")
        places: dict[str, JcList] = {}
        for piece in pieces[count:]:
            place, listed = _bracket(piece.strip())
            if place in places:
                raise UnreadableValue(f"{place[:_SHOWN]!r} has two brackets")
            places[place] = one_list(split_outside_brackets(listed), f" on {place[:_SHOWN]!r}")
    except UnreadableValue as fault:
        return JcListText(lists=None, faults=(*faults, f"jc_list: {fault}."), warnings=tuple(warnings))
    groups = {place: places.pop(place) for place in list(places) if place.startswith("@")}
    lists = QueueJcLists(default=default, hosts=places, groups=groups)
    return JcListText(lists=None if faults else lists, faults=tuple(faults), warnings=tuple(warnings))


def _bracket(piece: str) -> tuple[str, str]:
    inner = piece[1:-1]
    place, equals, names = inner.partition("=")
    place = place.strip()
    whole = piece.startswith("[") and piece.endswith("]") and "[" not in inner and "]" not in inner
    if not whole or not equals or not place.removeprefix("@") or any(mark in ", \t" for mark in place):
        raise UnreadableValue(f"{piece[:_SHOWN]!r} is no [host=list]")
    return place if place.startswith("@") else place.lower(), names


def _name_faults(names: Collection[str]) -> Iterator[str]:
    if "NONE" in names and len(set(names)) > 1:
        yield "NONE stands alone"
    for name, job_class, variant in _classes_of(names):
        problem = class_name_problem(job_class) or ("." in name and class_name_problem(variant))
        if problem:
            yield f"the name {name[:_SHOWN]!r} {problem}"


def _redundant(names: Collection[str]) -> Iterator[str]:
    all_names = set(names)
    for name, job_class, _ in _classes_of(names):
        wider = ANY_JC if ANY_JC in all_names else job_class
        if wider != name and wider in all_names:
            yield f"{name[:_SHOWN]} has no effect beside {wider[:_SHOWN]}"


def _classes_of(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys(names):
        if name not in (*_KEYWORDS, "NONE"):
            job_class, _, variant = name.partition(".")
            yield name, job_class, variant
