"""Identities: `[identity.NAME]` sections, each an account or a credential with which some pilots are submitted.

An identity on a batch system is a batch system of its own, `BACKEND+NAME`, with a watch. Queues may name it as
their `Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from lodesman.decide.director.options import IdentityRule
from lodesman.decide.director.orders import name_as
from lodesman.decide.resources.backends import spelled_backend
from lodesman.server.config.backends import BackendSection, section_faults
from lodesman.server.config.sections import Place, read_table

_Complain = Callable[[Place, str], None]


class IdentitySection(Struct, forbid_unknown_fields=True, frozen=True):
    """Whose private pilots it submits (owner, group or both). Other options replace those of the batch system."""

    owner: str = ""
    group: str = ""
    backends: tuple[str, ...] = ()  # (): all that it fits
    account: str = ""  # of this machine, or on the host of the backend
    ssh_key: str = ""  # private
    certificate: str = ""
    key: str = ""
    token_file: str = ""
    required_time_left: Annotated[float, Meta(ge=0)] | None = None
    renew: tuple[str, ...] = ()


def read_identities(tables: Mapping[str, Any], complain: _Complain) -> dict[str, IdentitySection]:
    """The sections by name, in lower case."""
    sections: dict[str, IdentitySection] = {}
    for name, table in tables.items():
        section = read_table(IdentitySection, table, ("identity", name), complain)
        for fault in _faults(section):
            complain(("identity", name), fault)
        whom = {
            (identity.owner, identity.group): other
            for other, identity in sections.items()
            if identity.owner or identity.group
        }
        if (section.owner, section.group) in whom:
            other = whom[section.owner, section.group]
            complain(("identity", name), f"identity {other} is of the same owner and group")
        sections[name.lower()] = section
    return sections


def with_identities(
    backends: Mapping[str, BackendSection], identities: Mapping[str, IdentitySection], complain: _Complain
) -> tuple[dict[str, BackendSection], dict[str, IdentityRule]]:
    """The batch systems, those that they are for the identities, and the rule of each identity."""
    sections, rules = dict(backends), {}
    for name, identity in identities.items():
        fits = set()
        for backend in map(spelled_backend, identity.backends or backends):
            if backend not in backends:
                complain(("identity", name, "backends"), _no_backend(backend, backends))
                continue
            section = _as_identity(backends[backend], identity)
            faults = list(section_faults(backend, section))
            if faults and identity.backends:
                complain(("identity", name, "backends"), f"it does not fit {backend}: {faults[0][1]}")
            elif not faults:
                fits.add(backend)
                sections[name_as(backend, name)] = section
        if not fits and not identity.backends:
            complain(
                ("identity", name), "there is no batch system that it fits; name one in `backends` to see why"
            )
        rules[name] = IdentityRule(owner=identity.owner, group=identity.group, backends=frozenset(fits))
    return sections, rules


def _faults(section: IdentitySection) -> Iterator[str]:
    has_credential = bool(section.certificate or section.token_file)
    if not (section.account or section.ssh_key or has_credential):
        yield "it names no account, no ssh_key, no certificate and no token_file"
    elif not has_credential and (section.key or section.renew or section.required_time_left):
        yield "key, renew and required_time_left are for a certificate or a token_file, and there is none"


def _no_backend(name: str, backends: Collection[str]) -> str:
    return f"there is no backend {name[:80]}; there are {', '.join(sorted(backends)) or 'none'}"


def _as_identity(section: BackendSection, identity: IdentitySection) -> BackendSection:
    changes: dict[str, Any] = {}
    if identity.account and section.host:
        changes["host"] = f"{identity.account}@{section.host.rpartition('@')[2]}"
    elif identity.account:
        changes["account"] = identity.account
    if identity.ssh_key:
        changes["identity"] = identity.ssh_key
    if identity.certificate or identity.token_file:
        names = ("certificate", "key", "token_file", "required_time_left", "renew")
        changes |= {name: getattr(identity, name) for name in names}
    return msgspec.structs.replace(section, **changes)
