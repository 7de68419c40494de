"""The vectors of access specifiers in the reference, one for each finished job."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from tests.kits.jobclass_kit import rows

from lodesman.languages.jobclass.attributes import entries_of


class Vector(NamedTuple):
    """`text`: the finished job, as the table has it."""

    row: dict[str, str]
    variant: str
    text: str
    outcome: str


VECTORS = [
    Vector(row, variant, job, outcome)
    for row in rows("vectors")
    if row["attr"] != "parse"
    for cells in [[row[name].split(" / ") for name in ("variant", "finished job", "outcome")]]
    for count in [max(map(len, cells))]
    for variant, job, outcome in zip(
        *(cell * count if len(cell) == 1 else cell for cell in cells), strict=True
    )
]


SUBSETS = ["".join(letters) for letters in product(("", "+"), ("", "-"), ("", "~"))]
# What a row about lists is about, done to a=1,b=2.
NEEDS = {
    "entry added": "a=1,b=2,c=3",
    "entry value changed": "a=1,b=7",
    "one entry removed": "a=1",
    "all removed (-clearp)": "empty",
}


def lists_of(row):
    """Every specifier of a list, and of its entries (in a variant both can be written), with what one row allows."""
    for whole, entry in product(SUBSETS, [letters for letters in SUBSETS if "+" not in letters]):
        of_list, of_entry = (f"{{{one}}}" if one else "" for one in (whole, entry))
        value = f"UNSPECIFIED,[{of_list}large={of_entry}a=1,{of_entry}b=2]"
        outcome = "ok" if _permits(row["permission"], whole, entry) else "reject"
        yield Vector({"attr": "l_hard", "class value": value}, "large", NEEDS[row["need"]], outcome)


def _permits(permission, whole, entry):
    """Whether these letters of the list and of its entries are what a cell asks for."""
    found = []
    for place, letter in re.findall(r"(attribute level|entry has|entry) ([-+~])", permission):
        found.append(letter in (whole if place == "attribute level" else entry))
    assert len(found) == permission.count(" or ") + 1
    return any(found)


ALLOWED = [
    *(
        Vector({"attr": "N", "class value": row["class"]}, "-", text, row[column].split(" ")[0])
        for row in rows("scalars")
        for column, text in (("job = V", "V"), ("job = W", "W"), ("attribute removed (unset)", "unset"))
        if row[column] != "-"
    ),
    *(vector for row in rows("lists") for vector in lists_of(row)),
]
"""What each specifier allows, row by row."""


def job_of(text, attribute="l_hard"):
    """The finished job in attributes of Grid Engine."""
    if attribute == "N":
        return {} if text == "unset" else {"N": text}
    return {} if text == "empty" else {"l_hard": entries_of(attribute, text)}


def resources(job):
    """Its Consumables."""
    return ["=".join(pair) for pair in job.get("l_hard", {}).items()]
