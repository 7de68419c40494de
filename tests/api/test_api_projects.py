"""Projects (JobGroup): what is configured, who may use it, and limits that nobody leaves by what a job does not say."""

from __future__ import annotations

import pytest
from tests.api.conftest import resources
from tests.api.test_api_quotas import put, used

from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.server.store.journal import Change
from lodesman.server.writer.quotas import use_limits

PROJECTS = """
name team
type ACL
entries ann,@open
name guests
type ACL
entries eve
name p1
acl team
xacl guests
name open
acl NONE
xacl guests
"""


def use(house, text=PROJECTS, *, enforce_project=False):
    faults = []
    read = read_vocabulary({"names": text}, faults=faults)
    assert not faults
    known = Vocabulary(user_lists=read.user_lists, projects=read.projects, enforce_project=enforce_project)
    house.core.policy = house.side.policy = house.policy(resources(), vocabulary=known)
    assert house.do(Change(use_limits, house.core.quotas, known)) is True


@pytest.fixture
def site(house):
    house.user("eva", "physics", admin=True)
    house.user("eve", "physics", "open")
    house.user("tom", "physics", "open")
    use(house)
    return house


def refusal(house, job, **more):
    answer = house.submit(job, **more)
    assert answer.status == 400, answer.body
    error = answer.json["error"]
    return error["message"], error["hint"]


@pytest.mark.parametrize(
    ("user", "project", "message", "hint"),
    [
        ("ann", "nosuch", "there is no project 'nosuch'", "Yours: p1, open. Write JobGroup = p1."),
        ("bob", "p1", "bob may not use the project p1, which is for team", "Yours: open. Write JobGroup = open."),
        ("eve", "p1", "the list guests bars eve from the project p1", "There is none for you; ask an administrator."),
    ],
)  # fmt: skip
def test_a_project_that_is_not_there_or_not_for_the_user_is_refused_by_name(
    site, user, project, message, hint
):
    assert refusal(site, {"JobGroup": project}, token=user) == (f"JobGroup: {message}.", hint)
    answer = site.submit({}, {"JobGroup": project}, token=user)  # the second of a batch
    assert message in answer.json["error"]["message"], answer.json
    assert site.submit({"JobGroup": project}, token=user, hold_if_impossible=True).status == 400
    text = f'[ Executable = "/bin/true"; JobGroup = "{project}"; ]'
    data = site.submit(text=text, token=user).json["error"]["data"]
    assert (data["line"], data["column"]) == (1, 29)


def test_members_of_a_list_of_their_group_may_and_a_job_may_name_none(site):
    for user, project in (("ann", "p1"), ("tom", "p1"), ("bob", "open"), ("eve", "")):
        site.submitted({"JobGroup": project} if project else {}, token=user)
    use(site, "slots s INT <= YES YES 1 0\n")
    site.submitted({"JobGroup": "a-campaign-of-mine"})  # no project is configured


def test_each_job_names_a_project_where_that_is_enforced(site):
    use(site, enforce_project=True)
    message = "JobGroup: each job names a project here, and this one names none."
    assert refusal(site, {}) == (message, "Yours: p1, open. Write JobGroup = p1.")
    site.submitted({"JobGroup": "open"})


def test_every_member_of_an_array_names_a_project_of_the_user(site):
    error = site.submit({"JobGroup": "%s", "Parameters": ["open", "p1"]}, token="bob").json["error"]
    assert "bob may not use the project p1" in error["message"]


def test_waiting_jobs_get_projects_that_their_owner_may_use_whoever_changes_them(site):
    number = site.submitted({}, token="tom")

    def change(project, token):
        body = {"ranges": [[number, number]], "attributes": {"JobGroup": project}}
        return site.call("POST", "/v1/jobs/change", body, token=token)

    assert change("p1", "tom").status == 200  # by a group that the job does not count for
    assert "there is no project 'p9'" in change("p9", "eva").json["error"]["message"]
    number = site.submitted({}, token="bob")
    assert "bob may not use the project p1" in change("p1", "eva").json["error"]["message"]
    use(site, enforce_project=True)
    assert "names a project" in change(None, "bob").json["error"]["message"]


def test_a_group_that_is_a_project_is_said_to_be_one(site):
    error = site.submit({}, group="p1").json["error"]
    assert "It is a project, which a job names by JobGroup: --set JobGroup=p1." in error["hint"]


def test_several_cores_without_an_environment_are_under_a_limit_of_any(site):
    put(site, "{\nname pe\nenabled TRUE\nlimit pes * to slots=4\nlimit pes smp,!* to slots=0\n}\n")
    pilots = [site.pilot(cores=4) for _ in range(3)]
    for _ in pilots:
        site.submitted({"NumberOfProcessors": 4})
    assert [len(site.claim(pilot)) for pilot in pilots] == [1, 0, 0]
    site.submitted({})
    assert len(site.claim(site.pilot())) == 1  # one core is in no environment


def test_a_list_is_of_accounts_whatever_group_their_jobs_count_for(site):
    """As in job classes: `@group` in a list means the accounts of the group, and a group is a list, too."""
    put(site, "{\nname l\nenabled TRUE\nlimit users {@team} to slots=1\nlimit users {@bio} to slots=0\n}\n")
    for user in ("tom", "tom", "bob", "bob", "eve"):
        site.submitted({}, token=user)  # of physics and bio
    assert len(site.claim(site.pilot(), 9)) == 2
    assert used(site)["l/1", "tom", "slots"] == ("1", "1", True, 1)
    assert used(site)["l/2", "bob", "slots"] == ("0", "0", True, 2)

    def move(how, user):
        body = {"group": "open", "users": [user], "how": how, "reason": "moved"}
        assert site.call("POST", "/v1/groups/users", body, token="eva").status == 200
        return len(site.claim(site.pilot(), 9))

    assert move("add", "bob") == 1
    assert move("remove", "tom") == 1


def test_a_new_account_is_on_the_lists_of_its_groups_at_once(site):
    put(site, "{\nname l\nenabled TRUE\nlimit users {@team} to slots=0\n}\n")
    body = {"name": "new", "vo": "lab", "groups": ["physics", "open"]}
    assert site.call("POST", "/v1/users", body, token="eva").status == 200
    site.user("new", "physics", "open")
    site.submitted({}, token="new")
    assert site.claim(site.pilot()) == []
