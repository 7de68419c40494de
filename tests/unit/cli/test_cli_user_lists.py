"""`lode user import` and `lode user rm`: files and their lines, and what is asked before a user goes."""

from __future__ import annotations

import pytest

from lodesman.base.errors import InvalidRequest
from lodesman.user.cli.commands.user_lists import read_users

CSV = """# of the spring school
name, VO, groups, role
ada,local,users hep,
bob,local,users;hep,admin

eve,local,users,vo-admin
"""
JSON = """{"name": "ada", "vo": "local", "groups": ["users", "hep"]}

{"name": "bob", "vo": "local", "group": "users", "role": "admin"}
"""


def test_users_are_read_from_both_forms_with_their_lines():
    found = read_users(CSV)
    assert [one.line for one in found] == [3, 4, 6]
    assert [(one.body.name, one.body.groups, one.body.admin, one.body.vo_admin) for one in found] == [
        ("ada", ["users", "hep"], False, False),
        ("bob", ["users", "hep"], True, False),
        ("eve", ["users"], False, True),
    ]
    assert [(one.line, one.body.name, one.body.groups) for one in read_users(JSON)] == [
        (1, "ada", ["users", "hep"]), (3, "bob", ["users"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,vo,groups\nada,local,users\nb b,local,users\n", "Line 3: 'b b' is no name of a user: "),
        ("name,vo,groups\nada,local\n", "Line 2 has 2 cells, the first one 3"),
        (
            "name,vo,groups,shell\nada,local,users,sh\n",
            "Line 1: the first line names the columns, and 'shell' is none",
        ),
        (
            "ada,local,users\nbob,local,users\n",
            "Line 1: the first line names the columns, and 'ada' is none of them.",
        ),
        (
            '{"name": "ada", "shell": "sh"}',
            "Line 1: an object has the keys of a user, and 'shell' is none of them.",
        ),
        (
            "name,vo,groups\nada,local\nbob,local,users\ncy,local,,\neve,local,\n",
            "Line 2 has 2 cells, the first one 3. Line 4 has 4 cells, the first one 3. Line 5: there are no groups.",
        ),
        ("name,vo,groups\n" + "ada,local,\n" * 12, "Line 11: there are no groups. So are 2 more lines."),
        (
            '{"name": "ada", "vo": "local", "groups": ["x"], "groups": ["y"]}',
            "Line 1: 'groups' is given twice.",
        ),
        ('{"name": "ada", "vo": "local", "VO ": "x", "groups": ["y"]}', "Line 1: 'vo' is given twice."),
        ("name,vo,group,groups\nada,local,x,y\n", "Line 1: 'groups' is given twice."),
        ('{"name": 5}\n[]\n{', "Line 1: name is no text. Line 2 is no JSON object. Line 3 is no JSON: Exp"),
        ("name,vo,groups,role\nada,local,users,root\n", "'root' is no role"),
        ("name,vo,groups\nada,local,\n", "Line 2: there are no groups."),
        ('{"name": "ada", "vo": "local", "groups": ["users"]}\n{"name": 5}\n', "Line 2: name is no text."),
        ('{"vo": "local", "groups": ["users"]}', "Line 1: there is no name."),
        ('{"name": "ada", "groups": ["users"]}', "Line 1: there is no vo."),
        ('{"name": "ada", "vo": "local", "groups": 5}', "Line 1: groups has no names of groups."),
        ('{"name": "ada", "vo": "local", "groups": [5]}', "Line 1: groups has no names of groups."),
        ('{"name": "ada"\n', "Line 1 is no JSON: "),
        ("", "There is no user in the file"),
        ("name,vo,groups\n" + "".join(f"u{n},local,users\n" for n in range(1_001)), "at most 1,000"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(text, says):
    with pytest.raises(InvalidRequest) as fault:
        read_users(text)
    assert says in str(fault.value)


def test_a_file_is_imported_and_what_the_server_refuses_has_its_line(at, server, tmp_path):
    file = tmp_path / "users.csv"
    file.write_text(CSV)
    rows = [
        {"name": "ada", "change": "new"},
        {"name": "bob", "change": "same"},
        {"name": "eve", "change": "new"},
    ]
    server.on("POST", "/v1/users/import", {"users": rows, "dry_run": True})
    done = at("user", "import", str(file), "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == ["ada", "made"]
    assert "2 made, 1 there already. Nothing was changed." in done.err
    assert server.asked[-1].json["dry_run"] is True
    assert [one["name"] for one in server.asked[-1].json["users"]] == ["ada", "bob", "eve"]
    server.refuse(
        "POST",
        "/v1/users/import",
        400,
        code="invalid-request",
        message="VO local has no group hep.",
        data={"user": 1, "others": [{"user": 2, "message": "There is no VO x."}]},
    )
    done = at("user", "import", str(file))
    assert done.code != 0
    words = "Line 4: VO local has no group hep. Line 6: There is no VO x. No user was imported."
    assert words in done.err


def removed(**changes):
    return {"name": "eve", "tokens": 2, "live": {}, "jobs": 5, "files": 1, "dry_run": False, **changes}


def test_a_user_is_removed_with_the_jobs_killed_before(at, server):
    server.on("POST", "/v1/users/remove", removed(live={"Running": 1, "Waiting": 2}, dry_run=True))
    done = at("user", "rm", "eve", "--dry-run")
    assert (done.code, "would not be removed: 2 tokens end, 3 jobs not ended" in done.out) == (6, True)
    assert at("user", "rm", "eve", "--dry-run", "--json").code == 6
    done = at("user", "rm", "eve", "--kill", "--dry-run")
    assert (done.code, "would be removed: 2 tokens end, 3 jobs not ended" in done.out) == (0, True)
    server.on("POST", "/v1/users/disable", {"name": "eve", "disabled": True})
    server.on("POST", "/v1/jobs/control", {"changed": 3, "refused": 0, "examples": []})
    done = at("user", "rm", "eve", "--kill", "--yes")
    assert [one.path for one in server.asked[-4:]] == [
        "/v1/users/remove", "/v1/users/disable", "/v1/jobs/control", "/v1/users/remove",
    ]  # fmt: skip
    assert server.asked[-2].json["selection"]["owner"] == "eve"
    assert "User eve is removed: 2 tokens end" in done.out
