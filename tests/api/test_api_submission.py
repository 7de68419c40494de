"""POST /v1/jobs: every form, all or nothing, and bad input refused before anything is stored."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.decide.matching.offers import PoolScope
from lodesman.decide.resources import load_resources
from lodesman.languages.jobs import write_description
from lodesman.server.writer.prepare import prepare

HELLO = """// a greeting
[
  Executable = "/bin/echo";
  Arguments = "hello world";
  JobName = "hello";
  CPUTime = 500;
]
"""
HELLO_CFG = """Executable = /bin/echo
Arguments = hello world
JobName = hello
CPUTime = 500
"""
HELLO_JSON = '{"Executable": "/bin/echo", "Arguments": "hello world", "JobName": "hello", "CPUTime": 500}'


def error(answer, status):
    assert answer.status == status, answer.body
    return answer.json["error"]


@pytest.mark.parametrize(
    ("form", "text"), [("jdl", HELLO), ("cfg", HELLO_CFG), ("json", HELLO_JSON)], ids=["jdl", "cfg", "json"]
)
@pytest.mark.parametrize("told", [True, False], ids=["told", "guessed"])
def test_one_job_in_each_language(house, form, text, told):
    answer = house.submit(text=text, form=form if told else "")
    assert answer.status == 200, answer.body
    assert {**answer.json, "notices": []} == {
        "submission": 1, "first": 1, "count": 1, "held": 0, "repeated": False, "notices": [],
    }  # fmt: skip
    job = house.get("/v1/jobs/1")
    assert (job["state"], job["name"], job["owner"], job["group"], job["vo"]) == (
        "Waiting", "hello", "ann", "physics", "lab",
    )  # fmt: skip
    (claimed,) = house.claim(house.pilot())
    assert claimed["spec"]["arguments"] == ["hello", "world"]


def test_a_record_of_json_is_a_job_too(house):
    answer = house.submit({"Executable": "/bin/echo", "Arguments": ["a b", "c"]})
    assert answer.json["count"] == 1
    (claimed,) = house.claim(house.pilot())
    assert claimed["spec"]["arguments"] == ["a b", "c"]


def test_many_records_are_a_contiguous_block_of_jobs(house):
    house.submitted()
    answer = house.submit(*({"JobName": f"job{k}"} for k in range(5)))
    assert (answer.json["first"], answer.json["count"]) == (2, 5)
    assert [job["id"] for job in house.get("/v1/jobs")["jobs"]] == [1, 2, 3, 4, 5, 6]


def test_many_texts_of_several_languages(house):
    answer = house.submit(texts=[HELLO, HELLO_JSON, HELLO_CFG])
    assert answer.json["count"] == 3
    assert len(house.claim(house.pilot(), 5)) == 3


def test_members_of_an_array_are_filled_in_when_they_are_claimed(house):
    text = """[ Executable = "/bin/echo"; Arguments = "%s of %n, %(colour)s"; JobName = "paint_%n"; CPUTime = 500;
               Parameters = {"wall", "door"}; Parameters.colour = {"red", "blue"}; ]"""
    answer = house.submit(text=text)
    assert answer.json["count"] == 2
    first, second = house.claim(house.pilot(), 5)
    assert first["spec"]["arguments"] != second["spec"]["arguments"]
    assert "wall" in first["spec"]["arguments"]
    assert "blue" in second["spec"]["arguments"]
    names = [job["name"] for job in house.get("/v1/jobs")["jobs"]]
    assert len(set(names)) == 2


def test_a_million_members_are_one_submission(house):
    answer = house.submit({"Parameters": 1_000_000, "Arguments": "%n"})
    assert answer.json["count"] == 1_000_000
    assert house.get("/v1/jobs?first=999999&limit=5")["jobs"][0]["id"] == 999_999
    assert house.get("/v1/jobs/counts")["counts"][0]["jobs"] == 1_000_000
    assert house.submit({"Parameters": 1_000_001}).status == 400


def test_a_member_s_key_decides_its_task_queue(house):
    text = '[ Executable = "/bin/true"; CPUTime = "%(cpu)s"; Parameters.cpu = {100, 200, 200}; ]'
    assert house.submit(text=text).json["count"] == 3
    queues = house.get("/v1/task-queues")["task_queues"]
    assert sorted((q["norm_cpu_seconds"], q["waiting"]) for q in queues) == [(100, 1), (200, 2)]


def test_jobs_for_generic_pilots_have_a_task_queue_of_their_own(house):
    """Also within one submission, where jobs that are alike are judged once."""
    house.submitted({}, {"ForceGeneric": True}, {"PilotType": "private"})
    house.submitted(
        texts=[
            'Executable = "/bin/true"; CPUTime = 500; ForceGeneric = true;',
            "Executable = /bin/true\nCPUTime = 500\nForceGeneric = yes\n",
        ]
    )
    queues = house.get("/v1/task-queues")["task_queues"]
    found = sorted((one["force_generic"], one["pilot_type"], one["waiting"]) for one in queues)
    assert found == [(False, "", 1), (False, "private", 1), (True, "", 3)]
    told = error(house.submit(text='Executable = "x";\nPilotType = "private"; forcegeneric = 1;'), 400)
    assert (told["data"]["attribute"], told["data"]["line"]) == ("ForceGeneric", 2)
    assert house.counted() == 5


# --- all or nothing -------------------------------------------------------------------------------------


def test_a_batch_with_one_bad_record_stores_nothing_and_names_it(house):
    told = error(house.submit({}, {}, {"CPUTime": -5}, {}), 400)
    assert (told["code"], told["data"]["job"], told["data"]["attribute"]) == ("invalid-job", 2, "CPUTime")
    assert "Job 2" in told["message"]
    assert "hint" in told
    assert house.counted() == 0
    assert house.submitted() == 1  # no id was used up


def test_a_batch_with_one_bad_text_names_it_and_the_place(house):
    told = error(house.submit(texts=[HELLO, '[ Executable = "/bin/true";\n CPUTime = = 5; ]']), 400)
    assert (told["code"], told["data"]["job"], told["data"]["line"]) == ("syntax", 1, 2)
    assert told["data"]["column"] > 1
    assert house.counted() == 0


def test_a_batch_with_one_impossible_job_names_it(house):
    told = error(house.submit({}, {"Memory": 10**6}), 422)
    assert (told["code"], told["data"]["job"]) == ("impossible", 1)
    assert house.counted() == 0


def test_an_array_in_a_batch_is_refused(house):
    told = error(house.submit({}, {"Parameters": 3}), 400)
    assert told["data"]["job"] == 1
    assert house.counted() == 0


@pytest.mark.parametrize("form", ["text", "texts"])
def test_others_are_served_while_a_large_submission_is_checked(house, form, monkeypatch):
    """It is checked beside the event loop; the answer and what is stored are the same as for a small one."""
    begun, go = threading.Event(), threading.Event()

    def slowly(*words, **more):
        begun.set()
        assert go.wait(60)
        return prepare(*words, **more)

    monkeypatch.setattr("lodesman.server.http.jobs.prepare", slowly)
    comment = "/* " + "x" * 3_000_000 + " */"
    body = (
        {"text": HELLO + comment, "form": "jdl"}
        if form == "text"
        else {"texts": [HELLO, HELLO + comment[:900_000] + "*/"] * 4}
    )
    task, connection = house.open("POST", "/v1/jobs", body, token="ann")
    house.run(asyncio.to_thread(begun.wait, 60))
    assert house.get("/health", "")["status"] == "ok"
    assert house.claim(house.pilot()) == []
    assert not task.done()
    go.set()
    house.run(task)
    assert (connection.answer().status, house.counted()) == (200, 1 if form == "text" else 8)


@pytest.mark.parametrize(
    ("more", "is_beside"),
    [
        ('Memory = "%s"; Parameters = {100, 200};', True),
        ("Parameters = 2;", False),
        ("/* " + "x" * 40_000 + " */", True),
        ("", False),
    ],
)
def test_what_may_be_of_many_kinds_is_held_against_queues_beside_the_loop(
    house, monkeypatch, more, is_beside
):
    """Sixty characters can name 10,000 kinds of job."""
    threads = []

    def noting(*words, **named):
        found = prepare(*words, **named)
        threads.append(threading.current_thread())
        return found

    monkeypatch.setattr("lodesman.server.http.jobs.prepare", noting)
    body = {
        "text": HELLO.rstrip("]\n ") + more + "]",
        "form": "jdl",
    }
    assert house.call("POST", "/v1/jobs", body, token="ann").status == 200
    assert [thread is not threading.main_thread() for thread in threads] == [is_beside]


def test_a_large_submission_that_is_wrong_is_refused_as_any_other(house):
    text = "/* " + "x" * 300_000 + ' */ [ Executable = "x"; Memory = -1; ]'
    told = error(house.submit(text=text, form="jdl"), 400)
    assert told["data"]["attribute"] == "Memory"


@pytest.mark.slow
def test_no_more_than_ten_thousand_jobs_of_their_own_in_one_request(house):
    for body in ({"jobs": [{"Executable": "x"}] * 10_001}, {"texts": [HELLO] * 10_001}):
        answer = house.call("POST", "/v1/jobs", body, token="ann")
        assert (answer.status, "10,000" in answer.json["error"]["message"]) == (400, True)
    assert house.submit(*[{}] * 10_000).json["count"] == 10_000


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": None},
        {"text": HELLO, "jobs": [{"Executable": "x"}]},
        {"texts": []},
        {"jobs": []},
        {"text": 5},
        {"jobs": [5]},
        {"jobs": {"Executable": "x"}},
        {"text": HELLO, "form": "xml"},
        {"text": HELLO, "form": "jdl\n"},
        {"text": HELLO, "request_id": "x" * 300},
        {"text": HELLO, "sandboxes": {"a": {"sha256": "abc", "size": 1}}},
        {"text": HELLO, "sandboxes": {"a": {"sha256": "0" * 64, "size": -1}}},
        {"text": HELLO, "sandboxes": {"a": {"sha256": "0" * 64 + "\n", "size": 1}}},
        {"text": HELLO, "hold_if_impossible": "yes"},
        [],
        "text",
        None,
        b"",
        b"{",
        b"\xff\xfe",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"jobs": ' + b"[" * 100_000,
        b'{"jobs": [' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"]}",
        b'{"jobs": [{"Executable": "x", "CPUTime": 1' + b"0" * 5_000 + b"}]}",
        b'{"jobs": [{"Executable": "x", "CPUTime": 1e999}]}',
        b'{"jobs": [{"Executable": "x", "CPUTime": NaN}]}',
    ],
)
def test_a_body_that_is_no_submission_is_refused(house, body):
    answer = house.call("POST", "/v1/jobs", body, token="ann")
    assert answer.status == 400, answer.body
    assert answer.code in ("invalid-request", "invalid-job", "syntax")
    assert house.counted() == 0


# --- asked twice ----------------------------------------------------------------------------------------


def test_the_same_request_id_gets_the_same_jobs(house):
    first = house.submit({}, {}, {}, request_id="r-1").json
    again = house.submit({}, {}, {}, request_id="r-1").json
    assert (again["submission"], again["first"], again["count"]) == (first["submission"], 1, 3)
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert house.counted() == 3


def test_request_ids_are_each_owner_s_own(house):
    assert house.submit(request_id="r-1").json["first"] == 1
    assert house.submit(request_id="r-1", token="bob").json["first"] == 2
    assert house.submit(request_id="r-2").json["first"] == 3
    assert house.submit().json["first"] == 4


def test_the_same_request_twice_at_the_same_time(house):
    body = {"jobs": [{"Executable": "/bin/true", "CPUTime": 5}] * 2, "request_id": "r-1"}
    both = [house.open("POST", "/v1/jobs", body, token="ann") for _ in range(8)]
    house.run(asyncio.wait([task for task, _ in both]))
    answers = [connection.answer().json for _, connection in both]
    assert {one["first"] for one in answers} == {1}
    assert sorted(one["repeated"] for one in answers) == [False] + [True] * 7
    assert house.counted() == 2


def test_a_dry_run_stores_nothing(house):
    answer = house.submit({"Parameters": 7, "Color": "red"}, dry_run=True).json
    assert (answer["count"], answer["dry_run"]) == (7, True)
    assert [notice["attribute"] for notice in answer["notices"]] == ["Color"]
    assert error(house.submit({"CPUTime": -1}, dry_run=True), 400)["data"]["attribute"] == "CPUTime"
    impossible = house.submit({"Memory": 10**6, "Parameters": 7}, dry_run=True, hold_if_impossible=True).json
    assert impossible["held"] == 7
    assert house.counted() == 0
    assert house.submitted() == 1


# --- impossible jobs ------------------------------------------------------------------------------------

IMPOSSIBLE = [
    ({"CPUTime": 10**6}, "Cpu"),
    ({"Memory": 10**6}, "Memory"),
    ({"NumberOfProcessors": 64}, "Processors"),
    ({"Platform": "vax"}, "Platform"),
    ({"Tag": "GPU"}, "Tag"),
    ({"Site": "North", "GridCE": "ce.south"}, "CE"),
    ({"Requirements": {"Software": ["fluka", "vmc"]}}, "Software"),
    ({"Requirements": {"Nonsense": 5}}, "Nonsense"),
]


@pytest.mark.parametrize(("job", "word"), IMPOSSIBLE, ids=[word for _, word in IMPOSSIBLE])
def test_a_job_that_no_queue_can_run_is_refused_with_the_reason_or_held_with_it(house, job, word):
    told = error(house.submit(job), 422)
    assert told["code"] == "impossible"
    assert word.lower() in told["message"].lower(), told["message"]
    assert "hold" in told["hint"]
    assert house.counted() == 0
    held = house.submit(job, hold_if_impossible=True).json
    assert (held["count"], held["held"]) == (1, 1)
    found = house.get(f"/v1/jobs/{held['first']}")
    assert found["state"] == "Held"
    assert word.lower() in found["reason"].lower()
    assert house.claim(house.pilot(), 5) == []
    assert house.claim(house.pilot("South"), 5) == []


def test_members_of_an_array_that_cannot_run_are_held_and_the_others_wait(house):
    text = '[ Executable = "/bin/true"; CPUTime = "%(cpu)s"; Parameters.cpu = {100, 9999999, 200}; ]'
    assert house.submit(text=text).status == 422
    answer = house.submit(text=text, hold_if_impossible=True).json
    assert (answer["count"], answer["held"]) == (3, 1)
    states = [job["state"] for job in house.get("/v1/jobs")["jobs"]]
    assert states == ["Waiting", "Held", "Waiting"]


@pytest.mark.parametrize("given", [{}, {"Parameters": 5}], ids=["one", "array"])
def test_jobs_submitted_on_hold_are_held_until_their_owner_releases_them(house, given):
    answer = house.submit(given, hold=True).json
    first, last = answer["first"], answer["first"] + answer["count"] - 1
    found = house.get(f"/v1/jobs/{last}")
    assert (found["state"], found["held_by"], found["reason"]) == ("Held", "user", "submitted on hold")
    pilot = house.pilot()
    assert house.claim(pilot, 5) == []
    assert house.control("release", first, last).json["changed"] == answer["count"]
    assert [job["id"] for job in house.claim(pilot, 5)] == [*range(first, last + 1)]


def test_each_job_of_a_batch_is_submitted_on_hold(house):
    answer = house.submit({}, {"Executable": "/bin/false"}, hold=True).json
    states = {job["state"] for job in house.get("/v1/jobs")["jobs"]}
    assert (answer["count"], answer["held"], states) == (2, 0, {"Held"})


def test_whether_a_job_is_possible_depends_on_the_vo(house):
    house.user("far", "guests", vo="other")
    assert house.submit({"CPUTime": 5_000}, token="ann").status == 200
    assert house.submit({"CPUTime": 5_000}, token="far").status == 422
    assert house.submit({"CPUTime": 500}, token="far").status == 200


# --- bad input ------------------------------------------------------------------------------------------

WRONG = [
    ("Executable", ""),
    ("Executable", None),
    ("Executable", 5),
    ("CPUTime", "soon"),
    ("CPUTime", -1),
    ("CPUTime", 0),
    ("CPUTime", 2.5),
    ("CPUTime", 10**30),
    ("CPUTime", True),
    ("Memory", -1),
    ("NumberOfProcessors", 0),
    ("Priority", 11),
    ("JobName", "x" * 256),
    ("JobName", "b\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ("JobGroup", "a\nb"),
    ("Site", ["North", 5]),
    ("BannedSite", {"a": 1}),
    ("StdOutput", "../../etc/passwd"),
    ("OutputSandbox", "/etc/passwd"),
    ("InputSandbox", "a/../../b"),
    ("Arguments", 'unbalanced "'),
    ("Environment", "nothing"),
    ("Requirements", "Memory > 5"),
    ("PilotType", "purple"),
    ("MaxAttempts", 0),
    ("Owner", "admin"),
    ("VO", "other"),
]


@pytest.mark.parametrize(
    ("attribute", "value"), WRONG, ids=[f"{name}-{n}" for n, (name, _) in enumerate(WRONG)]
)
def test_a_wrong_value_is_refused_with_its_attribute_and_what_would_be_right(house, attribute, value):
    told = error(house.submit({attribute: value}, hold_if_impossible=True), 400)
    assert told["code"] in ("invalid-job", "invalid-request", "syntax")
    if told["code"] == "invalid-job":
        assert told["data"]["attribute"].lower().startswith(attribute.lower())
        assert attribute.lower() in told["message"].lower()
        assert told["hint"]
    assert house.counted() == 0


def test_a_wrong_value_in_a_text_has_a_position(house):
    told = error(house.submit(text='[ Executable = "/bin/true";\n  Memory = -1;\n]'), 400)
    assert (told["data"]["attribute"], told["data"]["line"]) == ("Memory", 2)
    assert told["data"]["column"] > 1


def test_a_site_nearly_right_is_suggested(house):
    told = error(house.submit({"Site": "Nroth"}), 400)
    assert "North" in told["hint"]


def test_sites_of_other_vos_are_unknown(house):
    assert "Far" in error(house.submit({"Site": "Far"}), 400)["message"]


def test_site_and_banned_site_that_leave_nothing(house):
    job = {"Site": "North", "BannedSite": "North"}
    told = error(house.submit(job), 422)
    assert (told["code"], told["data"]["attribute"]) == ("impossible", "BannedSite")
    assert "BannedSite without North" in told["message"]
    held = house.submitted(job, hold_if_impossible=True)
    assert "BannedSite without North" in house.get(f"/v1/jobs/{held}")["reason"]


def test_a_site_that_is_not_there_may_be_waited_for(house):
    assert error(house.submit({"Site": "Atlantis"}), 400)["data"]["attribute"] == "Site"
    held = house.submitted({"Site": "Atlantis"}, hold_if_impossible=True)
    assert house.get(f"/v1/jobs/{held}")["state"] == "Held"
    told = house.get(f"/v1/jobs/{held}/why")
    assert (told["verdict"], told["queues"]["ruled_out_by"][0]) == (
        "never",
        {"criterion": "Site", "queues": 2},
    )


def test_an_unconfigured_submission_pool(house):
    pools = dict.fromkeys(("Local", "Grid"), PoolScope())
    house.core.policy = house.side.policy = replace(house.core.policy, submission_pools=pools)
    told = error(house.submit({"SubmitPool": "Gird"}), 400)
    assert told["data"]["attribute"] == "SubmitPool"
    assert told["hint"].startswith(
        "Did you mean Grid? Correct the name, leave it out, or submit with --hold-"
    )
    assert house.counted() == 0
    held = house.submitted({"SubmitPool": "Gird"}, hold_if_impossible=True)
    told = house.get(f"/v1/jobs/{held}/why")
    assert (house.get(f"/v1/jobs/{held}")["state"], told["verdict"]) == ("Held", "never")
    assert told["queues"]["nearest"][0]["text"] == "SubmitPool -> Grid or Local"
    assert house.get(f"/v1/jobs/{house.submitted({'SubmitPool': 'Grid'})}")["state"] == "Waiting"


@pytest.mark.parametrize("count", [1, 101, 200])
@pytest.mark.parametrize("form", ["jdl", "cfg", "json"])
def test_requirements_of_one_to_two_hundred_keys(house, form, count):
    offered = "".join(f"Key{n} = {n + 5}\n" for n in range(count))
    text = f'[site.North]\n[site.North.ce."ce.north".queue.short]\nCPUTime = 1000\n{offered}'
    text += '[site.South]\n[site.South.ce."ce.south".queue.long]\n[group.physics]\nvo = "lab"\n'
    house.core.policy = house.side.policy = house.policy(load_resources([("sites.toml", text)]))
    job = {"Executable": "/bin/true", "CPUTime": 5, "Requirements": {f"Key{n}": n for n in range(count)}}
    first = house.submitted(text=write_description(job, form), form=form)
    told = house.get(f"/v1/jobs/{first}/why")
    assert (told["queues"]["total"], told["queues"]["eligible"]) == (2, 1)
    assert [one["queues"] for one in told["queues"]["ruled_out_by"]] == [1] * count
    assert [one["id"] for one in house.claim(house.pilot("South"), 5)] == []
    assert [one["id"] for one in house.claim(house.pilot("North"), 5)] == [first]


def test_unknown_attributes_warn_with_their_place_and_are_kept(house):
    text = '[ Executable = "/bin/true";\n CPUTime = 5;\n Executible = "x";\n Colour = "red"; ]'
    notices = house.submit(text=text).json["notices"]
    assert [(n["attribute"], n["line"]) for n in notices] == [("Executible", 3), ("Colour", 4)]
    assert "Executable" in notices[0]["message"]


@pytest.mark.parametrize("form", ["jdl", "cfg", "json"])
def test_ten_megabytes_of_text_are_refused_and_nothing_is_stored(house, form):
    text = {"jdl": '[ A = "%s"; ]', "cfg": "A = %s\n", "json": '{"A": "%s"}'}[form] % ("x" * 10_000_000)
    answer = house.submit(text=text, form=form)
    assert (answer.status, answer.code) == (413, "too-large")
    assert answer.headers["connection"] == "close"
    assert house.counted() == 0


def test_a_body_beyond_all_limits_is_refused_before_it_is_read(house):
    answer = house.call("POST", "/v1/jobs", b"x", token="ann", headers={"content-length": str(33 << 20)})
    assert answer.status == 413
    assert answer.json["error"]["data"]["limit"] == 32 << 20


def test_a_body_that_grows_beyond_the_limit_is_refused_while_it_comes(house):
    chunks = [b"x" * (1 << 20)] * 3
    answer = house.call(
        "POST", "/v1/jobs/control", token="ann", chunks=chunks, headers={"content-length": ""}
    )
    assert (answer.status, answer.code) == (413, "too-large")


def test_deep_nesting_in_a_text_has_a_position(house):
    for text in ("[ A = " * 5_000, '[ Executable = "x"; A = ' + "{" * 5_000, "{" * 5_000):
        told = error(house.submit(text=text, form="jdl"), 400)
        assert told["code"] == "syntax"
        assert told["data"]["line"] == 1
    told = error(house.submit(text='{"a":' * 5_000, form="json"), 400)
    assert told["code"] == "syntax"


# --- groups and files -----------------------------------------------------------------------------------


def test_the_group_comes_from_the_token_and_may_be_chosen_among_one_s_own(house):
    house.user("cleo", "physics", "bio")
    assert house.get(f"/v1/jobs/{house.submitted(token='cleo')}", "cleo")["group"] == "physics"
    chosen = house.submitted(token="cleo", group="bio")
    assert house.get(f"/v1/jobs/{chosen}", "cleo")["group"] == "bio"
    asked = house.submitted({"OwnerGroup": "bio"}, token="cleo")
    assert house.get(f"/v1/jobs/{asked}", "cleo")["group"] == "bio"
    assert house.submit({"OwnerGroup": "bio"}, token="ann").status == 403
    assert house.submit({"OwnerGroup": "bio"}, {"OwnerGroup": "physics"}, token="cleo").status == 400


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_input_files_must_have_been_uploaded_by_the_owner(house):
    content = b"events"
    sandboxes = {"data.txt": {"sha256": digest(content), "size": len(content)}}
    job = {"InputSandbox": ["data.txt"]}
    assert error(house.submit(job), 400)["data"]["attribute"] == "InputSandbox"
    assert house.submit(job, sandboxes=sandboxes).status == 400
    assert house.upload(content, token="bob").status == 200
    assert house.submit(job, sandboxes=sandboxes).status == 400  # another's file does not count
    assert house.upload(content).status == 200
    wrong = {"data.txt": {**sandboxes["data.txt"], "size": 5}}
    assert house.submit(job, sandboxes=wrong).status == 400
    assert house.submit(job, sandboxes=sandboxes).status == 200
    (claimed,) = house.claim(house.pilot())
    assert claimed["input"] == [
        {"name": "data.txt", "url": f"/v1/sandboxes/{digest(content)}", "sha256": digest(content),
         "size": len(content), "unpack": False}
    ]  # fmt: skip


def test_members_may_have_files_of_their_own(house):
    contents = {f"part{k}.txt": f"part {k}".encode() for k in range(3)}
    sandboxes = {}
    for name, content in contents.items():
        house.upload(content)
        sandboxes[name] = {"sha256": digest(content), "size": len(content)}
    job = {"InputSandbox": ["part%n.txt"], "Parameters": 3}
    answer = house.submit(job, sandboxes=sandboxes)
    assert answer.status == 200, answer.body
    got = [one["input"][0] for one in house.claim(house.pilot(), 5)]
    assert {one["name"]: one["sha256"] for one in got} == {name: digest(c) for name, c in contents.items()}
    del sandboxes["part1.txt"]
    told = error(house.submit(job, sandboxes=sandboxes), 400)
    assert "part1.txt" in told["message"]


@pytest.mark.parametrize("program", ["run.sh", "./run.sh", "%s.sh"])
def test_an_uploaded_script_whose_interpreter_no_node_has_is_refused(house, program):
    content = b"#!/bin/sh\r\necho\r\n"
    house.upload(content)
    sandboxes = {"in/run.sh": {"sha256": digest(content), "size": len(content)}}
    job = {"Executable": program, "InputSandbox": ["in/run.sh"]} | (
        {"Parameters": ["go", "run"]} if "%" in program else {}
    )
    told = error(house.submit(job, sandboxes=sandboxes), 400)
    assert told["data"]["attribute"] == "Executable"
    assert "the first line of in/run.sh ends with CR LF" in told["message"]
    assert house.submit(job | {"Executable": "/bin/cat"}, sandboxes=sandboxes).status == 200
    several = {"jobs": [{"Executable": "/bin/true"}, job], "sandboxes": sandboxes}
    if "%" not in program:
        assert error(house.call("POST", "/v1/jobs", several, token="ann"), 400)["data"]["job"] == 1


def test_a_program_that_no_node_has_is_refused_at_submission_and_change(house):
    house.upload(b"x")
    plain = {"sandboxes": {"sub/run.sh": {"sha256": digest(b"x"), "size": 1}}}
    for wrong in ({"Executable": "./run.sh"}, {"Executable": "in/run.sh", "InputSandbox": ["sub/run.sh"]}):
        told = error(house.submit(wrong, **plain), 400)
        assert told["data"]["attribute"] == "Executable"
        assert "no such file in the job's directory" in told["message"]
    first = house.submitted({"Executable": "sub/run.sh", "InputSandbox": ["sub/run.sh"]}, **plain)
    change = {"ranges": [[first, first]], "attributes": {"Executable": "in/run.sh"}}
    assert "write run.sh" in error(house.call("POST", "/v1/jobs/change", change, token="ann"), 400)["hint"]
    (claimed,) = house.claim(house.pilot())
    assert claimed["spec"]["executable"] == claimed["input"][0]["name"] == "run.sh"


def test_a_script_that_only_a_shell_can_read_is_named(house):
    house.upload(b"print(1)\n")
    plain = {"sha256": digest(b"print(1)\n"), "size": 9}
    job = {"Executable": "fit.py", "InputSandbox": ["fit.py"]}
    (notice,) = house.submit(job, sandboxes={"fit.py": plain}).json["notices"]
    assert (notice["attribute"], "/bin/sh reads it" in notice["message"]) == ("Executable", True)
    assert not house.submit(job, sandboxes={"fit.py": {**plain, "executable": True}}).json["notices"]


@pytest.mark.parametrize("more", [{}, {"Parameters": 2}, {"Parameters": 2, "Arguments": "%s"}])
def test_a_file_that_could_be_executed_can_be_on_the_node(house, more):
    """Also of members that are filled in, and after a change of the job."""
    house.upload(b"x")
    plain = {"sha256": digest(b"x"), "size": 1}
    sandboxes = {"run.sh": {**plain, "executable": True}, "data": plain}
    job = {"InputSandbox": ["run.sh", "data"], **more}
    first = house.submitted(job, sandboxes=sandboxes)
    if "Parameters" not in more:
        change = {"ranges": [[first, first]], "attributes": {"Memory": 1}}
        assert house.call("POST", "/v1/jobs/change", change, token="ann").json["changed"] == 1
    (claimed,) = house.claim(house.pilot())
    assert {one["name"]: one.get("executable", False) for one in claimed["input"]} == {
        "run.sh": True,
        "data": False,
    }


def test_a_file_cannot_be_named_by_a_job_id_that_is_not_given_yet(house):
    house.upload(b"x")
    sandboxes = {name: {"sha256": digest(b"x"), "size": 1} for name in ("f0", "f1", "f2", "f%j")}
    told = error(house.submit({"InputSandbox": ["f%j"], "Parameters": 2}, sandboxes=sandboxes), 400)
    assert (told["data"]["attribute"], "has %j" in told["message"]) == ("InputSandbox", True)
    assert house.claim(house.pilot(), 5) == []


def test_the_answer_to_a_submission_is_json_with_its_length(house):
    answer = house.submit()
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert json.loads(answer.body)["first"] == 1


VALUES = st.one_of(
    st.sampled_from(
        ["", "ok", "../x", "/x", 'a "b', "a\nb", "\N{SNOWMAN}", "%s", "%(a)s", "true", "x" * 300]
    ),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
)
FIELDS = st.sampled_from(
    ["Executable", "Arguments", "JobName", "StdInput", "StdOutput", "OutputSandbox", "WallTime", "CPUTime",
     "Exclusive", "Memory", "Site", "Environment", "InputSandbox"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    FIELDS,
    st.sampled_from(["%s", "%n", "%j", "a%sb", "%(x)s", "100%"]),
    st.lists(VALUES, min_size=1, max_size=4),
)
def test_each_member_that_was_accepted_can_be_handed_out(house, field, text, values):
    """What is filled in at the claim was checked at the submission: no claim fails for its job's sake."""
    if not house.pilots:
        house.everywhere = [house.pilot(site, cores=40, node={"cores": 40}) for site in ("North", "South")]
        house.upload(b"input")
    value = {"A": text} if field == "Environment" else text
    # As a client names them, which knows no job id yet.
    names = {text.replace("%s", str(one)).replace("%n", str(n)) for n, one in enumerate(values)}
    file = {"sha256": digest(b"input"), "size": 5}
    answer = house.submit(
        {field: value, "Parameters": values}, hold_if_impossible=True,
        sandboxes={name.replace("%j", "0"): file for name in names},
    )  # fmt: skip
    if answer.status != 200:
        assert answer.status == 400, answer.body
        return
    waiting = answer.json["count"] - answer.json["held"]
    free = {"cores": 40, "memory_mb": 8_000, "norm_cpu_seconds": 0}
    taken = {pilot: house.claim(pilot, 10, resource=free) for pilot in house.everywhere}
    got = [one for jobs in taken.values() for one in jobs]
    assert len(got) == waiting
    for pilot, jobs in taken.items():
        for job in jobs:
            house.report(pilot, job)
    assert all(isinstance(one["spec"]["executable"], str) for one in got)


