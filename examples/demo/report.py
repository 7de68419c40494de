"""The values of the demo's summary. None means unknown, never zero."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from examples.demo.compose import Composition
from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.wire.server import Claims, Spread, Usage


class SiteRow(Struct, frozen=True, kw_only=True):
    """One site: the jobs that ended there, its pilots and the CPU time of its jobs."""

    site: str
    done: int | None
    failed: int | None
    pilots: int | None = None
    cpu_seconds: float | None = None


class GroupShare(Struct, frozen=True, kw_only=True):
    """One group's starts: `actual`, and the `target` by its share; None if it cannot be known.

    `deviation` is their distance in standard deviations of a fair lottery (0 if no claim had a choice).
    """

    group: str
    share: float
    actual: int
    target: float | None
    deviation: float | None = None


class Reason(Struct, frozen=True, kw_only=True):
    """`count` jobs that were held or failed for the same reason; `example` is the id of one of them."""

    text: str
    count: int
    example: int | None = None


class AttemptCheck(Struct, frozen=True, kw_only=True):
    """Whether an attempt ran twice. By the server's records `started` jobs had `attempts` attempts.

    By the logs of the pilots `seen` attempts ran, `twice` of them more than once. `lost` jobs were neither final nor
    Held at the end.
    """

    started: int | None
    attempts: int | None
    twice: int | None
    lost: int | None = None
    seen: int | None = None


class DemoReport(Struct, frozen=True, kw_only=True):
    """The whole demo. `states` counts jobs by state at the end; times in seconds.

    `expected` is the number of jobs that should end in each state.
    """

    states: dict[str, int] | None
    expected: dict[str, int] | None = None
    elapsed_seconds: float | None = None
    first_result_seconds: float | None = None
    interrupted: bool = False
    sites: list[SiteRow] = field(default_factory=list)
    waiting: Spread | None = None
    running: Spread | None = None
    groups: list[GroupShare] = field(default_factory=list)
    held: list[Reason] | None = None
    failed: list[Reason] | None = None
    attempts: AttemptCheck | None = None
    composition: Composition | None = None
    results: Path | None = None


def site_rows(usage: Usage) -> list[SiteRow]:
    """The sites where jobs ended."""
    pilots = Counter[str]()
    for count in usage.pilots:
        pilots[count.site] += count.pilots
    return [
        SiteRow(
            site=row.site,
            done=row.outcomes.get("Done", 0),
            failed=row.outcomes.get("Failed", 0),
            pilots=pilots[row.site],
            cpu_seconds=row.cpu_seconds,
        )
        for row in usage.sites
    ]


def reasons(usage: Usage, state: str) -> list[Reason]:
    """The jobs of a state by reason, most frequent first; the smallest id is the example."""
    found: dict[str, Reason] = {}
    for row in usage.faulty:
        if row.state == state:
            before = found.get(row.reason, Reason(text=row.reason, count=0, example=row.id))
            example = min(before.example or row.id, row.id)
            found[row.reason] = Reason(text=row.reason, count=before.count + row.count, example=example)
    return sorted(found.values(), key=lambda row: (-row.count, row.text))


def share_rows(claims: Iterable[Claims], shares: Mapping[str, float]) -> list[GroupShare]:
    """One row for each group of `shares` or of a claim, by name.

    The target of a group in one claim is its share over the sum of the shares of all groups that had an eligible task
    queue then; its whole target is the sum over claims. One claim without a record makes all targets unknown; those of
    private pilots are left out.
    """
    counted = [claim for claim in claims if claim.shares != {}]
    groups = sorted({*shares, *(claim.group for claim in counted)})
    known = all(claim.shares and claim.group in claim.shares for claim in counted)
    return [_row(group, counted, shares, known=known) for group in groups]


def _row(group: str, claims: Sequence[Claims], shares: Mapping[str, float], *, known: bool) -> GroupShare:
    actual = sum(claim.count for claim in claims if claim.group == group)
    share = shares.get(group, 0)
    if not known:
        return GroupShare(group=group, share=share, actual=actual, target=None)
    target = variance = 0.0
    for claim in claims:
        if claim.shares and group in claim.shares:
            p = claim.shares[group] / sum(claim.shares.values())
            target += claim.count * p
            variance += claim.count * p * (1 - p)
    deviation = (actual - target) / math.sqrt(variance) if variance else 0.0
    return GroupShare(group=group, share=share, actual=actual, target=target, deviation=deviation)


def report_json(report: DemoReport) -> str:
    """The report in JSON: paths as text, unknown as null; of the words the first hundred."""
    composition = report.composition
    if composition is not None and composition.words is not None:
        words = replace(composition.words, counts=composition.words.counts[:100])
        report = replace(report, composition=replace(composition, words=words))
    return msgspec.json.encode(report, enc_hook=_text).decode()


def read_report(text: str) -> DemoReport:
    """Read the report from its JSON."""
    return msgspec.json.decode(text, type=DemoReport, dec_hook=lambda kind, value: kind(value))


def _text(value: Any) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))
