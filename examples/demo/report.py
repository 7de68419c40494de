"""Everything that the demo's summary tells, in one value. None means unknown, never zero."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from examples.demo.compose import Composition
from examples.demo.shares import GroupShare


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRow:
    """One site: the jobs that ended there, its pilots and the CPU time of its jobs."""

    site: str
    done: int | None
    failed: int | None
    pilots: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, 95th percentile and maximum of `count` durations, in seconds."""

    count: int
    p50: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """`count` jobs that were held or failed for the same reason; `example` is the id of one of them."""

    text: str
    count: int
    example: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCheck:
    """Was no attempt run twice? By the server's books `started` jobs had `attempts` attempts.

    By what the pilots wrote down `seen` attempts ran, `twice` of them more than once. `lost` jobs ended nowhere:
    neither terminal nor Held at the end.
    """

    started: int | None
    attempts: int | None
    twice: int | None
    lost: int | None = None
    seen: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The whole demo. `states` counts jobs by state at the end; times in seconds.

    `expected` is what the workload says how many jobs should end in each state.
    """

    states: Mapping[str, int] | None
    expected: Mapping[str, int] | None = None
    elapsed_seconds: float | None = None
    first_result_seconds: float | None = None
    interrupted: bool = False
    sites: Sequence[SiteRow] = ()
    waiting: Spread | None = None
    running: Spread | None = None
    groups: Sequence[GroupShare] = ()
    held: Sequence[Reason] | None = None
    failed: Sequence[Reason] | None = None
    attempts: AttemptCheck | None = None
    composition: Composition | None = None
    results: PurePath | None = None


def spread(told: Mapping[str, Any]) -> Spread | None:
    """The spread as the server tells it; None of nothing."""
    if not told["count"]:
        return None
    return Spread(count=told["count"], p50=told["p50"], p95=told["p95"], most=told["most"])


def reasons(jobs: Iterable[tuple[int, str]]) -> tuple[Reason, ...]:
    """(job id, reason) grouped by reason, most frequent first; the smallest id is the example."""
    ids: dict[str, list[int]] = {}
    for job, text in jobs:
        ids.setdefault(text, []).append(job)
    rows = [Reason(text=text, count=len(group), example=min(group)) for text, group in ids.items()]
    return tuple(sorted(rows, key=lambda row: (-row.count, row.text)))


def report_json(report: DemoReport) -> dict[str, Any]:
    """The report as JSON values: paths as text, unknown as null; of the words only the first hundred."""
    values: dict[str, Any] = _json(report)
    table = (values["composition"] or {}).get("words")
    if table and report.composition and report.composition.words:
        table["total"] = report.composition.words.total
        table["distinct"] = len(table["counts"])
        table["counts"] = table["counts"][:100]
    return values


def _json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {part.name: _json(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, PurePath) else value
