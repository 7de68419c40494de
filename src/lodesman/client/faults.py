"""The error that an answer of a server means, or that a missing answer means."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from typing import Any

from lodesman import errors
from lodesman.client.exchange import HttpAnswer, ServerAddress
from lodesman.errors import LodesmanError, Unavailable

_MAX_RETRY_AFTER_S = 60.0

# The server cannot answer now, and did nothing.
NOT_NOW = frozenset({429, 502, 503, 504})

# Codes of OpenSSL: the chain ends at an unknown root; the certificate names another host.
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
    """The content transferred has another checksum; `data` has `expected` and `actual`."""

    code = "checksum"


class Aborted(LodesmanError):
    """Another thread ended the request by `Client.abort`; the server may have carried it out."""

    code = "aborted"


def _by_code(root: type[LodesmanError]) -> dict[str, type[LodesmanError]]:
    """Classes by code; a class that inherits its code is not a class of answers."""
    kinds: dict[str, type[LodesmanError]] = {}
    for kind in root.__subclasses__():
        kinds.update(_by_code(kind))
    return {**kinds, root.code: root}


def fault_of(answer: HttpAnswer) -> LodesmanError:
    """The error that an answer means: by the code in its body, else by its HTTP status.

    `data` is what the server sent, with `status` and, if the answer has it, `retry_after` in seconds.
    """
    status, error = answer.status, _error_in(answer.content)
    kind = _by_code(LodesmanError).get(str(error.get("code")), _BY_STATUS.get(status, LodesmanError))
    message = error.get("message") or f"The server answered with HTTP status {status}."
    # Constructors of some classes put a message together; this one is complete already.
    fault = kind.__new__(kind)
    LodesmanError.__init__(fault, str(message), hint=str(error.get("hint") or ""))
    data = error.get("data")
    fault.data = {**(data if isinstance(data, dict) else {}), "status": status}
    wait = _parse_retry_after(answer.retry_after)
    if wait is not None:
        fault.data["retry_after"] = wait
    return fault


def unanswered_by(server: ServerAddress, fault: Exception, *, sent: bool) -> Unavailable:
    """The error for a server that did not answer; `sent`: the request may have changed something."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        code = fault.verify_code
        hint = (
            "Name the root: lode --ca-file FILE."
            if code in _UNKNOWN_ROOT
            else "Name the server as the certificate has it."
            if code in _OTHER_NAME
            else "Ask the administrators of the server."
        )
        reason = fault.verify_message.rstrip(".")
        return Unavailable(f"{server}: its certificate is not trusted ({reason}).", hint=hint, sent=sent)
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    hint = ""
    if getattr(fault, "reason", "") == "WRONG_VERSION_NUMBER":
        hint = "The server there may speak http, not https."
    elif not server.secure and isinstance(fault, (ConnectionResetError, http.client.BadStatusLine)):
        hint = "The server there may want https."
    return Unavailable(f"{server} does not answer ({reason}).", hint=hint, sent=sent)


def _parse_retry_after(text: str) -> float | None:
    """Seconds of a Retry-After header, at most a minute; None if it is absent or a date."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return None
    return min(float(text), _MAX_RETRY_AFTER_S)


def _error_in(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}
