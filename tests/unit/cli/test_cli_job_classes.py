"""`lode class`: texts go out as they are, faults come back with their places, lists and states."""

from __future__ import annotations

import pytest

from lodesman.user.cli import tables

HOSTILE = "evil\x1b[31m"
TEXT = "jcname app\n"
POSTED = r"/v1/job-classes"


def row(name="app", **changes):
    return {"job_class": name, "variant": "default", "state": "enabled", "owner": ["ann"], "revision": 3,
            "changed_at": 1_000.0, "changed_by": "bob", **changes}  # fmt: skip


@pytest.fixture
def server(server):
    rows = [
        row(),
        row(variant="large", state="conflict"),
        row(HOSTILE, owner=[]),
        row("template", changed_at=None),
    ]
    server.on("GET", "/v1/job-classes", {"classes": rows, "default_jc": "app", "enforce_jc": True})
    server.on(
        "GET",
        "/v1/job-classes/text",
        {
            "name": "app",
            "text": TEXT,
            "revision": 3,
            "disabled": ["small"],
            "conflicts": {"large": ["N may not be changed", "h may not be set"]},
            "variant": "large",
            "values": {"N": "{~}S", "l_hard": "h_rt=60"},
        },
    )
    notice = {"job_class": "app", "attribute": "odd", "message": f"odd is {HOSTILE}.", "line": 2}
    server.on("POST", POSTED, {"names": ["app", "two"], "notices": [notice]})
    server.on("POST", f"{POSTED}/(remove|switch)", lambda asked: {"names": asked.json["names"]})
    return server


@pytest.fixture
def file(home):
    found = home / "app.jc"
    found.write_text(TEXT)
    return found


@pytest.mark.parametrize(
    ("command", "body", "said"),
    [
        ("add", {"text": TEXT}, "Added app, two.\n"),
        ("change", {"text": TEXT, "how": "change"}, "Changed app, two.\n"),
        ("check", {"text": TEXT, "trial": True}, "app.jc: 2 job classes, no fault.\n"),
    ],
)
def test_a_file_goes_out_as_it_is_and_notices_have_its_lines(at, server, file, command, body, said):
    done = at("class", command, file.name)
    assert (done.code, done.out, done.err) == (0, said, "lode: app.jc:2: odd is evil\\x1b[31m.\n")
    assert server.asked[-1].json == body
    assert at("class", command, file.name, "--json").json["notices"][0]["line"] == 2


def test_a_text_may_come_from_standard_input(at, server):
    assert at("class", "add", "-", stdin=b"jcname x\n").code == 0
    assert server.asked[-1].json == {"text": "jcname x\n"}
    assert at("class", "add", "gone.jc").code != 0


@pytest.mark.parametrize(
    ("code", "status", "left"), [("invalid-config", 400, 1), ("forbidden", 403, 4), ("conflict", 409, 6)]
)
def test_each_fault_stands_at_its_place_and_the_exit_code_follows_from_their_kind(
    at, server, file, code, status, left
):
    faults = [
        {
            "code": code,
            "message": f"line {line}, column 1: {HOSTILE} is wrong.",
            "data": {"line": line, "column": 1},
        }
        for line in (2, 5)
    ]
    server.refuse(
        "POST",
        POSTED,
        status,
        code=code,
        message="There are 2 faults.",
        hint="Nothing was changed.",
        data={"faults": faults},
    )
    done = at("class", "add", file.name)
    assert (done.code, done.out) == (left, "")
    wrong = "evil\\x1b[31m is wrong."
    assert done.err == f"lode: app.jc:2:1: {wrong}\nlode: app.jc:5:1: {wrong}\nlode: Nothing was changed.\n"
    done = at("class", "add", file.name, "--json")
    assert done.code == left
    assert '"faults"' in done.err


def test_all_files_of_a_folder_are_one_text_and_each_fault_has_its_file(at, server, home):
    folder = home / "classes"
    (folder / "old").mkdir(parents=True)
    for name, text in (
        ("b.jc", "jcname two"),
        ("a.jc", TEXT),
        (".a.jc.swp", "x"),
        ("c.jc", "# c\njcname x\n"),
    ):
        (folder / name).write_text(text)
    assert at("class", "add", "classes").err == "lode: classes/b.jc:1: odd is evil\\x1b[31m.\n"
    assert server.asked[-1].json == {"text": "jcname app\njcname two\n# c\njcname x\n"}
    faults = [
        {"code": "syntax", "message": f"line {line}, column 1: no.", "data": {"line": line, "column": 1}}
        for line in (1, 2, 4)
    ]
    server.refuse("POST", POSTED, 400, code="invalid-config", message="no", data={"faults": faults})
    found = at("class", "change", "classes/").err
    assert found.splitlines()[:3] == [
        f"lode: classes/{place}:1: no." for place in ("a.jc:1", "b.jc:1", "c.jc:2")
    ]
    done = at("class", "rm", "classes/", "app.x")
    assert done.out == "Removed app, two, x, app.x.\n"
    assert at("class", "check", "classes/old").err == "lode: There is no file in classes/old.\n"


