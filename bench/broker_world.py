"""Sites that advertise and requests that match them: 30 attributes each, some hundred different Requirements."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.match_cycle import CycleRequest, cycle_request

from lodesman.decide.broker.ad import SiteAd, read_site_ad
from lodesman.languages.classad import parse_ad, write_value

NUMBERS = tuple(f"Number{n:02}" for n in range(12))
TEXTS = tuple(f"Text{n:02}" for n in range(12))
LISTS = tuple(f"List{n}" for n in range(6))
WORDS = tuple(f"word{n}" for n in range(8))


def site_text(number: int, sequence: int, rng: random.Random) -> str:
    """An ad with the limits of SAM-Grid, 30 attributes to match, and Requirements about both."""
    requirements = (
        "CurMatches < MaxJobs"
        " && JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
        f' && TARGET.Memory <= {rng.choice((2000, 4000, 8000))} && TARGET.VO != "{rng.choice(WORDS)}"'
    )
    lines = [
        f'Name = "Site{number:04}"', f"UpdateSequenceNumber = {sequence}", 'Incarnation = "1"',
        "MaxJobs = 1000", "MaxSubmittingJobs = 40", f"CurrentJobs = {rng.randrange(900)}",
        f"CurrentSubmittingJobs = {rng.randrange(20)}", "CurMatches = CurrentJobs",
        "JobsMatchedSinceLastAdvertisement = CurMatches - CurrentJobs", f'StationName = "station{number % 50}"',
        *[f"{name} = {rng.randrange(100)}" for name in NUMBERS],
        *[f'{name} = "{rng.choice(WORDS)}"' for name in TEXTS],
        *[f"{name} = {write_value(tuple(rng.sample(WORDS, 4)))}" for name in LISTS],
        f"Requirements = {requirements}",
    ]  # fmt: skip
    return "\n".join(lines)


def site_ads(count: int, sequence: int, rng: random.Random) -> Iterator[SiteAd]:
    """Ads that have just come."""
    for number in range(count):
        yield read_site_ad(site_text(number, sequence, rng), site=f"Site{number:04}", now=0.0)


def expressions(count: int, rng: random.Random) -> list[str]:
    """Different Requirements, of three to five clauses; about one site of seven fulfils one."""
    found: set[str] = set()
    while len(found) < count:
        clauses = [
            f"TARGET.{rng.choice(NUMBERS)} >= {rng.randrange(10, 60)}",
            f'TARGET.{rng.choice(TEXTS)} != "{rng.choice(WORDS)}"',
            f'member("{rng.choice(WORDS)}", TARGET.{rng.choice(LISTS)})',
            f"TARGET.{rng.choice(NUMBERS)} + TARGET.{rng.choice(NUMBERS)} > {rng.randrange(20, 100)}",
            f'(TARGET.{rng.choice(TEXTS)} == "{rng.choice(WORDS)}" || TARGET.{rng.choice(NUMBERS)} < 80)',
        ]
        found.add(" && ".join(clauses[: rng.randrange(3, 6)]))
    return sorted(found)


def request_text(requirements: str, number: int, rng: random.Random) -> str:
    """A request with 30 attributes; a tenth of them have a Rank."""
    rank = f"Rank = TARGET.{NUMBERS[number % len(NUMBERS)]}" if number % 10 == 0 else "Wish = 1"
    lines = [
        f"Requirements = {requirements}", rank, f'Owner = "user{number % 200}"', f'VO = "{WORDS[number % 7]}"',
        f"Memory = {rng.choice((1000, 2000, 4000))}",
        *[f"Fact{n:02} = {rng.randrange(100)}" for n in range(25)],
    ]  # fmt: skip
    return "\n".join(lines)


def requests(count: int, different: int, rng: random.Random) -> Iterator[CycleRequest]:
    """Requests for one match each."""
    chosen = expressions(different, rng)
    for number in range(count):
        yield cycle_request(parse_ad(request_text(chosen[number % different], number, rng)))


SLOT_CLAUSES = (
    'TARGET.Text00 != "word0" && TARGET.Number00 <= MY.Number00 && Number01 > 3 && TARGET.Memory <= MY.Memory'
)


def pair_texts(count: int, rng: random.Random) -> tuple[str, list[str]]:
    """A request of 100 attributes with nine clauses, and sites of 130 with four; about 15 of 100 match."""
    wanted = [
        'TARGET.Arch == "X86_64"', 'TARGET.OpSys == "LINUX"', "TARGET.Disk >= Disk", "TARGET.Memory >= MY.Memory",
        "TARGET.Cpus >= 1", "TARGET.Number02 + TARGET.Number03 < 1000", "TARGET.HasFileTransfer", "TARGET.Number04 < 90",
        "(TARGET.Load < 80 || TARGET.Number05 > 50)",
    ]  # fmt: skip
    facts = [f"Number{n:02} = {n}" for n in range(45)] + [f'Text{n:02} = "word{n}"' for n in range(1, 45)]
    request = [
        'Text00 = "word1"',
        "Memory = 2000",
        "Disk = 50",
        *facts,
        *[f"More{n} = {n}.5" for n in range(8)],
    ]
    sites = []
    archs, systems = ("X86_64", "X86_64", "X86_64", "aarch64"), ("LINUX", "WINDOWS")
    for _ in range(count):
        slot = [
            f'Arch = "{rng.choice(archs)}"', f'OpSys = "{rng.choice(systems)}"',
            f"Disk = {rng.randrange(200)}", f"Memory = {rng.choice((1000, 2000, 4000, 8000))}", "Cpus = 8",
            "HasFileTransfer = true", f"Load = {rng.randrange(100)}",
            *[f"Number{n:02} = {rng.randrange(5, 100)}" for n in range(60)],
            *[f'Text{n:02} = "{rng.choice(WORDS)}"' for n in range(62)], f"Requirements = {SLOT_CLAUSES}",
        ]  # fmt: skip
        sites.append("\n".join(slot))
    return "\n".join([*request, f"Requirements = {' && '.join(wanted)}"]), sites
