"""What tests of quota sets share: the tables of the reference, complexes and sets in few words."""

from __future__ import annotations

from pathlib import Path

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, Complexes, read_complexes
from lodesman.languages.quota.evaluation import evaluate, find_excesses
from lodesman.languages.quota.reading import read_quota_sets

DATA = Path(__file__).parents[2] / "data" / "gridengine"
ROWS = """
mc mc MEMORY <= YES YES 0 0
mdef mdef MEMORY <= YES YES 1G 0
perjob pj INT <= YES JOB 0 0
lic lic DOUBLE <= YES YES 0 0
wait wt TIME <= YES YES 0 0
"""


def table(name):
    """The rows of a Markdown table as dictionaries by column."""
    head, _, *rows = [
        [cell.strip().replace("\\|", "|") for cell in line.strip("|").split("|")]
        for line in (DATA / name).read_text(encoding="utf-8").splitlines()
    ]
    return [dict(zip(head, row, strict=True)) for row in rows]


def complexes_with(rows):
    own = read_complexes(rows, faults=[])
    kept = [one for one in STOCK_COMPLEXES if own.get(one.name) is None]
    return Complexes((*kept, *own))


COMPLEXES = complexes_with(ROWS)


def faults_of(text, complexes=COMPLEXES):
    faults = []
    sets = read_quota_sets(text, complexes, faults=faults, source="q")
    return sets, faults


def sets_of(text, complexes=COMPLEXES):
    sets, faults = faults_of(text, complexes)
    assert [str(fault) for fault in faults] == []
    return sets


def one_set(*limits, name="t", complexes=COMPLEXES):
    """A set that is on, out of its limits."""
    lines = "".join(f"limit {limit}\n" for limit in limits)
    return sets_of(f"{{\nname {name}\nenabled TRUE\n{lines}}}\n", complexes)


class Cluster:
    """Starts jobs one after the other, each at the first place where it fits, and books what they use."""

    def __init__(self, sets, places, complexes=COMPLEXES):
        self.sets = sets
        self.places = places
        self.complexes = complexes
        self.used = {}

    def start(self, job):
        """None if it runs now; else why not, at the last place."""
        found = []
        for place in self.places:
            hits = evaluate(self.sets, job, place, self.complexes)
            found = find_excesses(hits, self.used)
            if not found:
                self.book(hits, 1)
                return None
        return found

    def book(self, hits, sign):
        for hit in hits:
            for charge in hit.charges:
                if charge.booked:
                    key = (hit.bucket, charge.resource.name)
                    self.used[key] = self.used.get(key, 0) + sign * charge.amount
