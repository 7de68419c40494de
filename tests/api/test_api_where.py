"""Jobs by attributes of their descriptions, in lists and actions: which meet, which are refused by name."""

from urllib.parse import quote

import pytest

pytestmark = pytest.mark.stores

FIRST = {
    "JobName": "fit", "Executable": "/bin/echo", "Arguments": ["-n", "5", "a b"], "Tag": ["SSD"], "CPUTime": 600,
    "Memory": 1000, "Environment": {"MODE": "fast", "A.B": "1"}, "OutputSandbox": ["*.root"], "WallTime": "1h",
    "VacatePriority": -3, "MaxAttempts": 2, "Exclusive": True, "Campaign": "may",
}  # fmt: skip


@pytest.fixture
def varied(house):
    """1: all is said; 2: nothing is; 3 to 6: an array, each for another time, of which one was claimed; 7: [ in a name."""
    house.submitted(FIRST)
    house.submitted({"Executable": "/bin/date"})
    text = """JobName = "scan-%s"; Executable = "/bin/true"; Arguments = "-x %s"; Parameters = {60, 60, 120, 120};
    CPUTime = "%s"; Tag = "SSD"; WallTime = 60; Environment = {"MODE=slow"};"""
    assert house.call("POST", "/v1/jobs", {"text": text}, token="ann").status == 200
    house.submitted({"JobName": "odd[1]", "Priority": 7, "ForceGeneric": True})
    return house


def listed(house, *wheres, path="jobs"):
    query = "&".join(f"where={quote(one)}" for one in wheres)
    found = house.get(f"/v1/{path}?{query}", "ann")[path]
    return [one["id"] if path == "jobs" else one["first"] for one in found]


FOUND = {
    "JobName=fit": [1],
    "jobname=f?t": [1],
    "JobName=Fit": [],
    "JobName=": [2],
    "JobName=odd[1]": [7],
    "JobName=scan-%s": [3, 4, 5, 6],
    "JobName=scan-60": [],
    "Executable=/bin/*": [1, 2, 3, 4, 5, 6, 7],
    "Executable=/bin/echo": [1],
    "Arguments=5": [1],
    "Arguments='a b' -n": [1],
    "Arguments=-x": [3, 4, 5, 6],
    "Arguments=a": [],
    "Environment=MODE=fast": [1],
    "Environment=MODE=*": [1, 3, 4, 5, 6],
    "Environment=A.B=1;MODE=fast": [1],
    "Environment=mode=fast": [],
    "OutputSandbox=*.root": [1],
    "Tag=SSD": [1, 3, 4, 5, 6],
    "Tags=S*": [1, 3, 4, 5, 6],
    "Tag=ssd": [],
    "Tag=": [2, 7],
    "Site=ANY": [1, 2, 3, 4, 5, 6, 7],
    "CPUTime=10min": [1],
    "CPUTime=600": [1],
    "CPUTime=60": [3, 4],
    "CPUTime=120.0": [5, 6],
    "CPUTime=6*": None,
    "MaxRAM=1000 MB": [1],
    "Memory=0": [2, 3, 4, 5, 6, 7],
    "WallTime=3600": [1],
    "WallTime=1min": [3, 4, 5, 6],
    "WallTime=0": [2, 7],
    "MaxOutput=0": [1, 2, 3, 4, 5, 6, 7],
    "VacatePriority=-3": [1],
    "MaxAttempts=2": [1],
    "Exclusive=yes": [1],
    "Exclusive=false": [2, 3, 4, 5, 6, 7],
    "ForceGeneric=true": [7],
    "ForceGeneric=0": [1, 2, 3, 4, 5, 6],
    "UserPriority=7": [7],
    "NumberOfProcessors=1": [1, 2, 3, 4, 5, 6, 7],
    "StdOutput=std.out": [1, 2, 3, 4, 5, 6, 7],
    "JobClass=": [1, 2, 3, 4, 5, 6, 7],
    "JobGroup=": [1, 2, 3, 4, 5, 6, 7],
}


def test_each_attribute_is_compared_as_what_it_is(varied):
    for house_is_older in (False, True):
        if house_is_older:
            varied.claim(varied.pilot(node={"cores": 4}), 1)
        for where, expected in FOUND.items():
            if expected is not None:
                assert (where, listed(varied, where)) == (where, expected)
    assert listed(varied, "Tag=SSD", "CPUTime=60", "WallTime=60") == [3, 4]
    assert listed(varied, "Tag=SSD", path="submissions") == [3, 1]
    assert listed(varied, "CPUTime=60", "Arguments=-x", path="submissions") == [3]
    assert listed(varied, "CPUTime=60", "Arguments=-y", path="submissions") == []


