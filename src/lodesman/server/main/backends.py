"""The batch systems of the background process, each with its watch."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from lodesman.base.errors import LodesmanError
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import LOCAL, QueueId
from lodesman.server.config import ServerConfig
from lodesman.server.config.backends import BackendSection
from lodesman.server.engines.arc import ArcBackend
from lodesman.server.engines.backend import Backend
from lodesman.server.engines.credentials import Credential
from lodesman.server.engines.gridengine import GridEngineBackend
from lodesman.server.engines.htcondor import HTCondorBackend
from lodesman.server.engines.isolation import Isolation
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.run import Runner
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.run.https import Https
from lodesman.server.engines.run.ssh import Ssh
from lodesman.server.engines.slurm import SlurmBackend
from lodesman.server.loops.cancelling import end_all
from lodesman.server.loops.census import BackendWatch
from lodesman.server.main import bootstrap, data_folder, process
from lodesman.server.main.data_folder import write_file
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import fate_of

log = logging.getLogger(__name__)

# A pilot gives its payloads 10 s to end, and then reports; its batch system takes a while to notice.
END_SECONDS: Final = 45.0
_PRIVATE: Final = 0o700


class Backends:
    """The watches by name, the local one among them; any thread may read them.

    They never become fewer: one that is configured no more is asked about its pilots.
    """

    def __init__(
        self,
        local: Backend,
        *,
        make: Callable[[BackendSection], Backend],
        watch: Callable[[str, Backend], BackendWatch],
        begin: Callable[[BackendWatch, float], None],
        kept: Path,
        with_pilots: Collection[str] = (),
    ) -> None:
        """`begin` starts to poll a watch. `kept`: the file with all sections, for those of `with_pilots` that a
        start finds configured no more.
        """
        self._make = make
        self._watch = watch
        self._begin = begin
        self._kept = kept
        self._sections: dict[str, BackendSection] = {}
        self.watches: Mapping[str, BackendWatch] = {LOCAL: watch(LOCAL, local)}
        for name, section in _sections_in(kept).items():
            if name in with_pilots:
                try:
                    self._have(name, section, make(section))
                except LodesmanError as fault:
                    log.warning(
                        "a backend of pilots is configured no more: %s", fault, extra={"backend": name}
                    )

    def configure(
        self, sections: Mapping[str, BackendSection], policy: Policy, required_seconds: float
    ) -> None:
        """Have these, with the queues of each; their credentials must last `required_seconds`."""
        changed = {name: section for name, section in sections.items() if self._sections.get(name) != section}
        made = {name: self._make(section) for name, section in changed.items()}
        for name, backend in made.items():
            self._have(name, changed[name], backend)
        if changed:
            write_file(self._kept, msgspec.json.encode(self._sections).decode())
        queues = queues_by_backend(policy)
        for name, watch in self.watches.items():
            if name != LOCAL:
                watch.queues = queues.get(name, ()) if name in sections else ()
            if name in sections:
                watch.options = tuple(shlex.split(sections[name].submit_options))
                watch.credential = _credential(sections[name], required_seconds, watch.credential)

    def _have(self, name: str, section: BackendSection, backend: Backend) -> None:
        self._sections[name] = section
        watch = self.watches.get(name)
        if watch is not None:
            watch.backend = backend
            return
        new = self._watch(name, backend)
        # Whoever goes through the watches at this moment goes on with those of before.
        self.watches = {**self.watches, name: new}
        self._begin(new, section.poll_seconds)

    def end_pilots(self, db: Reader) -> list[str]:
        """End all pilots elsewhere; the stamps of those that are left after a while."""
        others = {name: watch.backend for name, watch in self.watches.items() if name != LOCAL}
        return end_all(db, others, seconds=END_SECONDS)


def _sections_in(kept: Path) -> dict[str, BackendSection]:
    """Of the last start. A file that cannot be read keeps no server from starting."""
    try:
        return msgspec.json.decode(kept.read_bytes(), type=dict[str, BackendSection])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as fault:
        log.warning("the backends of the last start are not known: %s", fault, extra={"file": str(kept)})
        return {}


def end_pilots(sections: Mapping[str, BackendSection], sockets: Path, db: Reader) -> list[str]:
    """As `Backends.end_pilots`, without a background process."""
    made = {name: make_backend(section, sockets) for name, section in sections.items()}
    return end_all(db, made, seconds=END_SECONDS)


def queues_by_backend(policy: Policy) -> dict[str, tuple[QueueId, ...]]:
    """The queues that any VO may use."""
    queues_of: dict[str, dict[QueueId, None]] = {}
    for vo in ("", *policy.config.vos):
        for offer in policy.vo_config(vo).offers:
            queues_of.setdefault(offer.backend, {})[offer.queue] = None
    return {name: tuple(queues) for name, queues in queues_of.items()}


def make_backend(section: BackendSection, sockets: Path, mark: str = "") -> Backend:
    """The batch system of a section. `sockets`: a folder for SSH; `mark` begins the submissions of this server."""
    if section.type == "arc":
        return ArcBackend(mark=mark, service=Https(
            url=section.url, ca=section.ca, certificate=section.certificate, key=section.key,
            token_file=section.token_file,
        ))  # fmt: skip
    runner = _runner(section, sockets)
    if section.type == "slurm":
        return SlurmBackend(runner, mark=mark, folder=section.folder or SlurmBackend.folder)
    if section.type == "htcondor":
        return HTCondorBackend(
            runner=runner,
            mark=mark,
            schedd=section.schedd,
            collector=section.collector,
            folder=section.folder,
        )
    return GridEngineBackend(
        runner=runner,
        mark=mark,
        environment=section.environment,
        parallel_environment=section.parallel_environment,
        memory_resource=section.memory_resource,
        shared=section.shared,
        accounting_file=section.accounting_file,
        folder=section.folder or GridEngineBackend.folder,
    )


def _credential(
    section: BackendSection, required_seconds: float, before: Credential | None
) -> Credential | None:
    """None if the section names none; the one of `before` if it is the same."""
    if not section.certificate and not section.token_file:
        return None
    own = section.required_time_left
    made = Credential(
        certificate=section.certificate,
        token_file=section.token_file,
        required_seconds=required_seconds if own is None else own,
        renew=section.renew,
    )
    return before if before is not None and before.same(made) else made


def _runner(section: BackendSection, sockets: Path) -> Runner:
    """`host` is [USER@]HOST[:PORT]."""
    if not section.host:
        files = {"X509_USER_PROXY": section.certificate, "BEARER_TOKEN_FILE": section.token_file}
        named = {name: file for name, file in files.items() if file}
        return Here(account=section.account, environment=named | section.environment)
    user, _, place = section.host.rpartition("@")
    host, _, port = place.partition(":")
    return Ssh(
        host=host,
        user=user,
        port=int(port or 0),
        known_hosts=Path(section.known_hosts).expanduser(),
        identity=Path(section.identity).expanduser() if section.identity else None,
        environment=section.environment,
        sockets=sockets,
    )


def make_local_backend(config: ServerConfig, accounts: Callable[[], int], db: Reader) -> LocalBackend:
    """`accounts`: the number of users now, on which it depends whether pilots may run."""
    isolation = bootstrap.isolation_of(config) or Isolation()
    if isolation.folder_mode != _PRIVATE:  # another account passes through
        config.data.chmod(isolation.folder_mode)
    return LocalBackend(
        config.data / "pilots",
        {},
        programs=data_folder.share_directory(config),
        open_files=process.raise_open_files(),
        isolation=isolation,
        closed=lambda: isolation.closed(accounts()),
        fate_of=partial(fate_of, db),
    )
