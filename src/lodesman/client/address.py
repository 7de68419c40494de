"""Addresses of servers, taken apart."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from lodesman.errors import InvalidConfig


@dataclass(frozen=True)
class Server:
    """Where one server listens; `base` is the path before every path of the protocol."""

    secure: bool
    host: str
    port: int
    base: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.base}"

    @property
    def is_private(self) -> bool:
        """Whether tokens on their way there can be read by nobody else: by TLS, or on this machine."""
        return self.secure or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or a number means this machine itself, whatever a name server says."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_server(text: str) -> Server:
    """Read `http[s]://host[:port][/prefix]`. Raises InvalidConfig."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as fault:
        raise InvalidConfig(f"The server address {text!r} cannot be read: {fault}.") from None
    odd = parts.query or parts.fragment or parts.username or not text.isascii() or not text.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or odd or " " in text:
        raise InvalidConfig(f"The server address {text!r} is unusable.", hint="Write http://host:port.")
    secure = parts.scheme == "https"
    default = 443 if secure else 80
    return Server(secure, parts.hostname, default if port is None else port, parts.path.rstrip("/"))
