"""`lode quota`: lists, texts, changes and what is used."""

from __future__ import annotations

import pytest

from lodesman.user.cli import tables

TEXT = "{\n   name         fair\n   enabled      TRUE\n   limit        to slots=1\n}\n"
ROW = {"name": "fair", "enabled": True, "rules": 1, "text": TEXT, "changed_at": 0.0, "changed_by": "eva"}
USE = {
    "rule": "fair/1",
    "of": ["ann", "n1"],
    "resource": "slots",
    "used": "1",
    "limit": "1",
    "full": True,
    "jobs": 1200,
    "holders": [{"vo": "lab", "owner": "ann", "project": "p", "used": "1", "jobs": 1}],
    "owners": [{"vo": "lab", "owner": "bob", "jobs": 1200}],
    "more_owners": 2,
    "since": 0.0,
}
NOTICE = {"kind": "shadowed", "rule": "fair/2", "line": 5, "message": "Rule fair/2: it never counts."}


@pytest.fixture
def server(server):
    server.on("GET", "/v1/quotas", {"sets": [ROW, {**ROW, "name": "off", "enabled": False}]})
    server.on("GET", "/v1/quotas/use", {"uses": [USE, {**USE, "full": False}], "more": False, "cursor": ""})
    server.on("POST", "/v1/quotas", {"names": ["fair"], "notices": [NOTICE]})
    server.on("POST", "/v1/quotas/remove", {"names": ["fair"], "notices": []})
    rows = [
        {"name": "matlab", "shortcut": "ml", "type": "INT", "consumable": "JOB", "default": "0"},
        {"name": "h_rt", "shortcut": "rt", "type": "TIME", "consumable": "NO", "default": "0:0:0"},
    ]
    server.on("GET", "/v1/quotas/resources", {"resources": rows})
    return server


def words(text):
    return [line.split() for line in text.splitlines()]


def test_sets_are_listed_and_printed_as_they_are_read(at, server):
    found = words(at("quota", "ls").out)
    assert [line[:3] for line in found[1:]] == [["1", "fair", "enabled"], ["1", "off", "not"]]
    assert at("quota", "text", "fair").out == TEXT
    assert at("quota", "text").out == TEXT * 2
    assert "There is no quota set gone" in at("quota", "text", "gone").err
    server.on("GET", "/v1/quotas", {"sets": []})
    assert "There is no quota set." in at("quota", "ls").err


def test_what_is_used_and_what_waits_behind_it(at, server):
    found = words(at("quota", "show").out)
    assert found[1][:12] == "fair/1 ann, n1 slots 1 1 ann/p 1 1,200 bob 1,200, 2".split()
    assert found[1][13] == "more" or found[1][12] == "more"
    assert found[1][-1] == "d"
    assert found[2][:8] == "fair/1 ann, n1 slots 1 1 ann/p 1".split()
    assert found[2][-1] != "d"
    at("quota", "show", "--user", "ann", "--class", "app.large")
    assert server.asked[-1].query == {"user": "ann", "job_class": "app.large"}
    server.on("GET", "/v1/quotas/use", {"uses": [], "more": True, "cursor": "x"})
    shown = at("quota", "show").err
    assert "Nothing that is limited runs or waits." in shown
    assert "There are more." in shown


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("1610612736", "1.5G"), ("0", "0"), ("1023", "1023"), ("1024", "1K"), ("4294967297", "4294967297"),
        ("4194304000", "4000M"), ("1431655765.33333", "1431655765.33333"), ("2199023255552", "2T"), ("unknown", "unknown"),
    ],
)  # fmt: skip
def test_amounts_of_memory_are_read_as_rules_write_them(at, server, amount, said):
    holder = {"vo": "lab", "owner": "ann", "project": "", "used": amount, "jobs": 1}
    row = {**USE, "resource": "vf", "used": amount, "limit": amount, "unit": "bytes", "holders": [holder]}
    server.on("GET", "/v1/quotas/use", {"uses": [row], "more": False, "cursor": ""})
    assert words(at("quota", "show").out)[1][3:8] == ["vf", said, said, "ann", said]
    assert at("quota", "show", "--json").json["uses"][0]["used"] == amount


