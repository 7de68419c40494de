"""Sharing of submissions: each reading call and each changing one of a reader, and of all who are none."""

from __future__ import annotations

import json

import pytest
from tests.api.test_api_revoked import Asked

pytestmark = pytest.mark.stores

READS = (
    "/v1/jobs/1", "/v1/jobs/1/why", "/v1/jobs/2/why", "/v1/jobs/2", "/v1/jobs/1/description", "/v1/jobs/2/description",
    "/v1/jobs/1/logs", "/v1/jobs/1/output", "/v1/jobs/wait?jobs=1-3&seconds=0", "/v1/jobs/events?jobs=1-3",
)  # fmt: skip
WRITES = (
    *(("/v1/jobs/control", {"action": action, "ranges": [[1, 3]]})
      for action in ("kill", "hold", "release", "reschedule", "delete")),
    ("/v1/jobs/change", {"ranges": [[1, 3]], "attributes": {"Memory": 5}}),
    ("/v1/submissions/readers", {"submission": 1, "readers": ["carl"]}),
    ("/v1/submissions/readers", {"submission": 1, "readers": ["bob"], "how": "remove"}),
)  # fmt: skip
SECRET = "s3cret-of-ann"


@pytest.fixture
def shop(house):
    """Jobs 1 to 3 are submission 1 of ann, the first ended; job 4 is another one of hers. Carl is in her group."""
    house.user("carl", "physics")
    house.user("olaf", "guests", vo="other")
    house.user("@bio", "physics")
    made = {"Parameters": 3, "Environment": {"TOKEN": SECRET, "MODE": "fast"}, "JobName": "of_ann"}
    house.submitted(made)
    house.submitted({"Environment": {"TOKEN": SECRET}})
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    stored = house.hand_in(pilot, job, b"output").json
    house.report(pilot, job, output=stored, tail="said by job 1")
    return house


def share(house, *readers, how="add", token="ann", submission=1):
    body = {"submission": submission, "readers": list(readers), "how": how}
    return house.call("POST", "/v1/submissions/readers", body, token=token)


def seen(house, name):
    """The statuses with which this user is answered, by path."""
    more = lambda path: {"chunks": [None]} if "events" in path else {}  # noqa: E731
    return {path: house.call("GET", path, token=name, **more(path)).status for path in READS}


def listed(house, name, query):
    jobs = [row["id"] for row in house.get(f"/v1/jobs?{query}", name)["jobs"]]
    rows = house.get(f"/v1/submissions?{query}", name)["submissions"]
    return jobs, {row["id"]: row["shared_by"] for row in rows}


def test_a_reader_may_make_each_reading_call_until_it_is_shared_no_more(shop):
    assert seen(shop, "ann") == dict.fromkeys(READS, 200)
    for reader in ("bob", "@bio"):
        assert set(seen(shop, "bob").values()) == {404}
        assert [one["reader"] for one in share(shop, reader).json["readers"]] == [reader]
        assert seen(shop, "bob") == dict.fromkeys(READS, 200)
        assert shop.call("GET", "/v1/jobs/1/output", token="bob").body == b"output"
        assert shop.get("/v1/jobs/1/logs", "bob")["tail"] == "said by job 1"
        for stranger in ("carl", "olaf", "@bio"):
            assert set(seen(shop, stranger).values()) == {404}, stranger
        assert shop.call("GET", "/v1/jobs/4", token="bob").status == 404
        assert share(shop, reader, how="remove").json["readers"] == []
    assert set(seen(shop, "bob").values()) == {404}


def test_a_reader_who_was_removed_reads_nothing_under_the_same_name(shop):
    share(shop, "bob", "@bio")
    for name in ("bob", "@bio"):
        assert shop.call("POST", "/v1/users/remove", {"name": name}, token="admin").status == 200
    assert [one["reader"] for one in shop.get("/v1/submissions/1/readers", "ann")["readers"]] == ["@bio"]
    shop.user("bob", "physics")
    assert set(seen(shop, "bob").values()) == {404}


def test_a_reader_changes_nothing(shop):
    share(shop, "bob", "@bio")
    before = shop.get("/v1/jobs?first=1"), shop.get("/v1/submissions/1/readers")
    for path, body in WRITES:
        assert shop.call("POST", path, body, token="bob").status == 404, (path, body)
    assert shop.call("GET", "/v1/submissions/1/readers", token="bob").status == 404
    assert (shop.get("/v1/jobs?first=1"), shop.get("/v1/submissions/1/readers")) == before
    chosen = {"action": "kill", "selection": {"owner": "ann"}}
    assert shop.call("POST", "/v1/jobs/control", chosen, token="bob").json["changed"] == 0


def test_lists_show_what_is_shared_and_by_whom(shop):
    shop.submitted(token="bob")
    assert listed(shop, "bob", "all=true") == ([5], {3: ""})
    share(shop, "bob", token="admin")
    share(shop, "@bio")
    jobs, submissions = listed(shop, "bob", "shared=true")
    assert (jobs, set(submissions)) == ([1, 2, 3], {1})
    assert submissions[1] in ("ann", "admin")
    assert listed(shop, "bob", "all=true")[0] == [1, 2, 3, 5]
    assert listed(shop, "bob", "owner=ann")[0] == [1, 2, 3]
    assert listed(shop, "bob", "submission=1&all=true&state=Waiting")[0] == [2, 3]
    assert listed(shop, "bob", "")[0] == [5]
    for name in ("ann", "carl", "olaf", "admin"):
        assert listed(shop, name, "shared=true") == ([], {}), name
    assert (
        shop.get("/v1/jobs/counts", "bob")["counts"] == shop.get("/v1/jobs/counts?own=true", "bob")["counts"]
    )


