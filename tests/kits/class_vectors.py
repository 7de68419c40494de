"""The vectors of access specifiers in the reference, one for each finished job."""

from __future__ import annotations

from typing import NamedTuple

from tests.kits.jobclass_kit import rows

from lodesman.jobclass.attributes import entries_of


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


def job_of(attribute, text):
    """The finished job in attributes of Grid Engine."""
    if attribute == "N":
        return {} if text == "unset" else {"N": text}
    return {} if text == "empty" else {"l_hard": entries_of("l_hard", text)}


def resources(job):
    """Its Consumables."""
    return ["=".join(pair) for pair in job.get("l_hard", {}).items()]
