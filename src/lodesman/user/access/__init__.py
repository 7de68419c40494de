"""How programs of users reach a server."""

from __future__ import annotations

DEFAULT_SERVER = "http://127.0.0.1:7777"

__all__ = ["DEFAULT_SERVER"]
