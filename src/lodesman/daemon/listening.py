"""Where the server listens: the port that is configured, or any free one, which everybody concerned is told."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import msgspec

from lodesman.config import ServerConfig
from lodesman.daemon.kept import Load
from lodesman.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Listening:
    """The configuration with the port in it, for this process, for the second one, and for each later reading.

    `sockets`: what listens already, None if the web server is to open it.
    """

    config: ServerConfig
    arguments: list[str]
    load: Load
    sockets: list[socket.socket] | None = None


def listen(config: ServerConfig, arguments: list[str], load: Load) -> Listening:
    """Port 0 becomes a free one, which is taken at once. Raises Unavailable if this machine has no such address."""
    if config.server.port:
        return Listening(config, arguments, load)
    host = config.server.host
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        taken = socket.create_server(address[:2], family=family, backlog=2_048)
    except OSError as fault:
        raise Unavailable(f"The server cannot listen at {host}: {fault.strerror}.") from None
    port = taken.getsockname()[1]

    def load_again(**more: object) -> ServerConfig:
        return _at(load(**more), port)

    return Listening(_at(config, port), [*arguments, "--set", f"server.port={port}"], load_again, [taken])


def _at(config: ServerConfig, port: int) -> ServerConfig:
    """The configuration with this port, if it leaves the choice."""
    if config.server.port:
        return config
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=port))
