"""The commands of Grid Engine for job classes, each by what does the same here."""

from __future__ import annotations

import pytest
from tests.kits.jobclass_kit import rows

from lodesman.languages.jobclass import ClearAttribute, EditEntry, merge
from lodesman.languages.jobclass.request import EntryVerb

APP = "jcname app\nvariant_list default,large\nCMDNAME /bin/echo\nN {~}S\nl_hard h_cpu=60\n"
LISTED = {"l_hard": {"a": "1", "b": "2"}, "N": "S"}


def post(house, path, **body):
    return house.call("POST", f"/v1/job-classes{path}", body, token="admin")


def states(house):
    found = house.get("/v1/job-classes")["classes"]
    return {
        f"{one['job_class']}.{one['variant']}": one["state"] for one in found if one["job_class"] == "app"
    }


def objects(house):
    """Add, modify, show, list, delete; the text that is shown can be added again."""
    assert post(house, "", text=APP).status == 200
    assert "already exists" in post(house, "", text=APP).json["error"]["message"]
    assert post(house, "", text=APP.replace("S", "T"), how="change").status == 200
    text = house.get("/v1/job-classes/text?name=app", "admin")["text"]
    assert "{~}T" in text
    assert set(states(house)) == {"app.default", "app.large"}
    assert post(house, "/remove", names=["app"]).status == 200
    assert states(house) == {}
    assert post(house, "", text=text).status == 200


def derive(house):
    assert post(house, "", text=APP).status == 200
    for job, (name, variant) in enumerate((("app", "default"), ("app.large", "large")), 1):
        house.call("POST", "/v1/jobs", {"text": f'JobClass = "{name}";'}, token="ann")
        made = house.get(f"/v1/jobs/{job}/description")["resolution"]
        assert made["job_class"] == f"app.{variant}"


def edit_lists(_house):
    """As the six steps take them; no option of `lode submit` makes them."""
    asked = [
        EditEntry(verb=EntryVerb.ADD, attribute="l_hard", key="c", value="3"),
        EditEntry(verb=EntryVerb.MODIFY, attribute="l_hard", key="b", value="7"),
        EditEntry(verb=EntryVerb.CLEAR, attribute="l_hard", key="a"),
        ClearAttribute(attribute="N"),
    ]
    found = merge(LISTED, asked, lambda _attribute, key: key)
    assert (found.values, found.faults) == ({"l_hard": {"b": "7", "c": "3"}}, ())


def list_states(house):
    assert post(house, "", text=APP).status == 200
    assert post(house, "/switch", names=["app.large"], switch="disable").status == 200
    assert states(house) == {"app.default": "enabled", "app.large": "disabled"}


def filter_quotas(house):
    """There is no filter: a bucket of a class has its name."""
    assert post(house, "", text=APP).status == 200
    text = "{\nname n\nenabled true\nlimit jcs {*} to slots=1\n}\n"
    assert house.call("POST", "/v1/quotas", {"text": text}, token="admin").status == 200
    house.call("POST", "/v1/jobs", {"text": 'JobClass = "app";'}, token="ann")
    assert len(house.claim(house.pilot())) == 1
    (row,) = house.get("/v1/quotas/use")["uses"]
    assert row["of"][0].startswith("app")


DONE_BY = {
    "qconf -ajc/-Ajc": objects,
    "qsub/qalter/... -jc": derive,
    "-adds attr": edit_lists,
    "qstat -fjc": list_states,
    "qquota ...": filter_quotas,
}


@pytest.mark.parametrize("command", [row["command"] for row in rows("commands")])
def test_a_command(house, command):
    house.user("admin", "physics", admin=True)
    DONE_BY[" ".join(command.split()[:2])](house)
