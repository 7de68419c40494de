"""POST /v1/plan/resources: held against what happens when the configuration is really changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources import load_resources
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.store.journal import Change
from lodesman.server.store.submit_pools import stored_pools
from lodesman.server.writer.reoffer import Offers, set_offers
from lodesman.server.writer.submit_pools import PoolIds
from lodesman.wire.server import ConfigurationState

HEAD = '[job_description]\nSoftware = "list"\n[group.physics]\nvo = "lab"\nshare = 3000\n[group.bio]\nvo = "lab"\n'
NORTH = '[site.North]\nVO = ["lab"]\n[site.North.ce.cn.queue.short]\nCPUTime = 1000\nMemory = 2000\nSoftware = ["root"]\n'
SOUTH = '[site.South]\nVO = ["lab"]\n[site.South.ce.cs.queue.long]\nCPUTime = 100000\nSlots = 1\n'
EAST = (
    '[site.East]\nVO = ["lab"]\n[site.East.ce.ce.queue.q]\nCPUTime = 5000000\nSoftware = ["fluka", "root"]\n'
)
BASE = HEAD + NORTH + SOUTH


def configure(house, *texts):
    """A changed configuration is loaded: policies, and the refresh that follows."""
    files = [(f"{n}.toml", text) for n, text in enumerate(texts)]
    house.core.policy = house.side.policy = house.policy(load_resources(files))
    keeper = PoolKeeper(house.side.db, house.post, refresh_seconds=900.0, grace_seconds=900.0)
    keeper.tick(house.side.policy, house.now)


def plan(house, *texts, token="admin", status=200, **body):
    files = [{"name": f"new{n}.toml", "text": text} for n, text in enumerate(texts)]
    answer = house.call("POST", "/v1/plan/resources", {"files": files, **body}, token=token)
    assert answer.status == status, answer.body
    return answer.json if status == 200 else answer.json["error"]


def rows(found):
    return {row["id"]: row for row in found["task_queues"]["changed"]["rows"]}


@pytest.fixture
def base(house):
    configure(house, BASE)
    return house


def serving(house):
    """Each SubmitPool with the queues that serve it."""
    found: dict[str, set[str]] = {
        pool: set() for (pool,) in house.side.db.execute("SELECT id FROM submit_pool")
    }
    for pool, *queue in house.side.db.execute("SELECT pool_id, site, ce, queue FROM submit_pool_queue"):
        found[pool].add("/".join(queue))
    return found


def jobs_of(house):
    """State of every job that has not ended, and its task queue."""
    listed = house.get("/v1/jobs?all=true&state=Waiting,Held&limit=1000", "admin")["jobs"]
    return {
        job["id"]: (job["state"], house.get(f"/v1/jobs/{job['id']}", "admin")["task_queue"]) for job in listed
    }


# --- the same as what happens ---------------------------------------------------------------------------

QUEUES = st.fixed_dictionaries(
    {
        "VO": st.sampled_from([["lab"], ["lab"], ["other"], ["lab", "other"]]),
        "CPUTime": st.sampled_from([500, 5_000]),
    },
    optional={
        "Memory": st.sampled_from([1_000, 4_000]),
        "NumberOfProcessors": st.sampled_from([1, 4]),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Tag": st.sampled_from([["SSD"], ["GPU"]]),
        "RequiredTag": st.just(["GPU"]),
        "Software": st.sampled_from([["root"], ["fluka"], ["root", "fluka"]]),
        "Disk": st.sampled_from([10, 20, "large"]),
    },
).map(lambda queue: queue | {"Tag": ["GPU"]} if "RequiredTag" in queue else queue)
# Site and queue of a tree; the order of what is kept may change.
PLACES = ["A/q1", "A/q2", "B/q1", "C/q1", "D/q1"]
TREES = st.lists(
    st.tuples(st.sampled_from(PLACES), QUEUES), min_size=1, max_size=5, unique_by=lambda one: one[0]
)
JOBS = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([400, 4_000, 40_000])},
    optional={
        "Memory": st.sampled_from([1_000, 2_000]),
        "NumberOfProcessors": st.just(4),
        "Platform": st.sampled_from(["el8", "el9"]),
        "Site": st.just("A"),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "OwnerGroup": st.sampled_from(["physics", "bio"]),
        "Requirements": st.fixed_dictionaries(
            {},
            optional={"Software": st.sampled_from(["root", "fluka"]), "Disk": st.sampled_from([15, "large"])},
        ),
        "Parameters": st.integers(2, 3),
    },
)
DISK = st.sampled_from(["", 'Disk = "number"\n', 'Disk = "string"\n'])


def text_of(tree, disk):
    text = f'[job_description]\nSoftware = "list"\n{disk}'
    for place, params in tree:
        site, queue = place.split("/")
        values = "".join(f"{name} = {json.dumps(value)}\n" for name, value in params.items())
        text += f"[site.{site}.ce.c.queue.{queue}]\n{values}"
    return f'{text}[group.physics]\nvo = "lab"\n[group.bio]\nvo = "lab"\n'


def loads(text):
    try:
        load_resources([("sites.toml", text)])
    except InvalidConfig:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=TREES, new=TREES, jobs=st.lists(JOBS, min_size=1, max_size=4), disks=st.tuples(DISK, DISK))
def test_a_plan_predicts_the_change_of_the_configuration(house, old, new, jobs, disks):
    """Held and released jobs, eligible queues of each task queue, and SubmitPools, over random configurations."""
    before, after = text_of(old, disks[0]), text_of(new, disks[1])
    if not (loads(before) and loads(after)):
        return
    if "cleo" not in house.tokens:
        house.user("cleo", "physics", "bio")
    house.call("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[1, 10**6]]}, token="admin")
    configure(house, before)
    for job in jobs:
        house.submit(job, token="cleo", hold_if_impossible=True)
    states, pools = jobs_of(house), serving(house)
    eligible = {job: house.get(f"/v1/jobs/{job}/why", "admin")["queues"]["eligible"] for job in states}
    found = plan(house, after, limit=1_000)
    assert (jobs_of(house), serving(house)) == (states, pools)
    types = load_resources([("after.toml", after)]).types
    renewed = {old: new for old, new, _ in PoolIds().changed(types, stored_pools(house.side.db))}
    configure(house, after)
    now = jobs_of(house)
    listed = rows(found)
    for kind, state in (("impossible", "Held"), ("possible", "Waiting")):
        moved = {job for job in now if now[job][0] == state != states[job][0]}
        queues = {now[job][1] for job in moved}
        assert found["task_queues"][kind] == {"task_queues": len(queues), "jobs": len(moved)}
        assert {number for number, row in listed.items() if row["becomes"] == kind} == queues
    for job, (_, queue) in now.items():
        told = house.get(f"/v1/jobs/{job}/why", "admin")
        row = listed.get(queue)
        expected = (eligible[job], told["queues"]["eligible"])
        assert expected == ((row["before"], row["after"]) if row else (expected[0], expected[0]))
        if row and row["becomes"] == "impossible":
            assert told["summary"].casefold() == f"{row['why']}.".casefold()
    changed = {row["id"]: row for row in found["submit_pools"]["changed"]["rows"]}
    served = serving(house)
    for pool, had in pools.items():
        queues = served[renewed.get(pool, pool)]
        gained, lost, unchanged = len(queues - had), len(had - queues), len(queues)
        row = changed.pop(pool, {"gained": 0, "lost": 0, "before": unchanged, "after": unchanged})
        assert (row["gained"], row["lost"], row["before"], row["after"]) == (
            gained,
            lost,
            len(had),
            len(queues),
        )
        assert row.get("new_id") == (renewed.get(pool) if gained or lost else None)
    assert changed == {}


WITH_PILOT = "Memory = 2000\nNumberOfProcessors = 4\n"


@pytest.mark.parametrize(
    ("job", "queue", "held"),
    [
        ({}, f"CPUTime = 1000\n{WITH_PILOT}Slots = 0\n", False),
        ({}, f'CPUTime = 1000\n{WITH_PILOT}Backend = "gone"\n', False),
        ({}, f"CPUTime = 100\n{WITH_PILOT}Slots = 0\n", True),
        ({}, f'CPUTime = 1000\n{WITH_PILOT}RequiredTag = ["GPU"]\nTag = ["GPU"]\nSlots = 0\n', True),
        ({"Tag": "GPU"}, f'CPUTime = 1000\n{WITH_PILOT}Tag = ["GPU"]\nSlots = 0\n', False),
        (
            {"NumberOfProcessors": 8},
            "CPUTime = 1000\nMemory = 2000\nNumberOfProcessors = 8\nSlots = 0\n",
            True,
        ),
    ],
    ids=["no-slots", "no-backend", "shorter", "only-tagged", "with-a-tag", "more-cores"],
)
@pytest.mark.parametrize("joined", [True, False])
def test_live_pilots_stay_where_none_is_sent_any_more_and_offer_what_their_queue_is_then(
    house, job, queue, held, joined
):
    """A pilot that joined has four cores, whatever its queue says."""
    text = '[site.North]\nVO = ["lab"]\n[site.North.ce."ce.north".queue.short]\n{}'
    set_up(house, text.format(f"CPUTime = 1000\n{WITH_PILOT}"))
    house.pilot() if joined else house.prepare_pilot()
    held = held and (joined or "NumberOfProcessors" not in job)
    number = house.submitted({"CPUTime": 500, **job}, hold_if_impossible=True)
    state = house.get(f"/v1/jobs/{number}")["state"]
    found = plan(house, text.format(queue))["task_queues"]
    foretold = {one["becomes"] for one in found["changed"]["rows"]} - {None}
    set_up(house, text.format(queue))
    then = house.get(f"/v1/jobs/{number}")["state"]
    assert then == ("Held" if held else "Waiting")
    assert foretold == ({"impossible" if held else "possible"} if then != state else set())


def set_up(house, text):
    """The whole way of a configuration: policies that know the live pilots, what these offer, and the refresh."""
    config = load_resources([("s.toml", text)])
    core, side = house.core, house.side
    core.policy = house.policy(config, inhabited=core.inhabited.requests)
    side.policy = house.policy(config, inhabited=lambda queues: side.fresh().pilots.inhabited(queues))
    house.do(Change(set_offers, core.live, core.sessions, Offers(core.policy, ["lab"])))
    house.now += 60.0
    keeper = PoolKeeper(side.db, house.post, refresh_seconds=900.0, grace_seconds=900.0)
    keeper.tick(side.policy, house.now)


# --- what changes ---------------------------------------------------------------------------------------


def test_queues_that_come_go_and_change(base):
    found = plan(base, HEAD + NORTH.replace("2000", "4000").replace('["root"]', '["root", "x"]') + EAST)
    queues = found["queues"]
    assert (queues["before"], queues["after"]) == (2, 2)
    assert queues["added"] == {"count": 1, "more": 0, "rows": [{"site": "East", "ce": "ce", "queue": "q"}]}
    assert queues["removed"]["rows"] == [{"site": "South", "ce": "cs", "queue": "long"}]
    assert queues["changed"]["rows"] == [
        {"site": "North", "ce": "cn", "queue": "short", "vo": "", "parameters": {
            "Memory": {"before": 2000, "after": 4000},
            "Software": {"before": ["root"], "after": ["root", "x"]},
        }}
    ]  # fmt: skip
    assert (found["groups"], found["types"], found["notices"]) == ([], [], [])
    assert found["files"] == ["new0.toml"]


def test_jobs_that_would_be_held_and_released_come_first(base):
    waiting = base.submitted({"Parameters": 3, "CPUTime": 50_000})
    base.submitted({"CPUTime": 5})
    held = base.submit({"CPUTime": 10**6, "Parameters": 2}, hold_if_impossible=True).json["first"]
    found = plan(base, HEAD + NORTH + EAST)["task_queues"]
    assert found["checked"] == 3
    assert (found["impossible"], found["possible"]) == (
        {"task_queues": 0, "jobs": 0}, {"task_queues": 1, "jobs": 2},
    )  # fmt: skip
    first, *others = found["changed"]["rows"]
    assert (first["becomes"], first["held"], first["jobs"], first["before"], first["after"]) == (
        "possible", True, 2, 0, 1,
    )  # fmt: skip
    assert first["why"].startswith("East/ce/q can run it now")
    assert [(row["before"], row["after"], row["gained"], row["lost"]) for row in others] == [
        (1, 1, 1, 1),
        (2, 2, 1, 1),
    ]
    found = plan(base, HEAD + NORTH)["task_queues"]
    assert found["impossible"] == {"task_queues": 1, "jobs": 3}
    (first, *_) = found["changed"]["rows"]
    assert (first["becomes"], first["owner"], first["group"], first["vo"]) == (
        "impossible",
        "ann",
        "physics",
        "lab",
    )
    assert first["why"].startswith("no queue of VO lab can run it: CPUTime excludes 1 of 1")
    assert base.get(f"/v1/jobs/{waiting}")["state"] == "Waiting"
    assert base.get(f"/v1/jobs/{held}")["state"] == "Held"


def test_submit_pools_whose_queues_change(base):
    base.submitted({"Requirements": {"Software": "root"}})
    base.submitted({"Requirements": {"Slots": 1}})
    found = plan(base, HEAD + NORTH + SOUTH + EAST)["submit_pools"]
    assert found["checked"] == 2
    (row,) = found["changed"]["rows"]
    assert (row["vo"], row["before"], row["after"], row["gained"], row["lost"]) == ("lab", 1, 2, 1, 0)
    assert row["id"].startswith("req2:")


def test_the_same_configuration_changes_nothing_in_whatever_order_it_is_written(base):
    base.submitted({"Requirements": {"Software": "root"}})
    base.submitted({"CPUTime": 5_000})
    for texts in ((BASE,), (HEAD + SOUTH + NORTH,), (SOUTH, HEAD, NORTH)):
        found = plan(base, *texts)
        assert [found["queues"][name]["count"] for name in ("added", "removed", "changed")] == [0, 0, 0]
        assert found["task_queues"]["changed"]["count"] == found["submit_pools"]["changed"]["count"] == 0


def test_an_access_list_that_shuts_a_vo_out(base):
    base.submitted({"CPUTime": 5_000})
    found = plan(base, BASE.replace('[site.South]\nVO = ["lab"]', '[site.South]\nVO = ["other"]'))
    assert found["queues"]["changed"]["rows"][0]["parameters"]["VO"] == {
        "before": ["lab"],
        "after": ["other"],
    }
    assert found["task_queues"]["impossible"] == {"task_queues": 1, "jobs": 1}


def test_what_only_one_vo_sees(base):
    found = plan(base, BASE + "[site.South.vo.lab]\nMemory = 9000\n")
    (row,) = found["queues"]["changed"]["rows"]
    assert (row["vo"], row["parameters"]) == ("lab", {"Memory": {"before": None, "after": 9000}})


def test_groups_and_types_that_change(base):
    new = BASE.replace("share = 3000", "share = 100").replace(
        'Software = "list"', 'Software = "list merge"\nDisk = "number GB"'
    )
    found = plan(
        base, new.replace('[group.bio]\nvo = "lab"\n', '[group.chem]\nvo = "lab"\njob_sharing = true\n')
    )
    told = {row["group"]: (row["change"], row["values"]) for row in found["groups"]}
    assert told["physics"] == ("changed", {"share": {"before": 3000, "after": 100}})
    assert told["bio"][0] == "removed"
    assert told["chem"] == (
        "added",
        {"vo": {"before": None, "after": "lab"}, "share": {"before": None, "after": 1000},
         "job_sharing": {"before": None, "after": True}, "background": {"before": None, "after": False}},
    )  # fmt: skip
    assert [(row["parameter"], row["change"], row["after"]) for row in found["types"]] == [
        ("Disk", "added", "number GB >="), ("Software", "changed", "list any merge"),
    ]  # fmt: skip


def test_shares_before_and_after(base):
    base.submitted({"Parameters": 3}, token="ann")
    base.submitted({}, token="bob")
    base.submitted({"CPUTime": 50_000}, token="bob")
    base.submit({"CPUTime": 10**6}, token="ann", hold_if_impossible=True)

    def parts(text):
        return {
            row["group"]: (row["jobs"], *row["share"].values(), *row["part"].values())
            for row in plan(base, text)["parts"]
        }

    assert parts(BASE) == {"physics": (4, 3000, 3000, 0.75, 0.75), "bio": (2, 1000, 1000, 0.25, 0.25)}
    fair = parts(BASE.replace("share = 3000", "share = 1000"))
    assert fair == {"bio": (2, 1000, 1000, 0.25, 0.5), "physics": (4, 3000, 1000, 0.75, 0.5)}
    assert list(fair) == ["bio", "physics"], "who gains most comes first"
    assert parts(HEAD)["bio"] == (2, 1000, 1000, 0.25, 0.0), "where there is no queue nobody starts"
    slow = NORTH.replace("CPUTime = 1000", "CPUTime = 1")
    assert parts(HEAD + slow + EAST.replace("5000000", "3"))["physics"][3:] == (0.75, 0.0)


def test_lists_are_cut_where_the_caller_wants(base):
    base.submitted({}, {"CPUTime": 7}, {"CPUTime": 8})
    many = "".join(f'[site.E{n}.ce.c.queue.q]\nVO = ["lab"]\nCPUTime = 9\n' for n in range(30))
    found = plan(base, BASE + many, limit=2)
    assert (len(found["queues"]["added"]["rows"]), found["queues"]["added"]["count"], found["queues"]["added"]["more"]) == (
        2, 30, 28,
    )  # fmt: skip
    assert len(found["task_queues"]["changed"]["rows"]) == 2
    assert plan(base, BASE + many, limit=0)["task_queues"]["changed"] == {"count": 2, "rows": [], "more": 2}


# --- instead, or in addition ----------------------------------------------------------------------------


@pytest.fixture
def files(base, tmp_path):
    """The server's own files."""
    found = {}
    for name, text in (("head.toml", HEAD), ("north.toml", NORTH), ("south.toml", SOUTH)):
        found[name] = tmp_path / name
        found[name].write_text(text)
    base.side.configuration = lambda: ConfigurationState(resource_files=tuple(map(str, found.values())))
    return found


