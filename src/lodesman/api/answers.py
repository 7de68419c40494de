"""What all calls of the reading process do alike: read numbers of the query, answer in JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lodesman.errors import InvalidRequest

MOST_ID = 1 << 53


def answer(value: Any) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def number(request: Request, name: str, default: int, most: int = MOST_ID) -> int:
    """A whole number of the query. Raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > most:
        raise InvalidRequest(f"{name} must be a whole number up to {most}.", parameter=name)
    return int(text)
