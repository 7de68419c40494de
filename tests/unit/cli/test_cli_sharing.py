"""`lode share`, `lode unshare` and `lode status --shared`: what is sent, and what is said."""

from tests.unit.cli.test_cli_status import submission

AT = 20_000 * 86_400.0
READERS = [{"reader": "@physics", "at": AT, "by": "ann"}, {"reader": "bob", "at": AT, "by": "root"}]


def test_readers_are_added_and_removed(at, server):
    server.on("POST", "/v1/submissions/readers", {"submission": 4, "readers": READERS})
    assert at("share", "4", "bob", "@physics").out == "Submission 4 is shared with: @physics, bob.\n"
    assert server.asked[-1].json == {"submission": 4, "readers": ["bob", "@physics"]}
    server.on("POST", "/v1/submissions/readers", {"submission": 4, "readers": []})
    assert at("unshare", "4", "bob").out == "Submission 4 is not shared.\n"
    assert server.asked[-1].json == {"submission": 4, "readers": ["bob"], "how": "remove"}
    assert at("unshare", "4").code == at("share").code == at("share", "x", "bob").code == 2


def test_the_readers_are_shown(at, server):
    server.on("GET", "/v1/submissions/4/readers", {"submission": 4, "readers": READERS})
    lines = [line.split() for line in at("share", "4").out.splitlines()]
    assert lines == [
        ["READER", "SINCE", "BY"],
        ["@physics", "2024-10-04", "00:00", "UTC", "ann"],
        ["bob", "2024-10-04", "00:00", "UTC", "root"],
    ]
    assert at("share", "4", "--json").json == {"submission": 4, "readers": READERS}
    server.on("GET", "/v1/submissions/4/readers", {"submission": 4, "readers": []})
    assert at("share", "4").err == "lode: Submission 4 is not shared.\n"


def test_what_is_shared_is_listed_with_who_shares_it(at, server):
    server.on(
        "GET", "/v1/submissions", {"submissions": [submission(7) | {"owner": "ann", "shared_by": "root"}]}
    )
    lines = at("status", "--shared").out.splitlines()
    assert lines[0].split()[:5] == ["SUBMISSION", "OWNER", "SHARED", "BY", "JOBS"]
    assert lines[1].split()[:3] == ["7", "ann", "root"]
    assert server.asked[-1].query["shared"] == "true"
    server.on("GET", "/v1/submissions", {"submissions": []})
    assert at("status", "--shared").err == "lode: Nothing such is shared with you.\n"
    server.on("GET", "/v1/jobs", {"jobs": []})
    assert at("status", "--shared", "--jobs").err == "lode: Nothing such is shared with you.\n"
    assert (server.asked[-1].path, server.asked[-1].query["shared"]) == ("/v1/jobs", "true")
