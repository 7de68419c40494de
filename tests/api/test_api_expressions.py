"""Expressions in Requirements, from the submission to the claim, as users see them."""

from __future__ import annotations

import json
import threading

import pytest
from tests.api.test_api_change_jobs import changed
from tests.api.test_api_plan_job import plan_of
from tests.api.test_api_refresh import MOVED, NORTH, SOUTH, configure, keep, pools_of
from tests.api.test_api_site_ads import ad, taken

from lodesman.decide.broker.ad import read_site_ad
from lodesman.decide.masks.bits import bits
from lodesman.decide.resources.expression import holds_at
from lodesman.languages.classad import parse_ad
from lodesman.server.http import jobs
from lodesman.server.loops.refresh import placement_clauses
from lodesman.server.loops.site_matching import KnownWishes, SiteMatcher
from lodesman.server.store.submit_pools import stored_pools

GPU = 'Memory >= 1000 && member("root", Software)'
JDL = r'[ Executable = "/bin/true"; CPUTime = 500; Requirements = [ Constraint = "%s"; %s ]; ]'
CFG = """Executable = /bin/true
CPUTime = 500
Requirements
{{
  Constraint = "{}"
}}
"""


def quoted(text):
    return text.replace('"', r"\"")


def submit_text(house, text):
    return house.call("POST", "/v1/jobs", {"text": text}, token="ann")


def pool_rows(house):
    return house.get("/v1/submit-pools")["pools"]


def step(why, name):
    (found,) = [one for one in why["chain"] if one["step"] == name]
    return found


def test_all_three_languages_have_expressions_and_one_submit_pool(house):
    texts = [
        JDL % (quoted(GPU), ""),
        CFG.format(quoted(GPU)),
        json.dumps({"Executable": "/bin/true", "CPUTime": 500, "Requirements": {"constraint": f" {GPU}"}}),
        json.dumps({"Executable": "/bin/true", "CPUTime": 500, "Requirements": {
            "Constraint": 'member("root", target.software)\n  && memory>=1000'}}),
    ]  # fmt: skip
    for text in texts:
        answer = submit_text(house, text)
        assert answer.status == 200, answer.json
    (row,) = pool_rows(house)
    assert row["requirements"] == {"Constraint": {"kind": "expression", "unit": "", "wanted": [GPU]}}
    assert (row["queues"], row["jobs"]["waiting"]) == (1, 4)
    assert house.claim(house.pilot("South"), 4) == []
    assert len(house.claim(house.pilot("North"), 4)) == 4


def test_an_expression_stands_beside_requirements_and_both_must_hold(house):
    job = house.submitted({"Requirements": {"Memory": 1500, "Constraint": 'Site != "North"'}})
    assert house.claim(house.pilot("North")) == []
    assert [one["id"] for one in house.claim(house.pilot("South"))] == [job]


def test_what_it_asks_of_the_job_is_part_of_its_pool(house):
    wanted = {"Constraint": "TARGET.Memory >= 2 * MY.RequestMemory"}
    small, large = (house.submitted({"Memory": one, "Requirements": wanted}) for one in (500, 1200))
    rows = {row["requirements"]["Constraint"]["unit"]: row["queues"] for row in pool_rows(house)}
    assert rows == {"[RequestMemory = 500]": 2, "[RequestMemory = 1200]": 1}
    north = house.pilot("North")
    assert [one["id"] for one in house.claim(north)] == [small]
    assert house.claim(north) == []
    described = house.get(f"/v1/jobs/{large}/description?form=json")["text"]
    assert json.loads(described)["Requirements"] == wanted


def test_a_changed_job_is_asked_anew(house):
    wanted = {"Constraint": "TARGET.Memory >= 2 * RequestMemory"}
    job = house.submitted({"Memory": 500, "Requirements": wanted})
    assert changed(house, job, Memory=1200)[0] == 1
    assert [row["queues"] for row in pool_rows(house) if row["jobs"]["waiting"]] == [1]
    assert house.claim(house.pilot("North")) == []
    assert json.loads(house.get(f"/v1/jobs/{job}/description?form=json")["text"])["Requirements"] == wanted
    assert changed(house, job, Requirements={"Constraint": 'Site == "North"'})[0] == 1
    assert [one["id"] for one in house.claim(house.pilot("North"), memory_mb=2000)] == [job]


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("Memory >= ", 1, 11, "the text ends where a value is needed"),
        ("Memory >= 4 GB", 1, 13, "GB stands after the end of an expression"),
        ("TARGET > 4", 1, 1, "TARGET alone"),
        ('Memory > 4 &&\n  membr("a", Tag)', 2, 3, "there is no function membr here"),
    ],
)
def test_a_wrong_expression_is_refused_with_line_and_column(house, text, line, column, words):
    answer = house.submit({"Requirements": {"Constraint": text}})
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, "invalid-job")
    assert f"line {line}, column {column}: {words}" in error["message"]
    data = error["data"]
    assert (data["expression_line"], data["expression_column"]) == (line, column)
    assert data["attribute"] == "Requirements.Constraint"