@pytest.mark.parametrize("word", ["BannedSite", "BannedSites", "bannedsites"])
def test_a_ban_of_an_unknown_site_is_named_as_the_user_wrote_it(house, word):
    (notice,) = house.submit(text=f'Executable = "/bin/true";\n{word} = "Atlantis";').json["notices"]
    assert notice["message"].startswith(f"{word}: there is no site 'Atlantis'")
    assert (notice["attribute"], notice["line"]) == ("BannedSite", 2)
    (notice,) = house.submit({word: "Atlantis"}).json["notices"]
    assert notice["message"].startswith(f"{word}: there is no site 'Atlantis'")


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ('[ Executable = "/bin/true"; Platform = "el9"; ]', True),
        ('[ Executable = "/bin/true"; Platform = "el9"; CPUTime = 86400; ]', False),
        ('[ Executable = "/bin/true"; Platform = "el9"; cputime = "1 d"; ]', False),
    ],
)
def test_a_time_that_nobody_gave_is_not_called_the_users(house, text, is_said):
    for answer in (house.submit(text=text), house.submit(texts=[text, text])):
        hint = answer.json["error"]["hint"]
        own = "It says no CPUTime, which then is 86400 s: say how long it needs, as by lode submit --cpu-time 16m."
        assert hint.startswith(own) is is_said, answer.json
        assert "--hold-if-impossible" in hint
