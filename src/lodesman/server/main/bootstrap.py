"""The start of a server: its port, the first user, tokens, directories, and the zipapp of the pilot, one file that any
worker node with Python 3.9 runs; and what both processes do: the limit of open files, memory, the policy.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib.util
import io
import logging
import marshal
import os
import re
import resource
import secrets
import socket
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from lodesman.base import kernel
from lodesman.base.durable import write_durably
from lodesman.base.errors import Conflict, Unavailable
from lodesman.decide.director.orders import private_pools
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.config import ServerConfig
from lodesman.server.engines.isolation import Isolation, Wishes, find_isolation
from lodesman.server.loops.candidates import local_slots
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.site_matching import GateOptions
from lodesman.server.store import Writer
from lodesman.server.store.accounts import is_admin, set_service_token
from lodesman.server.store.audit import note
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.accounts import add_account, issue_token
from lodesman.server.writer.pilots import hash_token
from lodesman.server.writer.submit_pools import number_at_start
from lodesman.wire.accounts import SCOPES, AuditNote

log = logging.getLogger(__name__)

SERVICE_FILE = "service.token"
READS_SOCKET, INNER_SOCKET = "reads.sock", "hot.sock"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
# The longest name of a Unix socket, and the zero byte that ends it.
_SOCKET_NAME_BYTES = 108
_TOKEN_FILE = "admin.token"
_PACKAGE = Path(__file__).resolve().parents[2]
# The programs that travel, each with the packages that it needs.
_NEEDS = {"pilot": ("wire/client", "site/jobstatus"), "advertise": ("wire/client",), "jobstatus": ()}
# Where each is; the others are packages of their own room.
_PROGRAMS = {"pilot": "pilot", "advertise": "site/advertise", "jobstatus": "site/jobstatus"}
_BASE = (
    "__init__.py",
    "base/__init__.py",
    "base/errors.py",
    "base/kernel.py",
    "base/processes.py",
    "site/__init__.py",
    "wire/__init__.py",
)
# What a pilot publishes with; the rest of `jobstatus` is for sites, and pilots travel often.
_WRITER = {f"{name}.py" for name in ("__init__", "channel", "locks", "timeline", "values", "waste")}
_START = "from lodesman.{package}.{module} import main\n\nraise SystemExit(main())\n"
# The earliest time a zip entry can have: the same sources give the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)

# With `stop_at_exit`: a pilot gives a payload 10 s to clean up, and then reports how it ended.
PILOT_GRACE_SECONDS = 12.0
# How often the configuration files are checked for changes.
CONFIG_SECONDS = 2.0
# What the limit of open files was before the server raised its own (environment): pilots and their jobs get that, since
# old programs cannot deal with more.
FILES_BEFORE = "LODESMAN_OPEN_FILES"
# Beyond this a limit is as good as none, and slows down programs that go through all numbers.
_MOST_FILES = 1 << 20
_FEW_FILES = 4_096
# Of the limits without which the faults have other names, the least: the words, and where it is set.
_LEAST = {
    resource.RLIMIT_NOFILE: (
        64,
        "Only {} files may be open at once",
        "LimitNOFILE= of systemd, or ulimit -n",
    ),
    resource.RLIMIT_FSIZE: (1 << 30, "A file may have only {} bytes", "LimitFSIZE= of systemd, or ulimit -f"),
}
# The name of a setting for glibc's `mallopt`, and from how many bytes a block is given back.
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK = 1 << 18
# The second: a walk through young objects is short. The third: one through all of them is as rare as they are many.
_GC_THRESHOLDS = (20_000, 5, 200)

# As `config.load_config`, with the file and its overrides given.
Load = Callable[..., ServerConfig]


def run_directory(config: ServerConfig) -> Path:
    """DATA/run: the service token, the background process's socket, and the server's address."""
    return config.data / "run"


def service_token(config: ServerConfig) -> str:
    """The token of the server's own processes, as `prepare` made it."""
    return (run_directory(config) / SERVICE_FILE).read_text().strip()


def socket_path(config: ServerConfig, name: str = READS_SOCKET) -> str:
    """A socket of the server, or its own; through a descriptor of its folder where its name is too long for a socket."""
    path = run_directory(config) / name
    if len(os.fsencode(path)) < _SOCKET_NAME_BYTES:
        return str(path)
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)}/{name}"


