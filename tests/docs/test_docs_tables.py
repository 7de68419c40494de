"""The tables of the manuals name exactly what the program has, with its defaults; examples are well written."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from lodesman.decide.director import options as director
from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.explain.verdict import verdict_of
from lodesman.decide.matching.offers import CAUSES, PRIVATE_ONLY
from lodesman.decide.resources import load_resources
from lodesman.decide.resources.kinds import ANY_OF, OPERATORS, WELL_KNOWN, admits, parse_type
from lodesman.decide.submission import exclusions
from lodesman.languages.cfg import parse_cfg
from lodesman.languages.jobs import read_description, read_job
from lodesman.languages.jobs.attributes import ATTRIBUTES
from lodesman.languages.jobs.retries import PAYLOAD_CAUSES
from lodesman.languages.jobs.spec import JobSpec
from lodesman.pilot import loop, protocol
from lodesman.server.config import ServerFile, load_config
from lodesman.server.config.backends import BackendSection
from lodesman.server.config.identities import IdentitySection
from lodesman.server.store import SqliteDatabase
from lodesman.user.cli.commands.pilots import pilot
from lodesman.user.cli.root import lode
from lodesman.wire.accounts import SCOPES
from lodesman.wire.server import HotMetrics
from lodesman.wire.vocabulary import ClampName, Kind, Level, MainReason, QueueReason

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"
FENCE = re.compile(r"^```(\w*)[ ]*([\w./-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FROM_PILOTS = (
    "pilot-lost",
    "lease-expired",
    "not-named",
    "not-taken",
    "returned",
)  # causes that the server itself gives


def table(manual: str, *, first: str, below: str = "") -> list[list[str]]:
    """The rows of the first table whose first column has that title, below a heading that begins so."""
    text = (HOW_TO / manual).read_text(encoding="utf-8")
    if below:
        text = text[text.index(f"\n{below}") :]
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        if line.startswith("|") and (rows or cells[0] == first):
            rows.append(cells)
        elif rows:
            break
    assert len(rows) > 2, f"{manual} has no table whose first column is {first!r}"
    return rows[2:]


def names(rows: Sequence[Sequence[str]]) -> list[str]:
    """What stands in code marks in the first column."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def as_json(cell: str) -> Any:
    """The value of a cell in code marks."""
    return json.loads(cell.strip("`"))


def as_lists(value: Any) -> Any:
    """As JSON values: tuples as lists."""
    return json.loads(msgspec.json.encode(value))


# One is the section of each batch system, the other one has no struct.
SECTIONS = [name for name in ServerFile.__struct_fields__ if name not in ("backend", "identity", "director")]


@pytest.mark.parametrize("name", SECTIONS)
def test_options_of_a_section(name):
    section = getattr(ServerFile(), name)
    rows = table("administrators.md", first="option", below=f"### `[{name}]`")
    told = dict(zip(names(rows), (as_json(row[1]) for row in rows), strict=True))
    assert told == as_lists(section)
    assert all(len(row) == 3 and row[2] for row in rows)


@pytest.mark.parametrize(
    ("name", "section"), [("backend", BackendSection()), ("identity", IdentitySection())]
)
def test_options_of_batch_systems_and_identities(name, section):
    rows = table("administrators.md", first="option", below=f"### `[{name}]`")
    told = dict(zip(names(rows), (as_json(row[1]) for row in rows), strict=True))
    assert told == as_lists(section)
    assert all(len(row) == 3 and row[2] for row in rows)


def test_every_section_is_documented():
    told = set(re.findall(r"^### `\[(\w+)\]`$", (HOW_TO / "administrators.md").read_text(), re.MULTILINE))
    assert told == set(ServerFile.__struct_fields__)


def director_values(options: DirectorOptions) -> Iterator[tuple[str, Any]]:
    groups = {"": options, "pool": options.pool_defaults}
    for rule in director._RULES:
        yield rule.option, getattr(groups.get(rule.group) or getattr(options, rule.group), rule.field)


def test_options_of_the_director():
    rows = table("administrators.md", first="option", below="### `[director]`")
    told = {name: as_json(row[1]) for name, row in zip(names(rows), rows, strict=True)}
    polling = load_config(None).polling_seconds
    wanted = {"PollingTime": polling, **dict(director_values(DirectorOptions()))}
    assert told == as_lists(wanted)
    assert all(len(row) == 3 and row[2] for row in rows)
    # The cells are values that the program reads, and reads as its defaults.
    given = {name: value for name, value in told.items() if name != "PollingTime"}
    assert dict(director_values(director.read_options(given))) == dict(director_values(DirectorOptions()))


