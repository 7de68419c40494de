"""Job classes as the tables of the reference say: each row is read from its copy and run."""

from __future__ import annotations

import re

import pytest
from tests.kits.class_vectors import NEEDS, lists_of
from tests.kits.class_vectors import job_of as job_of_list
from tests.kits.jobclass_kit import canonical, class_of, read, rows, snapshot_of

from lodesman.languages.jobclass import (
    ClearAttribute,
    check,
    check_template,
    choose_class,
    derive,
    fresh_template,
    judge_class,
    merge,
    new_class,
    read_class,
    refuse_delete,
    refuse_edit,
    refuse_name,
    snapshot_from_json,
)
from lodesman.languages.jobclass.access import Deed
from lodesman.languages.jobclass.model import ClassState
from lodesman.languages.jobclass.rights import ClassUser, split_name


def job_of(attribute, cell):
    """The finished job that a cell of a table means."""
    return {} if cell in ("unset", "empty") else {attribute: cell}


# --- 2.2: what each specifier allows --------------------------------------------------------------


@pytest.mark.parametrize("row", rows("scalars"), ids=lambda row: row["class"])
def test_what_the_specifier_of_a_scalar_allows(row):
    snapshot = snapshot_of(N=row["class"])
    jobs = {"job = V": {"N": "V"}, "job = W": {"N": "W"}, "attribute removed (unset)": {}}
    for column, job in jobs.items():
        if row[column] == "-":
            continue
        violations = check(snapshot, job, canonical)
        assert [one.sentence for one in violations] == {
            "ok": [],
            "reject": ["N may not be changed" if job else "N may not be removed"],
            "reject (may not be set)": ["N may not be set"],
        }[row[column]]


@pytest.mark.parametrize("row", rows("lists"), ids=lambda row: row["need"])
def test_what_the_specifiers_of_a_list_allow(row):
    """With every specifier of the list, and every specifier of its entries (in a variant both can be written)."""
    for vector in lists_of(row):
        snapshot = snapshot_of("large", "default,large", l_hard=vector.row["class value"])
        found = check(snapshot, job_of_list(vector.text), canonical)
        assert (found == ()) == (vector.outcome == "ok"), vector


def test_all_needs_are_in_the_table():
    assert [row["need"] for row in rows("lists")] == list(NEEDS)


# --- 2.3: vectors ---------------------------------------------------------------------------------

VECTORS = [
    (row, variant, job, outcome)
    for row in rows("vectors")
    if row["attr"] != "parse"
    for count in [max(len(row[name].split(" / ")) for name in ("variant", "finished job", "outcome"))]
    for variant, job, outcome in zip(
        *(
            (row[name].split(" / ") * count)[:count] if " / " not in row[name] else row[name].split(" / ")
            for name in ("variant", "finished job", "outcome")
        ),
        strict=True,
    )
]

REFUSED = next(row for row in rows("vectors") if row["attr"] == "parse")["class value"].split("; ")


@pytest.mark.parametrize(("row", "variant", "job", "outcome"), VECTORS)
def test_a_vector(row, variant, job, outcome):
    attribute = row["attr"]
    name = "default" if variant == "-" else variant
    job_class = class_of(variants="default,large,other,short,long", **{attribute: row["class value"]})
    violations = check(job_class.snapshot(name), job_of(attribute, job), canonical)
    if outcome == "ok":
        assert violations == ()
        return
    (violation,) = violations
    assert "reject" in outcome or violation.sentence == f"{attribute} {outcome}"
    named = re.search(r"\b([abc]) (changed|added|removed)\b", outcome)
    if named:
        assert (violation.key, str(violation.deed)) == named.groups()
    if "no +" in outcome:
        assert violation.deed is Deed.ADDED


def test_there_are_34_vectors():
    assert len(VECTORS) + len(REFUSED) == 34
    assert sum(row["attr"] == "parse" for row in rows("vectors")) == 1


@pytest.mark.parametrize("line", REFUSED)
def test_a_value_that_is_refused(line):
    found = read_class(
        f"jcname app\nvariant_list default,short\n{line}", canonical=canonical, source="app.jc"
    )
    (fault,) = found.faults
    assert found.job_class is None
    assert "Error during parsing of attribute value" in fault.message
    assert (fault.data["line"], fault.data["source"], fault.data["attribute"]) == (
        3,
        "app.jc",
        line.split()[0],
    )


# --- 1.1: what a class says about itself ----------------------------------------------------------


def test_the_attributes_of_the_class_itself():
    fresh = fresh_template()
    assert [row["attr"] for row in rows("own")] == [
        "jcname",
        "variant_list",
        "owner",
        "user_lists",
        "xuser_lists",
    ]
    defaults = {row["attr"]: row["default"] for row in rows("own")}
    assert defaults["jcname"].startswith(fresh.name)
    for name in ("owner", "user_lists", "xuser_lists"):
        assert defaults[name] == "NONE"
        assert getattr(fresh, name) == ()
    assert class_of(variants=defaults["variant_list"]).variants == ("default",)
    assert read_class("jcname a\nvariant_list b,c", canonical=canonical).faults


