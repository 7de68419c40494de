"""The help of each command ends with examples, and each of them can be given as it stands."""

from __future__ import annotations

import shlex

import click
import pytest

from lodesman.user.cli.commands.programs import jobstatus
from lodesman.user.cli.examples import command_line, examples_of
from lodesman.user.cli.root import lode

WITH_A_HELP_OF_THEIR_OWN = type(jobstatus)  # their arguments are read by programs that run without a server


def leaves(command=lode, path=()):
    context = click.Context(lode)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*path, name))
    elif not isinstance(command, WITH_A_HELP_OF_THEIR_OWN):
        yield path, command


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(*leaf, id=" ".join(leaf[0])) for leaf in leaves()]
)
def test_each_example_is_a_command_line_of_its_command(path, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qconf-dumps").mkdir()
    lines = examples_of(path)
    assert lines
    for line in lines:
        words = shlex.split(command_line(line))[1 + len(path) :]
        for word in words:
            if "." in word and "/" not in word:
                (tmp_path / word).write_text("one\n")
        given = command.make_context(path[-1], words, parent=click.Context(lode, obj=None)).params
        assert any(value not in (None, False, ()) for value in given.values()) or not words
        assert line in command.get_help(click.Context(command))


def test_a_remark_and_what_a_shell_has_around_it_are_no_part_of_the_command():
    assert command_line("lode wait 12 --any      until the first has ended") == "lode wait 12 --any"
    assert (
        command_line('eval "$(lode db backup /b/lode.dump)"     with PostgreSQL')
        == "lode db backup /b/lode.dump"
    )
    assert command_line("lode quota text > limits.rqs   for lode quota change") == "lode quota text"