def test_options_of_a_pool():
    text = (HOW_TO / "administrators.md").read_text(encoding="utf-8")
    told = text[text.index("A section `[director.NAME]`") :].partition("\n\n")[0]
    wanted = {rule.option for rule in director._RULES if rule.group == "pool"}
    assert set(re.findall(r"`(\w+)`", told)) == wanted


def test_attributes_of_jobs():
    rows = table("users.md", first="attribute")
    known = {one.name: one.field for one in ATTRIBUTES if one.field not in ("owner", "vo")}
    assert sorted(names(rows)) == sorted([*known, "Parameters"])
    defaults = {one.name: one.default for one in msgspec.structs.fields(JobSpec)}
    for row in rows:
        field = known.get(row[0].strip("`"), "")
        if re.fullmatch(r"`[\w.]+`|\d+|false", row[1]):
            assert str(defaults[field]).lower() == row[1].strip("`").lower(), row
        else:
            assert row[1] in ("", "any", "none", "the first"), row
            assert defaults.get(field) in (None, "", (), msgspec.NODEFAULT), row


def test_documented_aliases_exist():
    aliases = {alias for one in ATTRIBUTES for alias in one.aliases}
    told = re.findall(r"Also `(\w+)`", (HOW_TO / "users.md").read_text(encoding="utf-8"))
    assert told
    assert set(told) <= aliases


def test_causes():
    rows = table("users.md", first="cause")
    known = {
        value
        for name, value in vars(protocol).items()
        if name
        in (
            "OK",
            "EXIT",
            "SIGNAL",
            "NOT_STARTED",
            "NEVER_STARTED",
            "WARDEN_LOST",
            "INPUT",
            "KILLED",
            "PILOT_SHUTDOWN",
            "NODE_FAULT",
            "STORAGE_FULL",
        )
        or name.endswith("_LIMIT")
    }
    assert set(names(rows)) == {*known, *FROM_PILOTS}
    ends = {"Failed": PAYLOAD_CAUSES, "Done": {"ok", "storage-full"}, "Killed": {"killed"}}
    for row in rows:
        cause = row[0].strip("`")
        assert row[2] == next((end for end, causes in ends.items() if cause in causes), "tried again")


def test_parameters_of_queues():
    rows = table("sites.md", first="parameter")
    told = {row[0].strip("`"): row[1] for row in rows}
    wanted = {
        one.name: " ".join(filter(None, (one.kind.value, one.unit, "merge" if one.merge else "")))
        for one in WELL_KNOWN
    }
    assert told == wanted


def test_types_of_parameters_with_their_operators():
    rows = table("sites.md", first="type")
    told = {row[0].strip("`"): re.findall(r'`"([^"]+)"`', row[2]) for row in rows}
    assert set(told) == {kind.value for kind in OPERATORS if kind is not Kind.DEDUCED}
    for kind, declarations in told.items():
        declared = [parse_type("P", text) for text in declarations]
        assert {one.kind.value for one in declared} == {kind}
        # A type that only lists can have is shown with them.
        assert any(one.merge for one in declared) is (kind == "list")
        assert any(one.unit for one in declared) is (kind == "number")
        assert {one.operator for one in declared} == set(OPERATORS[Kind(kind)])


def test_what_is_deduced_of_undeclared_parameters():
    rows = table("sites.md", first="wanted, or offered")
    assert len(rows) == 3
    for wanted, offered, fulfilled in (
        (4000, "8000", True), ("4000", 8000, True), (4000, "8 GB", False), ("4000", "8000", False),
        (True, "true", True), ("True", True, True), (True, "yes", False), (True, 1, False), ("a", "A", False),
    ):  # fmt: skip
        assert admits(Kind.DEDUCED, ANY_OF, wanted, offered) is fulfilled, (wanted, offered)


def test_levels_of_values():
    assert names(table("sites.md", first="level")) == [level.value for level in Level]


def test_exit_codes_of_pilots():
    rows = table("sites.md", first="exit code of a pilot")
    codes = {value for name, value in vars(loop).items() if name.startswith("EXIT_")}
    assert {int(row[0]) for row in rows} == codes


def test_scopes():
    assert tuple(names(table("administrators.md", first="scope"))) == SCOPES


