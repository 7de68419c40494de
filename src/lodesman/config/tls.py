"""Certificate and key of the server: there, readable, and made for each other."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

from lodesman.config.sections import ServerSection

Complaint = tuple[str, str]  # option, what is wrong with it


def listening_faults(server: ServerSection) -> Iterator[Complaint]:
    """Tokens must not travel in the clear: without TLS only loopback is allowed. File names are absolute."""
    if bool(server.tls_certificate) != bool(server.tls_key):
        missing = "tls_key" if server.tls_certificate else "tls_certificate"
        given = "tls_certificate" if server.tls_certificate else "tls_key"
        yield given, f"tls_certificate and tls_key belong together, and {missing} is not given"
    elif server.tls_certificate:
        yield from _pair_faults(server.tls_certificate, server.tls_key)
    elif not _is_loopback(server.host):
        where = server.host or "every address"
        message = f"the server would listen on {where} without TLS, and tokens would travel in the clear"
        yield "host", f"{message}; set tls_certificate and tls_key, or listen on 127.0.0.1"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _pair_faults(certificate: str, key: str) -> Iterator[Complaint]:
    unread = [*_unreadable("tls_certificate", certificate), *_unreadable("tls_key", key)]
    if unread:
        yield from unread
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without the empty password OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as fault:
        if fault.reason == "KEY_VALUES_MISMATCH":
            yield "tls_key", f"{key} is not the key of {certificate}"
        else:
            why = (fault.reason or str(fault)).replace("_", " ").lower()
            pair = f"{certificate} and {key}"
            yield "tls_certificate", f"{pair} are no certificate and key in PEM, without a password: {why}"


def _unreadable(option: str, path: str) -> Iterator[Complaint]:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as fault:
        yield option, f"{path} cannot be read: {fault.strerror}"
