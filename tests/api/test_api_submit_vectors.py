"""Every vector of access specifiers in the reference as a user submits it, system defaults, and edits of a class."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.api.test_api_change_vectors import COMPLEXES
from tests.kits.class_vectors import ALLOWED, VECTORS, job_of, resources
from tests.kits.jobclass_kit import class_of
from tests.kits.table import hold_all, parts

from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.jobclass import entries_of
from lodesman.server.live.rules import use_classes
from lodesman.wire.job_classes import JobClassSection

APP = "jcname app\nCMDNAME /bin/echo\nN {-}napper\nl_hard {-}a=1,b=2\nv A=1,{-}B=2\n"


@pytest.fixture
def house(house):
    vocabulary = read_vocabulary({"complexes": COMPLEXES}, faults=[])
    house.core.policy = replace(house.core.policy, vocabulary=vocabulary)
    configure(house)
    return house


def configure(house, **section):
    house.run(use_classes(house.core, house.core.policy.vocabulary, JobClassSection(**section)))


def put(house, text):
    assert house.call("POST", "/v1/job-classes", {"text": text}, token="admin").status == 200


def edits_of(*edits):
    names = ("verb", "attribute", "key", "value")
    return [dict(zip(names, edit.split(" "), strict=False)) for edit in edits]


def submit(house, record, *edits):
    """A submission that is kept though no queue has what it asks for."""
    body = {"jobs": [record], "edits": edits_of(*edits), "hold_if_impossible": True}
    return house.call("POST", "/v1/jobs", body, token="ann")


@pytest.mark.slow
@pytest.mark.parametrize("vectors", parts([*VECTORS, *ALLOWED], 25))
def test_a_vector_of_a_submission(house, vectors):
    hold_all(enumerate(vectors), lambda case: submit_vector(house, f"app{case[0]}", case[1]))


def submit_vector(house, name, vector):
    """A job of a class of that name is submitted as the vector says."""
    attribute, value, outcome = vector.row["attr"], vector.row["class value"], vector.outcome
    variants = "default,large,other,short,long"
    put(house, f"jcname {name}\nvariant_list {variants}\nCMDNAME x\n{attribute} {value}\n")
    variant = "default" if vector.variant == "-" else vector.variant
    wanted = job_of(vector.text, attribute)
    of_class = class_of(variants=variants, **{attribute: value}).values(variant)
    if attribute == "N":
        said = {"JobName": wanted["N"]} if wanted else {}
        edits = ["clearp N"] if not wanted and of_class else []
    else:
        said = {"Consumables": resources(wanted)} if wanted else {}
        gone = entries_of("l_hard", of_class.get("l_hard")).keys() - wanted.get("l_hard", {}).keys()
        edits = [f"clears l_hard {key}" for key in sorted(gone)] if wanted else ["clearp l_hard"]
    before = house.counted()
    answer = submit(house, {"JobClass": f"{name}.{variant}", **said}, *edits)
    if outcome == "ok":
        assert answer.status == 200, answer.json
        return
    error = answer.json["error"]
    violation = error["data"]["violations"][0]
    assert (answer.status, violation["attribute"], violation["origin"]) == (400, attribute, "command line")
    assert "reject" in outcome or outcome in error["message"]
    named = re.search(r"\b([abc]) (changed|added|removed)\b", outcome)
    assert not named or (violation["key"], violation["deed"]) == named.groups()
    assert house.counted() == before


def described(house):
    """What became of the first job, and who wrote what."""
    made = house.get("/v1/jobs/1/description")["resolution"]
    return house.get("/v1/jobs/1"), made["origins"]


def test_each_verb_changes_what_the_class_says(house):
    put(house, "jcname app\nCMDNAME /bin/echo\nN {-}nap\nl_hard {+~}{-}a=1,b=2\nv {+~-}A=1,B=2\n")
    edits = ("clearp N", "clears l_hard a", "mods l_hard b 5", "adds l_hard c 6", "clears v A")
    answer = submit(house, {"JobClass": "app", "Environment": {"C": "3"}}, *edits)
    assert answer.status == 200, answer.json
    job, origins = described(house)
    assert job["name"] != "nap"
    assert {name: origins[name] for name in origins if "." in name} == {
        "Consumables.b": "command line", "Consumables.c": "command line",
        "Environment.B": "class", "Environment.C": "command line",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("clears l_hard b", "l_hard: b may not be removed"),
        ("clearp v", "v: A may not be removed"),
        ("mods l_hard a 7", "l_hard: a may not be changed"),
        ("adds l_hard c 7", "l_hard: c may not be added"),
        ("mods l_hard c 7", "-mods l_hard c: l_hard has no such entry."),
        ("adds N a 1", "-adds N a: N is no list."),
        ("adds nothing a 1", "-adds nothing a: nothing is unknown."),
    ],
)
def test_what_the_class_does_not_allow_is_refused_whatever_the_verb(house, edit, words):
    put(house, APP)
    answer = submit(house, {"JobClass": "app"}, edit)
    assert (answer.status, words in answer.json["error"]["message"]) == (400, True), answer.json
    assert house.get("/v1/jobs")["jobs"] == []


def test_edits_are_made_without_a_class_and_in_a_plan_too(house):
    record = {"Executable": "/bin/true", "JobName": "n", "Consumables": ["a=1", "b=2"]}
    assert submit(house, record, "clearp N", "clears l_hard a", "adds l_hard h_rt 60").status == 200
    _, origins = described(house)
    assert origins.keys() == {"Executable", "Consumables.b", "WallTime"}
    plan = {"jobs": [record], "edits": edits_of("clears l_hard c")}
    answer = house.call("POST", "/v1/plan/job", plan, token="ann")
    assert (answer.status, "has no such entry" in answer.json["error"]["message"]) == (400, True)


def test_a_default_counts_where_neither_the_class_nor_the_user_says_anything(house):
    configure(house, defaults={"N": "usual", "r": "n", "l_hard": "h_rt=60"})
    assert submit(house, {"Executable": "/bin/true", "Consumables": ["a=1"]}).status == 200
    job, origins = described(house)
    assert job["name"] == "usual"
    assert origins == {
        "JobName": "default", "MaxAttempts": "default", "WallTime": "default",
        "Executable": "command line", "Consumables.a": "command line",
    }  # fmt: skip


def test_a_class_and_a_user_replace_defaults_which_are_no_breach_of_a_class(house):
    put(house, "jcname app\nCMDNAME /bin/echo\nN {~}napper\nr UNSPECIFIED\nl_hard a=1\n")
    configure(house, defaults={"N": "usual", "r": "n", "l_hard": "b=1"})
    assert submit(house, {"JobClass": "app"}).status == 200
    job, origins = described(house)
    assert (job["name"], origins["JobName"], origins["MaxAttempts"]) == ("napper", "class", "default")
    assert {name for name in origins if "Consumables" in name} == {"Consumables.a"}
    assert (
        submit(house, {"JobClass": "NONE", "Executable": "x", "JobName": "own"}, "clearp l_hard").status
        == 200
    )
    made = house.get("/v1/jobs/2/description")["resolution"]["origins"]
    assert (made["JobName"], "Consumables.b" in made) == ("command line", False)


def test_an_empty_attribute_says_nothing_and_a_notice_says_how_to_remove_what_the_class_says(house):
    put(house, APP)
    answer = submit(house, {"JobClass": "app", "JobName": "", "Consumables": []})
    assert [one["message"] for one in answer.json["notices"]] == [
        "JobName: it is empty, and the job has what its class says; to remove that: --clearp N.",
        "Consumables: it is empty, and the job has what its class says; to remove that: --clearp l_hard.",
    ]
    assert house.get("/v1/jobs/1")["name"] == "napper"


def test_a_change_takes_the_entries_of_an_attribute_from_their_writer_and_values_are_shown(house):
    text = "jcname open\nCMDNAME /bin/echo\nl_hard {+~-}h_cpu=500,a=1\nv {+-}A=1,B=2\n"
    put(house, text)
    assert submit(house, {"JobClass": "open", "Site": "A"}).status == 200
    found = house.get("/v1/jobs/1/description")
    assert (found["values"]["Consumables.a"], found["values"]["Environment.B"]) == ("1", "2")
    assert (found["values"]["Site"], found["defaults"]["NumberOfProcessors"]) == ("A", "1")
    assert house.get("/v1/jobs/1")["job_class"] == "open.default"
    body = {
        "ranges": [[1, 1]],
        "attributes": {"Consumables": None, "Environment": None},
        "hold_if_impossible": True,
    }
    assert house.call("POST", "/v1/jobs/change", body, token="ann").status == 200
    found = house.get("/v1/jobs/1/description")
    origins = found["resolution"]["origins"]
    assert {name: origins[name] for name in origins if name.startswith(("Cons", "Env"))} == {
        "Consumables": "change by ann", "Environment": "change by ann",
    }  # fmt: skip
    assert not any(name.startswith(("Cons", "Env")) for name in found["values"])
    assert origins["CPUTime"] == "class"
