"""Tables: plain text for programs and files, fitted for terminals, harmless for both."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.cli.conftest import nothing_lost, render

from lodesman.user.cli import tables
from lodesman.user.cli.tables import Cell, StyledText

COLUMNS = (">job", "name", "remark")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def draw(rows, width=60):
    """The table as a terminal of that width gets it."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system="standard", highlight=False)
    console.print(tables.rich_table(COLUMNS, rows, width))
    return out.getvalue()


def test_plain_tables_are_aligned_and_not_cut_to_the_terminal():
    rows = [["1", "short", "a" * 200], ["1000000", "a longer name", ""]]
    assert list(tables.text_table(COLUMNS, rows)) == [
        "    JOB  NAME           REMARK",
        f"      1  short          {'a' * 200}",
        "1000000  a longer name  -",
    ]


def test_texts_of_thousands_of_characters_are_cut_in_tables():
    rows: list[list[Cell]] = [["1", "n", "r" * 240], ["2", StyledText("n" * 241, "red"), "r" * 6_457]]
    lines = list(tables.text_table(COLUMNS, rows))
    assert max(map(len, lines)) == len("JOB") + 240 + 240 + 4
    assert lines[1].endswith("r" * 240)
    assert lines[2].split() == ["2", "n" * 237 + "...", "r" * 237 + "..."]
    assert draw(rows, width=900).count("...") == 2


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=5))
def test_a_row_is_a_line_whatever_its_cells_hold(rows):
    lines = list(tables.text_table(COLUMNS, rows))
    assert len(lines) == len(rows) + 1
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x1b]0;owned\x07", "a\nb", "\x9b5n", "\u202etxt", "\x08\x08"]
)
def test_no_name_steers_a_terminal(hostile):
    drawn = draw([["1", hostile, StyledText(hostile, "red")]])
    assert hostile not in drawn
    colours = drawn.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[31m", "")
    assert "\x1b" not in colours
    assert len(drawn.rstrip("\n").split("\n")) == 2


def test_markup_is_only_text():
    assert "[bold]x[/bold]" in draw([["1", "[bold]x[/bold]", ":smile:"]])
    assert ":smile:" in draw([["1", "x", ":smile:"]])


def test_a_narrow_terminal_folds_texts_and_never_numbers():
    drawn = draw([["123456789", "n" * 100, "r" * 100]], width=40)
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in drawn.splitlines()]
    assert all(len(line) <= 40 for line in lines)
    assert lines[1].startswith("123456789 ")
    body = "".join(lines[1:])
    assert (body.count("n"), body.count("r")) == (100, 100)


def test_only_a_terminal_gets_colours(monkeypatch):
    rows: list[list[Cell]] = [["1", tables.state("Failed"), ""]]
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        monkeypatch.setattr("sys.stdout", stream)
        tables.show_table(COLUMNS, rows)
    assert "\x1b" not in plain.getvalue()
    assert "\x1b[31m" in terminal.getvalue()


def test_a_dumb_terminal_is_none(monkeypatch):
    assert tables.is_terminal(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not tables.is_terminal(Terminal())


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_json_is_ascii(capsys):
    tables.emit_json({"name": "\x9b31m \u202e ü"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"name": "\x9b31m \u202e ü"}


def test_notes_go_to_standard_error(capsys):
    tables.note("look\x1b[1m here")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "lode: look\\x1b[1m here\n"


def test_fields_are_aligned(capsys):
    tables.show_fields([("job", "1"), ("remark\n", ""), ("state", tables.state("Done"))])
    assert capsys.readouterr().out == "job      1\nremark\\n  -\nstate    Done\n"


WORDS = st.text(st.sampled_from("abcdefghij-/_.,: \N{SNOWMAN}\u4e2d"), max_size=90)


@given(
    st.lists(st.tuples(st.sampled_from(["", ">"]), st.sampled_from(["queue", "free capacity", "n", "running jobs"])),
             min_size=1, max_size=12),
    st.data(),
    st.integers(60, 200),
)  # fmt: skip
def test_no_terminal_is_so_narrow_that_a_table_loses_something(columns, data, width):
    titles = [mark + title for mark, title in columns]
    cells = [st.integers(0, 10**12).map("{:,}".format) if mark else WORDS for mark, _ in columns]
    nothing_lost(titles, data.draw(st.lists(st.tuples(*cells), min_size=1, max_size=4)), width)


def test_a_row_that_does_not_fit_is_a_list_of_fields():
    titles = ("queue", *(f">number {n}" for n in range(9)))
    lines = render(
        titles, [["Site/ce/queue", *["1,000"] * 9], ["Other/ce/queue", *["2,000"] * 9]], 60
    ).splitlines()
    assert [line.split() for line in lines[:2]] == [["QUEUE", "Site/ce/queue"], ["NUMBER", "0", "1,000"]]
    assert lines[10].strip() == ""
    assert lines[11].split() == ["QUEUE", "Other/ce/queue"]
