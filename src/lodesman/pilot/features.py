"""Machine/Job Features of the WLCG: what the site tells a batch job about its machine and its slot.

`$MACHINEFEATURES` and `$JOBFEATURES` name directories whose files hold one value each. Their form as
web addresses is not read: it belongs to virtual machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MACHINE = ("shutdowntime",)
_JOB = ("allocated_cpu", "max_rss_bytes", "wall_limit_secs", "jobstart_secs", "shutdowntime_job")


@dataclass(frozen=True)
class Features:
    """What the site told; None is unknown. Times are UNIX seconds.

    Of the keys `shutdowntime` (machine) and `shutdowntime_job` (slot) the earlier one counts.
    """

    allocated_cpu: int | None = None
    max_rss_bytes: int | None = None
    wall_limit_secs: int | None = None
    jobstart_secs: int | None = None
    shutdowntime: int | None = None

    def ends(self, started: float) -> float | None:
        """When the slot ends, as a UNIX time; `started` is when the pilot did."""
        ends = []
        if self.wall_limit_secs is not None:
            ends.append((self.jobstart_secs or started) + self.wall_limit_secs)
        if self.shutdowntime is not None:
            ends.append(float(self.shutdowntime))
        return min(ends) if ends else None


def read_features(environment: Mapping[str, str]) -> Features:
    """Read the directories that the environment names; what cannot be read is unknown."""
    told = _read(environment.get("MACHINEFEATURES", ""), _MACHINE)
    told.update(_read(environment.get("JOBFEATURES", ""), _JOB))
    slot_ends = told.pop("shutdowntime_job", None)
    if slot_ends is not None:
        told["shutdowntime"] = min(slot_ends, told.get("shutdowntime", slot_ends))
    return Features(**told)


def _read(directory: str, names: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    if not directory.startswith("/"):
        return found
    for name in names:
        try:
            with (Path(directory) / name).open("rb") as file:
                value = int(float(file.read(64)))
        except (OSError, ValueError, OverflowError):
            continue
        if value > 0:
            found[name] = value
    return found
