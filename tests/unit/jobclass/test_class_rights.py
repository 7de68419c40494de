"""Who may change and use a class, and which names it may have."""

from __future__ import annotations

import pytest
from tests.kits.jobclass_kit import read

from lodesman.languages.jobclass import (
    ClassRefusal,
    ClassSnapshot,
    derive,
    fresh_template,
    refuse_delete,
    refuse_edit,
    refuse_name,
)
from lodesman.languages.jobclass.rights import ClassUser, RefusalReason

MEMBERS = {"staff": {"joe", "ann"}, "guests": {"ann", "sue"}}


def person(user):
    return ClassUser(user, [name for name, users in MEMBERS.items() if user in users])


@pytest.mark.parametrize(
    ("user_lists", "xuser_lists", "user", "allowed"),
    [
        ("NONE", "NONE", "joe", True),
        ("staff", "NONE", "joe", True),
        ("staff", "NONE", "sue", False),
        ("staff,%sue", "NONE", "sue", True),
        ("%sue", "NONE", "joe", False),
        ("NONE", "guests", "joe", True),
        ("NONE", "guests", "ann", False),
        ("NONE", "%joe", "joe", False),
        ("staff", "guests", "ann", False),
        ("%ann", "guests", "ann", False),
        ("%ann", "%ann", "ann", False),
        ("gone", "NONE", "joe", False),
        ("joe", "NONE", "joe", False),
    ],
)
def test_who_may_use_a_class(user_lists, xuser_lists, user, allowed):
    job_class = read(f"jcname app\nuser_lists {user_lists}\nxuser_lists {xuser_lists}")
    found = derive({"app": job_class}, "app", person(user))
    assert isinstance(found, ClassSnapshot) == allowed
    if not allowed:
        assert found.reason is RefusalReason.NOT_ALLOWED
        assert found.sentence.startswith(f'denied: "{user}" may not use the job class "app": ')


def test_a_list_is_no_user_whatever_its_name():
    """Names behind % are users."""
    job_class = read("jcname app\nuser_lists %staff,%sue")
    assert isinstance(derive({"app": job_class}, "app", ClassUser("joe", ["staff", "%sue"])), ClassRefusal)


@pytest.mark.parametrize(
    ("name", "owner", "user", "is_manager", "allowed"),
    [
        ("app", "joe,ann", "ann", False, True),
        ("app", "joe", "ann", False, False),
        ("app", "joe", "ann", True, True),
        ("app", "NONE", "joe", False, False),
        ("app", "NONE", "joe", True, True),
        ("template", "joe", "joe", False, False),
        ("template", "NONE", "joe", True, True),
    ],
)
def test_who_may_change_a_class(name, owner, user, is_manager, allowed):
    job_class = read(f"jcname {name}\nowner {owner}")
    refusal = refuse_edit(job_class, user, is_manager=is_manager)
    assert (refusal is None) == allowed
    if refusal:
        assert refusal.reason is RefusalReason.NOT_OWNER
        assert refusal.sentence.startswith(f'denied: "{user}" must be manager')
        assert ("one of its owners" in refusal.sentence) == (name != "template" and owner != "NONE")


@pytest.mark.parametrize("name", ["app", "App_1", "a-b+c", "3d", "Größe", "default", "x" * 255])
def test_names(name):
    assert refuse_name(name) is None
    assert read(f"jcname {name}").name == name


@pytest.mark.parametrize(
    "name",
    [
        "template",
        "ANY_JC",
        "NO_JC",
        "NONE",
        "none",
        "a.b",
        "a b",
        "a,b",
        "@a",
        "!a",
        "*",
        "-a",
        "a[",
        "a\n",
        "x" * 256,
        "",
    ],
)
def test_names_that_are_refused(name):
    refusal = refuse_name(name)
    assert refusal.reason is RefusalReason.NAME
    assert refusal.sentence.startswith("Job class name ")
    assert len(refusal.sentence) < 200
    assert name in ("", "x" * 256) or "contains" in refusal.sentence


def test_a_name_is_there_once():
    assert refuse_name("app", {"app": 1}).reason is RefusalReason.EXISTS
    assert refuse_name("other", {"app": 1}) is None


def test_what_cannot_be_deleted():
    assert refuse_delete("app", []) is None
    assert refuse_delete("template", []).reason is RefusalReason.TEMPLATE
    refusal = refuse_delete("app", ["queue all.q", "quota set q1"])
    assert refusal == ClassRefusal(
        reason=RefusalReason.REFERENCED,
        sentence='Job class "app" is still referenced in queue all.q, quota set q1.',
    )


@pytest.mark.parametrize(
    "wanted", ["nothing", "app.nothing", "app.", ".default", "app.default.x", "template", "", "x" * 9_999]
)
def test_classes_that_are_not_there(wanted):
    classes = {"app": read("jcname app"), "template": fresh_template()}
    refusal = derive(classes, wanted, person("joe"))
    assert refusal.reason is RefusalReason.UNKNOWN
    assert len(refusal.sentence) < 200


def test_states_by_variant():
    app = read("jcname app\nvariant_list default,v\nN S,[v=T]").switched(["v"], on=False)
    assert derive({"app": app}, "app", person("joe")).values == {"N": "S"}
    refusal = derive({"app": app}, "app.v", person("joe"))
    assert (refusal.reason, refusal.sentence) == (
        RefusalReason.DISABLED,
        'Job class variant "app.v" is disabled.',
    )


def test_a_new_revision_keeps_what_is_disabled():
    app = read("jcname app\nvariant_list default,v,w").switched(["v", "w"], on=False)
    revised = app.revised(read("jcname app\nvariant_list default,v,x"))
    assert (revised.disabled, revised.revision) == ({"v"}, 1)
    assert revised.snapshot("x").revision == 1
