"""The list of planted faults (tests/data/planted_faults.toml) fits the tree; scripts/plant_faults.py plants them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from scripts.plant_faults import FAULTS, WHOLE, PlantedFault, WrongEntry, planted, read_faults

# What engines print is read apart for each, and each kind of database has a dialect and a schema.
DOORS = [f"server/engines/{name}" for name in ("arc", "gridengine", "htcondor", "local", "slurm")]


@pytest.fixture(scope="module")
def faults(root) -> list[PlantedFault]:
    return read_faults(root)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def marked(nodes: Sequence[ast.AST]) -> set[str]:
    """The marks of pytest that stand in these as `pytest.mark.slow`, but for those of single values of a parameter."""
    names = " ".join(ast.unparse(one) for one in nodes if "parametrize" not in ast.unparse(one))
    return set(re.findall(r"pytest\.mark\.(\w+)", names))


def marks_of(root: Path, test: str) -> set[str] | None:
    """The marks of a test, None if there is no such test."""
    name, *inner = test.partition("[")[0].split("::")
    if not inner or not (root / name).is_file():
        return None
    body = parsed(root / name).body
    assigned = [one for one in body if isinstance(one, ast.Assign)]
    found = marked([one for one in assigned if ast.unparse(one.targets[0]) == "pytestmark"])
    for wanted in inner:
        there = [
            one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == wanted
        ]
        if not there:
            return None
        found |= marked(there[0].decorator_list)
        body = there[0].body
    return found


def test_each_fault_can_be_planted(root, faults):
    wrong = []
    for fault in faults:
        try:
            if planted(root, fault) == (root / fault.file).read_text(encoding="utf-8"):
                wrong.append(f"{fault.name} changes nothing")
        except (WrongEntry, OSError) as found:
            wrong.append(str(found))
    assert not wrong


@pytest.mark.slow
def test_each_fault_names_tests_that_every_landing_runs(root, faults):
    wrong = {}
    for fault in faults:
        for test in fault.tests:
            marks = marks_of(root, test)
            if marks is None:
                wrong[fault.name] = f"there is no {test}"
            elif "thorough" in marks:
                wrong[fault.name] = f"{test} is left to ./check --all"
            elif (
                fault.store != "sqlite"
                and test.startswith(("tests/api", "tests/e2e"))
                and "stores" not in marks
            ):
                wrong[fault.name] = f"{test} is not run on {fault.store}"
        if not fault.tests:
            wrong[fault.name] = "it names no test"
    assert wrong == {}


def test_there_are_faults_of_each_room_and_door(package, faults):
    rooms = [path.parent for path in package.glob("*/__init__.py")]
    within = [path for room in rooms if room.name not in WHOLE for path in room.glob("[!_]*")]
    parts = {path.relative_to(package).with_suffix("").as_posix() for path in within} | WHOLE
    assert parts - {fault.room for fault in faults} == set()
    files = " ".join(one.file for one in faults)
    assert [door for door in DOORS if door not in files] == []
    assert {"sqlite", "postgresql"} == {one.store for one in faults}


def test_there_are_enough_faults_with_a_name_each(faults):
    names = Counter(one.name for one in faults)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) >= 30


def test_all_were_caught_when_they_were_planted_last(root, faults):
    """Who changes the list plants what is new, and notes the result."""
    noted = tomllib.loads((root / FAULTS).read_text(encoding="utf-8"))["result"]
    assert noted["caught"] == noted["of"] == len(faults)
