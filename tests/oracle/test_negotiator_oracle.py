"""Strict gates beside the negotiator of a real HTCondor: for 20 traces of ads, as many matches in each cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.kits.broker_kit import ad_text
from tests.kits.negotiator_kit import Negotiator

from lodesman.decide.broker.ad import SiteAd, read_site_ad, replaces
from lodesman.decide.broker.gate import SiteGate, SiteMatch
from lodesman.wire.vocabulary import GateMode

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.negotiator]

TRACES, STEPS, JOBS = 20, 6, 3_000
# What the site says in one step, by attribute; None: it says nothing.
Step = dict[str, object] | None
OF_THE_REFERENCE: list[Step] = [
    {"sequence": 100},
    None,
    {"sequence": 101, "CurrentJobs": 47, "CurMatches": 47, "CurrentSubmittingJobs": 8},
    None,
    {"sequence": 101},
    {"sequence": 7},
]
"""7 matches, 2 after the newer ad; the same ad, one with the same number and one with an older number bring none."""


@dataclass(slots=True)
class Site:
    """What strict mode has of a site: its ad, and the pilots that were placed there."""

    name: str
    ad: SiteAd | None = None
    pilots: list[SiteMatch] = field(default_factory=list)

    def receive(self, text: str, now: float) -> None:
        new = read_site_ad(text, site=self.name, now=now)
        if replaces(new, self.ad):
            self.ad = new

    def cycle(self, now: float, most: int) -> int:
        if self.ad is None:
            return 0
        gate = SiteGate(self.name, self.ad, mode=GateMode.STRICT, matches=self.pilots, now=now)
        count = 0
        while count < most and gate.admits():
            gate.take()
            self.pilots.append(SiteMatch(stamp=f"{len(self.pilots)}", matched_at=now))
            count += 1
        return count


@pytest.fixture(scope="module")
def negotiator() -> Negotiator:
    return Negotiator(JOBS)


def trace(rng: Random) -> Iterator[Step]:
    """Ads with newer, equal and older numbers, and steps without one."""
    sequence = rng.randrange(100, 200)
    # Two texts for the same clause, and other clauses.
    requirements: dict[str, object] = rng.choice(
        [
            {},
            {"JobsMatchedSinceLastAdvertisement": None,
             "Requirements": "CurMatches < MaxJobs && CurMatches - CurrentJobs + CurrentSubmittingJobs < MaxSubmittingJobs"},
            {"Requirements": "CurMatches < MaxJobs && TARGET.RequestCpus <= 4"},
            {"Requirements": "CurMatches < MaxJobs && CurrentPendingJobs < 5", "CurrentPendingJobs": rng.randrange(4, 6)},
            {"MaxJobs": rng.choice(['"100"', "undefined", None])},
        ]
    )  # fmt: skip
    for step in range(STEPS):
        kind = rng.choice(["newer", "newer", "equal", "older", "none"]) if step else "newer"
        if kind == "none":
            yield None
            continue
        sequence += kind == "newer"
        running = rng.randrange(60)
        yield {
            "sequence": sequence - (kind == "older"), "MaxJobs": rng.randrange(20, 90), "CurrentJobs": running,
            "MaxSubmittingJobs": rng.randrange(16), "CurMatches": running + rng.choice([0, 0, 3]),
            "CurrentSubmittingJobs": rng.randrange(12), **requirements,
        }  # fmt: skip


def test_20_traces_of_ads_have_as_many_matches_in_each_cycle(negotiator):
    sites = [Site(f"SAMGRID{number:02}") for number in range(TRACES)]
    traces = [OF_THE_REFERENCE, *[list(trace(Random(number))) for number in range(1, TRACES)]]
    found, expected = [], []
    for step in range(STEPS):
        now = 100.0 * (step + 1)  # no ad is ever too old
        texts = []
        for site, steps in zip(sites, traces, strict=True):
            said = steps[step]
            if said is not None:
                changes = {"CurMatches": 40, **said}
                texts.append(ad_text(site.name, **changes))
                site.receive(texts[-1], now)
        negotiator.advertise(texts)
        counts = negotiator.cycle()
        found.append([counts[site.name] for site in sites])
        expected.append([site.cycle(now + 1.0, JOBS) for site in sites])
    assert found == expected
    assert [row[0] for row in found] == [7, 0, 2, 0, 0, 0]
    assert sum(map(sum, found)) > 100


def test_named_differences(negotiator):
    """Where strict mode says more than HTCondor: each is in ADR 0056."""
    cases: dict[str, tuple[dict[str, object], int, int]] = {
        # E3: the difference does not become negative.
        "SAMGRID-E3": ({"CurMatches": 10}, 37, 7),
        # The initial value of CurMatches is CurrentJobs, also if the site does not say so.
        "SAMGRID-initial": ({"CurMatches": None, "JobsMatchedSinceLastAdvertisement": None}, 0, 7),
    }  # fmt: skip
    texts = {name: ad_text(name, **changes) for name, (changes, _, _) in cases.items()}
    negotiator.advertise(texts.values())
    counts = negotiator.cycle()
    for name, (_, theirs, ours) in cases.items():
        site = Site(name)
        site.receive(texts[name], 0.0)
        assert (counts[name], site.cycle(1.0, JOBS)) == (theirs, ours), name
