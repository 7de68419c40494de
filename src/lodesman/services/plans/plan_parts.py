"""Which part of the starts each group gets before and after a change of resources: their shares, and who competes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lodesman.matching import GroupShare, parts_of


@dataclass(slots=True)
class Jobs:
    """Jobs of one group and VO, and whether some queue can run any of them, before and after."""

    count: int = 0
    before: bool = False
    after: bool = False


@dataclass(slots=True)
class Competitors:
    """The groups with jobs, by (VO, group)."""

    groups: dict[tuple[str, str], Jobs] = field(default_factory=dict)

    def add(self, pair: tuple[str, str], jobs: int, *, before: bool, after: bool) -> None:
        """The jobs of a task queue; `before`, `after`: whether any queue can run them."""
        known = self.groups.setdefault(pair, Jobs())
        known.count += jobs
        known.before |= before
        known.after |= after

    def parts(
        self, before: Mapping[str, GroupShare], after: Mapping[str, GroupShare]
    ) -> list[dict[str, Any]]:
        """JSON values, by VO; in each those that gain most come first. A group that no queue serves has no part."""
        rows = []
        for vo in sorted({vo for vo, _ in self.groups}):
            of_vo = {group: jobs for (one, group), jobs in self.groups.items() if one == vo}
            old = parts_of([group for group, jobs in of_vo.items() if jobs.before], before)
            new = parts_of([group for group, jobs in of_vo.items() if jobs.after], after)
            rows += [
                {
                    "vo": vo,
                    "group": group,
                    "jobs": jobs.count,
                    "share": {"before": _share(before, group), "after": _share(after, group)},
                    "part": {"before": old.get(group, 0.0), "after": new.get(group, 0.0)},
                }
                for group, jobs in of_vo.items()
            ]
        return sorted(rows, key=_gain_first)


def _share(shares: Mapping[str, GroupShare], group: str) -> float:
    return shares.get(group, GroupShare()).share


def _gain_first(row: Mapping[str, Any]) -> tuple[str, float, str]:
    return row["vo"], row["part"]["before"] - row["part"]["after"], row["group"]
