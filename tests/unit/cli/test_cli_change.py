"""`lode change`: which words are jobs, and what a value is."""

from __future__ import annotations

import click
import pytest

from lodesman.user.cli.commands.actions import _parse_changes


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("Memory=2000", "Memory", 2000),
        ("JobName=nap", "JobName", "nap"),
        ('JobName="a b"', "JobName", "a b"),
        ("Arguments=-n 5", "Arguments", "-n 5"),
        ("Site=Lyon,Rome", "Site", "Lyon,Rome"),
        ('Site={"Lyon", "Rome"}', "Site", ["Lyon", "Rome"]),
        ("Environment=[ A = 1; ]", "Environment", {"A": 1}),
        ("Executable=/bin/sh; Memory = 5", "Executable", "/bin/sh; Memory = 5"),
        ("Arguments=5; Memory = 5", "Arguments", "5; Memory = 5"),
        ("Arguments=a=b", "Arguments", "a=b"),
        ("Tag=", "Tag", None),
        ("ForceGeneric=true", "ForceGeneric", True),
    ],
)
def test_a_value(word, name, value):
    ranges, attributes = _parse_changes(("12", word, "20-22"))
    assert [(one.first, one.last) for one in ranges] == [(12, 12), (20, 22)]
    assert attributes == {name: value}


@pytest.mark.parametrize("words", [("12",), ("12", "=5"), ("12", "Memory=5", "Memory=6"), ("x", "Memory=5")])
def test_what_is_no_change(words):
    with pytest.raises(click.UsageError):
        _parse_changes(words)