def test_what_excludes_queues():
    told = names(table("troubleshooting.md", first="excluded by"))
    assert told[0] == "Requirements.NAME"
    pilots = {*CAUSES, PRIVATE_ONLY.parameter}
    assert set(told[1:]) == {exclusions.REQUIREMENTS, *exclusions.ATTRIBUTES.values(), *pilots}


@pytest.mark.parametrize(
    ("first", "reasons"),
    [
        ("pending reason (`--json`; `lode tq ls`)", MainReason),
        ("pending reason (`--json`)", QueueReason),
    ],
)
def test_main_reasons_of_jobs_and_of_queues(first, reasons):
    rows = table("troubleshooting.md", first=first)
    assert {name: row[1] for row in rows for name in names([row])} == {
        one.value: verdict_of(one) for one in reasons
    }


def test_limits_of_the_director():
    assert set(names(table("troubleshooting.md", first="limit"))) == set(ClampName)


def test_metrics(tmp_path):
    from lodesman.server.http.health import UpkeepFigures  # noqa: PLC0415  # heavy to import, as the next
    from lodesman.server.http.metrics import database_metrics, render_metrics  # noqa: PLC0415

    hot = dict.fromkeys(HotMetrics.__struct_fields__, 1.0)
    db = SqliteDatabase(tmp_path / "lode.db").writer()
    text = render_metrics(database_metrics(db), hot, UpkeepFigures()).decode()
    db.close()
    told = names(table("administrators.md", first="metric"))
    assert set(told) == set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def examples() -> Iterator[tuple[str, str, str, str]]:
    for path in sorted(HOW_TO.glob("*.md")):
        for kind, name, text in FENCE.findall(path.read_text(encoding="utf-8")):
            yield path.name, kind, name, text


def test_examples_are_well_written():
    """Every example in a language of the program is read by it, but for those that show a mistake."""
    count = 0
    for manual, kind, name, text in examples():
        place = f"{manual} {name}"
        if kind in ("jdl", "json") and not name.startswith("wrong"):
            parsed = read_description(text)
            assert not read_job(parsed.record, parsed.positions).warnings, place
        elif kind == "cfg" and "Resources" in parse_cfg(text).entries:
            assert load_resources([("sites.cfg", text)]).notices == (), place
        elif kind == "cfg":
            assert read_description(text).form == "cfg", place
        elif kind == "toml" and not name.startswith("broken"):
            if "site" in tomllib.loads(text):
                assert load_resources([("sites.toml", text)]).notices == (), place
            else:
                msgspec.convert(tomllib.loads(text), ServerFile)
        else:
            continue
        count += 1
    assert count > 10


def test_each_command_stands_once_in_the_manual():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`lode [^|]*(?:\\\|[^|]*)*) \|", text, re.MULTILINE)
    assert len(rows) > 90
    assert sorted(set(rows)) == sorted(rows)
    commands = re.findall(r"`lode pilot (\w+)", text)
    assert set(commands) <= set(click.Group.list_commands(pilot, click.Context(pilot)))


def list_commands(group: click.Group, path: str = "lode") -> Iterator[str]:
    """The commands that show a list, by their options."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if "--columns" in [word for option in command.params for word in option.opts]:
            yield f"{path} {name}"
        if isinstance(command, click.Group):
            yield from list_commands(command, f"{path} {name}")


def test_the_manual_names_each_list():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    lists = re.search(r"^Every list takes (.*?)\. A column", text, re.MULTILINE | re.DOTALL)
    assert lists is not None
    assert sorted(re.findall(r"`(lode [^`]+)`", lists[1])) == sorted(list_commands(lode))


# What carries out, or unpacks, what a text or a file says.
CARRIES_OUT = {
    "pickle", "cloudpickle", "marshal", "shelve", "tarfile", "zipfile", "gzip", "zlib", "xml", "tomllib", "runpy", "yaml",
}  # fmt: skip


def carries_out(tree: ast.AST) -> bool:
    """Whether a module imports such a library, or evaluates a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0]}
        elif isinstance(node, ast.Call):
            names = {"yaml"} if ast.unparse(node.func) in ("eval", "exec", "shutil.unpack_archive") else set()
        else:
            continue
        if names & CARRIES_OUT:
            return True
    return False


@pytest.mark.slow
def test_every_module_that_unpickles_evaluates_or_unpacks_is_in_the_list_with_its_rule():
    source = ROOT / "src" / "lodesman"
    rows = table("../permissions.md", first="module", below="## What of others")
    listed = names(rows)
    found = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if carries_out(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == found
    assert all(all(cells) for cells in rows)