def share_directory(config: ServerConfig) -> Path:
    """DATA/share: what pilots on this machine may read."""
    return config.data / "share"


def shared_url_file(config: ServerConfig) -> Path:
    """DATA/share/url: the server's address, for pilots on this machine."""
    return share_directory(config) / "url"


def settings_named(config: ServerConfig) -> dict[str, str]:
    """What the last words of pilots that did not start may have -> the setting of the server that it comes from."""
    python = config.pilots.python
    named = {"no Python 3.9 or newer": "python of [pilots]", config.pilot_url: "public_url of [server]"}
    name = Path(python).name
    return named if name in ("python", "python3") else named | {name: f"python of [pilots], now {python}"}


def pilot_settings(config: ServerConfig, mark: str) -> PilotSettings:
    """What every pilot gets; makes the program that runs. `mark`: that of the database."""
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
        ca_file=own_certificates(config),
        url_file="" if config.server.public_url else str(shared_url_file(config)),
    )


def prepare(db: Writer, config: ServerConfig, *, now: float) -> None:
    """Number the CE queues, make the first user with its token, and a fresh token for the background process."""
    private = (config.data, run_directory(config), config.data / "sandboxes")
    for folder, mode in {**dict.fromkeys(private, 0o700), share_directory(config): 0o755}.items():
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        folder.chmod(mode)
    with db:
        tx = Transaction(db, now)
        number_at_start(tx, list(config.resources.tree.queue_ids()))
        known = is_admin(tx.reader(), config.admin.name) is not None
        if not (known and (config.data / _TOKEN_FILE).exists()):
            vo, groups = _first_place(config)
            add_account(tx, config.admin.name, vo, groups, admin=True)
            why = "made at the first start"
            first = issue_token(tx, config.admin.name, SCOPES, seconds=None, note=why)
            note(
                tx, AuditNote("token-issued", config.admin.name, detail=f"{', '.join(sorted(SCOPES))}; {why}")
            )
            write_file(config.data / _TOKEN_FILE, first)
        token = secrets.token_urlsafe(32)
        set_service_token(tx, hash_token(token))
        tx.flush()
    write_file(run_directory(config) / SERVICE_FILE, token)


def _first_place(config: ServerConfig) -> tuple[str, tuple[str, ...]]:
    """VO and groups of the first user. Not given, they are the VO of the first group that has one, and its groups."""
    known, given = config.resources.groups, config.admin.groups
    vo_of = {name: known[name].vo if name in known else "" for name in given or known}
    vo = config.admin.vo or next((one for one in (*vo_of.values(), *config.resources.vos) if one), "local")
    return vo, given or tuple(name for name, one in vo_of.items() if one in ("", vo)) or ("users",)


def write_url(config: ServerConfig) -> None:
    """Write the server's address, whose port may be any free one: for the command line, and for local pilots."""
    write_file(run_directory(config) / "url", config.url)
    write_file(shared_url_file(config), config.url, mode=0o644)


