"""Tokens do not travel in the clear: certificate and key of the server, and the address that pilots are told."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from lodesman.client import is_loopback, parse_server
from lodesman.config.sections import ServerSection
from lodesman.errors import InvalidConfig

Complaint = tuple[str, str]  # option, what is wrong with it


def listening_faults(server: ServerSection) -> Iterator[Complaint]:
    """Tokens must not travel in the clear: without TLS only loopback is allowed. File names are absolute."""
    if bool(server.tls_certificate) != bool(server.tls_key):
        missing = "tls_key" if server.tls_certificate else "tls_certificate"
        given = "tls_certificate" if server.tls_certificate else "tls_key"
        yield given, f"tls_certificate and tls_key belong together, and {missing} is not given"
    elif server.tls_certificate:
        yield from _pair_faults(server.tls_certificate, server.tls_key)
    elif not is_loopback(server.host):
        where = server.host or "every address"
        message = f"the server would listen on {where} without TLS, and tokens would travel in the clear"
        yield "host", f"{message}; set tls_certificate and tls_key, or listen on 127.0.0.1"
    if server.public_url:
        yield from public_url_faults(server.public_url)


def public_url_faults(url: str) -> Iterator[Complaint]:
    """The address that pilots are told: one that they can use, and where their tokens stay private."""
    try:
        server = parse_server(url)
    except InvalidConfig as fault:
        yield "public_url", fault.message
        return
    if not server.is_private:
        yield "public_url", f"pilots would send their tokens to {server} in the clear; it must be https://"


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
