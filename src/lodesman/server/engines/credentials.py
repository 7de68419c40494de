"""The credential that a batch system is asked with: when it ends, and its renewal by a configured command.

It is an X.509 certificate (or proxy) with its chain, or a token (JWT). It is never logged, nor what the command
writes.
"""

from __future__ import annotations

import base64
import calendar
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lodesman.base.processes import kill_group
from lodesman.server.engines.run.here import base_environment
from lodesman.wire.nodes import utc

_MOST_BYTES: Final = 1 << 20
_HOUR: Final = 3_600.0
_RENEW_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 300.0
"""After a renewal that did not help the next one waits."""
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
# Tags of DER: numbers below are primitive, 0x30 is a sequence, 0xA0 the version of a certificate.
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
_TIMES: Final = {_UTC_TIME: 13, _TIME: 15}  # bytes, in UTC
_CENTURY: Final = 50  # X.509: years of two digits from 50 on are 19xx
_VALIDITY: Final = 3  # after serial number, algorithm and issuer
_JWT_PARTS: Final = 3


class _Claims(msgspec.Struct):
    exp: Annotated[float, msgspec.Meta(ge=0)] = inf


def end_of_certificates(content: bytes) -> float:
    """When the first certificate of a PEM file ends, in UNIX seconds: without one of its chain the whole is worth
    nothing. Raises ValueError.
    """
    blocks = _PEM.findall(content)
    if not blocks:
        raise ValueError("it has no certificate in PEM")
    try:
        return min([_end_of(base64.b64decode(b"".join(block.split()), validate=True)) for block in blocks])
    except (ValueError, IndexError, StopIteration):
        raise ValueError("it has a certificate that cannot be read") from None


def end_of_token(content: bytes) -> float:
    """`exp` of a token in UNIX seconds, else infinite. Raises ValueError for a text that is no JWT."""
    parts = content.strip().split(b".")
    try:
        if len(parts) != _JWT_PARTS:
            raise ValueError
        text = base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(text, type=_Claims).exp
    except (ValueError, msgspec.DecodeError):
        raise ValueError("it holds no token with an end that can be read (a JWT)") from None


def _end_of(der: bytes) -> float:
    fields = _elements(_inside(_inside(der)))
    first = next(fields)
    for _ in range(_VALIDITY if first[0] == _VERSION else _VALIDITY - 1):
        next(fields)
    tag, validity = next(fields)
    if tag != _SEQUENCE:
        raise ValueError("a certificate has no validity")
    times = _elements(validity)
    next(times)
    tag, at = next(times)
    if len(at) != _TIMES.get(tag) or not at.endswith(b"Z"):
        raise ValueError("a certificate has an odd end")
    text = at[:-1].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY else "20") + text
    return float(calendar.timegm(time.strptime(text, "%Y%m%d%H%M%S")))


def _inside(der: bytes) -> bytes:
    tag, content = next(_elements(der))
    if tag != _SEQUENCE:
        raise ValueError("no sequence")
    return content


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[at : at + size], "big")
            at += size
        if at + length > len(der):
            raise ValueError("it is cut off")
        yield tag, der[at : at + length]
        at += length


@dataclass(eq=False, kw_only=True)
class Credential:
    """What a batch system is asked with, '' what it has none of."""

    certificate: str = ""
    token_file: str = ""
    required_seconds: float  # for which it must be good; 0: its end does not matter
    renew: tuple[str, ...] = ()  # the command that renews it
    # Why nothing may be submitted, as seen last.
    doubt: str = field(default="when its credential ends is not known yet", init=False)
    _renewed_at: float | None = field(default=None, init=False)
    _fault: str = field(default="", init=False)

    def same(self, other: Credential) -> bool:
        """Whether another one is configured likewise."""
        names = ("certificate", "token_file", "required_seconds", "renew")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def refresh(self, now: float) -> None:
        """See when it ends, and renew it if that is too soon. It may take a minute."""
        doubt = self._doubt(now)
        if doubt and self.renew:
            before = self._renewed_at
            if before is None or not 0.0 <= now - before < _AGAIN_SECONDS:
                self._renewed_at, self._fault = now, _run(self.renew)
                doubt = self._doubt(now)
            if doubt:
                doubt = f"{doubt}; {self.renew[0]} {self._fault or 'ended well, and did not help'}"
        elif doubt:
            doubt += "; renew it, or configure a command that does (renew)"
        self.doubt = doubt

    def _doubt(self, now: float) -> str:
        if not self.required_seconds:
            return ""
        doubts = []
        for file, end_of in ((self.certificate, end_of_certificates), (self.token_file, end_of_token)):
            if not file:
                continue
            try:
                with Path(file).open("rb") as opened:
                    end = end_of(opened.read(_MOST_BYTES))
            except OSError as fault:
                doubts.append(f"when {file} ends is not known: {fault.strerror}")
            except ValueError as fault:
                doubts.append(f"when {file} ends is not known: {fault}")
            else:
                if end - now < self.required_seconds:
                    doubts.append(self._too_soon(file, end, now))
        return "; ".join(doubts)

    def _too_soon(self, file: str, end: float, now: float) -> str:
        when = f"{file} ended at {utc(end)}"
        if end > now:
            when = f"{file} ends in {(end - now) / _HOUR:.1f} h, at {utc(end)}"
        return f"{when}; {self.required_seconds / _HOUR:g} h are required (requiredTimeLeft)"


def _run(words: tuple[str, ...]) -> str:
    try:
        process = subprocess.Popen(
            words, env=base_environment(), cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError) as fault:
        return f"cannot be run: {fault.strerror if isinstance(fault, OSError) else fault}"
    try:
        code = process.wait(_RENEW_SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        process.wait()
        return f"did not end within {_RENEW_SECONDS:g} s"
    return f"ended with exit code {code}" if code else ""