def test_files_beside_those_of_the_server(base, files):
    found = plan(base, EAST, add=True)
    assert (found["queues"]["before"], found["queues"]["after"]) == (2, 3)
    assert found["files"] == [*map(str, files.values()), "new0.toml"]


def test_the_files_of_the_server_are_as_they_are_on_disk_now(base, files):
    files["south.toml"].write_text(SOUTH.replace("long", "longer"))
    queues = plan(base, EAST, add=True)["queues"]
    assert [row["queue"] for row in queues["added"]["rows"]] == ["longer", "q"]
    files["south.toml"].unlink()
    fault = plan(base, EAST, add=True, status=400)["data"]["faults"][0]
    assert (fault["source"], fault["message"].startswith("it cannot be read")) == (
        str(files["south.toml"]),
        True,
    )


def test_what_two_files_say_differently_is_a_fault(base, files):
    told = plan(base, "[site.South.ce.cs.queue.long]\nSlots = 9\n", add=True, status=400)
    assert told["code"] == "invalid-config"
    (fault,) = told["data"]["faults"]
    assert (fault["source"], fault["line"], fault["section"]) == (
        "new0.toml",
        2,
        "site.South.ce.cs.queue.long",
    )
    assert str(files["south.toml"]) in fault["message"]


def test_every_fault_has_file_line_and_section(base):
    told = plan(
        base, '[site.A.ce.c.queue.q]\nCPUTime = "soon"\nMemory = -1\n', "[group.g]\nshare = -5\n", status=400
    )
    faults = [(one["source"], one["line"], one["section"]) for one in told["data"]["faults"]]
    assert faults == [
        ("new0.toml", 2, "site.A.ce.c.queue.q"), ("new0.toml", 3, "site.A.ce.c.queue.q"), ("new1.toml", 2, "group.g"),
    ]  # fmt: skip
    told = plan(base, "[site.A\n", status=400)
    assert told["data"]["faults"][0]["line"] == 1


