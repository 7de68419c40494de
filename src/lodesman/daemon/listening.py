"""Where the server listens: the port that is configured, or any free one, which everybody concerned is told. It is taken
before all else: a server that cannot have it leaves nothing behind.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

import msgspec

from lodesman.config import ServerConfig
from lodesman.daemon.kept import Load
from lodesman.errors import Conflict, Unavailable


@dataclass(frozen=True, slots=True)
class Listening:
    """The configuration with the port in it, for this process, for the second one, and for each later reading.

    `sockets`: what listens already.
    """

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
