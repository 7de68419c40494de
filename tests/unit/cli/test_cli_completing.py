"""What a shell completes, as bash asks for it."""

from __future__ import annotations

from types import SimpleNamespace

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from lodesman.user.cli import completing
from lodesman.user.cli.catalog import SECTIONS
from lodesman.user.cli.completing import equip
from lodesman.user.cli.root import lode, main


@pytest.fixture
def complete(home, server, monkeypatch, capfd):
    """The words that bash offers behind a command line."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("LODE_SERVER", server.url)
        monkeypatch.setenv("_LODE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as end:
            main([])
        assert end.value.code == 0
        found = capfd.readouterr()
        assert not found.err
        return found.out.split()

    return ask


@pytest.fixture
def known(server, row):
    jobs = [row(12, state="Running", name="fit all"), row(3, state="Waiting")]
    server.on("GET", "/v1/jobs", {"jobs": jobs})
    server.on("GET", "/v1/sites", {"sites": [{"site": "North"}, {"site": "South"}]})
    queues = [{"site": "North", "ce": "ce", "queue": "q"}, {"site": "South", "ce": "ce", "queue": "q"}]
    server.on("GET", "/v1/queues", {"queues": queues})
    server.on("GET", "/v1/pilots", {"pilots": [{"id": 7}]})
    server.on("GET", "/v1/me", {"groups": ["physics", "bio"]})
    return server


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lode submit h", ["file,h"]),
        ("lode submit a.jdl b", ["file,b"]),
        ("lode plan job h", ["file,h"]),
        ("lode convert h", ["file,h"]),
        ("lode show ", ["plain,12", "plain,3"]),
        ("lode show 1", ["plain,12"]),
        ("lode output 4", []),
        ("lode queue show ", ["plain,North/ce/q", "plain,South/ce/q"]),
        ("lode site show S", ["plain,South", "plain,South/ce/q"]),
        ("lode submit --group p", ["plain,physics"]),
        ("lode pilot drain ", ["plain,7"]),
        ("lode why No", ["plain,North/ce/q"]),
        ("lode group set b", ["plain,bio"]),
        ("lode status --reason q", ["plain,queued-behind"]),
        ("lode status --state run", ["plain,running"]),
    ],
)
def test_a_shell_completes(complete, known, line, words):
    assert complete(line) == words


@pytest.mark.parametrize(
    ("command", "states"),
    [
        ("hold", {"Waiting"}),
        ("release", {"Held"}),
        ("why", {"Waiting", "Held"}),
        ("output", {"Done", "Failed"}),
    ],
)
def test_jobs_are_those_that_the_command_takes(complete, known, command, states):
    complete(f"lode {command} ")
    assert set(known.asked[0].query["state"].split(",")) == states


def test_a_server_that_refuses_or_is_away_is_no_word(complete, server):
    server.refuse("GET", "/v1/jobs", 401, code="unauthorized", message="No.")
    assert complete("lode show ") == []
    assert complete("lode --server http://127.0.0.1:1 show ") == []


def test_every_command_can_be_asked(complete, known):
    """None fails, and options are still completed."""
    for commands in SECTIONS.values():
        for name in commands:
            assert "plain,--help" in complete(f"lode {name} --h"), name


# --- names that others choose -------------------------------------------------------------------------------------------

_HOSTILE = (
    "n1;touch${IFS}/tmp/x", "$(id)", "`id`", "-rf", "a b", "a\tb", "a\nplain,b", "a\rb", "a'b", 'a"b', "a\\b", "a*", "a?",
    "[a]", "{a,b}", "~root", "#a", "!a", "a&", "a|b", "<a", ">a", "(a)", "a^", "a\x1b[2J", "a\u202eb", "\u00e4", "a,b", "",
)  # fmt: skip
_SAFE = ("n1.site.org", "a_b", "x@y:1/2%3+4=5-6", "7")


def _completions():
    """The finders of all parameters that are completed by the server."""
    found = {}
    for commands in SECTIONS.values():
        for name in commands:
            left = [equip(lode.get_command(click.Context(lode), name))]
            while left:
                one = left.pop()
                left += getattr(one, "commands", {}).values()
                types = [
                    param.type for param in one.params if isinstance(param.type, completing._CompletedType)
                ]
                found |= {kind._find: kind for kind in types}
    return list(found.values())


def test_no_completion_offers_what_a_shell_could_take_for_more_than_a_name(monkeypatch):
    """Neither a name, nor what is said beside it: a line end in that would begin a name in zsh."""
    kinds = _completions()
    assert {kind._find for kind in kinds} == {*completing._BY_METAVAR.values(), *completing._BY_NAME.values()}

    class Asker:
        command = "show"

        def __init__(self, _context):
            pass

        def close(self):
            pass

        def __call__(self, call, query=None):
            rows = [Row(name) for name in (*_HOSTILE, *_SAFE)]
            names = "jobs pilots sites queues hosts task_queues job_classes".split()
            return SimpleNamespace(groups=list(map(str, rows)), **dict.fromkeys(names, rows))

    class Row:
        """All its texts are this one."""

        ce = queue = ""

        def __init__(self, text):
            self._text = text

        def __getattr__(self, name):
            return self._text

        def __str__(self):
            return self._text

    monkeypatch.setattr(completing, "_Asker", Asker)
    for kind in kinds:
        items = kind.shell_complete(click.Context(lode), lode.params[0], "")
        assert [item.value for item in items] == list(_SAFE), kind._find
        for format_completion, lines in ((BashComplete, 1), (ZshComplete, 3), (FishComplete, 1)):
            shell = format_completion(lode, {}, "lode", "_LODE_COMPLETE")
            texts = [shell.format_completion(item) for item in items]
            assert all(text.replace("\n", "", lines - 1).replace("\t", "").isprintable() for text in texts)
    said = completing._CompletedType(click.STRING, lambda _ask: iter([("a", "b\nplain\nc;id\n_")]))
    assert said.shell_complete(click.Context(lode), lode.params[0], "")[0].help == r"b\nplain\nc;id\n_"


def test_a_forged_host_does_not_come_onto_the_command_line(complete, server):
    hosts = [{"host": name, "site": "North"} for name in ("n1;touch${IFS}/tmp/x", "n2")]
    server.on("GET", "/v1/hosts", {"hosts": hosts})
    assert complete("lode host open n") == ["plain,n2"]
