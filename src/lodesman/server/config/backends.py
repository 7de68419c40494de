"""The batch systems of a configuration: `[backend.NAME]` sections, and those that queues name without one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from lodesman.decide.resources import (
    LOCAL,
    MANUAL,
    EffectiveParam,
    Fault,
    FilePosition,
    QueueId,
    ResourceConfig,
    all_queues,
    backend_of,
    backend_type,
    fold,
    names_backend,
    place_of,
    queue_settings,
)
from lodesman.server.config.sections import Place, read_table
from lodesman.server.engines.submit_options import refused_options, refused_variables

_MOST_PORT: Final = 65_535
_CE_PORT: Final = 9619  # of the collector of an HTCondor-CE
_OPTIONS: Final = fold("SubmitOptions")
_ADDRESS: Final = "arc"  # is reached by an address; the others by their commands


class BackendSection(Struct, forbid_unknown_fields=True, frozen=True):
    """A batch system. Its commands run on this machine or, by SSH, on `host`. Options of a single type are in `_OF_TYPE`."""

    type: str = ""
    host: str = ""  # [USER@]HOST[:PORT]
    identity: str = ""
    known_hosts: str = "~/.ssh/known_hosts"
    account: str = ""  # of this machine
    folder: str = ""  # for outputs, from the account's home there; '': the usual one
    submit_options: str = ""  # words for the submit command
    environment: dict[str, str] = {}  # added to that of all commands
    poll_seconds: Annotated[float, Meta(ge=1, le=3_600)] = 30.0
    parallel_environment: str = ""
    memory_resource: str = ""
    shared: bool = True
    accounting_file: str = ""
    schedd: str = ""
    collector: str = ""
    url: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    token_file: str = ""
    # Seconds of credentials; None: the director's requiredTimeLeft.
    required_time_left: Annotated[float, Meta(ge=0)] | None = None
    renew: tuple[str, ...] = ()  # the command that renews the credential, word by word


_OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "slurm": frozenset(),
    "gridengine": frozenset({"parallel_environment", "memory_resource", "shared", "accounting_file"}),
    "htcondor": frozenset({"schedd", "collector", "certificate", "token_file"}),
    "arc": frozenset({"url", "ca", "certificate", "key", "token_file"}),
}
_OF_COMMANDS: Final = frozenset(
    {"host", "identity", "known_hosts", "account", "folder", "submit_options", "environment"}
)


def read_backends(
    tables: Mapping[str, Any], complain: Callable[[Place, str], None]
) -> dict[str, BackendSection]:
    """The sections by name, in lower case."""
    sections = {}
    for name, table in tables.items():
        place = ("backend", name)
        section = read_table(BackendSection, table, place, complain)
        section = _implied(name.lower(), section)
        for option, fault in section_faults(name.lower(), section):
            complain((*place, option) if option else place, fault)
        sections[name.lower()] = section
    return sections


def with_implied(
    sections: Mapping[str, BackendSection], resources: ResourceConfig
) -> dict[str, BackendSection]:
    """Also backends of queues that have no section, such as `slurm` or `slurm@login.example`."""
    names = {name for name in queues_of_backends(resources) if backend_type(name) not in ("", LOCAL, MANUAL)}
    implied = {name: _implied(name, BackendSection()) for name in sorted(names)}
    good = {name: section for name, section in implied.items() if not any(section_faults(name, section))}
    return good | dict(sections)


def queues_of_backends(resources: ResourceConfig) -> dict[str, QueueId]:
    """The backends of all queues, as any VO sees them, each with the first of its queues."""
    first: dict[str, QueueId] = {}
    for queue, params in _as_any_vo(resources, names_backend):
        first.setdefault(backend_of(params, resources.types), queue)
    return first


def queue_faults(sections: Mapping[str, BackendSection], resources: ResourceConfig) -> Iterator[Fault]:
    """Submit options of queues that their batch systems cannot be given, each with its line."""
    kinds = {name: section.type for name, section in sections.items()}
    faults: dict[Fault, None] = {}
    for queue, params in _as_any_vo(
        resources, lambda names: names_backend(names) or _OPTIONS in map(fold, names)
    ):
        if _OPTIONS not in params:
            continue
        settings, source = queue_settings(params, resources.types), params[_OPTIONS].source
        for fault in refused_options(kinds.get(settings.backend, ""), settings.submit_options):
            message = f"SubmitOptions of {'/'.join(queue)} ({settings.backend}): {fault}"
            faults.setdefault(Fault(message=message, source=source or FilePosition()))
    return iter(faults)


def _as_any_vo(
    resources: ResourceConfig, differs: Callable[[Iterable[str]], bool]
) -> Iterator[tuple[QueueId, Mapping[str, EffectiveParam]]]:
    """All queues, and again for each VO that sees parameters of its own among the names that `differ`."""
    tree, types = resources.tree, resources.types
    own = {vo for _, node in tree.nodes() for vo, params in node.overlays.items() if differs(params)}
    for vo in ("", *sorted(own)):
        yield from all_queues(tree, vo=vo, types=types)


def _implied(name: str, section: BackendSection) -> BackendSection:
    kind, place = backend_type(section.type or name), place_of(name)
    more: dict[str, str] = {"type": kind}
    if kind == _ADDRESS:
        address = place if ":" in place else f"{place}:443"
        more["url"] = section.url or (f"https://{address}/arex" if place else "")
    elif kind == "htcondor":
        more["schedd"] = section.schedd or place.partition(":")[0]
        more["collector"] = section.collector or (
            place if not place or ":" in place else f"{place}:{_CE_PORT}"
        )
    else:
        more["host"] = section.host or place
    return msgspec.structs.replace(section, **more)


def section_faults(name: str, section: BackendSection) -> Iterator[tuple[str, str]]:
    """Option and fault; no option where it is the whole section."""
    kind = section.type
    if "+" in name:
        yield "", "a + in the name stands before an identity"
    if kind in (LOCAL, MANUAL):
        yield "", f"{kind} needs no section; its options stand in [local]"
    elif kind not in _OF_TYPE:
        yield "type", f"the type of backend {name} is slurm, gridengine, arc or htcondor"
    else:
        yield from _foreign(section)
    yield from _credential_faults(section)
    if kind == _ADDRESS and not section.url.startswith("https://"):
        yield "url", "the address of an ARC CE begins with https://"
    port = section.host.rpartition("@")[2].partition(":")[2]
    if port and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) <= _MOST_PORT):
        yield "host", f"the port of {section.host} is no number from 1 to {_MOST_PORT}"
    if section.host and section.account:
        yield "account", "commands by SSH run as the user in `host`"
    try:
        words = shlex.split(section.submit_options)
    except ValueError:
        words = []
        yield "submit_options", "a quotation mark in submit_options is not closed"
    for fault in refused_options(kind, words):
        yield "submit_options", f"submit_options: {fault}"
    for fault in refused_variables(kind, section.environment):
        yield "environment", f"environment: {fault}"


def _credential_faults(section: BackendSection) -> Iterator[tuple[str, str]]:
    if section.type == "htcondor" and section.host and (section.certificate or section.token_file):
        yield "host", "commands by SSH find certificates and tokens over there: name them in `environment`"
    if section.identity and not section.host:
        yield "identity", "a key is for commands by SSH, and there is no host"
    if (section.renew or section.required_time_left) and not (section.certificate or section.token_file):
        yield "renew" if section.renew else "required_time_left", "there is no certificate and no token_file"


def _foreign(section: BackendSection) -> Iterator[tuple[str, str]]:
    plain = BackendSection()
    own = _OF_TYPE[section.type] | (_OF_COMMANDS if section.type != _ADDRESS else frozenset())
    kinds = {**_OF_TYPE, "batch systems with commands": _OF_COMMANDS}
    for option in sorted(frozenset().union(*kinds.values()) - own):
        if getattr(section, option) != getattr(plain, option):
            whose = " and ".join(kind for kind, options in kinds.items() if option in options)
            yield option, f"{option} is an option of {whose}, not of {section.type}"