def test_the_place_in_the_description_is_named_as_well(house):
    answer = submit_text(
        house, '[ Executable = "/bin/true";\n  Requirements = [ Constraint = "Memory >"; ]; ]'
    )
    assert answer.json["error"]["message"] == (
        "Requirement 'Constraint': line 1, column 9: the text ends where a value is needed (line 2, column 20)."
    )


@pytest.mark.parametrize("text", ["x" * 5_000, "Memory > 1 && " * 400 + "true"])
def test_a_long_one_is_refused(house, text):
    answer = house.submit({"Requirements": {"Constraint": text}})
    assert (answer.status, answer.code) == (400, "invalid-job")
    assert "at most 4096" in answer.json["error"]["message"]


def test_an_expression_outside_requirements_is_refused_with_the_way_to_write_it(house):
    for text in ("Memory >= 4000", "other.Memory > 5"):
        answer = submit_text(house, f'[ Executable = "/bin/true"; Requirements = {text}; ]')
        assert answer.code == "syntax"
    assert "Constraint = " in answer.json["error"]["hint"]


def test_what_no_queue_fulfils_is_refused_and_the_clause_is_named(house):
    text = JDL % (quoted('Memory >= 9000 && member("root", Software)'), "")
    answer = submit_text(house, text)
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (422, "impossible")
    assert error["message"] == (
        "The job can never run: no queue of VO lab can run it: Requirements.Constraint (Memory >= 9000) excludes "
        '2 of 2, Requirements.Constraint (member("root", Software)) excludes 1 of 2; suggestion: '
        "Requirements.Constraint (Memory >= 9000) left out (1 of 2 queues)."
    )
    assert (error["data"]["attribute"], error["data"]["line"]) == ("Requirements.Constraint", 1)
    job = house.submitted(
        {"Requirements": {"Constraint": "Memory >= 9000"}, "CPUTime": 500}, hold_if_impossible=True
    )
    assert house.get(f"/v1/jobs/{job}")["held_by"] == "impossible"
    configure(house, MOVED.replace("Memory = 8000", "Memory = 9000"))
    assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"
    assert [one["id"] for one in house.claim(house.pilot("South"))] == [job]


def test_why_names_the_clauses_and_their_values(house):
    job = house.submitted({"Requirements": {"Constraint": "Memory >= 4000 && Slots < 5"}})
    keep(house)
    why = house.get(f"/v1/jobs/{job}/why?queue=North/ce.north/short")
    found = step(why, "requirements")
    assert found["text"] == (
        "1 of 2 queues pass its Requirements (Requirements.Constraint (Memory >= 4000) excludes 1)"
    )
    assert found["ruled_out_by"] == [{"criterion": "Requirements.Constraint (Memory >= 4000)", "queues": 1}]
    assert why["queue"]["ruled_out_by"] == ["Requirements.Constraint (Memory >= 4000)"]
    assert why["queue"]["reasons"] == ["Memory >= 4000 is false (Memory = 2000)"]


def test_the_smallest_change_names_the_clauses_that_fail(house):
    wanted = {"Constraint": "Memory >= 9000 && Slots >= 7 && CPUTime >= 1000"}
    job = house.submitted({"Requirements": wanted}, hold_if_impossible=True)
    why = house.get(f"/v1/jobs/{job}/why")
    (change,) = why["queues"]["nearest"]
    assert change["text"] == (
        "Requirements.Constraint (Memory >= 9000) left out and Requirements.Constraint (Slots >= 7) left out"
    )
    assert change["queues"] == 2
    assert [(one["asked"], one["instead"]) for one in change["steps"]] == [
        ("Memory >= 9000", None), ("Slots >= 7", None),
    ]  # fmt: skip
    assert [(one["value"], one["queues"]) for one in change["steps"][0]["options"]] == [
        ("2000", 1),
        ("8000", 1),
    ]


