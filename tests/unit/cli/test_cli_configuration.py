"""The configuration at the command line: every fault on its line, what is in use, where values come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lodesman.base.errors import Conflict, InvalidConfig
from lodesman.user.cli.commands.sites import directory_of, written_at
from lodesman.user.cli.faults import refusal
from lodesman.user.cli.words import located

HOSTILE = "\x1b]0;owned\x07"
STATUS = {
    "loaded_at": 1_000.0, "age_seconds": 7_200.0, "refused_at": None, "faults": [], "files": ["lode.toml", "sites.toml"],
    "reloads": 2, "refusals": 0, "notices": [], "at_next_start": [],
}  # fmt: skip
FAULT = {"message": "CPUTime: no", "source": "sites.toml", "section": "site.S", "line": 3}


# --- lode config check


@pytest.fixture
def files(home):
    (home / "lode.toml").write_text('[resources]\nfiles = ["sites.toml"]\n')
    (home / "sites.toml").write_text('[site.S.ce.c.queue.q]\nCPUTime = "1 h"\n')
    return home


def test_every_fault_has_a_line_of_its_own(lode, files):
    (files / "sites.toml").write_text("[site.S]\n" + "".join(f"M{n} = {{}}\n" for n in range(20)))
    result = lode("config", "check", "lode.toml")
    lines = result.err.splitlines()
    assert result.code == 1
    assert lines[0] == "lode: The configuration has 20 faults:"
    assert [line.split(":")[0] for line in lines[1:21]] == [
        f"  {files}/sites.toml, line {n}, site.S" for n in range(2, 22)
    ]
    assert "lode config status" in lines[21]
    assert "\\n" not in result.err


def test_faults_for_programs(lode, files):
    (files / "sites.toml").write_text("[site.S]\nCPUTime = 'x'\nMaxRAM = 'y'\n")
    result = lode("config", "check", "lode.toml", "--json")
    error = json.loads(result.err)["error"]
    assert (result.code, error["code"], result.out) == (1, "invalid-config", "")
    assert [fault["line"] for fault in error["data"]["faults"]] == [2, 3]


def test_notices_are_shown_and_do_not_fail(lode, files):
    (files / "sites.toml").write_text("[site.S.ce.c]\n[site.T]\n")
    result = lode("config", "check", "lode.toml")
    assert result.code == 0
    assert f"lode: notice: {files}/sites.toml, line 2, site.T: site T has no CE\n" in result.err
    assert "is good" in result.err
    found = lode("config", "check", "lode.toml", "--json").json
    assert [notice["message"] for notice in found["notices"]] == ["CE c has no queue", "site T has no CE"]


QUEUES = """
[group.g]
vo = "lab"
[group.h]
vo = "other"
[site.S]
VO = ["lab"]
[site.S.ce.c.queue.good]
Slots = 2
NumberOfProcessors = 4
[site.S.ce.c.queue.manual]
Backend = "manual"
[site.S.ce.c.queue.shut]
Slots = 0
[site.S.ce.d.queue.quiet]
Slots = 1
GenericPilots = "no"
[site.S.ce.d.queue.far]
Backend = "slurm"
GenericPilots = "no"
[site.S.ce.d.queue.gate]
Backend = "arc@d"
Mode = "push"
Forwards = true
[site.T]
VO = ["nobody"]
[site.T.ce.c.queue.q]
"""


@pytest.mark.slow
def test_what_each_queue_will_do_is_listed(lode, files):
    (files / "sites.toml").write_text(QUEUES)
    result = lode("config", "check", "lode.toml")
    assert result.code == 0
    rows = [line.split(maxsplit=2) for line in result.out.partition("PILOTS\n")[2].splitlines()]
    assert rows == [
        ["S/c/good", "lab", "local: 2 at once, 4 cores each"],
        ["S/c/manual", "lab", "by hand: others start them"],
        ["S/c/shut", "lab", "none: Slots is 0"],
        ["S/d/quiet", "lab", "local, private pilots only: 1 at once, 1 core each"],
        ["S/d/far", "lab", "slurm, private pilots only: as its batch system and the caps of the queue allow"],
        ["S/d/gate", "lab", "arc@d, push, forwards: as its batch system and the caps of the queue allow"],
        ["T/c/q", "-", "none: no configured VO may use it"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('Backend = "locall"', "there is no backend 'locall' here (perhaps local is meant)"),
        ('CEType = "CREAM"', "there is no backend 'cream' here"),
        ('CEType = "SSH"', "there is no backend 'ssh@c' here"),
        ('CEType = "Slurmm"', "there is no backend 'slurmm' here (perhaps slurm is meant)"),
    ],
)
def test_a_backend_that_does_not_exist_is_not_good(lode, files, setting, words):
    (files / "sites.toml").write_text(
        QUEUES.replace("[site.S.ce.c.queue.good]", f"[site.S.ce.c]\n{setting}\n[site.S.ce.c.queue.good]")
    )
    result = lode("config", "check", "lode.toml")
    assert result.code == 1
    assert f"S/c/good and 1 more: no pilots are sent there: {words}." in result.err
    assert "lode.toml cannot work as it is" in result.err
    found = lode("config", "check", "lode.toml", "--json")
    assert (found.code, len(found.json["mistakes"])) == (1, 1)
    assert [one["fault"] for one in found.json["queues"]] == [True, False, True, False, False, False, False]


@pytest.mark.slow
def test_a_python_that_is_not_there_is_not_good(lode, files):
    (files / "sites.toml").write_text(QUEUES)
    (files / "lode.toml").write_text('[resources]\nfiles = ["sites.toml"]\n[pilots]\npython = "python9.9"\n')
    result = lode("config", "check", "lode.toml")
    assert result.code == 1
    assert "pilots.python: there is no program 'python9.9'" in result.err


def test_missing_certificates_are_found(lode, files):
    (files / "lode.toml").write_text('[server]\ntls_certificate = "c.pem"\ntls_key = "k.pem"\n')
    result = lode("config", "check", "lode.toml")
    assert result.code == 1
    assert "line 2, server" in result.err
    assert "c.pem cannot be read: No such file" in result.err
    assert "k.pem cannot be read: No such file" in result.err


def test_a_server_with_faults_does_not_start_and_lists_all(lode, files):
    (files / "sites.toml").write_text("[site.S]\nCPUTime = 'x'\nMaxRAM = 'y'\n")
    result = lode("server")
    assert result.code == 1
    assert result.err.startswith("lode: The configuration has 2 faults:\n")
    assert "config status" not in result.err


def test_hostile_names_in_faults_do_not_steer_the_terminal():
    error = InvalidConfig("2 faults", faults=[{**FAULT, "message": HOSTILE, "source": HOSTILE}] * 2)
    assert all("\x1b" not in line for line in refusal(error))
    assert "\x1b" not in located(HOSTILE)


def test_other_errors_are_one_line():
    assert list(refusal(Conflict("No.", hint="Do."))) == ["lode: No. Do."]
    assert list(refusal(InvalidConfig("a\nb", faults=[FAULT]))) == ["lode: a\\nb"]
    assert list(refusal(InvalidConfig("x", hint="h", faults=[FAULT, FAULT])))[-1] == "lode: h"


@pytest.mark.parametrize(
    ("file", "line", "text"), [("a.toml", 3, "a.toml:3"), ("a.toml", 0, "a.toml"), ("", 0, "")]
)
def test_places(file, line, text):
    assert written_at(file, line) == text


@pytest.mark.parametrize(
    ("files", "directory"),
    [
        (["/etc/lode/a.toml", "/etc/lode/b.toml", ""], "/etc/lode/"),
        (["/etc/lode/a.toml", "/etc/lode/sites.d/b.toml"], "/etc/lode/"),
        (["/etc/lode/a.toml", "/srv/b.toml"], "/"),
        (["/etc/lode/a.toml"], "/etc/lode/"),
        (["a.toml", "b.toml"], ""),
        (["d/a.toml", "/d/a.toml"], ""),
        (["", ""], ""),
        ([], ""),
    ],
)
def test_the_directory_of_all_files_is_named_once(files, directory):
    assert directory_of(files) == directory
    assert all(written_at(file, 0, directory) == file[len(directory) :] for file in files)


def test_files_are_shown_without_their_directory(at, server):
    row = {**QUEUE, "parameters": [value("P", 1, "site", 4)]}
    row["parameters"][0]["said"] = [{**said("site", 1, 4, counts=True), "file": "/etc/lode/sites.toml"}]
    server.on("GET", "/v1/resources", row)
    result = at("queue", "show", "S/c/q", "--origin")
    assert result.out.splitlines()[1].split()[:4] == ["P", "1", "site", "sites.toml:4"]
    assert result.err == "lode: The files are in /etc/lode/\n"
    assert at("queue", "show", "S/c/q").err == ""


# --- lode config status


def test_the_configuration_in_use(at, server):
    server.on("GET", "/v1/configuration", STATUS)
    result = at("config", "status")
    assert result.code == 0
    assert result.out.splitlines()[0].split(None, 1)[1] == "lode.toml, sites.toml"
    assert "2.0 h" in result.out
    assert "last refused" not in result.out
    assert at("config", "status", "--json").json == STATUS


def test_a_refused_change_is_reported_and_fails(at, server):
    refused = {
        **STATUS,
        "refused_at": 8_170.0,
        "refusals": 3,
        "faults": [FAULT],
        "at_next_start": ["server.port"],
    }
    server.on("GET", "/v1/configuration", refused)
    result = at("config", "status")
    assert result.code == 1
    assert "last refused       30 s ago; what was there before is in use" in result.out
    assert "at the next start  server.port" in result.out
    assert "lode: sites.toml, line 3, site.S: CPUTime: no\n" in result.err
    assert at("config", "status", "--json").code == 1


def test_notices_of_the_server(at, server):
    server.on("GET", "/v1/configuration", {**STATUS, "notices": [FAULT]})
    assert "lode: notice: sites.toml, line 3" in at("config", "status").err


# --- lode site show, lode queue show


def value(name: str, held: Any, level: str, line: int = 0, **more: Any) -> dict[str, Any]:
    file = "sites.toml" if line else ""
    said = (
        [{"level": level, "value": held, "counts": True, "file": file, "section": "", "line": line}]
        if line
        else []
    )
    row = {
        "name": name,
        "value": held,
        "type": "",
        "unit": "",
        "level": level,
        "levels": [level],
        "made_of": "",
    }
    return {**row, "file": file, "section": "", "line": line, "said": said, **more}


def said(level: str, held: Any, line: int, *, counts: bool = False) -> dict[str, Any]:
    return {
        "level": level,
        "value": held,
        "counts": counts,
        "file": "sites.toml",
        "section": "",
        "line": line,
    }


QUEUE = {
    "kind": "Queue", "site": "S", "ce": "c", "queue": "q/1", "grid": "", "allowed": True, "file": "", "section": "",
    "line": 0, "vo": "lab", "below": [],
    "parameters": [
        value("CPUTime", 7_200, "queue", 9, unit="s",
              said=[said("queue", 7_200, 9, counts=True), said("site", 3_600, 2)]),
        value("Tag", ["a", "b"], "CE", 5, levels=["site", "CE"],
              said=[said("CE", ["b"], 5, counts=True), said("site", ["a"], 3, counts=True)]),
        value("MaxRAM", 4_000, "built-in", levels=[], made_of="Memory"),
        value(HOSTILE, HOSTILE, "site", 4),
    ],
}  # fmt: skip
SITE = {
    **QUEUE, "kind": "Site", "ce": "", "queue": "", "parameters": [value("Country", "is", "site", 2)],
    "below": [{
        **QUEUE, "kind": "CE", "queue": "", "parameters": [value("CEType", "T", "CE", 5)],
        "below": [{**QUEUE, "parameters": [value("Slots", 2, "queue", 9)]}],
    }],
}  # fmt: skip


def test_the_values_of_a_queue(at, server):
    server.on("GET", "/v1/resources", QUEUE)
    result = at("queue", "show", "S/c/q/1")
    assert server.asked[-1].query == {"path": "S/c/q/1"}
    lines = [line.split(None, 1) for line in result.out.splitlines()]
    assert lines[:4] == [["PARAMETER", "VALUE"], ["CPUTime", "7200 s"], ["Tag", "a, b"], ["MaxRAM", "4000"]]
    assert "\x1b" not in result.out
    assert at("queue", "show", "S/c/q/1", "--json").json == QUEUE


def test_the_origins_of_a_queue(at, server):
    server.on("GET", "/v1/resources", QUEUE)
    lines = at("queue", "show", "S/c/q/1", "--origin", "--vo", "lab").out.splitlines()
    assert server.asked[-1].query == {"path": "S/c/q/1", "vo": "lab"}
    assert lines[0].split() == ["PARAMETER", "VALUE", "LEVEL", "WRITTEN", "AT", "INSTEAD", "OF"]
    assert lines[1].split() == "CPUTime 7200 s queue sites.toml:9 3600 (site, sites.toml:2)".split()
    assert lines[2].split() == "Tag a, b site + CE sites.toml:5, sites.toml:3 -".split()
    assert lines[3].split() == "MaxRAM 4000 built-in made of Memory -".split()


def test_a_site_with_its_ces_and_queues(at, server):
    server.on("GET", "/v1/resources", SITE)
    lines = at("site", "show", "S", "--origin").out.splitlines()
    assert [line.split()[:5] for line in lines[1:]] == [
        ["S", "Country", "is", "site", "sites.toml:2"],
        ["c", "CEType", "T", "CE", "sites.toml:5"],
        ["c/q/1", "Slots", "2", "queue", "sites.toml:9"],
    ]
    assert at("site", "show", "S").out.splitlines()[3].split() == ["c/q/1", "Slots", "2"]


def test_names_with_slashes_are_given_apart(at, server):
    server.on("GET", "/v1/resources", QUEUE)
    assert at("queue", "show", "S", "c", "q/1").code == 0
    assert server.asked[-1].query == {"site": "S", "ce": "c", "queue": "q/1"}


def test_an_excluded_vo_is_reported(at, server):
    server.on("GET", "/v1/resources", {**QUEUE, "allowed": False})
    assert "lode: VO lab may not use it" in at("queue", "show", "S/c/q/1").err


@pytest.mark.parametrize(
    "words", [("queue", "show"), ("queue", "show", "a", "b", "c", "d"), ("site", "show", "a", "b", "c")]
)
def test_wrong_usage(at, server, words):
    server.on("GET", "/v1/resources", QUEUE)
    assert at(*words).code == 2


def test_a_site_is_no_queue(at, server):
    server.on("GET", "/v1/resources", SITE)
    result = at("queue", "show", "S")
    assert (result.code, "lode site show" in result.err) == (2, True)


def test_what_is_not_there(at, server):
    server.refuse("GET", "/v1/resources", 404, code="not-found", message="There is no site, CE or queue X.")
    assert at("site", "show", "X").code == 3