@pytest.mark.parametrize(
    ("how", "body", "said"),
    [
        ("add", {"text": TEXT}, "Added fair."),
        ("change", {"text": TEXT, "how": "change"}, "Changed fair.\n"),
        ("check", {"text": TEXT, "trial": True}, "1 quota set, no fault.\n"),
    ],
)
def test_a_file_is_sent_and_its_notices_are_shown(at, server, tmp_path, how, body, said):
    file = tmp_path / "fair.rqs"
    file.write_text(TEXT)
    done = at("quota", how, str(file))
    assert said in done.out
    assert f"{file}:5: Rule fair/2: it never counts." in done.err
    assert server.asked[-1].json == body


def test_sets_are_removed(at, server):
    assert at("quota", "rm", "fair").out == "Removed fair.\n"
    assert server.asked[-1].json == {"names": ["fair"]}
    assert at("quota", "rm").code == 2


def test_resources_say_what_is_used_up(at, server):
    found = words(at("quota", "resources").out)
    assert found[1:] == [["matlab", "ml", "INT", "per", "job", "0"], ["h_rt", "rt", "TIME", "-", "0:0:0"]]
    assert at("quota", "resources", "--json").json["resources"][0]["consumable"] == "JOB"


def test_a_plan_shows_who_would_be_stopped_and_freed_and_what_would_be_over(at, server, tmp_path):
    effect = {
        "rule": "fair/1",
        "task_queues": 2,
        "jobs": 30,
        "owners": [{"vo": "lab", "owner": "ann", "jobs": 30}],
        "more_owners": 0,
    }
    answer = {
        "names": ["fair"], "notices": [NOTICE], "over": [USE], "more_over": 3, "limited_now": 4, "limited_then": 34,
        "stopped": [effect], "freed": [{**effect, "rule": "old/2"}],
    }  # fmt: skip
    server.on("POST", "/v1/plan/quotas", answer)
    file = tmp_path / "fair.rqs"
    file.write_text(TEXT)
    done = at("quota", "plan", str(file))
    assert server.asked[-1].json == {"text": TEXT}
    assert "fair: waiting jobs that limits stop: 4 now, 34 then. Nothing was changed." in done.out
    found = words(done.out)
    assert ["fair/1", "2", "30", "ann", "30"] in found
    assert ["old/2", "2", "30", "ann", "30"] in found
    assert "fair/1 ann, n1 slots 1 1 ann/p 1".split() in found
    assert f"{file}:5: Rule fair/2" in done.err
    assert "3 more: --json." in done.err
    server.on("POST", "/v1/plan/quotas", {**answer, "over": [], "more_over": 0, "stopped": [], "freed": []})
    assert len(at("quota", "plan", str(file)).out.splitlines()) == 1


FAULTS = [
    {"code": "syntax", "message": f"line {line}, column 3: {what}.", "data": {"line": line, "column": 3}}
    for line, what in ((2, "the tag x is unknown"), (7, "there is no resource y"))
]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("command", "posted"),
    [("add", "/v1/quotas"), ("change", "/v1/quotas"), ("check", "/v1/quotas"), ("plan", "/v1/plan/quotas")],
)
def test_each_fault_of_a_file_stands_at_its_place(at, server, tmp_path, command, posted, count):
    file = tmp_path / "fair.rqs"
    file.write_text(TEXT)
    server.refuse(
        "POST", posted, 400, code="invalid-config", message="The quota sets have faults.",
        hint="Nothing was changed.", data={"faults": FAULTS[:count]},
    )  # fmt: skip
    done = at("quota", command, str(file))
    lines = [f"{file}:2:3: the tag x is unknown.", f"{file}:7:3: there is no resource y."][:count]
    assert done.err.splitlines() == [f"lode: {line}" for line in (*lines, "Nothing was changed.")]
    assert (done.code, done.out) == (1, "")
    assert '"faults"' in at("quota", command, str(file), "--json").err


@pytest.mark.parametrize("command", ["add", "change", "check", "plan"])
def test_a_file_in_another_encoding_is_named_and_what_to_do(at, server, tmp_path, command):
    file = tmp_path / "fair.rqs"
    file.write_bytes("# für alle\n".encode("latin-1") + TEXT.encode())
    done = at("quota", command, str(file))
    assert (
        done.err
        == f"lode: {file} is not text in UTF-8. Convert it, as with: iconv -f LATIN1 -t UTF-8 FILE.\n"
    )
    assert (done.code, server.asked) == (1, [])


def test_a_text_is_harmless_on_a_terminal(at, server, monkeypatch):
    server.on("GET", "/v1/quotas", {"sets": [{**ROW, "text": "# \u202egnp\n"}]})
    assert at("quota", "text").out == "# \u202egnp\n"
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    assert at("quota", "text").out == "# \\u202egnp\n"