def test_values_of_the_environment_are_not_shown_to_readers(shop):
    share(shop, "bob")
    for form in ("jdl", "json", "cfg"):
        for job in (1, 2):
            path = f"/v1/jobs/{job}/description?form={form}"
            own, others = (shop.get(path, name)["text"] for name in ("ann", "bob"))
            assert own.count(SECRET) == 1
            assert (SECRET in others, "fast" in others) == (False, False)
            assert all(word in others for word in ("TOKEN", "MODE", "(hidden)", "/bin/true"))
    answers = [shop.call("GET", path, token="bob").body for path in READS if "events" not in path]
    assert SECRET.encode() not in b"".join(answers)


def test_the_shared_set_is_the_same_after_jobs_are_rescheduled_and_changed(shop):
    share(shop, "bob")
    assert shop.control("reschedule", 1).status == 200
    changed = {"ranges": [[2, 2]], "attributes": {"Memory": 5}}
    assert shop.call("POST", "/v1/jobs/change", changed, token="ann").status == 200
    assert shop.claim(shop.pilot())
    shop.submitted({"JobName": "of_ann"})
    assert listed(shop, "bob", "shared=true")[0] == [1, 2, 3]
    assert (shop.get("/v1/jobs/1", "bob")["id"], shop.call("GET", "/v1/jobs/5", token="bob").status) == (
        1,
        404,
    )
    assert SECRET not in json.dumps(shop.get("/v1/jobs/2/description", "bob"))


def test_waits_and_streams_end_when_it_is_shared_no_more(shop):
    share(shop, "bob", "carl")
    paths = ("/v1/jobs/wait?jobs=1-3", "/v1/jobs/events?jobs=1-3")
    ended, kept = ([Asked(shop, "GET", path, token=name) for path in paths] for name in ("bob", "carl"))
    for _, stream in (ended, kept):
        shop.run(stream.connection.told(b"event: states"))
    assert not any(one.task.done() for one in (*ended, *kept))
    share(shop, "bob", how="remove")
    assert ended[0].ended().code == "unavailable"
    assert b"unavailable" in ended[1].ended().body
    assert not any(one.task.done() for one in kept)


def test_a_stream_that_begins_while_it_is_shared_no_more_ends_at_once(shop, monkeypatch):
    share(shop, "bob")
    watch = shop.core.waits.watch

    async def watched(*given):
        found = await watch(*given)
        monkeypatch.undo()
        body = {"submission": 1, "readers": ["bob"], "how": "remove"}
        task, _ = shop.open("POST", "/v1/submissions/readers", body, token="ann")
        await task
        return found

    monkeypatch.setattr(shop.core.waits, "watch", watched)
    stream = shop.call("GET", "/v1/jobs/events?jobs=1-3", token="bob")
    assert stream.body.startswith(b"event: end")
    assert b"unavailable" in stream.body


def test_who_leaves_the_group_or_the_vo_reads_no_more(shop):
    share(shop, "@physics", "bob")
    assert seen(shop, "carl") == dict.fromkeys(READS, 200)
    assert seen(shop, "bob") == dict.fromkeys(READS, 200)
    for name, group, vo in (("carl", "bio", "lab"), ("bob", "guests", "other")):
        body = {"name": name, "vo": vo, "groups": [group]}
        assert shop.call("POST", "/v1/users", body, token="admin").status == 200
        assert set(seen(shop, name).values()) == {404}
        assert listed(shop, name, "shared=true") == ([], {})


@pytest.mark.parametrize(
    ("readers", "how", "status", "words"),
    [
        (["nobody"], "add", 404, "There is no user nobody in VO lab."),
        (["bob", "olaf"], "add", 404, "There is no user olaf in VO lab."),
        (["@none"], "add", 404, "no group none"),
        (["@guests"], "add", 404, "no group guests"),
        (["ann"], "add", 400, "ann's own"),
        ([], "add", 400, ""),
        (["bob"], "remove", 404, "is not shared with bob"),
    ],
)
def test_what_cannot_be_shared_is_refused_whole(shop, readers, how, status, words):
    answer = share(shop, *readers, how=how)
    assert (answer.status, words in answer.json["error"]["message"]) == (status, True), answer.body
    assert shop.get("/v1/submissions/1/readers")["readers"] == []


def test_only_its_owner_and_administrators_share_a_submission(shop):
    for name in ("bob", "carl", "olaf"):
        assert share(shop, "bob", token=name).status == 404
    assert share(shop, "bob", submission=99).status == 404
    assert share(shop, "bob", token="admin").json["readers"] == [
        {"reader": "bob", "at": shop.now, "by": "admin"}
    ]
    shop.now += 5
    assert share(shop, "bob", "carl", "carl").json == shop.get("/v1/submissions/1/readers")
    assert [(one["reader"], one["by"]) for one in shop.get("/v1/submissions/1/readers")["readers"]] == [
        ("bob", "admin"), ("carl", "ann"),
    ]  # fmt: skip
    trail = shop.get("/v1/audit?action=submission-shared", "admin")["entries"]
    assert [(one["by"], one["subject"], one["detail"]) for one in trail] == [
        ("ann", "1", "with bob, carl, carl"), ("admin", "1", "with bob"),
    ]  # fmt: skip


def test_the_readers_go_with_the_submission(shop):
    share(shop, "bob")
    share(shop, "bob", submission=2)
    assert shop.control("kill", 4).status == 200
    old = {"before": shop.now + 1, "jobs": [4], "submissions": [2]}
    assert shop.call("POST", "/v1/service/purge", old, token="service").status == 200
    assert shop.call("GET", "/v1/submissions/2/readers", token="admin").status == 404
    assert shop.core.reader.only("SELECT submission_id, reader FROM submission_reader") == (1, "bob")
