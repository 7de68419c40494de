"""Quota sets of a large grid: 1,000 rules in 20 sets, of which ten charge each claim, and 100 full buckets."""

from __future__ import annotations

from lodesman.languages.gridengine.vocabulary import HostGroup, Vocabulary
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import QuotaSet

SETS, RULES, CHARGING, FULL = 20, 50, 10, 100
PLENTY = 1_000_000_000
# The last rule of each set that charges, one bucket for each of these.
_EACH = (
    "users {*}",
    "projects {*}",
    "users {*} projects {*}",
    "queues {*}",
    "users {*} queues {*}",
    "hosts {*}",
    "",
    "",
)
# 50 places with host groups of their own, where rules of the other sets would hold.
VOCABULARY = Vocabulary(
    host_groups={f"@rack{n}": HostGroup(name=f"@rack{n}", members=(f"far{n}",)) for n in range(RULES)}
)


def text(*, plenty: int = PLENTY) -> str:
    """The sets. Task queues are told apart by the end of their project's name: a tenth is behind a full bucket."""
    return "".join(_set(number, plenty) for number in range(SETS))


def _set(number: int, plenty: int) -> str:
    if number < FULL // RULES:
        # All buckets of these rules are full: their jobs would never start.
        rules = [f"projects p*{n:03} to slots=0" for n in range(number * RULES, (number + 1) * RULES - 1)]
        rules.append(f"to slots={plenty}")
    elif number < CHARGING:
        rules = [f"users nobody{n} projects q* to slots=1" for n in range(RULES - 1)]
        rules.append(f"{_EACH[number - 2]} to slots={plenty}")
    else:
        rules = [f"users * hosts @rack{n} to slots={n}" for n in range(RULES)]
    lines = "".join(f" limit {rule}\n" for rule in rules)
    return f"{{\n name set{number}\n enabled TRUE\n{lines}}}\n"


def sets(*, plenty: int = PLENTY) -> tuple[QuotaSet, ...]:
    """The sets as the server reads them."""
    return read_quota_sets(text(plenty=plenty), VOCABULARY.complexes, faults=[])
