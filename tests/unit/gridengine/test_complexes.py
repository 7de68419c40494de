"""The table of complexes: as the real `qconf -sc` prints it, with each fault where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from lodesman.base.errors import InvalidConfig, TooLarge
from lodesman.languages.gridengine.complexes import (
    STOCK_COMPLEXES,
    Complex,
    Complexes,
    Consumable,
    Requestable,
    read_complexes,
    write_complexes,
)
from lodesman.languages.gridengine.values import ComplexType, RelOp

DATA = Path(__file__).parents[2] / "data" / "gridengine"
END = "# >#<"


def recorded(name):
    return (DATA / name).read_text(encoding="utf-8")


def read(text, **more):
    faults = []
    return read_complexes(text, faults=faults, **more), faults


@pytest.mark.parametrize(("name", "count"), [("qconf-sc.txt", 52), ("qconf-sc-site.txt", 60)])
def test_what_the_real_program_prints_is_read_and_written_without_loss(name, count):
    text = recorded(name)
    found, faults = read(text)
    assert faults == []
    assert len(found) == count
    assert write_complexes(found) == text[: text.index(END)]


def test_the_stock_list_is_that_of_an_untouched_grid_engine():
    assert read(recorded("qconf-sc.txt")) == (STOCK_COMPLEXES, [])


def test_a_site_of_its_own():
    found, _ = read(recorded("qconf-sc-site.txt"))
    assert found.get("pj") == Complex(
        name="perjob",
        shortcut="pj",
        kind=ComplexType.INT,
        relation=RelOp.LE,
        requestable=Requestable.YES,
        consumable=Consumable.JOB,
        default="0",
        urgency="-10",
    )
    assert found.get("mdef").default_value == 1 << 30
    assert found.get("lic").requestable is Requestable.FORCED
    assert found.get("excl").relation is RelOp.EXCL
    assert [one.name for one in found if one.is_consumable] == "excl lic mc mdef perjob slots".split()


@pytest.mark.parametrize(
    ("name", "full"),
    [("vf", "virtual_free"), ("s", "slots"), ("slots", "slots"), ("h_rt", "h_rt"), ("VF", None), ("", None)],
)
def test_names_and_shortcuts_mean_one_resource(name, full):
    assert STOCK_COMPLEXES.canonical(name) == full
    found = STOCK_COMPLEXES.get(name)
    assert (found.name if found else None) == full


def test_a_value_of_a_complex_names_it_when_it_is_wrong():
    assert STOCK_COMPLEXES.get("vf").value("6G") == 6 << 30
    with pytest.raises(InvalidConfig, match="virtual_free: 'much' is no value of type MEMORY") as caught:
        STOCK_COMPLEXES.get("vf").value("much")
    assert caught.value.data["name"] == "virtual_free"


def test_words_may_be_short_and_small():
    found, faults = read("gpu gpu int <= f y 0 0\nlicence lic Double <= y j 0 0\n")
    assert faults == []
    assert [(one.requestable, one.consumable) for one in found] == [("FORCED", "YES"), ("YES", "JOB")]


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ("gpu gpu INT <= YES YES 0", 1, "8 columns, and this line has 7"),
        ("gpu gpu NUMBER <= YES YES 0 0", 9, "the column type has NUMBER"),
        ("gpu gpu INT =< YES YES 0 0", 13, "the column relop has =<"),
        ("gpu gpu INT <= MAYBE YES 0 0", 16, "the column requestable has MAYBE"),
        ("gpu gpu INT <= YES HOST 0 0", 20, "the column consumable has HOST"),
        ("gpu gpu INT <= YES YES few 0", 24, "'few' is no value of type INT"),
        ("gpu gpu INT <= YES YES 0 high", 26, "'high' is no value of type DOUBLE"),
        ("os os STRING == YES YES NONE 0", 21, "consumable, and STRING is no number"),
        ("ex ex BOOL EXCL YES NO 0 0", 12, "relation EXCL and is no consumable BOOL"),
        ("slots n INT <= YES YES 0 0", 1, "slots is given twice, first at line 1"),
        ("number s INT <= YES YES 0 0", 8, "s is given twice, first at line 1"),
        ("s number INT <= YES YES 0 0", 1, "s is given twice, first at line 1"),
    ],
)
def test_a_fault_costs_its_row_and_has_its_place(row, column, message):
    found, faults = read(f"slots s INT <= YES YES 1 1000\n{row}\nx x INT <= YES NO 0 0\n", source="sc")
    assert [one.name for one in found] == ["slots", "x"]
    assert [(fault.data["line"], fault.data["column"], fault.data["source"]) for fault in faults] == [
        (2, column, "sc")
    ]
    assert message.replace("at line", "in sc, line") in faults[0].message


def test_one_name_may_be_its_own_shortcut():
    assert read("x x INT <= YES NO 0 0\n")[1] == []


def test_the_faults_of_a_program_are_not_reported_line_by_line():
    _, faults = read("\x00\n" * 5_000)
    assert len(faults) == 100
    assert "U+0000" in faults[0].message


def test_no_text_is_too_large(monkeypatch):
    monkeypatch.setattr("lodesman.languages.gridengine.lines._MAX_CHARACTERS", 10)
    with pytest.raises(TooLarge) as caught:
        read("x" * 11)
    assert caught.value.data == {"limit": 10, "size": 11}


def test_nothing_at_all():
    assert read("") == (Complexes(()), [])
    titles = write_complexes(Complexes(())).splitlines()[0]
    assert titles.split() == "#name shortcut type relop requestable consumable default urgency".split()
