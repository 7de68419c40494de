"""Host groups, user lists and projects (hostgroup(5), access_list(5), project(5))."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, Complexes


class HostGroup(Struct, frozen=True, kw_only=True):
    """Hosts under one name."""

    name: str  # Starts with `@`.
    members: tuple[str, ...] = ()  # As written: hosts, and other groups.


class UserList(Struct, frozen=True, kw_only=True):
    """Users, and groups of accounts, under one name."""

    name: str
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    kinds: tuple[str, ...] = ("ACL",)

    def has(self, user: str, groups: Collection[str] = ()) -> bool:
        """Whether a user is on it, by name or group."""
        return user in self.users or not self.groups.isdisjoint(groups)


class Project(Struct, frozen=True, kw_only=True):
    """A project."""

    name: str
    acl: tuple[str, ...] = ()  # The user lists that may use it; (): all users may.
    xacl: tuple[str, ...] = ()  # The user lists that may not.
    oticket: int = 0
    fshare: int = 0


def _hosts_of(groups: Mapping[str, HostGroup]) -> dict[str, frozenset[str]]:
    """The hosts of each group, nested ones too, in lower case.

    Groups that are in each other have the same hosts (Tarjan's strongly connected components, 1972).
    """
    nested = {
        name: [member for member in group.members if member in groups] for name, group in groups.items()
    }
    hosts_of: dict[str, frozenset[str]] = {}
    lowest: dict[str, int] = {}
    opened: list[str] = []
    for first in groups:
        path = [] if first in lowest else [(first, len(lowest), iter(nested[first]))]
        while path:
            name, number, ahead = path[-1]
            if name not in lowest:
                lowest[name] = number
                opened.append(name)
            inner = next((member for member in ahead if member not in lowest), None)
            if inner is not None:
                path.append((inner, len(lowest), iter(nested[inner])))
                continue
            path.pop()
            lowest[name] = min(
                [number, *(lowest[member] for member in nested[name] if member not in hosts_of)]
            )
            if lowest[name] == number:
                at = next(at for at in range(len(opened) - 1, -1, -1) if opened[at] == name)
                hosts = {
                    host.lower()
                    for member in opened[at:]
                    for host in groups[member].members
                    if host[:1] != "@"
                }
                hosts.update(*(hosts_of.get(inner, ()) for member in opened[at:] for inner in nested[member]))
                hosts_of |= dict.fromkeys(opened[at:], frozenset(hosts))
                del opened[at:]
    return hosts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What rules may name. Host groups may be nested; one that is in itself adds nothing by that."""

    complexes: Complexes = STOCK_COMPLEXES
    host_groups: Mapping[str, HostGroup] = field(default_factory=dict)
    user_lists: Mapping[str, UserList] = field(default_factory=dict)
    projects: Mapping[str, Project] = field(default_factory=dict)
    enforce_project: bool = False  # Each job names a project; without any projects what it names is free.
    _hosts: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _groups: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hosts = _hosts_of(self.host_groups)
        groups: dict[str, set[str]] = {}
        for name, members in hosts.items():
            for host in members:
                groups.setdefault(host, set()).add(name)
        object.__setattr__(self, "_hosts", hosts)
        object.__setattr__(self, "_groups", {host: frozenset(names) for host, names in groups.items()})

    def hosts_of(self, group: str) -> frozenset[str]:
        """Nested ones too, in lower case; none for an unknown group."""
        return self._hosts.get(group, frozenset())

    def groups_of(self, host: str) -> frozenset[str]:
        """All groups of a host, direct or not; case does not count."""
        return self._groups.get(host.lower(), frozenset())

    def lists_of(self, user: str, groups: Collection[str] = ()) -> frozenset[str]:
        """The user lists of a user, by name or by the account's groups."""
        return frozenset(name for name, user_list in self.user_lists.items() if user_list.has(user, groups))

    def with_accounts(self, groups: Mapping[str, Collection[str]]) -> Vocabulary:
        """Add the users of groups that lists name, and a list of each other group. `groups`: of each account."""
        members: dict[str, set[str]] = {}
        for user, of in groups.items():
            for group in of:
                members.setdefault(group, set()).add(user)
        lists = {name: UserList(name=name, users=frozenset(users)) for name, users in members.items()}
        for name, user_list in self.user_lists.items():
            users = user_list.users.union(*(members.get(group, ()) for group in user_list.groups))
            lists[name] = replace_fields(user_list, users=users)
        return replace(self, user_lists=lists)

    def project_problem(self, name: str, user: str, groups: Collection[str] = ()) -> str:
        """Why this user's job cannot have this project ("": none), without a full stop; "" if it can."""
        if not name:
            return "each job names a project here, and this one names none" if self.enforce_project else ""
        project = self.projects.get(name)
        if project is None:
            return f"there is no project {name!r}" if self.projects else ""
        lists = self.lists_of(user, groups)
        barred = next((user_list for user_list in project.xacl if user_list in lists), "")
        if barred:
            return f"the list {barred} bars {user} from the project {name}"
        if project.acl and lists.isdisjoint(project.acl):
            return f"{user} may not use the project {name}, which is for {', '.join(project.acl)}"
        return ""

    def projects_of(self, user: str, groups: Collection[str] = ()) -> list[str]:
        """The projects that a user may give jobs."""
        return [name for name in self.projects if not self.project_problem(name, user, groups)]
