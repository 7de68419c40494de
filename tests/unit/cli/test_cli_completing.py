"""What a shell completes, as bash asks for it."""

from __future__ import annotations

import pytest

from lodesman.user.cli.root import SECTIONS, main


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