def test_a_file_in_another_encoding_is_named(at, server, home):
    (home / "app.jc").write_bytes("jcname app\n# für\n".encode("latin-1"))
    for command in ("add", "change", "check"):
        assert "app.jc is not text in UTF-8. Convert it" in at("class", command, "app.jc").err
    assert server.asked == []


def test_a_class_is_harmless_on_a_terminal(at, server, monkeypatch):
    server.on("GET", "/v1/job-classes/text", {"name": "a", "text": "N \u202ex\n", "values": {"N": "\u202ex"}})
    assert at("class", "show", "a").out == "N \u202ex\n"
    monkeypatch.setattr(tables, "is_terminal", lambda stream: True)
    assert at("class", "show", "a").out == "N \\u202ex\n"
    assert "\u202e" not in at("class", "show", "a", "--effective", "default").out


def test_a_refusal_of_the_whole_call_is_one_sentence(at, server, file):
    server.refuse(
        "POST", POSTED, 413, code="too-large", message="ann would have 3 job classes.", hint="Remove some."
    )
    done = at("class", "add", file.name)
    assert (done.code, done.err) == (1, "lode: ann would have 3 job classes. Remove some.\n")


def test_a_class_is_shown_as_it_is_read(at, server):
    done = at("class", "show", "app")
    assert done.out == TEXT
    assert done.err == (
        "lode: app.small is disabled.\n"
        "lode: app.large is in conflict with the template: N may not be changed; h may not be set.\n"
    )
    assert server.asked[-1].query == {"name": "app"}
    assert at("class", "show", "app", "--json").json["revision"] == 3


def test_what_jobs_of_a_variant_get(at, server):
    done = at("class", "show", "app", "--effective", "large")
    assert done.out == "N               {~}S\nl_hard          h_rt=60\n"
    assert done.err.startswith("lode: app.large is in conflict")
    assert server.asked[-1].query == {"name": "app", "variant": "large"}
    assert at("class", "show", "app", "--effective", "small").err == "lode: app.small is disabled.\n"


def test_the_list_has_a_line_for_each_variant(at, server):
    done = at("class", "ls")
    lines = done.out.splitlines()
    assert lines[0].split() == ["CLASS", "STATE", "OWNER", "REVISION", "CHANGED", "BY", "AGE"]
    assert lines[1].split()[:5] == ["app.default", "enabled", "ann", "3", "bob"]
    assert lines[2].split()[:2] == ["app.large", "conflict"]
    assert "\x1b" not in lines[3]
    assert done.err == (
        "lode: Jobs that ask for no class are of app (default_jc).\nlode: Every job needs a class (enforce_jc).\n"
    )
    assert at("class", "ls", "--json").json["classes"][1]["state"] == "conflict"


def test_the_list_says_how_many_owners_it_leaves_out(at, server):
    rows = [row(owner=["ann", "bob", "eva"], more_owners=497)]
    server.on("GET", "/v1/job-classes", {"classes": rows, "default_jc": "", "enforce_jc": False})
    assert "ann, bob, eva and 497 more" in at("class", "ls").out


def test_removing_and_switching(at, server):
    assert at("class", "rm", "app", "two").out == "Removed app, two.\n"
    assert server.asked[-1].json == {"names": ["app", "two"]}
    assert at("class", "enable", "app.large").out == "Enabled app.large.\n"
    assert server.asked[-1].json == {"names": ["app.large"], "switch": "enable"}
    assert at("class", "disable", "app", "--json").json["names"] == ["app"]
    assert server.asked[-1].json == {"names": ["app"], "switch": "disable"}
    assert at("class", "rm").code == 2


def test_the_help_shows_a_class_line_by_line(lode):
    assert "    jcname        sleeper\n    variant_list  default,long\n" in lode("class", "add", "--help").out
