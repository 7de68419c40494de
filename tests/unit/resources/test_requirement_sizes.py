"""Requirements of 1 to 200 keys, over a tree whose queues override their CE and whose VO overrides them all."""

from __future__ import annotations

import random

import pytest
from tests.unit.resources.conftest import eligible, load_toml, reasons

SIZES = (1, 2, 3, 10, 50, 100, 199, 200)
KINDS = ("number", "string", "list", "version", "boolean", "")
QUEUES = 24
VOS = ("", "v")
GOOD = {"number": 8, "string": "right", "list": ["right", "other"], "version": "2.1", "boolean": True, "": 8}
BAD = {"number": 3, "string": "wrong", "list": ["wrong"], "version": "1.9", "boolean": False, "": 3}
WANTED = {"number": 5, "string": "right", "list": ["right", "else"], "version": "2.0", "boolean": True, "": 5}
SPELLED = {
    "number": "5.0", "string": " right ", "list": "else, right", "version": "2", "boolean": "yes", "": "5",
}  # fmt: skip


def kind_of(key: int) -> str:
    return KINDS[key % len(KINDS)]


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


class World:
    """A tree made by chance, and what it says in plain Python: {level: {key: good or bad}}."""

    def __init__(self, keys: int, seed: int) -> None:
        rng = random.Random(seed)
        self.keys = keys
        self.said: dict[tuple[str, str], dict[int, bool]] = {}
        levels = ["site", "ce", *(f"q{n}" for n in range(QUEUES))]
        for level in levels:
            for vo in VOS:
                # At most two keys are missing or bad in all: else no large set would ever be met.
                chance = 1 - 0.2 / keys if level == "site" and not vo else 1 / keys
                good = {"site": 1 - 0.2 / keys, "ce": 0.9}.get(level, 0.6)
                told = [key for key in range(keys) if rng.random() < chance]
                self.said[level, vo] = {key: rng.random() < good for key in told}

    def text(self) -> str:
        lines = ["[job_description]"]
        lines += [f'K{key} = "{kind_of(key)}"' for key in range(self.keys) if kind_of(key)]
        heads = {"site": "site.S", "ce": "site.S.ce.c"}
        for (level, vo), told in self.said.items():
            head = heads.get(level, f"site.S.ce.c.queue.{level}")
            lines.append(f"[{head}{'.vo.v' if vo else ''}]")
            lines += [f"K{key} = {toml((GOOD if good else BAD)[kind_of(key)])}" for key, good in told.items()]
        return "\n".join(lines)

    def good(self, queue: str, key: int, vo: str) -> bool:
        """The rule read plainly: the deepest level with a value decides; without one it is not eligible."""
        for level in (queue, "ce", "site"):
            for of in ("v", "") if vo else ("",):
                if key in self.said[level, of]:
                    return self.said[level, of][key]
        return False

    def eligible(self, vo: str, keys: range) -> list[str]:
        queues = [f"q{n}" for n in range(QUEUES)]
        return [queue for queue in queues if all(self.good(queue, key, vo) for key in keys)]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("vo", ["v", "other", ""])
def test_sets_of_many_keys(size, vo):
    found = set()
    for seed in range(8):
        world = World(size, seed * 1000 + size)
        config = load_toml(world.text())
        wanted = {f"K{key}": WANTED[kind_of(key)] for key in range(size)}
        expected = world.eligible(vo if vo == "v" else "", range(size))
        assert eligible(config, wanted, vo) == ({"S": {"c": expected}} if expected else {})
        unrefused = [queue.queue for queue, found in reasons(config, wanted, vo).items() if not found]
        assert unrefused == expected
        found.add(len(expected))
    assert len(found) > 1, "all worlds are alike: the test shows nothing"


@pytest.mark.parametrize("size", SIZES)
def test_the_spelling_of_many_keys_does_not_matter(size):
    world = World(size, size)
    config = load_toml(world.text())
    plain = {f"K{key}": WANTED[kind_of(key)] for key in range(size)}
    spelled = {f"k{key}": SPELLED[kind_of(key)] for key in reversed(range(size)) if kind_of(key)}
    spelled |= {f"K{key}": 5 for key in range(size) if not kind_of(key)}
    assert eligible(config, plain, "v") == eligible(config, spelled, "v")


@pytest.mark.parametrize("size", SIZES)
def test_every_key_that_fails_is_a_reason(size):
    world = World(size, 7 + size)
    config = load_toml(world.text())
    wanted = {f"K{key}": WANTED[kind_of(key)] for key in range(size)}
    for queue, found in reasons(config, wanted, "v").items():
        failing = {f"K{key}" for key in range(size) if not world.good(queue.queue, key, "v")}
        assert {reason.parameter for reason in found} == failing


def test_the_overlay_of_a_queue_is_for_its_vo():
    text = """
    [site.S.ce.c]
    Memory = 2000
    [site.S.ce.c.queue.q]
    Memory = 4000
    [site.S.ce.c.queue.q.vo.v]
    Memory = 8000
    """
    config = load_toml(text)
    assert eligible(config, {"Memory": 8000}, "v")
    assert not eligible(config, {"Memory": 8000}, "w")
    assert eligible(config, {"Memory": 4000}, "w")