@pytest.mark.parametrize(
    ("where", "words", "hint"),
    [
        ("Memory", "'Memory' is not NAME=VALUE", "CPUTime=1h"),
        ("=5", "is not NAME=VALUE", ""),
        ("Campaign=may", "not found by Campaign", "JobGroup"),
        ("Memmory=5", "not found by Memmory", "Memory?"),
        ("Arg=x", "not found by Arg", "Arguments? All are in docs/how-to/users.md"),
        ("Nope=1", "not found by Nope", "Names of your own: JobGroup and JobName. All are in docs/"),
        ("Parameters=5", "not found by Parameters", "members of an array"),
        ("Requirements=x", "not found by Requirements: it is kept as one expression", ""),
        ("InputSandbox=a", "not found by InputSandbox", ""),
        ("Owner=ann", "there is a filter for it: owner", ""),
        ("Memory=a lot", "Memory is the text 'a lot'", "whole megabytes"),
        ("CPUTime=6*", "CPUTime is", "whole seconds"),
        ("JobName=a*[b]", "brackets have no meaning", ""),
        ("ForceGeneric=perhaps", "neither true nor false", "true or false"),
    ],
)
def test_what_jobs_are_not_found_by_is_refused_by_name(house, where, words, hint):
    for path in ("jobs", "submissions"):
        answer = house.call("GET", f"/v1/{path}?where={quote(where)}", token="ann")
        error = answer.json["error"]
        assert (answer.status, error["data"]["parameter"]) == (400, "where")
        assert words in error["message"]
        assert hint in error.get("hint", "")
    body = {"action": "kill", "selection": {"where": [where]}}
    assert house.call("POST", "/v1/jobs/control", body, token="ann").status == 400


def test_too_many_and_too_long_are_refused(house):
    assert house.call("GET", "/v1/jobs?" + "&".join(["where=Memory=1"] * 21), token="ann").status == 400
    assert house.call("GET", f"/v1/jobs?where=JobName={'x' * 2_000}", token="ann").status == 400
    assert house.call("GET", "/v1/jobs?name=a&name=b", token="ann").status == 400


def test_actions_choose_members_rows_and_single_jobs(varied):
    varied.claim(varied.pilot(node={"cores": 4}), 1)
    body = {"action": "hold", "selection": {"where": ["Tag=SSD", "Environment=MODE=slow", "CPUTime=120"]}}
    assert varied.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 2
    assert varied.get("/v1/jobs/5")["state"] == varied.get("/v1/jobs/6")["state"] == "Held"
    changed = {"ranges": [[6, 6]], "attributes": {"JobName": "last", "Memory": 77}}
    assert varied.call("POST", "/v1/jobs/change", changed, token="ann").status == 200
    assert listed(varied, "Memory=77") == listed(varied, "JobName=last") == [6]
    assert listed(varied, "Memory=77", "JobName=last", path="submissions") == [3]
    body = {"action": "kill", "selection": {"where": ["JobName=last"]}}
    assert varied.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == 1
    assert varied.get("/v1/jobs/6")["state"] == "Killed"


def test_a_search_tells_nothing_that_is_not_shown(varied):
    varied.user("vad", vo_admin=True)
    share = {"submission": 1, "readers": ["bob"]}
    assert varied.call("POST", "/v1/submissions/readers", share, token="ann").status == 200
    for where, seen in (("Environment=MODE=f*", set()), ("Arguments=*5*", {"bob"}), ("JobName=fit", {"bob"})):
        for who in ("bob", "vad"):
            for path in ("jobs?first=1&all=true", "submissions?all=true", "jobs?owner=ann"):
                answer = varied.get(f"/v1/{path}&where={quote(where)}", who)
                found = answer["jobs" if path.startswith("jobs") else "submissions"]
                assert bool(found) is (who in seen), (where, who, path)
    selection = {"owner": "ann", "where": ["Environment=MODE=f*"]}
    body = {"action": "kill", "ranges": [], "selection": selection, "dry_run": True}
    assert varied.call("POST", "/v1/jobs/control", body, token="vad").status == 403
    assert listed(varied, "Environment=MODE=f*") == [1]