# --- 1.6: states ----------------------------------------------------------------------------------


def in_state(state):
    enabled = class_of(N="S", variants="default,v1")
    if state == "conflict":
        return {"app": judge_class(class_of("template", N="T"), enabled, canonical)}
    states = {"enabled": enabled, "disabled": enabled.switched((), on=False)}
    return {"app": states[state]} if state in states else {}


@pytest.mark.parametrize("row", rows("states"), ids=lambda row: row["state"])
def test_a_state(row):
    state = row["state"].split()[0]
    classes = in_state(state)
    derived = derive(classes, "app", ClassUser("joe"))
    kept = snapshot_of(N="S")
    if row["derive new"] == "yes":
        assert derived.values == {"N": "S"}
    else:
        said = "No job class or job class variant" if state == "deleted" else state
        assert said in derived.sentence
    if classes:
        assert classes["app"].state("default") is ClassState(state)
    # Jobs that were derived have all that they need.
    assert snapshot_from_json(kept.to_json()) == kept
    if "still referenced" in row["jobs already derived"]:
        assert "is still referenced in all.q" in refuse_delete("app", ["all.q"]).sentence


def test_states_are_left_as_the_table_says():
    assert {row["state"].split()[0]: row["leaves by"] for row in rows("states")} == {
        "enabled": "disable, delete",
        "disabled": "enable, delete",
        "deleted": "last job gone",
        "conflict": "object fixed",
    }
    off = in_state("disabled")["app"]
    assert off.switched(["v1"], on=True).state("v1") is ClassState.ENABLED
    assert off.switched(["v1"], on=True).state("default") is ClassState.DISABLED
    conflict = in_state("conflict")["app"]
    fixed = judge_class(class_of("template", N="T"), conflict.revised(class_of(N="T")), canonical)
    assert fixed.state("default") is ClassState.ENABLED
    assert fixed.revision == conflict.revision + 1


# --- rules of 1.3, 1.4 and 1.7 --------------------------------------------------------------------


def rule_v1():
    assert split_name("app") == ("app", "default")
    assert split_name("app.v1") == ("app", "v1")
    classes = {"app": class_of(variants="default,v1", N="S")}
    assert derive(classes, "app", ClassUser("joe")) == derive(classes, "app.default", ClassUser("joe"))
    assert derive(classes, "app.v1", ClassUser("joe")).name == "app.v1"
    assert refuse_name("app.v1").sentence.startswith("Job class name contains")
    assert "Job class name contains '.'" in read_class("jcname a.b", canonical=canonical).faults[0].message
    assert read_class("jcname a\nvariant_list default,b.c", canonical=canonical).faults


def rule_v2():
    job_class = class_of(variants="default,large", l_hard="{+~}{~}Z=true,[{+~}large={~}Y=true]")
    for variant, key in (("default", "Z"), ("large", "Y")):
        value = job_class.value("l_hard", variant)
        assert (value.grants, [(one.key, one.value, one.grants) for one in value.entries]) == (
            "+~",
            [(key, "true", "~")],
        )
    faults = read_class("jcname a\nvariant_list default,v\nN S,[v={~}T]", canonical=canonical).faults
    assert len(faults) == 1


def rule_v3():
    sleeper = class_of(
        variants="default,short,long", CMDARG="60,[short=5],[long=3600]", N="{~}Sleep,[short=Short]"
    )
    assert sleeper.values("default") == {"CMDARG": ("60",), "N": "Sleep"}
    assert sleeper.values("short") == {"CMDARG": ("5",), "N": "Short"}
    assert sleeper.values("long") == {"CMDARG": ("3600",), "N": "Sleep"}
    assert sleeper.value("N", "short").grants == ""
    assert sleeper.value("N", "long").grants == "~"


def rule_v4():
    (fault,) = read_class("jcname a\nvariant_list default,b\nN S,[c=T]", canonical=canonical).faults
    assert "'c' is not in variant_list" in fault.message


def rule_t1():
    template = class_of("template", N="{~}Any", l_hard="{+}a=1")
    made = new_class(template, "x", "joe")
    assert (made.name, made.owner, made.attributes) == ("x", ("joe",), template.attributes)
    assert class_of("x", template=template).attributes == template.attributes
    assert class_of("x", template=template, N="{~}Own").values("default") == {
        "N": "Own",
        "l_hard": {"a": "1"},
    }


