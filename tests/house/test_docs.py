"""The documents name what exists: packages, files, tests, commands (rules 7 and 11 of the house)."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
PYTHON_FILE = re.compile(r"[\w./-]+\.py\b")
TEST = re.compile(r"([\w./-]+\.py)::(\w+)")
DEVIATES = re.compile(r"deviates:\s*\[?ADR[- ](\d{4})")


def documents(root: Path) -> list[Path]:
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")])


def test_links_lead_somewhere(root):
    broken = [
        f"{path.relative_to(root)}: {target}"
        for path in documents(root)
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists()
    ]
    assert broken == []


def anchors(path: Path) -> set[str]:
    """What links to the headings of a page say after the `#`."""
    fenced, found = False, set()
    for line in path.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def test_links_to_headings_lead_somewhere(root):
    broken = [
        f"{path.relative_to(root)}: {target}#{anchor}"
        for path in documents(root)
        for target, anchor in re.findall(
            r"\]\(([^)\s#:]*\.md|)#([^)\s]+)\)", path.read_text(encoding="utf-8")
        )
        if (page := path.parent / target if target else path).exists() and anchor not in anchors(page)
    ]
    assert broken == []


def test_architecture_names_every_part(root, package):
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    parts = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    parts |= {path.stem for path in package.glob("[!_]*.py")}
    unnamed = {
        part for part in parts if not re.search(rf"`(?:lodesman[./])?{part}\b|src/lodesman/{part}\b", text)
    }
    assert unnamed == set()


def test_the_walks_of_the_architecture_name_files_that_exist_each_once(root):
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = re.findall(r"^\*\*([^*]+)\*\*(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in walks] == [
        "A claim", "A submission", "`lode why JOB`", "A quota set that stops a job", "`lode vacate --apply`",
    ]  # fmt: skip
    for name, story in walks:
        files = re.findall(r"`(\w+/[\w/]+\.py)`", story)
        assert [file for file in files if not find_module(root, file)] == [], name
        assert sorted(files) == sorted(set(files)), name


def seed_clauses(root: Path) -> Iterator[tuple[int, str, list[str]]]:
    """The clauses, each with its line number and the lines below it."""
    lines = (root / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("* "):
            below = itertools.takewhile(lambda line: line.startswith("  * "), lines[number:])
            yield number, line[2:], [line[4:] for line in below]


def find_module(root: Path, name: str) -> bool:
    return (root / name).is_file() or (root / "src" / "lodesman" / name).is_file()


@cache
def names_in(path: Path) -> set[str]:
    """The names of all tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    # A Hypothesis state machine becomes a test by `TestName = Machine.TestCase`.
    assigned = [node.targets for node in tree.body if isinstance(node, ast.Assign)]
    return names | {ast.unparse(target) for targets in assigned for target in targets}


def find_test(root: Path, file: str, function: str) -> bool:
    path = root / file if file.startswith("tests/") else root / "tests" / file
    return path.is_file() and function in names_in(path)


def faults_of_clause(root: Path, below: list[str]) -> Iterator[str]:
    """What the lines below a clause name, and what is not there."""
    held = [line for line in below if line.startswith("held by ")]
    places = " ".join(line for line in below if line.startswith(("in ", "deviates: ")))
    yield from (
        f"neither in, held by nor deviates: {line}"
        for line in below
        if line not in places and line not in held
    )
    deviation = DEVIATES.search(places)
    if deviation and not list((root / "docs" / "adr").glob(f"{deviation[1]}-*.md")):
        yield f"no ADR {deviation[1]}"
    modules, tests = PYTHON_FILE.findall(places), TEST.findall(" ".join(held))
    if not deviation and not modules:
        yield "no module"
    if not deviation and not tests:
        yield "no test (file.py::test_name)"
    yield from (f"no module {name}" for name in modules if not find_module(root, name))
    yield from (f"no test {file}::{name}" for file, name in tests if not find_test(root, file, name))


@pytest.mark.slow
def test_every_seed_clause_has_its_module_and_its_test(root):
    clauses = list(seed_clauses(root))
    assert len(clauses) > 200
    faults = [
        f"line {number}: {clause}: {fault}"
        for number, clause, below in clauses
        for fault in faults_of_clause(root, below)
    ]
    assert faults == []


def test_faults_of_clauses_are_seen(root):
    here = Path(__file__).relative_to(root).as_posix()
    good = ["in `base/errors.py`", f"held by `{here}::test_faults_of_clauses_are_seen`"]
    assert list(faults_of_clause(root, good)) == []
    assert list(faults_of_clause(root, ["deviates: [ADR-0001](adr/0001-x.md)"])) == []
    assert list(faults_of_clause(root, ["in `no/such.py`", good[1]])) == ["no module no/such.py"]
    assert list(faults_of_clause(root, [good[0], f"held by `{here}::test_gone`"])) == [
        f"no test {here}::test_gone"
    ]
    assert list(faults_of_clause(root, ["deviates: [ADR-9999](adr/9999-x.md)"])) == ["no ADR 9999"]
    assert list(faults_of_clause(root, [])) == ["no module", "no test (file.py::test_name)"]
    assert list(faults_of_clause(root, [*good, "maybe"])) == ["neither in, held by nor deviates: maybe"]


def test_each_decision_stands_once_in_the_index(root):
    """With the room that it concerns, and the day when it was taken."""
    adr = root / "docs" / "adr"
    rows = re.findall(
        r"^\| \[\d{4}\]\((\S+)\) \| .+ \| 20\d\d-\d\d-\d\d \|$", (adr / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(path.name for path in adr.glob("0*.md"))


def test_each_room_leads_to_its_decisions(root):
    """From the index to the room by its heading, from the room to the index by the docstring of its package."""
    index = (root / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    rooms = {
        room: heading
        for heading, names in re.findall(r"^## (.+) \((`.+`)\)$", index, re.MULTILINE)
        for room in re.findall(r"`([\w/]+)`", names)
    }
    assert len(rooms) > 20
    docs = {
        room: (root / "src/lodesman" / room / "__init__.py").read_text(encoding="utf-8") for room in rooms
    }
    assert [
        room
        for room, heading in rooms.items()
        if f"\nDecisions: docs/adr/README.md, {heading}.\n" not in docs[room]
    ] == []


def command_line() -> click.Group:
    """The group behind `lode`: the one group of its root that no other holds."""
    root = vars(importlib.import_module("lodesman.user.cli.root"))
    groups = [value for value in root.values() if isinstance(value, click.Group)]
    assert groups, "lodesman.user.cli.root binds no click.Group"
    held = {id(child) for group in groups for child in group.commands.values()}
    return next(group for group in groups if id(group) not in held)


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_every_command_is_in_the_manual_and_has_help(root):
    found = list(commands(command_line(), "lode"))
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    assert len(found) > 5
    assert [path for path, command in found if not (command.help or "").strip()] == []
    assert [path for path, _ in found if not re.search(rf"{re.escape(path)}\b", text)] == []