def write_file(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file, all or nothing; only its owner can read it, unless `mode` says otherwise."""
    write_durably(path, f"{text}\n".encode(), mode=mode)


class Listening(msgspec.Struct, frozen=True):
    """The configuration with the port, for this process, for the second one, and for each later reading; the sockets."""

    config: ServerConfig
    arguments: list[str]
    load: Load
    sockets: list[socket.socket]


def listen(config: ServerConfig, arguments: list[str], load: Load) -> Listening:
    """Port 0 becomes a free one. Raises Unavailable if this machine has no such address, Conflict if its port is in use."""
    host, wanted = config.server.host, config.server.port
    try:
        family, *_, address = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM)[0]
        taken = socket.create_server(address[:2], family=family, backlog=2_048)
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            raise Conflict(
                f"Port {wanted} of {host} is in use.",
                hint="Another server runs there? Choose another port with --port.",
            ) from None
        raise Unavailable(f"The server cannot listen at {host}, port {wanted}: {fault.strerror}.") from None
    if wanted:
        return Listening(config, arguments, load, [taken])
    port = taken.getsockname()[1]
    more = ["--set", f"server.port={port}"]
    return Listening(
        _at(config, port), [*arguments, *more], lambda **given: _at(load(**given), port), [taken]
    )


def _at(config: ServerConfig, port: int) -> ServerConfig:
    """The configuration with this port, if it leaves the choice."""
    if config.server.port:
        return config
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port))


def build_zipapp(target: Path, package: str = "pilot", module: str = "__main__") -> None:
    """Write the zipapp of the pilot, or of another program that travels, to `target`, in one step. It runs this module. The
    same sources, by the same version of Python, give the same bytes everywhere. Raises OSError.

    It has each module compiled, too, by this Python: to compile them takes a third of the start of a pilot. Other versions
    pass that over.
    """
    whole = io.BytesIO()
    whole.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(travelling_sources(package, module).items()):
            for member, octets in ((name, content), (f"{name}c", _compiled(name, content))):
                entry = zipfile.ZipInfo(member, _ZIP_TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, octets)
    write_durably(target, whole.getvalue(), mode=0o755)


def _compiled(name: str, source: bytes) -> bytes:
    """A module as a `.pyc` that is never compared with its source (PEP 552), and whose bytes do not vary."""
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), 2)


def travelling_sources(package: str = "pilot", module: str = "__main__") -> dict[str, bytes]:
    """Name in the archive -> content, for everything that a program needs where it travels."""
    program = _PROGRAMS[package]
    files = [_PACKAGE / name for name in _BASE]
    parts = [_PACKAGE / part for part in (program, *_NEEDS[package])]
    files += [file for part in parts for file in part.rglob("*.py") if _travels(file, part, package)]
    sources = {f"lodesman/{file.relative_to(_PACKAGE).as_posix()}": file.read_bytes() for file in files}
    return {
        "__main__.py": _START.format(package=program.replace("/", "."), module=module).encode(),
        **sources,
    }


def _travels(file: Path, part: Path, package: str) -> bool:
    return package != "pilot" or part.name != "jobstatus" or (file.parent == part and file.name in _WRITER)


# --- what both processes do ------------------------------------------------------------------------------


def gate_options(config: ServerConfig) -> GateOptions:
    """How gates of sites count, and how sites are chosen."""
    broker = config.broker
    return GateOptions(
        mode=broker.mode, ledger_s=broker.ledger_seconds, lifetime_s=broker.lifetime_seconds,
        by_capacity=broker.stations_by_capacity,
    )  # fmt: skip


def raise_open_files() -> int:
    """Raise this process's soft limit to the hard one; returns what it was before the server's first process did so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = int(os.environ.get(FILES_BEFORE) or soft)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if 0 <= soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError) as fault:
            log.warning("the limit of open files cannot be raised: %s", fault, extra={"limit": soft})
    if 0 <= soft < _FEW_FILES:
        advice = "LimitNOFILE= of systemd, or ulimit -Hn"
        log.warning("few files may be open at once", extra={"limit": soft, "advice": advice})
    return before


def check_limits() -> None:
    """Raises Unavailable for a limit of this process with which no server comes far."""
    for limit, (least, words, setting) in _LEAST.items():
        soft, _ = resource.getrlimit(limit)
        if 0 <= soft < least:
            raise Unavailable(
                f"{words.format(soft)}; a server needs {least}.", hint=f"Raise the limit: {setting}."
            )


def own_certificates(config: ServerConfig) -> str:
    """The server's certificate with its chain in PEM, without a key in the same file; '' without TLS."""
    if not config.server.tls_certificate:
        return ""
    blocks = _CERTIFICATE.findall(Path(config.server.tls_certificate).read_text())
    return "\n".join(blocks)


def isolation_of(config: ServerConfig, *, make_account: bool = False) -> Isolation | None:
    """How pilots of this machine are kept from the server, found out by trial; None if no queue has any.

    `make_account`: for a server that root runs, an account may be made.
    """
    if not local_slots(Policy(config.resources)):
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


def hide_process() -> None:
    """Keep other processes of this account out of the memory and the descriptors of this one."""
    kernel.set_attribute(kernel.DUMPABLE, 0)


def policy_of(
    config: ServerConfig,
    bits: Mapping[QueueId, int],
    *,
    life_seconds: int,
    inhabited: Callable[[frozenset[QueueId]], frozenset[ResourceRequest]],
) -> Policy:
    """The policy of a configuration; `bits`: of all its queues. `life_seconds` of pilots as at the start; `inhabited`:
    what the pilots that live there now present.
    """
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


def keep_what_was_loaded() -> None:
    """Exempt what is there now from garbage collection: a walk through all of it would stop every answer.

    And from now on give large blocks back as soon as they are free: the C library would learn to keep them.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
