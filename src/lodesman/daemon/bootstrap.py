"""What must exist before the server takes its first request: its port, the first user, tokens, directories."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lodesman.answers.accounts import SCOPES
from lodesman.commands.accounts import AddAccount, IssueToken
from lodesman.commands.pilots import hash_token
from lodesman.config import ServerConfig
from lodesman.errors import Conflict, Unavailable
from lodesman.store import Writer
from lodesman.store.accounts import is_user, set_service_token
from lodesman.store.journal import Transaction

SERVICE_FILE = "service.token"
SOCKET = "reads.sock"
_TOKEN_FILE = "admin.token"

# As `config.load_config`, with the file and its overrides given.
Load = Callable[..., ServerConfig]


def run_directory(config: ServerConfig) -> Path:
    """DATA/run: the service token, the background process's socket, and the server's address."""
    return config.data / "run"


def prepare(db: Writer, config: ServerConfig, *, now: float) -> None:
    """Make the first user with its token, and a fresh token for the background process."""
    for folder in (config.data, run_directory(config), config.data / "sandboxes"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    with db:
        tx = Transaction(db, now)
        _first_user(tx, config)
        token = secrets.token_urlsafe(32)
        set_service_token(tx, hash_token(token))
        tx.flush()
    write_secret(run_directory(config) / SERVICE_FILE, token)


def _first_user(tx: Transaction, config: ServerConfig) -> None:
    if is_user(tx.reader(), config.admin.name) and (config.data / _TOKEN_FILE).exists():
        return
    vo, groups = _first_place(config)
    AddAccount(config.admin.name, vo, groups, admin=True).apply(tx)
    token = IssueToken(config.admin.name, SCOPES, None, "made at the first start").apply(tx)
    write_secret(config.data / _TOKEN_FILE, token)


def _first_place(config: ServerConfig) -> tuple[str, tuple[str, ...]]:
    """VO and groups of the first user. Not given, they are the VO of the first group that has one, and its groups."""
    known, given = config.resources.groups, config.admin.groups
    vo_of = {name: known[name].vo if name in known else "" for name in given or known}
    vo = config.admin.vo or next((one for one in (*vo_of.values(), *config.resources.vos) if one), "local")
    return vo, given or tuple(name for name, one in vo_of.items() if one in ("", vo)) or ("users",)


def write_url(config: ServerConfig) -> None:
    """Write the server's address to DATA/run/url: its port may be any free one."""
    write_secret(run_directory(config) / "url", config.url)


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, all or nothing."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


@dataclass(frozen=True, slots=True)
class Listening:
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

    def load_again(**more: object) -> ServerConfig:
        return _at(load(**more), port)

    return Listening(_at(config, port), [*arguments, "--set", f"server.port={port}"], load_again, [taken])


def _at(config: ServerConfig, port: int) -> ServerConfig:
    """The configuration with this port, if it leaves the choice."""
    if config.server.port:
        return config
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port))
