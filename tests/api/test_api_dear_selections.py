"""Selections by many values in long texts: each request spends so much and no more, reads each text once, and says so."""

from urllib.parse import quote

import pytest
from tests.api.test_api_dear_patterns import kill, kill_all, states

from lodesman.languages.jobs.selection import StoredText
from lodesman.server.store.read import job_lists
from lodesman.server.writer import choice

pytestmark = pytest.mark.stores
VARIABLES = ";".join(f"V{number}=1" for number in range(50))
LISTS = ("jobs", "submissions")


def asked(house, path, *wheres, **more):
    query = "&".join(
        f"{name}={quote(one)}" for name, one in [*(("where", one) for one in wheres), *more.items()]
    )
    return house.call("GET", f"/v1/{path}?{query}", token="ann")


@pytest.fixture
def read_texts(monkeypatch):
    """The texts that were read."""
    found, begin = [], StoredText.__init__

    def noted(stored, text):
        found.append(text)
        begin(stored, text)

    monkeypatch.setattr(StoredText, "__init__", noted)
    return found


@pytest.mark.parametrize("where", ["Arguments=z nothere", "StdOutput=nothere", "Environment=A=nothere"])
def test_texts_that_are_compared_with_values_cost_steps(house, monkeypatch, where):
    monkeypatch.setattr(job_lists, "MOST_STEPS", 100_000)
    monkeypatch.setattr(choice, "_MOST_STEPS", 100_000)
    monkeypatch.setattr("lodesman.server.reads.submission_counts.MOST_STEPS", 100_000)
    long = {"Arguments": ["abcdefgh"] * 2_000 + ["z"], "Environment": {"A": "z"}}
    house.submitted(*[{**long, "JobName": f"n{number}"} for number in range(20)])
    for answer in (asked(house, path, where) for path in LISTS):
        error = answer.json["error"]
        assert (answer.status, error["data"]["parameter"]) == (400, "where")
        assert "what these jobs say takes more than 100,000 steps" in error["message"]
        assert "fewer jobs" in error["hint"]
    assert asked(house, "jobs", where, last="3").json["jobs"] == []
    assert len(kill_all(house, "Arguments=z abcdefgh", *[f"JobName=n{n}" for n in ("?", "*")])) > 1
    assert states(house)[:6] == "KKKKKK"


def test_each_text_is_read_once_for_all_values_and_patterns(house, read_texts):
    house.submitted({"Arguments": "a b", "Tag": "SSD"}, {"Arguments": "a b c"})
    wheres = [
        "Arguments=a * ?*",
        "Arguments=b",
        "StdOutput=*",
        "MaxOutput=0",
        "Site=ANY",
        "BannedSite=",
        "Priority=1",
    ]
    assert [one["id"] for one in asked(house, "jobs", *wheres).json["jobs"]] == [1, 2]
    assert len(read_texts) == len(set(read_texts)) == 4
    assert asked(house, "submissions", *wheres).json["submissions"][0]["first"] == 1
    assert len(read_texts) == 8
    assert kill(house, *wheres).json["changed"] == 2
    assert len(read_texts) == 12


def test_patterns_of_stars_alone_cost_steps(house, monkeypatch):
    monkeypatch.setattr(job_lists, "MOST_STEPS", 30_000)
    house.submitted(*[{"Arguments": f"a {number}"} for number in range(9)])
    assert asked(house, "jobs", "Arguments=* *").status == 200
    assert asked(house, "jobs", f"Arguments={'* ' * 99}").status == 200  # one pattern
    assert asked(house, "jobs", f"Arguments={' '.join('*' * n for n in range(1, 40))}").status == 400


@pytest.mark.parametrize(
    "wheres", [["Arguments=a" + " a" * 100], ["Arguments=a" + " a*" * 50, "Environment=" + VARIABLES]]
)
def test_more_than_a_hundred_values_are_refused_by_name(house, wheres):
    house.submitted({"Arguments": "a ab", "Environment": VARIABLES})
    for answer in (*(asked(house, path, *wheres) for path in LISTS), kill(house, *wheres)):
        error = answer.json["error"]
        assert (answer.status, error["data"]["parameter"]) == (400, "where")
        assert "101 values are asked for; one request may have 100" in error["message"]
    fewer = [wheres[0].removesuffix("*").removesuffix(" a"), *wheres[1:]]
    for path in LISTS:
        assert len(asked(house, path, *fewer).json[path]) == 1
    assert kill(house, *fewer).json["changed"] == 1


def test_many_plain_values_are_compared_as_few(house):
    house.submitted(
        {"Tag": "SSD", "Priority": 3, "JobGroup": "g", "CPUTime": 60, "Site": "North", "ForceGeneric": True}
    )
    house.submitted({"Tag": "SSD"})
    few = ["Priority=3", "CPUTime=60"]
    many = [*few, "ForceGeneric=yes", "JobGroup=g", "NumberOfProcessors=1", "JobClass="]
    for wheres in (few, many, ["Tag=SSD", "Site=North", *many]):
        for path in LISTS:
            assert len(asked(house, path, *wheres).json[path]) == 1
        assert asked(house, "jobs", *wheres, "ForceGeneric=no").json["jobs"] == []
    assert kill(house, *many).json["changed"] == 1
    assert states(house) == "KW"


def test_a_star_is_any_group_of_jobs_also_none(house):
    house.submitted({"JobGroup": "g", "JobName": "n"})
    house.submitted({})
    for given in ({"job_group": "*"}, {"name": "*"}):
        for path in LISTS:
            assert len(asked(house, path, **given).json[path]) == 2
    assert [one["id"] for one in asked(house, "jobs", job_group="?*").json["jobs"]] == [1]
    assert asked(house, "jobs", job_class="*").json["jobs"] == []
    assert kill(house, job_group="*").json["changed"] == 2
