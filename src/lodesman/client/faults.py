"""From what a server answers, or why it does not, to the error that it means."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from typing import Any

from lodesman import errors
from lodesman.errors import LodesmanError

MAX_RETRY_AFTER_S = 60.0

# Answers that say: not now, and nothing was done.
NOT_NOW = frozenset({429, 502, 503, 504})

# Codes of OpenSSL: the chain ends at nobody who is trusted; the certificate is another host's.
_UNKNOWN_ROOT = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})

_BY_STATUS: dict[int, type[LodesmanError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidRequest,
    **dict.fromkeys(NOT_NOW, errors.Unavailable),
}


class BadChecksum(LodesmanError):
    """What was moved is not what was promised; `data` has `expected` and `actual`."""

    code = "checksum"


class Aborted(LodesmanError):
    """Another thread ended the request by `Client.abort`; the server may have carried it out."""

    code = "aborted"


def _by_code(root: type[LodesmanError]) -> dict[str, type[LodesmanError]]:
    """A kind with the code of the one above it stands for nothing that a server says."""
    kinds: dict[str, type[LodesmanError]] = {}
    for kind in root.__subclasses__():
        kinds.update(_by_code(kind))
    return {**kinds, root.code: root}


def fault_of(status: int, body: bytes, *, retry_after: str = "") -> LodesmanError:
    """The error that an answer means: by the code in its body, else by its HTTP status.

    `data` keeps what the server sent, and has `status` and (seconds, if told) `retry_after`.
    """
    told = _error_in(body)
    kind = _by_code(LodesmanError).get(str(told.get("code")), _BY_STATUS.get(status, LodesmanError))
    message = told.get("message") or f"The server answered with HTTP status {status}."
    # Constructors of some classes put a message together; this one is complete already.
    fault = kind.__new__(kind)
    LodesmanError.__init__(fault, str(message), hint=str(told.get("hint") or ""))
    data = told.get("data")
    fault.data = {**(data if isinstance(data, dict) else {}), "status": status}
    wait = parse_retry_after(retry_after)
    if wait is not None:
        fault.data["retry_after"] = wait
    return fault


def unanswered(fault: Exception, *, secure: bool) -> tuple[str, str]:
    """Why a server did not answer, as the end of a sentence about it, and what to do, if the fault tells that."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        code = fault.verify_code
        hint = (
            "Name the root: lode --ca-file FILE."
            if code in _UNKNOWN_ROOT
            else "Name the server as the certificate has it."
            if code in _OTHER_NAME
            else "Ask the administrators of the server."
        )
        return f"its certificate is not trusted ({fault.verify_message.rstrip('.')})", hint
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    hint = ""
    if getattr(fault, "reason", "") == "WRONG_VERSION_NUMBER":
        hint = "The server there may speak http, not https."
    elif not secure and isinstance(fault, (ConnectionResetError, http.client.BadStatusLine)):
        hint = "The server there may want https."
    return f"does not answer ({reason})", hint


def parse_retry_after(text: str) -> float | None:
    """Seconds of a Retry-After header, at most a minute; None for none (and for its form as a date)."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return None
    return min(float(text), MAX_RETRY_AFTER_S)


def _error_in(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
