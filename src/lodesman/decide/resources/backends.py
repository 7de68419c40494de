"""Names of batch systems: TYPE, TYPE@PLACE, or of a `[backend.NAME]` section; DIRAC's `CEType` and SSH mean the same."""

from __future__ import annotations

from typing import Final

LOCAL: Final = "local"
MANUAL: Final = "manual"  # of queues to which pilots come without being sent by this server
# All spellings, in lower case -> the type.
_TYPES: Final = {
    "local": LOCAL, "manual": MANUAL, "by-hand": MANUAL, "slurm": "slurm",
    "gridengine": "gridengine", "ge": "gridengine", "sge": "gridengine", "uge": "gridengine", "oge": "gridengine",
    "arc": "arc", "arex": "arc", "htcondor": "htcondor", "condor": "htcondor", "htcondorce": "htcondor",
}  # fmt: skip
TYPES: Final = tuple(dict.fromkeys(_TYPES.values()))
_SSH: Final = frozenset({"ssh", "sshcomputingelement"})
# Those of DIRAC that are reached over the network by the name of the CE.
_REMOTE: Final = frozenset({"arc", "arex", "htcondorce"})


def backend_type(name: str) -> str:
    """Such as `slurm` for `SLURM@login.example.org`; '' for none."""
    return _TYPES.get(name.lower().partition("@")[0].strip(), "")


def place_of(name: str) -> str:
    """What follows the @, '' for here."""
    return name.partition("@")[2].strip()


def backend_name(*, backend: str, ce_type: str, ce: str, ssh_host: str, batch_system: str) -> str:
    """A queue's batch system in all spellings; '' for none."""
    if backend:
        return spelled_backend(backend)
    kind = ce_type.strip().lower()
    if kind in _SSH:
        return spelled_backend(f"{batch_system.strip() or 'ssh'}@{ssh_host.strip() or ce}")
    return spelled_backend(f"{kind}@{ce}" if kind in _REMOTE and ce else kind)


def spelled_backend(name: str) -> str:
    """As in the sections of batch systems."""
    kind, at, place = name.strip().lower().partition("@")
    return f"{_TYPES.get(kind.strip(), kind.strip())}{at}{place.strip()}"