def test_the_numbers_of_a_gate_keep_no_pilot_away_that_is_there(house):
    """The claim goes by SubmitPools; the broker asks the rest when it places a pilot."""
    taken(house, house.site("North"), ad(CurrentJobs=60))
    job = house.submitted({"Requirements": {"Constraint": "CurMatches < 5 && Memory < 5000"}})
    keep(house)
    why = house.get(f"/v1/jobs/{job}/why")
    assert step(why, "requirements")["text"] == (
        "1 of 2 queues pass its Requirements (Requirements.Constraint (Memory < 5000) excludes 1); "
        "the ad of the queue's site decides: CurMatches < 5"
    )
    assert [one["id"] for one in house.claim(house.pilot("North"))] == [job]


def test_the_broker_finds_what_is_left_by_submit_pool(house):
    """Whatever task queue, and as long as pools and configuration stay, without reading them again."""
    known = KnownWishes()

    def left_by_pool():
        return placement_clauses(house.side.policy, stored_pools(house.side.db))

    assert left_by_pool() == known.look(house.side.db, house.side.policy) == {}
    house.submitted({"Requirements": {"Memory": 1000, "Constraint": "Memory < 5000"}})
    house.submitted({"Requirements": {"Constraint": "(CurMatches < 5 || Memory < 5000) && SiteAd.Load < 3"}})
    (left,) = left_by_pool().values()
    table = house.side.policy.vo_config("lab").table
    assert {one.text: [table.queues[bit].site for bit in bits(one.queues)] for one in left} == {
        "CurMatches < 5 || true": ["North"],
        "CurMatches < 5 || false": ["South"],
        "SiteAd.load < 3": ["North", "South"],
    }
    assert [holds_at(one.left, parse_ad("[CurMatches = 5; Load = 1]"), now=0.0) for one in left] == [
        True,
        False,
        True,
    ]
    wishes = known.look(house.side.db, house.side.policy)
    assert known.look(house.side.db, house.side.policy) is wishes
    configure(house, MOVED.replace("Memory = 2000", "Memory = 6000"))
    (left,) = left_by_pool().values()
    assert known.look(house.side.db, house.side.policy) is not wishes
    assert [one.text for one in left] == ["CurMatches < 5 || false", "SiteAd.load < 3"]


def placed(house, director, *ads):
    """The sites to which an iteration sends pilots while sites say this."""
    found = []
    director.sites = SiteMatcher(ads=lambda _: {one.site: one for one in ads}, wishes=KnownWishes().look)
    director.launch = lambda decision, _: found.extend(
        one.queue_id.site for one in decision.placement.placements
    )
    house.now += 1.0
    director.tick(house.now)
    return set(found)


def says(house, site, text):
    gate = "UpdateSequenceNumber = 1; MaxJobs = 9; CurrentJobs = 0; Requirements = CurMatches < MaxJobs"
    ad = f'[Name = "{site}"; {gate}; {text}]'
    return read_site_ad(ad, site=site, now=house.now)


def test_pilots_are_sent_where_the_ad_of_the_site_makes_it_true(house, backend):
    house.submitted({"Requirements": {"Constraint": "SiteAd.Load < 3 && Memory >= 2000"}, "CPUTime": 500})
    director = house.director(backend)
    assert placed(house, director) == set()
    north, south = says(house, "North", "Load = 2"), says(house, "South", "Load = 3")
    assert placed(house, director, north, south) == {"North"}
    assert placed(house, director, south) == set()
    assert placed(house, director, says(house, "South", "Load = TARGET.Nothing ?: 1")) == {"South"}
    house.submitted({"CPUTime": 500})
    assert placed(house, director) == {"North", "South"}


def test_a_station_named_in_an_expression_is_where_pilots_go(house, backend):
    """SAM-Grid: users select sites by the names of their SAM stations."""
    wanted = {"Constraint": 'member(StationName, {"fnal-farm", "osg-ouhep"})'}
    house.submitted({"Requirements": wanted, "CPUTime": 500})
    director = house.director(backend)
    ads = says(house, "North", 'StationName = "lyon"'), says(house, "South", 'StationName = "FNAL-farm"')
    assert placed(house, director, *ads) == {"South"}


@pytest.mark.parametrize(
    ("body", "is_beside"),
    [
        ({"jobs": [{"Executable": "x", "CPUTime": 5, "requirements": {"Constraint ": "Memory > 1"}}]}, True),
        ({"jobs": [{"Executable": "x", "CPUTime": 5, "Requirements": {"Memory": 1}}]}, False),
        ({"text": '[ Executable = "x"; CPUTime = 5; Requirements = [ CONSTRAINT = "Memory > 1"; ]; ]'}, True),
        ({"text": '{"Executable": "x", "CPUTime": 5, "Requirements": {"\\u0043onstraint": "Memory > 1"}}'}, True),
        ({"texts": ['[ Executable = "x"; CPUTime = 5; Requirements = [ Memory = 1; ]; ]']}, False),
    ],
)  # fmt: skip
def test_expressions_are_judged_beside_the_loop_that_serves_the_others(house, monkeypatch, body, is_beside):
    """One may take a second to be held against thousands of queues."""
    seen, prepare = [], jobs.prepare
    monkeypatch.setattr(
        jobs, "prepare", lambda *a, **k: seen.append(threading.current_thread()) or prepare(*a, **k)
    )
    answer = house.call("POST", "/v1/jobs", body, token="ann")
    assert answer.status == 200, answer.body
    assert [one is not threading.current_thread() for one in seen] == [is_beside]