def test_cfg_is_read_too(base):
    sections = ("Resources", "Sites", "LCG", "LCG.A.org", "CEs", "ce", "Queues", "q")
    text = "".join(f"{name}\n{{\n" for name in sections) + "maxCPUTime = 100\n" + "}\n" * len(sections)
    body = {"files": [{"name": "dirac.cfg", "text": text}]}
    answer = base.call("POST", "/v1/plan/resources", body, token="admin")
    assert answer.status == 200, answer.body
    assert answer.json["queues"]["added"]["rows"] == [{"site": "LCG.A.org", "ce": "ce", "queue": "q"}]


# --- who, and how much ----------------------------------------------------------------------------------


def test_administrators_only(base):
    body = {"files": [{"name": "a.toml", "text": ""}]}
    assert base.call("POST", "/v1/plan/resources", body).status == 401
    assert base.call("POST", "/v1/plan/resources", body, token="ann").status == 403
    assert base.call("POST", "/v1/plan/resources", body, token="admin").status == 200


@pytest.mark.parametrize(
    "body",
    [{}, {"files": []}, {"files": [{"name": "a.toml"}]}, {"files": [{"name": "", "text": ""}]}, [], b"{",
     {"files": [{"name": "a", "text": ""}], "limit": -1}, {"files": [{"name": "a", "text": ""}], "limit": 10**6}],
)  # fmt: skip
def test_a_body_that_is_none_is_refused(base, body):
    answer = base.call("POST", "/v1/plan/resources", body, token="admin")
    assert (answer.status, answer.code) == (400, "invalid-request")


def test_a_body_beyond_the_limit(base):
    headers = {"content-length": str((16 << 20) + 1)}
    assert base.call("POST", "/v1/plan/resources", b"x", token="admin", headers=headers).status == 413


def test_pilots_are_asked_only_for_jobs_that_may_start(house, backend):
    """As the director does: not for those that wait for other jobs, nor for those that a full limit holds."""
    configure(house, BASE)
    house.side.director = house.director(backend)
    first = house.submitted()
    house.submitted({"After": [first]})
    asked = plan(house, BASE)["director"]["pilots"]["asked"]
    assert asked["before"] == asked["after"] > 0
    house.control("hold", first)
    asked = plan(house, BASE)["director"]["pilots"]["asked"]
    assert (asked["before"], asked["after"]) == (0, 0)
