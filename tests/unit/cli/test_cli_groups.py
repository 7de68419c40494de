"""`lode group`: shares with where they are from, members, what was done, and what is sent."""

AT = 20_000 * 86_400.0


def group(name="physics", **changes):
    return {
        "group": name, "vo": "lab", "share": 3_000.0, "file_share": 3_000.0, "job_sharing": False, "set_by": "",
        "set_at": None, "reason": "", "users": ["ann", "bob"], **changes,
    }  # fmt: skip


BY_COMMAND = group("bio", share=500.0, file_share=None, set_by="root", set_at=AT, reason="beam time")


def test_the_list_says_where_each_share_is_from(at, server):
    given = {"groups": [BY_COMMAND, group()]}
    server.on("GET", "/v1/groups", given)
    lines = [line.split() for line in at("group", "ls").out.splitlines()]
    assert lines[0] == ["GROUP", "VO", "SHARE", "IN", "THE", "FILES", "SET", "BY", "WHEN", "REASON"]
    assert lines[1] == ["bio", "lab", "500", "-", "root", "2024-10-04", "00:00", "UTC", "beam", "time"]
    assert lines[2] == ["physics", "lab", "3,000", "3,000", "files", "-", "-"]
    assert at("group", "ls", "--json").json == given


def test_one_group_with_what_was_done_to_it(at, server):
    def change(what, share=None, user=""):
        return {"at": AT, "change": what, "share": share, "user": user, "by": "root", "reason": "because"}

    changes = [
        change("share-reset"), change("share-set", 500.0), change("user-added", user="ann"), change("user-removed"),
    ]  # fmt: skip
    server.on("GET", "/v1/groups/bio", {**BY_COMMAND, "changes": changes})
    out = at("group", "show", "bio").out
    assert "root, 2024-10-04 00:00 UTC: beam time" in out
    assert "ann, bob" in out
    for words in ("share of the files", "share 500", "ann joined", "a user left"):
        assert words in out


def test_what_is_sent(at, server):
    server.on("POST", "/v1/groups/share", BY_COMMAND)
    found = at("group", "set", "bio", "--share", "500", "--reason", "beam time")
    assert server.asked[-1].json == {"group": "bio", "share": 500.0, "reason": "beam time"}
    assert "Group bio has share 500. The files say: -." in found.out
    at("group", "reset", "bio", "--reason", "over")
    assert server.asked[-1].json == {"group": "bio", "share": None, "reason": "over"}
    server.on("POST", "/v1/groups/users", BY_COMMAND)
    found = at("group", "add-user", "bio", "ann", "bob")
    assert server.asked[-1].json == {"group": "bio", "users": ["ann", "bob"]}
    assert "In group bio are now: ann, bob." in found.out
    at("group", "rm-user", "bio", "ann", "--reason", "left")
    assert server.asked[-1].json == {"group": "bio", "users": ["ann"], "how": "remove", "reason": "left"}


def test_a_share_needs_a_number_and_a_reason(at, server):
    assert at("group", "set", "bio", "--share", "5").code == 2
    for share in ("nan", "-1", "much"):
        assert at("group", "set", "bio", "--share", share, "--reason", "x").code == 2
    assert server.asked == []


def test_a_share_that_ends_by_itself_says_when(at, server):
    ends = {**BY_COMMAND, "until": AT + 86_400.0}
    server.on("POST", "/v1/groups/share", ends)
    found = at("group", "set", "bio", "--share", "500", "--reason", "x", "--until", "2024-10-05T00:00Z")
    assert server.asked[-1].json["until"] == AT + 86_400.0
    assert "Group bio has share 500 until 2024-10-05 00:00 UTC." in found.out
    server.on("GET", "/v1/groups", {"groups": [ends, group()]})
    lines = at("group", "ls").out.splitlines()
    assert "UNTIL" in lines[0]
    assert "2024-10-05 00:00 UTC" in lines[1]
    server.on("GET", "/v1/groups/bio", {**ends, "changes": []})
    assert "(until 2024-10-05 00:00 UTC)" in at("group", "show", "bio").out
