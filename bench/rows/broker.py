"""Match cycles of 10,000 requests and 1,000 sites, and matches of two ads."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.broker_world import pair_texts, requests, site_ads
from bench.context import Context
from bench.figures import Figure
from bench.match_cycle import CycleOutcome, CycleRequest, MatchCycle, RankedBook, cycle_request
from bench.oracle import WrongAnswer

from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.gate import SiteGate
from lodesman.languages.classad import matches, parse_ad
from lodesman.languages.classad.fast import MatchSide, fast_match

SITES, REQUESTS, DIFFERENT, NEW = 1_000, 10_000, 500, 50
COLD_S, WARM_S, EXACT, FAST = 5.0, 0.5, 3.0, 10.0
NOW = 10.0
LIBRARY = Path(__file__).parents[1] / "classad2_rate.py"
SIZE = "a request of 100 attributes and 9 clauses, sites of 130 and 4"


def measure(context: Context) -> list[Figure]:
    """CPU seconds of cycles; matches/s, beside HTCondor's library if LODE_TEST_CLASSAD2 names a Python that has it."""
    return [*_cycles(context), *_pairs(context)]


def _cycles(context: Context) -> list[Figure]:
    part = context.part
    size = f"{SITES // part:,} sites, {REQUESTS // part:,} requests, {DIFFERENT // part} different, 30 attributes"
    cold, warm, matched = [], [], 0
    for number in range(context.samples):
        rng = random.Random(number)
        ads = {ad.site: ad for ad in site_ads(SITES // part, 1, rng)}
        newer = {ad.site: ad for ad in site_ads(SITES // part, 2, rng)}
        wishes = list(requests(REQUESTS // part, DIFFERENT // part, rng))
        book = RankedBook()
        begun = time.process_time()
        fresh = [cycle_request(one.broker.ad) for one in wishes]
        outcomes = _cycle(book, ads, fresh)
        cold.append(time.process_time() - begun)
        _check(ads, outcomes)
        ads |= {site: newer[site] for site in rng.sample(sorted(ads), NEW // part)}
        begun = time.process_time()
        outcomes = _cycle(book, ads, fresh)
        warm.append(time.process_time() - begun)
        matched = _check(ads, outcomes)
    return [
        Figure(
            row="broker-cold", what="a first match cycle, the requests made ready, CPU time", unit="s", value=min(cold),
            target=COLD_S, less=True, samples=cold, size=size,
        ),
        Figure(
            row="broker-new-ads", what=f"a match cycle after {NEW // part} new ads, CPU time", unit="s", value=min(warm),
            target=WARM_S, less=True, samples=warm, size=size, details={"matched": matched},
        ),
    ]  # fmt: skip


def _cycle(book: RankedBook, ads: Mapping[str, SiteAd], wishes: list[CycleRequest]) -> list[CycleOutcome]:
    gates = {site: SiteGate(site, ad, now=NOW) for site, ad in ads.items()}
    cycle = MatchCycle(book, gates, now=NOW, rng=random.Random(2))
    return [cycle.match(one) for one in wishes]


def _check(ads: Mapping[str, SiteAd], outcomes: list[CycleOutcome]) -> int:
    """The oracle: limits, and for some requests pairs of ads. The number of matches; raises WrongAnswer."""
    gates = {site: SiteGate(site, ad, now=NOW) for site, ad in ads.items()}
    taken = dict.fromkeys(ads, 0)
    for outcome in outcomes:
        for site, count in outcome.sites.items():
            taken[site] += count
    if any(count > gates[site].room(1_000) for site, count in taken.items()):
        raise WrongAnswer("a site got more than its gate allows")
    for outcome in outcomes[:: max(1, len(outcomes) // 50)]:
        good = {site for site, gate in gates.items() if matches(outcome.request.broker.ad, gate.side.ad)}
        if not good.issuperset(outcome.sites) or (not outcome.sites and any(taken[one] == 0 for one in good)):
            raise WrongAnswer("a request has a site that does not match it, or none while one was free")
    return sum(taken.values())


def _pairs(context: Context) -> list[Figure]:
    request_text, site_texts = pair_texts(1_000, random.Random(5))
    rounds = context.less(20, 2)
    request = parse_ad(request_text)
    sites = [parse_ad(text) for text in site_texts]
    side, others = MatchSide(request), [MatchSide(site) for site in sites]
    found = [matches(request, site) for site in sites]
    if found != [fast_match(side, other) for other in others]:
        raise WrongAnswer("the fast path says something else than the exact one")
    beside = _library(request_text, site_texts, rounds)
    if beside and beside["matched"] != sum(found):
        raise WrongAnswer(f"HTCondor's library matches {beside['matched']} pairs, not {sum(found)}")
    rates = {
        "exact": (_rate(lambda site: matches(request, site), sites, rounds), EXACT),
        "fast": (_rate(lambda other: fast_match(side, other), others, rounds), FAST),
    }
    return [
        Figure(
            row=f"match-{name}", what=f"two-sided matches on one core, {name}", unit="1/s", value=rate,
            target=factor * beside["rate"] if beside else None, floor_name="HTCondor's library (classad2)" if beside else "",
            floor=beside["rate"] if beside else None, size=SIZE, details={"matched": sum(found), "pairs": len(found)},
        )
        for name, (rate, factor) in rates.items()
    ]  # fmt: skip


def _rate(match: Callable[[Any], bool], others: list[Any], rounds: int) -> float:
    best = 0.0
    for _ in range(rounds):
        begun = time.process_time()
        for other in others:
            match(other)
        best = max(best, len(others) / (time.process_time() - begun))
    return best


def _library(request: str, sites: list[str], rounds: int) -> dict[str, Any]:
    python = os.environ.get("LODE_TEST_CLASSAD2", "")
    if not python:
        return {}
    asked = json.dumps({"request": request, "sites": sites, "rounds": rounds})
    run = subprocess.run(
        [python, LIBRARY], input=asked, capture_output=True, text=True, check=True, timeout=300
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found
