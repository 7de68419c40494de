"""Pages for people in a hurry: short table cells, commands of other systems, the alerts of the operator at night."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lodesman.server.store import SqliteDatabase
from lodesman.user.cli.commands.programs import OwnProgram
from lodesman.user.cli.root import lode
from lodesman.wire.server import HotMetrics
from lodesman.wire.vocabulary import BreakerState, MainReason, PilotState, StartFault

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LONGEST_CELL = 200
# Made by a program.
NOT_FOR_READING = {"docs/permissions.md"}
OTHERS_METRICS = {"up", "node_filesystem_avail_bytes"}


def rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of all tables, with their line numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        if line.startswith("|") and not fenced:
            yield number, [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def test_no_cell_of_a_table_is_a_paragraph():
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    long = [
        f"{name}:{number}: {len(cell)} characters: {cell[:60]}"
        for name, path in sorted((path.relative_to(ROOT).as_posix(), path) for path in pages)
        if name not in NOT_FOR_READING
        for number, cells in rows(path.read_text(encoding="utf-8"))
        for cell in cells
        if len(cell) > LONGEST_CELL
    ]
    assert long == [], "put the rest below the table"


def test_no_command_and_no_heading_is_there_twice():
    """As where two changes of one table are merged."""
    pages = {path: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    firsts = [cells[0] for _, cells in rows(pages[DOCS / "cli.md"]) if cells[0].startswith("`lode ")]
    assert [first for first in firsts if firsts.count(first) > 1] == []
    for path, text in pages.items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^#+ .*$", prose, re.MULTILINE)
        assert [title for title in titles if titles.count(title) > 1] == [], path.name


def told_commands(cells: list[str]) -> list[str]:
    return [code for cell in cells for code in re.findall(r"`(lode [^`]+)`", cell.replace("\\|", "|"))]


def command_of(group: click.Group, name: str) -> click.Command | None:
    return group.get_command(click.Context(group), name)


def fault_of(command: str) -> str:
    """What is wrong with a command line of a manual: a command or an option that does not exist; '' if nothing."""
    found: click.Command = lode
    words = shlex.split(command)[1:]
    words = words[: words.index("--")] if "--" in words else words
    while words and isinstance(found, click.Group) and (inner := command_of(found, words[0])):
        found, words = inner, words[1:]
    if found is lode or (isinstance(found, click.Group) and not found.invoke_without_command):
        return f"no such command: {command}"
    if isinstance(found, OwnProgram):
        return ""  # its options are read by the part that also runs on nodes
    options = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    options |= set(found.get_help_option_names(click.Context(found)))
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in options]
    return f"no option {unknown[0]}: {command}" if unknown else ""


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("lode status 12 --start", ""), ("lode submit --wait -- cmd --none", ""), ("lode pilot ls --all", ""),
        ("lode squeue", "no such command: lode squeue"), ("lode pilot", "no such command: lode pilot"),
        ("lode kill 12 --now", "no option --now: lode kill 12 --now"),
    ],
)  # fmt: skip
def test_faults_of_commands_are_seen(command, fault):
    assert fault_of(command) == fault


@pytest.mark.parametrize("page", ["coming-from.md", "cli.md"])
def test_commands_in_tables_exist(page):
    told = [
        command
        for _, cells in rows((DOCS / page).read_text(encoding="utf-8"))
        for command in told_commands(cells)
        if not command.startswith("lode COMMAND")
    ]
    assert len(told) > 50
    assert [fault for command in told if (fault := fault_of(command))] == []


def is_group(command: str) -> bool:
    """Whether it is the name of a group of commands alone."""
    first, _, more = command.removeprefix("lode ").partition(" ")
    return not more and isinstance(command_of(lode, first), click.Group)


@pytest.mark.slow
def test_commands_in_the_text_exist():
    pages = [ROOT / "README.md", *(path for path in DOCS.rglob("*.md") if "adr" not in path.parts)]
    told = [
        (path.name, command.replace("\\|", "|"))
        for path in pages
        for command in re.findall(r"`(lode [a-z][^`\n]*)`", path.read_text(encoding="utf-8"))
        if not is_group(command)
    ]
    assert len(told) > 200
    assert [f"{page}: {fault}" for page, command in told if (fault := fault_of(command))] == []


def test_options_of_submit_in_the_tables_of_other_systems_exist():
    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    table = text[text.index("| option of `sbatch` |") :].partition("\n\n")[0]
    told = [code.split()[0] for _, cells in rows(table) for code in re.findall(r"`(--[^`]+)`", cells[1])]
    submit = command_of(lode, "submit")
    assert submit is not None
    known = {name for one in submit.params for name in one.opts}
    assert len(told) > 5
    assert set(told) <= known


def night() -> str:
    return (DOCS / "how-to" / "operator-at-night.md").read_text(encoding="utf-8")


def test_every_metric_of_the_alerts_exists(tmp_path):
    from lodesman.server.http.health import UpkeepFigures  # noqa: PLC0415  # heavy to import, as the next
    from lodesman.server.http.metrics import database_metrics, render_metrics  # noqa: PLC0415

    db = SqliteDatabase(tmp_path / "lode.db").writer()
    hot = dict.fromkeys(HotMetrics.__struct_fields__, 1.0)
    text = render_metrics(database_metrics(db), hot, UpkeepFigures()).decode()
    db.close()
    exist = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    told = set(re.findall(r"\blodesman_\w+", night()))
    assert len(told) > 10
    assert told <= exist
    rules = re.findall(r"^ *expr: (.*)$", night(), re.MULTILINE)
    assert set(re.findall(r"(\w+)(?:\{|\[)", " ".join(rules))) <= exist | OTHERS_METRICS


def test_labels_of_the_alerts_have_values_that_exist():
    known = {
        ("lodesman_pilots", "state"): set(PilotState),
        ("lodesman_breakers", "state"): set(BreakerState),
        ("lodesman_failed_pilot_starts_total", "cause"): set(StartFault),
        ("lodesman_site_gates", "state"): {"open", "shut"},
        ("lodesman_shut_hosts", "cause"): {"evidence", "order"},
        ("lodesman_waiting_jobs_by_reason", "verdict"): {"never", "not now", "now"},
        ("lodesman_waiting_jobs_by_reason", "reason"): set(MainReason),
    }
    told = re.findall(r'(lodesman_\w+)\{(\w+)!?="([^"]*)"\}', night())
    steps = [value for _, label, value in told if label == "step"]
    source = (ROOT / "src" / "lodesman" / "server" / "main" / "background.py").read_text(encoding="utf-8")
    assert len(told) > len(steps) > 0
    assert [step for step in steps if f'Loop("{step}",' not in source] == []
    assert [one for one in told if one[1] != "step" and one[2] not in known[one[:2]]] == []


def test_every_alert_says_what_it_means_and_what_to_do():
    text = night()
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    sections = {title: body for title, _, body in (part.partition("\n") for part in parts)}
    alerts = re.findall(r"alert: (\w+)", text)
    assert len(alerts) == len(set(alerts)) > 10
    about = {
        name: body
        for title, body in sections.items()
        for name in (title, *re.findall(r"^Also \*\*(\w+)\*\*", body, re.MULTILINE))
        if name.startswith("Lodesman")
    }
    assert set(about) == set(alerts)
    wanted = ("**Means**", "**Look**", "**Do**")
    assert [name for name, body in about.items() if any(word not in body for word in wanted)] == []