def test_pilots_that_find_out_where_they_run_and_refreshes_go_by_it(house):
    job = house.submitted({"Requirements": {"Constraint": 'member("root", Software)'}})
    (row,) = pool_rows(house)
    assert (pools_of(house, NORTH), pools_of(house, SOUTH)) == ([row["id"]], [])
    configure(house, MOVED)
    assert (pools_of(house, NORTH), pools_of(house, SOUTH)) == ([], [row["id"]])
    assert house.claim(house.pilot("North")) == []
    assert [one["id"] for one in house.claim(house.pilot("South"))] == [job]


def test_declared_types_that_change_leave_an_expression_as_it_is(house):
    text = MOVED.replace("[job_description]", '[job_description]\nDisk = "number GB"').replace(
        "Memory = 8000", 'Memory = 8000\nDisk = "2 TB"'
    )
    configure(house, text)
    job = house.submitted({"Requirements": {"Constraint": "Disk > 2000"}})
    before = pool_rows(house)
    configure(house, text.replace("number GB", "number MB"))
    after = pool_rows(house)
    assert [one["id"] for one in after] == [one["id"] for one in before]
    assert [one["queues"] for one in after] == [1]
    configure(house, text.replace("number GB", "number TB"))
    assert [one["queues"] for one in pool_rows(house)] == [0]
    told = house.get(f"/v1/jobs/{job}/why")
    assert (told["verdict"], told["queues"]["ruled_out_by"][0]["criterion"]) == (
        "never", "Requirements.Constraint (Disk > 2000)",
    )  # fmt: skip


def test_a_plan_says_what_why_says(house):
    wanted = {"Requirements": {"Constraint": "Memory >= 9000"}}
    plan = plan_of(house, wanted, hold_if_impossible=True)
    (cohort,) = plan["cohorts"]
    job = house.submitted({**wanted, "CPUTime": 500}, hold_if_impossible=True)
    why = house.get(f"/v1/jobs/{job}/why")
    assert cohort["queues"] == why["queues"]
    assert cohort["verdict"] == why["verdict"] == "never"


def test_a_plan_of_resources_says_which_expressions_other_queues_fulfil(house):
    house.submitted({"Requirements": {"Constraint": "Memory >= 3000 || Disk > 5"}, "CPUTime": 500})
    keep(house)
    files = [{"name": "s.toml", "text": MOVED.replace("Memory = 2000", "Memory = 3000")}]
    plan = house.call("POST", "/v1/plan/resources", {"files": files}, token="admin").json
    (row,) = plan["submit_pools"]["changed"]["rows"]
    assert (row["before"], row["after"]) == (1, 2)


def test_members_of_an_array_may_differ_in_it(house):
    text = (
        '[ Executable = "/bin/true"; CPUTime = 500; Parameters.mem = {1000, 5000}; '
        'Requirements = [ Constraint = "Memory >= %(mem)s"; ]; ]'
    )
    first = submit_text(house, text).json["first"]
    assert [one["id"] for one in house.claim(house.pilot("North"), 2)] == [first]
    assert [one["id"] for one in house.claim(house.pilot("South"), 2)] == [first + 1]


def test_classes_and_queues_of_grid_engine_leave_it_alone(house):
    text = "jcname app\nvariant_list default\nCMDNAME /bin/echo\nq_hard {+}short\nl_hard {~}h_cpu=500\n"
    assert house.call("POST", "/v1/job-classes", {"text": text}, token="admin").status == 200
    answer = submit_text(
        house, '[ JobClass = "app"; CPUTime = 500; Requirements = [ Constraint = "Memory < 5000"; ]; ]'
    )
    assert answer.status == 200, answer.json
    (row,) = pool_rows(house)
    assert {name: one["wanted"] for name, one in row["requirements"].items()} == {
        "Constraint": ["Memory < 5000"], "QueueName": ["short"],
    }  # fmt: skip
    assert [one["id"] for one in house.claim(house.pilot("North"))] == [answer.json["first"]]
