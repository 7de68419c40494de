"""What became of the configuration files: which picture is in use, since when, and why the last change was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationState:
    """Times are UNIX seconds. `refused_at` is None unless the files, as they are now, are refused; then `faults` says
    why (message, source, section, line of each), and what was read at `loaded_at` stays in use.
    """

    files: tuple[str, ...] = ()
    resource_files: tuple[str, ...] = ()
    loaded_at: float = 0.0
    reloads: int = 0
    refusals: int = 0
    refused_at: float | None = None
    faults: tuple[Mapping[str, Any], ...] = ()
    notices: tuple[Mapping[str, Any], ...] = ()
    at_next_start: tuple[str, ...] = ()
    """Options that changed and take effect when the server is started anew."""

    def in_short(self, now: float) -> dict[str, Any]:
        """What everybody may know: how old it is, and whether a change was refused."""
        return {
            "loaded_at": self.loaded_at,
            "age_seconds": max(0.0, now - self.loaded_at),
            "refused_at": self.refused_at,
            "faults": len(self.faults),
        }

    def in_full(self, now: float) -> dict[str, Any]:
        """All of it."""
        return {
            **self.in_short(now),
            "files": self.files,
            "reloads": self.reloads,
            "refusals": self.refusals,
            "faults": self.faults,
            "notices": self.notices,
            "at_next_start": self.at_next_start,
        }