T2 = [
    # template, class, sentences
    ("N V", "N V", []),
    ("N V", "N W", ["N may not be changed"]),
    ("N V", "N UNSPECIFIED", ["N may not be removed"]),
    ("N V", "N {~}V", ["N may not have the specifier {~}"]),
    ("N {~}V", "N W", []),
    ("N {~}V", "N {~}W", []),
    ("N {~}V", "N {-~}W", ["N may not have the specifier {-~}"]),
    ("N {~}V", "N UNSPECIFIED", ["N may not be removed"]),
    ("N {-}V", "N UNSPECIFIED", []),
    ("N {-}V", "N {+}UNSPECIFIED", ["N may not have the specifier {+}"]),
    ("N {-~}V", "N {+}UNSPECIFIED", []),
    ("N UNSPECIFIED", "N UNSPECIFIED", []),
    ("N UNSPECIFIED", "N W", ["N may not be set"]),
    ("N UNSPECIFIED", "N {+}UNSPECIFIED", ["N may not have the specifier {+}"]),
    ("N {~}UNSPECIFIED", "N {+}UNSPECIFIED", []),
    ("N {+}UNSPECIFIED", "N {-~}W", []),
    ("N {+}UNSPECIFIED", "N UNSPECIFIED", []),
    ("l_hard a=1", "l_hard a=1", []),
    ("l_hard a=1", "l_hard a=2,b=1", ["l_hard: a may not be changed", "l_hard: b may not be added"]),
    (
        "l_hard a=1",
        "l_hard {+~}a=1",
        ["l_hard may not have the specifier {+}", "l_hard: a may not have the specifier {~}"],
    ),
    ("l_hard {+}a=1", "l_hard {+}a=1,{-~}b=2", []),
    ("l_hard {+}a=1", "l_hard {+~}a=1", ["l_hard: a may not have the specifier {~}"]),
    ("l_hard {+-~}s=1", "l_hard {+-~}slots=2", []),
    ("l_hard UNSPECIFIED", "l_hard {+}UNSPECIFIED", ["l_hard may not have the specifier {+}"]),
    ("l_hard UNSPECIFIED", "l_hard a=1", ["l_hard: a may not be added"]),
    ("j y", "j n", ["j may not be changed"]),
    ("j y", "j yes", []),
]


def rule_t2():
    for forced, own, sentences in T2:
        template, job_class = read(f"jcname template\n{forced}"), read(f"jcname app\n{own}")
        found = check_template(template, job_class, canonical)
        assert [one.sentence for one in found.get("default", ())] == sentences, (forced, own)
    template = class_of("template", N="V", P="{~}p")
    several = class_of(variants="default,v", N="V,[v=W]", P="{-}p")
    found = check_template(template, several, canonical)
    assert {variant: len(violations) for variant, violations in found.items()} == {"default": 1, "v": 2}


def rule_t3():
    job_class = class_of(variants="default,v", N="V,[v=W]")
    before = derive({"app": job_class}, "app.v", ClassUser("joe"))
    after = judge_class(class_of("template", N="V"), job_class, canonical)
    assert after.conflicts == {"v"}
    assert "conflict" in derive({"app": after}, "app.v", ClassUser("joe")).sentence
    assert derive({"app": after}, "app", ClassUser("joe")).values == {"N": "V"}
    assert check(before, {"N": "W"}, canonical) == ()
    assert judge_class(fresh_template(), after, canonical) == job_class


def rule_17():
    assert choose_class("app", "dflt", enforce_jc=True) == "app"
    assert choose_class(None, "dflt", enforce_jc=True) == "dflt"
    for nothing in ("", "none", "NONE"):
        assert choose_class(None, nothing, enforce_jc=False) is None
        assert "enforce_jc" in choose_class(None, nothing, enforce_jc=True).sentence
    assert choose_class("NONE", "dflt", enforce_jc=False) is None
    assert "enforce_jc" in choose_class("NONE", "dflt", enforce_jc=True).sentence


RULES = {
    "V1": rule_v1,
    "V2": rule_v2,
    "V3": rule_v3,
    "V4": rule_v4,
    "T1": rule_t1,
    "T2": rule_t2,
    "T3": rule_t3,
    "1.7": rule_17,
}


@pytest.mark.parametrize("row", rows("rules"), ids=lambda row: row["id"])
def test_a_rule(row):
    RULES[row["id"]]()


# --- words that client programs search for --------------------------------------------------------


def test_sentences_have_the_words_of_the_real_program():
    app = class_of()
    assert "already exists" in refuse_name("app", ["app"]).sentence
    assert "must be manager" in refuse_edit(fresh_template(), "joe", is_manager=False).sentence
    assert refuse_edit(app, "joe", is_manager=False).sentence.startswith("denied")
    wrong = derive({"app": app}, "app.v9", ClassUser("joe"))
    assert wrong.sentence == 'No job class or job class variant "app.v9".'


def test_clearing_an_attribute_needs_the_minus():
    for value, allowed in (("V", False), ("{~}V", False), ("{-}V", True)):
        snapshot = snapshot_of(N=value)
        merged = merge(snapshot.values, [ClearAttribute(attribute="N")], canonical)
        assert (check(snapshot, merged.values, canonical) == ()) == allowed
