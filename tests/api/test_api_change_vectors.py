"""Every vector of access specifiers in the reference, and all that each allows, on jobs that wait."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.kits.class_vectors import ALLOWED, VECTORS, job_of, resources
from tests.kits.table import hold_all, parts

from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.server.live.rules import use_classes
from lodesman.wire.job_classes import JobClassSection

COMPLEXES = "".join(f"{name} {name} {kind} {relation} YES NO 0 0\n" for name, kind, relation in (
    ("a", "INT", "<="), ("b", "INT", "<="), ("c", "INT", "<="), ("Y", "BOOL", "=="), ("Z", "BOOL", "=="),
))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("vectors", parts([*VECTORS, *ALLOWED], 25))
def test_a_vector_on_a_waiting_job(house, vectors):
    house.user("eva", "physics", admin=True)
    vocabulary = read_vocabulary({"complexes": COMPLEXES}, faults=[])
    house.run(use_classes(house.core, vocabulary, JobClassSection()))
    house.core.policy = replace(house.core.policy, vocabulary=vocabulary)
    hold_all(enumerate(vectors), lambda case: change(house, f"app{case[0]}", case[1]))


def change(house, name, vector):
    """A job of a class of that name is changed as the vector says."""
    attribute, outcome = vector.row["attr"], vector.outcome
    value, variants = vector.row["class value"], "default,large,other,short,long"
    text = f"jcname {name}\nvariant_list {variants}\nCMDNAME x\n{attribute} {value}\n"
    assert house.call("POST", "/v1/job-classes", {"text": text}, token="eva").status == 200
    variant = "default" if vector.variant == "-" else vector.variant
    job = house.submitted(text=f'JobClass = "{name}.{variant}";')
    wanted = job_of(vector.text, attribute)
    values = {"JobName": wanted.get("N")} if attribute == "N" else {"Consumables": resources(wanted) or None}
    body = {"ranges": [[job, job]], "attributes": values}
    answer = house.call("POST", "/v1/jobs/change", body, token="ann")
    if outcome == "ok":
        assert (answer.status, answer.json.get("changed")) == (200, 1), answer.json
        return
    error = answer.json["error"]
    violation = error["data"]["violations"][0]
    assert (answer.status, violation["attribute"]) == (400, attribute)
    assert "reject" in outcome or outcome in error["message"]
    named = re.search(r"\b([abc]) (changed|added|removed)\b", outcome)
    assert not named or (violation["key"], violation["deed"]) == named.groups()
    assert not any(one["event"] == "Changed" for one in house.get(f"/v1/jobs/{job}")["events"])
