"""The server's HTTP/JSON client for pilot and command line; it travels in the pilot."""

from lodesman.wire.client.connection import Client, Retry, sha256_of
from lodesman.wire.client.exchange import (
    Aborted,
    BadChecksum,
    LocalFault,
    ServerAddress,
    address_of,
    is_every_address,
    is_loopback,
    parse_server,
)

__all__ = [
    "Aborted",
    "BadChecksum",
    "Client",
    "LocalFault",
    "Retry",
    "ServerAddress",
    "address_of",
    "is_every_address",
    "is_loopback",
    "parse_server",
    "sha256_of",
]
