"""What both processes make of the configuration, and the port of the server."""

from __future__ import annotations

import errno
import logging
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from lodesman.base.errors import Conflict, Unavailable
from lodesman.decide.director.orders import private_pools
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.config import ServerConfig
from lodesman.server.engines.isolation import Isolation, Wishes, find_isolation
from lodesman.server.engines.zipapp import build_zipapp
from lodesman.server.loops.candidates import find_local_slots
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.main.data_folder import share_directory, shared_url_file

log = logging.getLogger(__name__)

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_PACKAGE = Path(__file__).resolve().parents[2]

# With `stop_at_exit`: a pilot gives a payload 10 s to clean up, and then reports how it ended.
PILOT_GRACE_SECONDS = 12.0
# How often the configuration files are checked for changes.
CONFIG_SECONDS = 2.0

# As `config.load_config`, with the file and its overrides given.
Load = Callable[..., ServerConfig]


def name_settings(config: ServerConfig) -> dict[str, str]:
    """What last words of pilots may name -> the setting of the server where that stands."""
    python = config.pilots.python
    named = {"no Python 3.9 or newer": "python of [pilots]", config.pilot_url: "public_url of [server]"}
    name = Path(python).name
    return named if name in ("python", "python3") else named | {name: f"python of [pilots], now {python}"}


def pilot_settings(config: ServerConfig, mark: str) -> PilotSettings:
    """What every pilot gets; makes the program that runs. `mark`: of the database."""
    zipapp = share_directory(config) / "pilot.pyz"
    build_zipapp(zipapp)
    return PilotSettings(
        servers=(config.pilot_url,),
        mark=mark,
        program=zipapp.read_bytes(),
        python=config.pilots.python,
        idle_seconds=config.pilots.idle_seconds,
        heartbeat_seconds=config.pilots.heartbeat_seconds,
        life_seconds=config.pilots.life_seconds,
        jobstatus_directory=config.pilots.jobstatus_directory,
        home_writable=config.pilots.home_writable,
        ca_file=read_own_certificates(config),
        url_file="" if config.server.public_url else str(shared_url_file(config)),
    )


class OpenPort(msgspec.Struct, frozen=True):
    """The port where the server listens, and the configuration that has it."""

    config: ServerConfig
    arguments: list[str]  # lead the background process to it
    load: Load  # reads it again
    sockets: list[socket.socket]


def listen(config: ServerConfig, arguments: list[str], load: Load) -> OpenPort:
    """Raises Unavailable if this machine has no such address, Conflict if the port is in use. 0 is any free port."""
    host, number = config.server.host, config.server.port
    try:
        family, *_, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=2_048)
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {number} of {host} is in use.",
                hint="Another server runs there? Choose another port with --port.",
            ) from None
        raise Unavailable(f"The server cannot listen at {host}, port {number}: {fault.strerror}.") from None
    if number:
        return OpenPort(config, arguments, load, [listener])
    port = listener.getsockname()[1]
    more = ["--set", f"server.port={port}"]
    return OpenPort(
        _at(config, port), [*arguments, *more], lambda **options: _at(load(**options), port), [listener]
    )


def _at(config: ServerConfig, port: int) -> ServerConfig:
    if config.server.port:
        return config
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port))


def gate_options(config: ServerConfig) -> GateOptions:
    """How gates of sites count, and how sites are chosen."""
    broker = config.broker
    return GateOptions(
        mode=broker.mode, ledger_s=broker.ledger_seconds, lifetime_s=broker.lifetime_seconds,
        by_capacity=broker.stations_by_capacity,
    )  # fmt: skip


def read_own_certificates(config: ServerConfig) -> str:
    """The server's certificate with its chain in PEM, without a key; '' without TLS."""
    if not config.server.tls_certificate:
        return ""
    blocks = _CERTIFICATE.findall(Path(config.server.tls_certificate).read_text())
    return "\n".join(blocks)


def isolation_of(config: ServerConfig, *, make_account: bool = False) -> Isolation | None:
    """How local pilots are kept from the server, found out by trial; None if no queue has any. `make_account`: root
    may make an account.
    """
    if not find_local_slots(Policy(config.resources)):
        return None
    files = [path for path in (config.path, *config.resource_files) if path is not None]
    folders = (config.sources.base, *(file.parent for file in files))
    wishes = Wishes(
        data=config.data,
        run_as=config.local.run_as,
        trust_jobs=config.local.trust_jobs,
        python=config.pilots.python,
        shown=(share_directory(config),),
        program=(*files, *folders, _PACKAGE.parent),
        secrets=(
            *(Path(file) for file in (config.server.tls_key, config.path) if file),
            *config.database.ways_in(),
        ),
    )
    return find_isolation(wishes, make_account=make_account)


def policy_of(
    config: ServerConfig,
    bits: Mapping[QueueId, int],
    *,
    life_seconds: int,
    inhabited: Callable[[frozenset[QueueId]], frozenset[ResourceRequest]],
) -> Policy:
    """`life_seconds`: as at the start; `inhabited`: what the pilots that live there present."""
    return Policy(
        config.resources,
        backends=config.backend_names,
        add_eligible_sites=config.submit_pools.add_eligible_sites,
        submission_pools=config.director.scopes,
        private_pools=private_pools(config.director),
        life_seconds=life_seconds,
        loaded_at=time.time(),
        bits=bits,
        inhabited=inhabited,
        vocabulary=config.vocabulary,
    )
