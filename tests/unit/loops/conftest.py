"""What tests of the background share."""

from __future__ import annotations

from msgspec import json, to_builtins

from lodesman.wire.service import Iteration


def record(posted, call, body):
    """Keep a call of the hot process: the last word of its path, and its body in JSON values."""
    plain = {"plan": json.decode(body.plan)} if isinstance(body, Iteration) else to_builtins(body)
    posted.append((call.path.rpartition("/")[2], plain))
