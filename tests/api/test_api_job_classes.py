"""Job classes over HTTP: their texts, who may change them, their states, and what a job would get."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kits.jobclass_kit import class_of
from tests.kits.jobclass_kit import rows as rows_of_reference
from tests.kits.table import hold_all

from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, Complexes, read_complexes
from lodesman.languages.gridengine.vocabulary import UserList, Vocabulary
from lodesman.languages.jobclass import ClassRefusal, ClassSnapshot, classes_of, fresh_template, write_class
from lodesman.languages.jobclass.editing import Author, edit_classes
from lodesman.server.http import job_classes as job_class_calls
from lodesman.server.live.rules import use_classes
from lodesman.server.store.journal import Change
from lodesman.server.writer import job_classes as job_class_commands
from lodesman.server.writer.job_classes import ClassesMoved, load_classes, set_classes
from lodesman.wire.job_classes import JobClassSection

APP = "jcname app\nvariant_list default,large\nN S,[{~}large=L]\nl_hard {+~}h_rt=60\n"
OTHER = "jcname other\nN T\n"


def put(house, text, how="add", token="ann", **more):
    answer = house.call("POST", "/v1/job-classes", {"text": text, "how": how, **more}, token=token)
    assert answer.status == 200, answer.json
    return answer.json


def refused(house, text, how="add", token="ann", **more):
    """Status, and the message of each fault with its line."""
    answer = house.call("POST", "/v1/job-classes", {"text": text, "how": how, **more}, token=token)
    return answer.status, [
        (one["data"].get("line"), one["message"].partition(": ")[2])
        for one in answer.json["error"]["data"]["faults"]
    ]


def ask(house, what, token="ann", **body):
    return house.call("POST", f"/v1/job-classes/{what}", body, token=token)


def switch(house, order, *names, token="ann"):
    return ask(house, "switch", token, names=list(names), switch=order)


def listed(house, token="ann"):
    return {
        f"{one['job_class']}.{one['variant']}": one["state"]
        for one in house.get("/v1/job-classes", token)["classes"]
    }


def text_of(house, name, token="bob"):
    return house.get(f"/v1/job-classes/text?name={name}", token)["text"]


def derive(house, asked, user="bob", groups=()):
    return house.core.job_classes.now.derive(asked, user, groups)


def configure(house, vocabulary=None, **section):
    house.run(use_classes(house.core, vocabulary or Vocabulary(), JobClassSection(**section)))


# --- the template ---------------------------------------------------------------------------------


def test_the_template_is_always_there_and_leaves_everything_open(house):
    assert house.get("/v1/job-classes")["classes"] == [
        {"job_class": "template", "variant": "default", "state": "enabled", "owner": [], "revision": 0,
         "changed_at": None, "changed_by": ""}
    ]  # fmt: skip
    assert text_of(house, "template") == write_class(fresh_template())
    answer = ask(house, "remove", "admin", names=["template"])
    assert (answer.status, answer.code) == (409, "conflict")
    assert answer.json["error"]["message"] == "The job class template cannot be deleted."
    assert switch(house, "disable", "template", token="admin").status == 409
    assert refused(house, "jcname template", token="admin") == (
        409,
        [(1, 'Job class "template" already exists.')],
    )
    assert derive(house, "template").sentence == 'No job class or job class variant "template".'


def test_only_administrators_change_the_template(house):
    text = "jcname template\nN {~}Job\nowner ann\n"
    status, faults = refused(house, text, "change")
    assert (status, faults) == (
        403, [(1, 'denied: "ann" must be manager to change the job class "template".')],
    )  # fmt: skip
    put(house, text, "change", "admin")
    assert refused(house, text, "change")[0] == 403  # its owners no more than others
    assert switch(house, "disable", "template").status == 403
    assert house.get("/v1/job-classes")["classes"][0]["revision"] == 1


def test_a_class_starts_as_a_copy_of_the_template_and_belongs_to_who_made_it(house):
    put(house, "jcname template\nuser_lists %bob\nN {~}Job\nfuture x\n", "change", "admin")
    put(house, "jcname app\n")
    assert "jcname          app\n" in text_of(house, "app")
    assert {
        "owner           ann",
        "user_lists      %bob",
        "N               {~}Job",
        "future          x",
    } <= set(text_of(house, "app").splitlines())
    (row, _) = house.get("/v1/job-classes")["classes"]
    assert (row["owner"], row["revision"], row["changed_at"], row["changed_by"]) == (
        ["ann"], 1, house.now, "ann",
    )  # fmt: skip


def test_a_class_keeps_to_the_template_when_it_is_added_or_changed(house):
    put(house, "jcname template\nN {~}Job\nh n\nl_hard {+}h_rt=60\n", "change", "admin")
    text = "jcname app\nvariant_list default,large\nh y\nl_hard {+-}h_rt=60,[large={~}h_rt=60]\n"
    status, faults = refused(house, text)
    start = "The template does not allow this of app"
    assert (status, faults) == (400, [
        (3, f"{start}: h may not be changed."),
        (4, f"{start}.default: l_hard: h_rt may not have the specifier {{-}}."),
        (4, f"{start}.large: l_hard: h_rt may not have the specifier {{~}}."),
    ])  # fmt: skip
    answer = house.call("POST", "/v1/job-classes", {"text": text}, token="ann").json["error"]["data"][
        "faults"
    ]
    assert [one["data"]["variants"] for one in answer] == [["default", "large"], ["default"], ["large"]]
    put(house, "jcname app\nN {~}Mine\nl_hard {+}h_rt=60,h_vmem=1G\n")
    assert refused(house, "jcname app\nh y\n", "change") == (400, [(2, f"{start}: h may not be changed.")])
    assert refused(house, "jcname app\nh y\n", trial=True, token="admin")[0] == 400  # whoever asks


def test_a_changed_template_puts_classes_that_go_against_it_into_conflict(house):
    put(house, APP)
    put(house, OTHER)
    before = derive(house, "app")
    notices = put(house, "jcname template\n# fixed\nN S\n", "change", "admin")["notices"]
    assert [(one["job_class"], one["attribute"], one["line"], one["message"]) for one in notices] == [
        ("app", "", 1, ("app.large is in conflict with the template: N may not be changed; "
         "N may not have the specifier {~}.")),
        ("other", "", 1, "other.default is in conflict with the template: N may not be changed."),
    ]  # fmt: skip
    assert listed(house) == {
        "app.default": "enabled", "app.large": "conflict", "other.default": "conflict", "template.default": "enabled",
    }  # fmt: skip
    assert derive(house, "app") == before
    assert "in conflict with the template" in derive(house, "app.large").sentence
    assert house.get("/v1/job-classes/text?name=other")["conflicts"] == {"default": ["N may not be changed"]}
    # Enabling does not mend it; a text that keeps to the template does, and so does the template.
    assert switch(house, "enable", "other").status == 200
    assert listed(house)["other.default"] == "conflict"
    put(house, "jcname other\nN S\n", "change")
    assert listed(house)["other.default"] == "enabled"
    assert put(house, "jcname template\nN {+}UNSPECIFIED\n", "change", "admin")["notices"] == []
    assert set(listed(house).values()) == {"enabled"}


# --- adding and changing --------------------------------------------------------------------------


def test_a_text_comes_back_as_it_was_and_later_lines_take_the_place_of_earlier_ones(house):
    assert put(house, APP + "odd thing\n")["names"] == ["app"]
    text = text_of(house, "app")
    put(house, text, "change")
    assert text_of(house, "app") == text
    put(house, "jcname app\nuser_lists %bob\nxuser_lists NONE\n", "change")
    changed = text_of(house, "app")
    assert "N               {+}UNSPECIFIED" in changed  # as in the template
    put(house, "jcname app\nN S\n", "change")
    assert {"owner           ann", "user_lists      %bob"} <= set(text_of(house, "app").splitlines())
    assert house.get("/v1/job-classes")["classes"][0]["revision"] == 4


def test_several_classes_are_added_at_once_all_or_none(house):
    assert put(house, f"# two\n{APP}\n{OTHER}")["names"] == ["app", "other"]
    text = "jcname third\n" + OTHER + "jcname third\n"
    assert refused(house, text) == (400, [
        (2, 'Job class "other" already exists.'), (4, 'The class "third" stands at line 1 already.'),
    ])  # fmt: skip
    assert "third.default" not in listed(house)
    put(
        house,
        "jcname template\nN S\n" + APP.replace("[{~}large=L]", "[large=S]") + "jcname other\nN S\n",
        "change",
        "admin",
    )
    assert set(listed(house).values()) == {"enabled"}  # judged by the template of the same text


def test_all_faults_are_said_at_once_each_with_its_line(house):
    put(house, OTHER)
    text = (
        "jcname a.b\nN {x}S\n\njcname NO_JC\nl_hard a=1, \\\n  a=2\n"
        "jcname other\nN S,[gone=T]\njcname ok\nvariant_list small\n"
    )
    status, faults = refused(house, text, token="bob")
    assert status == 400
    assert [line for line, _ in faults] == [1, 2, 4, 5, 7, 8, 10]
    words = [sentence for _, sentence in faults]
    assert words[0].startswith(
        'Error during parsing of attribute value "a.b" of jcname: Job class name contains'
    )
    assert words[2] == 'Job class name contains "NO_JC", which has a meaning of its own.'
    assert words[4] == 'Job class "other" already exists.'
    assert listed(house).keys() == {"other.default", "template.default"}


@pytest.mark.slow
def test_a_text_without_a_class_and_one_with_too_many(house):
    assert refused(house, "") == (400, [
        (1, "Error during parsing of attribute value of jcname: the name of the job class is missing."),
    ])  # fmt: skip
    text = "".join(f"jcname c{n}\n" for n in range(1_001))
    assert refused(house, text) == (400, [(1_001, "a text has at most 1000 classes.")])
    many = "jcname app\nvariant_list default," + ",".join(f"v{n}" for n in range(1_000))
    assert refused(house, many)[1][0][1].endswith("1001 variants; at most 1000.")
    assert (
        house.call("POST", "/v1/job-classes", {"text": f"jcname a\nN {'x' * (1 << 20)}"}, token="ann").status
        == 413
    )


@pytest.mark.parametrize(
    ("how", "text", "status", "code"),
    [
        ("add", APP, 409, "conflict"),
        ("change", OTHER, 404, "not-found"),
        ("change", "jcname", 400, "invalid-config"),
    ],
)
def test_classes_are_added_once_and_changed_when_they_are_there(house, how, text, status, code):
    put(house, APP)
    answer = house.call("POST", "/v1/job-classes", {"text": text, "how": how}, token="ann")
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["error"]["hint"] == "Nothing was changed."


def test_a_trial_changes_nothing(house):
    assert put(house, APP, trial=True, token="bob") == {"names": ["app"], "notices": []}
    assert "app.default" not in listed(house)
    put(house, APP)
    put(house, APP + OTHER, trial=True)
    assert refused(house, APP, trial=True, token="bob")[0] == 403
    assert house.get("/v1/job-classes")["classes"][0]["revision"] == 1


def test_notices_name_what_is_kept_without_meaning_and_lists_that_there_are_not(house):
    configure(house, Vocabulary(user_lists={"staff": UserList(name="staff", users=frozenset({"bob"}))}))
    text = "jcname app\nodd x\nuser_lists staff,gone,%nobody\nxuser_lists physics,lost\n"
    notices = put(house, text)["notices"]
    assert [(one["job_class"], one["attribute"], one["line"]) for one in notices] == [
        ("app", "odd", 2), ("app", "user_lists", 3), ("app", "xuser_lists", 4),
    ]  # fmt: skip
    assert notices[1]["message"] == "user_lists names gone, and there is no such user list or group."
    assert "lost" in notices[2]["message"]


def test_requests_for_which_every_job_would_be_refused_are_refused_at_their_line(house):
    """Users would read it of a thing that they did not write."""
    wrong = "jcname app\nN {~}a\nl_hard {+~}{~}h_vmm=1G,load_avg=1,[{+~}large=h_rt=soon,h_vmm=1G]\nl_soft gpuu=1,mem_free\n"
    status, faults = refused(house, wrong.replace("\nN", "\nvariant_list default,large\nN"))
    assert status == 400
    assert faults == [
        (4, "l_hard: there is no resource 'h_vmm'. Did you mean h_vmem?"),
        (4, "l_hard: jobs cannot ask for load_avg. Leave it out."),
        (4, "l_hard: h_rt: 'soon' is no value of type TIME. Write seconds, or hours:minutes:seconds."),
        (5, "l_soft: there is no resource 'gpuu'. lode quota resources lists them."),
        (
            5,
            "l_soft: mem_free: '' is no value of type MEMORY. Write a number with K, M, G or T (1024) or k, m, g, t (1000).",
        ),
    ]
    put(house, "jcname app\nl_hard mf=%(m)s,dwg\n")
    # Classes that were there before another table of resources stay as they are.
    configure(house, Vocabulary(complexes=read_complexes("x x INT <= YES NO 0 0", faults=[])))
    assert "app.default" in listed(house)


IMPOSSIBLE = """l_hard h_vmem=-2G | l_hard: no job can use -2G of h_vmem. Give an amount from 0.
l_hard mf=-2G | l_hard: no job can use -2G of mem_free. Give an amount from 0.
l_hard virtual_free=-1 | l_hard: no job can use -1 of virtual_free. Give an amount from 0.
l_hard h_rt=-5 | l_hard: no job can use -5 of h_rt. Give an amount from 0.
l_hard h_cpu=0 | l_hard: no job can use 0 of h_cpu. Give an amount from 1.
l_hard slots=0 | l_hard: no job can use 0 of slots. Give an amount from 1.
l_hard s=-1 | l_hard: no job can use -1 of slots. Give an amount from 1.
l_hard slots=5000 | l_hard: slots=5000: NumberOfProcessors is too large. Give a whole number of cores from 1 to 4096.
l_hard matlab=-1 | l_hard: no job can use -1 of matlab. Give an amount from 0.
l_hard matlab=INFINITY | l_hard: no job can use INFINITY of matlab. Give an amount from 0.
l_soft matlab=-1 | l_soft: no job can use -1 of matlab. Give an amount from 0.
l_hard matlab=2,{~}slots=0 | l_hard: no job can use 0 of slots. Give an amount from 1.
l_hard {+}h_rt=60,[{~+}large={~}h_vmem=-2G] | l_hard: no job can use -2G of h_vmem. Give an amount from 0.
pe_range 0 | pe_range: NumberOfProcessors is too small. Give a whole number of cores from 1 to 4096.
pe_range {~}0-4 | pe_range: NumberOfProcessors is too small. Give a whole number of cores from 1 to 4096.
p 5000 | p: Priority is too large. Give a whole number from 0 (background) to 10.
r maybe | r: MaxAttempts is the text 'maybe', not a number. Give a whole number from 1 to 100, the same for all members."""
POSSIBLE = """l_hard h_vmem=0,h_rt=0,mem_free=INFINITY
l_hard h_rt=INFINITY,matlab=0,slots=1
l_hard h_vmem=%(m)sG,slots=%(n)s
pe_range 1-4
p -1023
r n
t 1-10"""


def test_amounts_that_no_job_can_have_are_refused_by_name_with_what_is_allowed(house):
    more = read_complexes("matlab matlab INT <= YES YES 0 0", faults=[])
    configure(house, Vocabulary(complexes=Complexes((*STOCK_COMPLEXES, *more))))
    start = "jcname app\nvariant_list default,large\n"

    def check(row):
        line, _, words = row.partition(" | ")
        assert refused(house, f"{start}{line}\n", trial=True) == (400, [(3, words)])

    hold_all(IMPOSSIBLE.splitlines(), check)
    hold_all(POSSIBLE.splitlines(), lambda line: put(house, f"{start}{line}\n", trial=True))


def test_two_names_of_one_resource_are_one(house):
    assert refused(house, "jcname app\nl_hard h_vmem=1G,vf=1G,virtual_free=2G\n")[1][0][0] == 2
    put(house, "jcname app\nl_hard vf=1G\n")
    # Without these resources they are two; a class that is there does not vanish when they become one.
    configure(house, Vocabulary(complexes=Complexes(())))
    put(house, "jcname two\nl_hard vf=1G,virtual_free=2G\n")
    configure(house, Vocabulary(complexes=STOCK_COMPLEXES))
    assert {"two.default", "app.default"} <= listed(house).keys()


def test_a_user_has_so_many_classes_and_administrators_more(house):
    house.core.limits = type(house.core.limits)(job_classes=2)
    put(house, "jcname a\nowner bob\njcname b\nowner bob\n")
    answer = house.call("POST", "/v1/job-classes", {"text": "jcname c"}, token="ann")
    assert (answer.status, answer.code, answer.json["error"]["data"]) == (
        413,
        "too-large",
        {"limit": 2, "size": 3},
    )
    assert "c.default" not in listed(house)
    put(house, "jcname a\n", "change")
    put(house, "jcname c\n", token="bob")
    put(house, "jcname d\njcname e\njcname f\n", token="admin")
    ask(house, "remove", names=["a"])
    put(house, "jcname g\n")


# --- who may --------------------------------------------------------------------------------------


def test_owners_and_administrators_change_a_class_and_nobody_else(house):
    put(house, APP)
    denied = 'denied: "bob" must be manager, or one of its owners (ann), to change the job class "app".'
    assert refused(house, APP, "change", "bob") == (403, [(1, denied)])
    for answer in (ask(house, "remove", "bob", names=["app"]), switch(house, "disable", "app", token="bob")):
        assert (answer.status, answer.json["error"]["message"]) == (403, denied)
    put(house, APP + "owner bob\n", "change")
    assert refused(house, APP, "change")[0] == 403  # given away
    put(house, APP, "change", "bob")
    put(house, APP + "owner NONE\n", "change", "admin")
    assert refused(house, APP, "change", "bob") == (
        403, [(1, 'denied: "bob" must be manager to change the job class "app".')],
    )  # fmt: skip
    assert switch(house, "disable", "app", token="admin").status == 200
    assert ask(house, "remove", "admin", names=["app"]).status == 200


def store_owners(house, *owners, variants=50):
    """A class of which there are owners from before there was a bound."""
    names = ("default", *(f"v{number}" for number in range(variants - 1)))
    one = replace(class_of("big", ",".join(names)), owner=owners)
    house.core.job_classes.now = house.core.job_classes.latest = classes_of([one], Vocabulary())
    return [f"big.{name}" for name in names]


def test_rows_and_refusals_name_three_owners_and_say_how_many_more_there_are(house):
    names = store_owners(house, *(f"user{number}" for number in range(20_000)), "z" * 9_999)
    answer = switch(house, "disable", *names, token="bob")
    faults = answer.json["error"]["data"]["faults"]
    who = "must be manager, or one of its owners (user0, user1, user2 and 19998 more),"
    assert {one["message"] for one in faults} == {f'denied: "bob" {who} to change the job class "big".'}
    assert len(faults) == 50
    rows = house.get("/v1/job-classes")["classes"][:-1]
    assert {(*row["owner"], row["more_owners"]) for row in rows} == {("user0", "user1", "user2", 19_998)}
    store_owners(house, "z" * 9_999)
    assert len(house.get("/v1/job-classes")["classes"][0]["owner"][0]) == 255
    assert "more_owners" not in house.get("/v1/job-classes")["classes"][0]


def test_a_class_is_judged_once_for_all_its_variants_that_are_switched(house, monkeypatch):
    names, judged = store_owners(house, "ann"), []
    judge = job_class_commands.refuse_edit
    monkeypatch.setattr(
        job_class_commands,
        "refuse_edit",
        lambda one, *who, **more: judged.append(one.name) or judge(one, *who, **more),
    )
    assert switch(house, "disable", *names, token="bob").status == 403
    assert judged == ["big"]


def test_a_page_of_classes_makes_its_own_rows_and_no_others(house, monkeypatch):
    put(house, "".join(f"jcname c{number}\nvariant_list v,default,a\n" for number in range(5)))
    whole, made = house.get("/v1/job-classes")["classes"], []
    assert [one["variant"] for one in whole[:3]] == ["default", "a", "v"]
    make = job_class_calls.ClassRow
    monkeypatch.setattr(
        job_class_calls, "ClassRow", lambda *row, **more: made.append(row) or make(*row, **more)
    )
    found, after = [], ""
    while not found or after:
        page = house.get(f"/v1/job-classes?limit=4&after={after}")
        found, after = found + page["classes"], page["cursor"]
        assert len(made) == len(found)
        assert page["more"] == bool(after)
    assert found == whole
    for wrong in ("c0", "c0.gone", "gone.default", "."):
        assert house.call("GET", f"/v1/job-classes?after={wrong}", token="ann").status == 400


def test_a_user_owns_what_the_user_adds_whatever_its_text_says(house):
    put(house, "jcname a\nowner NONE\njcname b\nowner bob\njcname c\nowner bob,ann\n")
    put(house, "jcname d\nowner NONE\njcname e\nowner bob\njcname f\n", token="admin")
    owners = {one["job_class"]: one["owner"] for one in house.get("/v1/job-classes")["classes"]}
    assert owners == {
        "a": ["ann"], "b": ["ann", "bob"], "c": ["bob", "ann"], "d": [], "e": ["bob"], "f": ["admin"], "template": [],
    }  # fmt: skip


def test_an_administrator_s_token_without_that_scope_is_a_user_s(house):
    house.user("eva", "physics", admin=True, scopes=("jobs:write", "pilots:read"))
    put(house, APP)
    assert refused(house, APP, "change", "eva")[0] == 403
    assert refused(house, "jcname template\n", "change", "eva")[0] == 403


def test_the_audit_trail_names_every_change(house):
    put(house, APP)
    put(house, APP, "change")
    refused(house, APP)
    put(house, OTHER, trial=True)
    switch(house, "disable", "app.large")
    switch(house, "enable", "app")
    ask(house, "remove", names=["app"])
    entries = house.get("/v1/audit?by=ann", "admin")["entries"]
    assert [(one["action"], one["subject"]) for one in reversed(entries)] == [
        ("class-changed", "app"), ("class-changed", "app"), ("class-disabled", "app.large"),
        ("class-enabled", "app"), ("class-removed", "app"),
    ]  # fmt: skip


# --- states: the table of the reference -----------------------------------------------------------


def enabled(house, job):
    assert derive(house, "app").values == job.values
    assert switch(house, "disable", "app").status == 200
    assert switch(house, "enable", "app").status == 200
    assert ask(house, "remove", names=["app"]).status == 200


def disabled(house, _job):
    assert switch(house, "disable", "app").status == 200
    assert derive(house, "app").sentence == 'Job class variant "app.default" is disabled.'
    put(house, APP, "change")
    assert derive(house, "app").sentence == 'Job class variant "app.default" is disabled.'
    assert switch(house, "enable", "app").status == 200
    assert isinstance(derive(house, "app"), ClassSnapshot)
    switch(house, "disable", "app")
    assert ask(house, "remove", names=["app"]).status == 200


def deleted(house, _job):
    quota = "{\n name some\n enabled true\n limit jcs app.large to slots=1\n}\n"
    assert house.call("POST", "/v1/quotas", {"text": quota}, token="admin").status == 200
    answer = ask(house, "remove", names=["app"])
    assert (answer.status, answer.json["error"]["message"]) == (
        409, 'Job class "app" is still referenced in the quota set some.',
    )  # fmt: skip
    assert house.call("POST", "/v1/quotas/remove", {"names": ["some"]}, token="admin").status == 200
    assert ask(house, "remove", names=["app"]).status == 200
    assert derive(house, "app").sentence == 'No job class or job class variant "app".'
    assert house.call("GET", "/v1/job-classes/text?name=app", token="ann").status == 404
    assert ask(house, "remove", names=["app"]).status == 404


def conflict(house, _job):
    put(house, "jcname template\nN T\n", "change", "admin")
    assert "in conflict" in derive(house, "app").sentence
    put(house, APP.replace("S,[{~}large=L]", "T"), "change")
    assert isinstance(derive(house, "app"), ClassSnapshot)


STATES = {"enabled (empty)": enabled, "disabled (d)": disabled, "deleted": deleted, "conflict": conflict}


@pytest.mark.parametrize("row", rows_of_reference("states"), ids=lambda row: row["state"])
def test_states(house, row):
    put(house, APP)
    job = derive(house, "app")
    kept = job.to_json()
    STATES[row["state"]](house, job)
    assert job.to_json() == kept  # jobs keep what they were made of
    assert (row["derive new"] == "yes") == (row["state"] == "enabled (empty)")


def test_variants_are_switched_one_by_one_and_all_or_none(house):
    put(house, APP + OTHER)
    assert switch(house, "disable", "app.large", "other").json == {
        "names": ["app.large", "other"],
        "notices": [],
    }
    states = {
        "app.default": "enabled",
        "app.large": "disabled",
        "other.default": "disabled",
        "template.default": "enabled",
    }
    assert listed(house) == states
    answer = switch(house, "enable", "app", "app.gone", "nothing")
    assert (answer.status, answer.code) == (404, "not-found")
    assert [one["data"]["job_class"] for one in answer.json["error"]["data"]["faults"]] == [
        "app.gone",
        "nothing",
    ]
    assert listed(house) == states
    assert house.get("/v1/job-classes/text?name=app")["disabled"] == ["large"]
    assert switch(house, "disable", "app.default", "app.large").status == 200
    assert switch(house, "enable", "app.large", "app.default").status == 200
    assert listed(house)["app.large"] == listed(house)["app.default"] == "enabled"
    (row, *_) = house.get("/v1/job-classes")["classes"]
    assert row["revision"] == 1  # what jobs get is the same


def test_classes_are_removed_all_or_none_and_whole(house):
    put(house, APP + OTHER)
    assert ask(house, "remove", names=["app", "gone"]).status == 404
    answer = ask(house, "remove", names=["app.large"])
    assert (answer.status, answer.json["error"]["message"]) == (
        404, 'No job class "app.large": whole classes are removed. A variant goes when its class is changed.',
    )  # fmt: skip
    configure(house, default_jc="app.large")
    answer = ask(house, "remove", names=["app"])
    assert answer.json["error"]["message"].endswith("still referenced in default_jc of the configuration.")
    configure(house)
    assert ask(house, "remove", names=["app", "other", "app"]).json["names"] == ["app", "other"]
    assert listed(house) == {"template.default": "enabled"}


@pytest.mark.parametrize("names", ["app", "!app", "x*,app"])
def test_a_class_that_a_quota_set_names_stays_and_one_that_a_pattern_fits_goes(house, names):
    put(house, "jcname app\njcname apple\n")
    quota = f"{{\n name some\n enabled true\n limit jcs {names} to slots=1\n}}\n"
    assert house.call("POST", "/v1/quotas", {"text": quota}, token="admin").status == 200
    assert ask(house, "remove", names=["app"]).status == 409
    assert house.call(
        "POST", "/v1/quotas", {"text": quota.replace(names, "app*"), "how": "change"}, token="admin"
    ).status == 200  # fmt: skip
    assert ask(house, "remove", names=["app"]).status == 200


# --- what jobs get --------------------------------------------------------------------------------


def test_what_jobs_of_a_variant_get(house):
    put(house, APP)
    answer = house.get("/v1/job-classes/text?name=app&variant=large", "bob")
    assert answer["values"] == {"N": "{~}L", "l_hard": "{+~}h_rt=60"}
    assert house.get("/v1/job-classes/text?name=app")["values"]["N"] == "S"
    assert house.call("GET", "/v1/job-classes/text?name=app&variant=x", token="ann").status == 404
    assert derive(house, "app.large").values == {"N": "L", "l_hard": {"h_rt": "60"}}


@pytest.mark.parametrize(
    ("lists", "user", "groups", "allowed"),
    [
        ("user_lists staff", "joe", (), True),
        ("user_lists staff", "bob", (), False),
        ("user_lists staff", "bob", ("crew",), True),  # the list has this group
        ("user_lists bio", "bob", ("bio",), True),  # a group of the account, and no list of that name
        ("user_lists bio", "ann", ("physics",), False),
        ("user_lists staff", "bob", ("staff",), False),  # the list beats the group of that name
        ("user_lists %bob", "bob", (), True),
        ("xuser_lists bio", "bob", ("bio",), False),
        ("user_lists %bob\nxuser_lists staff", "bob", ("crew",), False),
        ("user_lists NONE", "bob", (), True),
    ],
)
def test_who_may_use_a_class(house, lists, user, groups, allowed):
    staff = UserList(name="staff", users=frozenset({"joe"}), groups=frozenset({"crew"}))
    configure(house, Vocabulary(user_lists={"staff": staff}))
    put(house, f"jcname app\n{lists}\n")
    found = derive(house, "app", user, groups)
    assert isinstance(found, ClassSnapshot) == allowed
    assert allowed or found.sentence.startswith(f'denied: "{user}" may not use the job class "app"')


@pytest.mark.parametrize(
    ("default_jc", "enforce_jc", "asked", "wanted"),
    [
        ("", False, None, None),
        ("", False, "app.large", "app.large"),
        ("app", False, "", "app.default"),
        ("app", False, "NONE", None),
        ("app", True, None, "app.default"),
        ("", True, None, "no-class"),
        ("app", True, "NONE", "no-class"),
        ("gone", False, None, "unknown"),
    ],
)
def test_the_class_of_a_job_that_asks_for_none(house, default_jc, enforce_jc, asked, wanted):
    put(house, APP)
    configure(house, default_jc=default_jc, enforce_jc=enforce_jc)
    found = derive(house, asked)
    assert (found.reason if isinstance(found, ClassRefusal) else found and found.name) == wanted
    answer = house.get("/v1/job-classes")
    assert (answer["default_jc"], answer["enforce_jc"]) == (default_jc, enforce_jc)


# --- what is stored, and what comes at the same time ----------------------------------------------


def test_classes_are_the_same_after_a_start(house):
    put(house, "jcname template\nh {~}n\n", "change", "admin")
    put(house, APP + OTHER)
    switch(house, "disable", "app.large")
    put(house, "jcname template\nN T\nh {~}n\n", "change", "admin")
    now = house.core.job_classes.now
    again = load_classes(house.core.reader, now.vocabulary, JobClassSection())
    assert again.by_name == now.by_name
    assert again.by_name["app"].conflicts == {"default", "large"}
    assert again.by_name["app"].disabled == {"large"}


def test_a_class_that_cannot_be_read_any_more_does_not_stop_the_others(house, caplog):
    put(house, APP + OTHER)
    house._writer.change("UPDATE job_class SET text = ? WHERE name = ?", ("jcname", "app"))
    again = load_classes(house.core.reader, Vocabulary(), JobClassSection())
    assert again.by_name.keys() == {"other", "template"}
    assert "a job class does not hold" in caplog.text


def test_a_change_that_was_judged_by_what_is_no_more_is_judged_again(house):
    core, ann = house.core, Author(name="ann")
    stale = [edit_classes(core.job_classes.now, text, ann, "add") for text in (APP, OTHER)]
    command = [Change(set_classes, core.job_classes, one, ann, most=0) for one in stale]
    house.do(command[0])
    with pytest.raises(ClassesMoved):
        house.do(command[1])
    assert listed(house).keys() == {"app.default", "app.large", "template.default"}
    # All come at once, and each is judged again until it is alone.
    asked = [house.open("POST", "/v1/job-classes", {"text": f"jcname c{n}"}, token="ann") for n in range(3)]
    for task, connection in asked:
        house.run(task)
        assert connection.answer().status == 200
    assert {"c0.default", "c1.default", "c2.default"} <= listed(house).keys()


def test_of_two_that_add_one_class_at_the_same_time_one_is_refused(house):
    asked = [house.open("POST", "/v1/job-classes", {"text": APP}, token=who) for who in ("ann", "bob")]
    for task, _ in asked:
        house.run(task)
    assert sorted(connection.answer().status for _, connection in asked) == [200, 409]


def test_a_default_class_that_is_not_there_is_a_notice(house):
    def notices():
        return [one["message"] for one in house.get("/v1/configuration", token="admin")["notices"]]

    put(house, APP)
    for name in ("app", "NONE", ""):
        house.side.classes = lambda db, name=name: load_classes(
            db, house.side.policy.vocabulary, JobClassSection(default_jc=name)
        )
        assert notices() == []
    section = JobClassSection(default_jc="app.nosuch")
    house.side.classes = lambda db: load_classes(db, house.side.policy.vocabulary, section)
    assert notices() == [
        'default_jc: no job class or job class variant "app.nosuch"; jobs that ask for none are refused'
    ]


def test_what_has_no_meaning_here_is_said_when_a_class_is_added(house):
    text = "jcname a\nN {~}n\nj y\nm {~}be\nR n\nh u\nhold_jid UNSPECIFIED\n"
    for trial in (True, False):
        answer = house.call("POST", "/v1/job-classes", {"text": text, "trial": trial}, token="ann")
        said = {(one["attribute"], one["line"]): one["message"] for one in answer.json["notices"]}
        assert said.keys() == {("j", 3), ("m", 4)}
        assert said["m", 4] == "m has no meaning here; it is kept. No mail is sent: lode status."


def test_a_class_that_is_not_there_is_named_as_it_was_asked_for(house):
    answer = house.call("GET", "/v1/job-classes/text?name=nope", token="ann")
    assert answer.json["error"]["message"] == 'No job class or job class variant "nope".'
