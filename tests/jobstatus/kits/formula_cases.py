"""Writes the cases of the formulas: random pilots with answers that are counted second by second.

PYTHONPATH=src:. python tests/jobstatus/kits/formula_cases.py    # cases 501 to 520
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

from tests.jobstatus.kits.random_pilots import Past, World, random_world

from lodesman.site.jobstatus.values import render

CASES = Path(__file__).parents[1] / "cases"
COUNT, BEGIN, APART = 20, 1_400_000_000, 6


def formula_cases():
    """The text of each file, by its path below `cases`. The first half is read from files, the rest is written first."""
    found = {}
    for place in range(COUNT):
        chance = random.Random(f"formula {place}")
        world, event, now = _interesting(chance)
        folder = f"{501 + place}-random-pilot-{place + 1}"
        case = {
            "title": f"A random pilot of {world.allocated} cores, counted second by second",
            "group": "formulas",
        }
        if place < COUNT // 2:
            values = world.status(event, BEGIN).items()
            case["files"] = {key: render(key, value).decode() for key, value in values.items()}
        else:
            found[f"{folder}/steps.json"] = case_text(
                {"allocated": world.allocated, "steps": _steps(world, event, now)}
            )
        case |= {"now": BEGIN + now, "allocated": world.allocated, "jobstart": BEGIN}
        found[f"{folder}/case.json"] = case_text(case | {"expected": _answers(world, now)})
    return found


def _interesting(chance: random.Random) -> tuple[World, int, int]:
    """A pilot, an event after which at least two payloads run, and a later moment before the next event."""
    while True:
        world = random_world(chance)
        events = world.events()
        fit = [
            (event, following - 1)
            for event, following in pairwise(events)
            if following - event > APART and sum(one.runs(event) for one in world.payloads) > 1
        ]
        if fit:
            event, last = chance.choice(fit)
            return world, event, chance.randint(event + APART - 1, last)


def _answers(world, now):
    running = [one for one in world.payloads if one.runs(now)]
    return {
        "error": None,
        "remaining_expected": max(one.end for one in running) - now,
        "remaining_max": max(one.limit for one in running) - now,
        "draining_waste": world.drain(now),
        "kill_waste": world.kill(now),
        "flags": [],
    }


def _steps(world, event, now):
    """All that happened until this event, and a wait for what is published then."""
    steps = [step for number, one in enumerate(world.payloads) for step in _life(f"p{number}", one)]
    past = [step for step in steps if step["at"] <= BEGIN + event]
    return [*sorted(past, key=lambda step: step["at"]), {"at": BEGIN + now, "do": "wait"}]


def _life(name: str, one: Past):
    yield {
        "at": BEGIN + one.start, "do": "start", "payload": name, "cores": one.cores,
        "expected_end": BEGIN + one.end, "enforced_end": BEGIN + one.limit,
    }  # fmt: skip
    for commit in one.commits:
        yield {"at": BEGIN + commit, "do": "commit", "payload": name}
    yield {"at": BEGIN + one.end, "do": "end", "payload": name, "pending": one.safe > one.end}
    if one.safe > one.end:
        yield {"at": BEGIN + one.safe, "do": "safe", "payload": name}


def case_text(content):
    """One line for each name, and for each step."""
    lines = []
    for name, value in content.items():
        listed = name == "steps"
        rows = ",\n  ".join(json.dumps(item) for item in value) if listed else ""
        lines.append(f'"{name}": ' + (f"[\n  {rows}]" if listed else json.dumps(value)))
    return "{\n " + ",\n ".join(lines) + "\n}\n"


if __name__ == "__main__":
    for path, text in formula_cases().items():
        (CASES / path).parent.mkdir(exist_ok=True)
        (CASES / path).write_text(text)
