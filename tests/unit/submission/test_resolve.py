"""The six steps: each rule of the reference, each vector of access specifiers in two ways, and laws for all."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.conftest import at_most
from tests.kits.class_vectors import ALLOWED, VECTORS, job_of, resources
from tests.kits.jobclass_kit import class_of, classes, rows, snapshot_of
from tests.kits.table import hold_all
from tests.unit.submission.test_native import COMPLEXES, NATIVE, RECORDS

from lodesman.base.errors import Forbidden, InvalidJob
from lodesman.decide.submission.jsv_texts import texts_of, view_of
from lodesman.decide.submission.native import hold_of, record_of, values_of, with_attributes, with_free_memory
from lodesman.decide.submission.native_table import FREE_MEMORY
from lodesman.decide.submission.native_texts import beside_edits, canonical, key_names
from lodesman.decide.submission.resolution import JsvView, Origin, ResolvedRecord, SubmissionRefusal
from lodesman.decide.submission.resolution import ValueSource as Step
from lodesman.decide.submission.resolve import DraftRecord, SubmissionRules, resolve, violations
from lodesman.decide.submission.waiting import changed_attributes, own_record, refuse_change
from lodesman.languages.jobclass import ClassRefusal, ClearAttribute, EditEntry, derive, merge
from lodesman.languages.jobclass.attributes import entries_of
from lodesman.languages.jobclass.request import EntryVerb, changes_of
from lodesman.languages.jobclass.rights import ClassUser, RefusalReason
from lodesman.languages.jobs import read_job
from lodesman.wire.job_classes import AttributeEdit

RULES = SubmissionRules(complexes=COMPLEXES)
WITH_JSV = replace(RULES, jsv="check.sh")


def known(*job_classes):
    found = {one.name: one for one in job_classes}
    return lambda wanted: derive(found, wanted, ClassUser("joe", ["staff"]))


def nothing(wanted):
    return ClassRefusal(reason=RefusalReason.UNKNOWN, sentence=f"no {wanted}")


def run(record, *job_classes, rules=RULES, jsv=None, **draft):
    """The end of a submission, and what the JSV saw; `jsv` makes an answer of each view."""
    given_record = {"Executable": "x", **record}
    machine = resolve(DraftRecord(record=given_record, **draft), rules, known(*job_classes))
    seen, answer = [], None
    while True:
        try:
            view = machine.send(answer)
        except StopIteration as end:
            return end.value, seen
        seen.append(view)
        answer = jsv(view)


def sets(job_class=None, **changes):
    """A JSV that gives attributes values, and maybe another class to the first class it sees; None unsets."""

    def script(view):
        values = {name: value for name, value in {**view.values, **changes}.items() if value is not None}
        return JsvView(values=values, job_class=view.job_class if job_class is None else job_class)

    return script


def same(view):
    return view


# --- R1 to R17 ------------------------------------------------------------------------------------

FIXED = class_of("app", l_hard="a=1")
ONE, TWO = class_of("app1", N="One", P="{~}p1"), class_of("app2", N="Two", l_hard="{+~}h_rt=60")


def rule_r1():
    record = {"Executable": "x", "JobName": "n"}
    machine = resolve(DraftRecord(record=record), RULES, nothing)
    with pytest.raises(StopIteration) as end:
        next(machine)
    assert end.value.value.record is record
    found, seen = run({"JobName": "n"}, rules=replace(WITH_JSV, defaults={"A": "sge"}), jsv=sets(N="m"))
    assert seen == [JsvView(values={"A": "sge", "CMDNAME": "x", "N": "n"})]
    assert (found.record["JobName"], found.snapshot) == ("m", None)


def rule_r2():
    found, seen = run({"JobClass": "app", "Consumables": "a=2"}, FIXED, rules=WITH_JSV, jsv=same)
    assert [view.values["l_hard"] for view in seen] == [{"a": "2"}]
    assert found.sentence == 'job class "app.default" does not allow: l_hard: a may not be changed'
    assert found.error.data["attribute"] == "Consumables"
    breach = found.breaches[0]
    assert (breach.violation.given, breach.violation.allowed) == ("2", "1")
    assert breach.origin == Origin(step=Step.COMMAND_LINE)


def rule_r3():
    found, _ = run({"JobClass": "app", "Consumables": "a=2"}, FIXED, rules=WITH_JSV, jsv=sets(l_hard="a=1"))
    assert found.record["Consumables"] == ["a=1"]
    assert found.origins["Consumables.a"] == Origin(step=Step.SERVER_JSV, script="check.sh")


def rule_r4():
    found, _ = run({"JobClass": "app"}, FIXED, rules=WITH_JSV, jsv=sets(l_hard={"a": "9"}))
    assert [str(one.origin) for one in found.breaches] == ["server JSV check.sh"]


def rule_r5():
    def script(view):
        return sets("app2", P="lost")(view) if view.job_class == "app1" else view

    found, seen = run({"JobClass": "app1", "PE": "mpi"}, ONE, TWO, rules=WITH_JSV, jsv=script)
    assert [view.job_class for view in seen] == ["app1", "app2"]
    assert [view.values["N"] for view in seen] == ["One", "Two"]
    assert [view.values["pe_name"] for view in seen] == ["mpi", "mpi"]
    assert "P" not in seen[1].values
    assert found.record == {
        "Executable": "x", "JobClass": "app2", "Variant": "default", "PE": "mpi", "JobName": "Two", "WallTime": 60,
    }  # fmt: skip
    assert found.origins["JobClass"] == Origin(step=Step.SERVER_JSV, script="check.sh")
    assert found.jsv_runs == 2


def rule_r6():
    for name in ("app1", "app1.default"):
        found, seen = run({"JobClass": "app1"}, ONE, rules=WITH_JSV, jsv=sets(name, P="kept"))
        assert len(seen) == 1
        assert found.record["JobGroup"] == "kept"


def rule_r7():
    found, seen = run(
        {"JobClass": "app1"}, ONE, TWO, rules=WITH_JSV,
        jsv=lambda view: sets("app2" if view.job_class == "app1" else "app1")(view),
    )  # fmt: skip
    assert len(seen) == 2
    assert found.chain == ("app1.default", "app2.default", "app1.default")
    assert found.sentence == "JSV keeps changing the job class: app1.default -> app2.default -> app1.default"
    many = [class_of(f"c{number}") for number in range(20)]
    following = {f"c{a}": f"c{b}" for a, b in pairwise(range(20))}
    found, seen = run(
        {"JobClass": "c0"}, *many, rules=WITH_JSV, jsv=lambda view: sets(following[view.job_class])(view)
    )
    assert len(seen) == 11
    assert "JSV keeps changing the job class" in found.sentence


def rule_r8():
    off = class_of("off").switched((), on=False)
    shut = replace(class_of("shut"), user_lists=("others",))
    for name, said in (("gone", "No job class"), ("off", "disabled"), ("shut", "may not use")):
        direct, _ = run({"JobClass": name}, ONE, off, shut)
        found, _ = run({"JobClass": "app1"}, ONE, off, shut, rules=WITH_JSV, jsv=sets(name))
        assert found.sentence == direct.sentence
        assert said in found.sentence
        assert isinstance(found.error, Forbidden) is (name == "shut")


def rule_r9():
    def script(view):
        return sets("", P="lost")(view) if view.job_class else view

    found, seen = run({"JobClass": "app1"}, ONE, TWO, rules=replace(WITH_JSV, default_jc="app2"), jsv=script)
    assert [view.job_class for view in seen] == ["app1", ""]
    assert found.snapshot is None
    assert found.record == {"Executable": "x"}
    found, _ = run({"JobClass": "app1"}, ONE, rules=replace(WITH_JSV, enforce_jc=True), jsv=script)
    assert "enforce_jc" in found.sentence


def rule_r10():
    """The changes of the run that sees the class it asks for count, whatever its verdict is called."""
    found, seen = run(
        {"JobClass": "app1"}, class_of("app1"), class_of("app2"), rules=WITH_JSV, jsv=sets("app2", N="X")
    )
    assert len(seen) == 2
    assert (found.record["JobClass"], found.record["JobName"]) == ("app2", "X")


def rule_r11():
    shut = replace(class_of("shut"), xuser_lists=("staff",))
    found, seen = run({"JobClass": "shut"}, shut, rules=WITH_JSV, jsv=same)
    assert seen == []
    assert "xuser_lists" in found.sentence
    found, seen = run({"JobClass": "app1"}, ONE, shut, rules=WITH_JSV, jsv=sets("shut"))
    assert len(seen) == 1
    assert "xuser_lists" in found.sentence


def rule_r12():
    rules = replace(WITH_JSV, defaults={"A": "sge", "l_hard": "a=5"})
    found, seen = run(
        {"JobClass": "app"}, class_of("app", l_hard="a=1", A="UNSPECIFIED"), rules=rules, jsv=same
    )
    assert seen[0].values == {"A": "sge", "CMDNAME": "x", "l_hard": {"a": "1"}}
    # What every job gets is no deed of this one.
    assert found.origins["GridEngine.A"] == Origin(step=Step.DEFAULT)
    found, _ = run({"JobClass": "app"}, class_of("app", A="UNSPECIFIED"), rules=rules, jsv=sets(A="mine"))
    assert isinstance(found, SubmissionRefusal)


def rule_r13():
    edits = [ClearAttribute(attribute="N")]
    found, _ = run({"JobClass": "app"}, class_of(N="{-}S"), edits=edits)
    assert "JobName" not in found.record
    found, _ = run({"JobClass": "app"}, class_of(N="S"), edits=edits)
    assert found.sentence.endswith("N may not be removed")
    assert [one.origin.step for one in found.breaches] == [Step.COMMAND_LINE]


def rule_r14():
    held = snapshot_of(l_hard="h_rt=3600,{~}h_vmem=4G", N="UNSPECIFIED")
    old = {"Executable": "x", "JobClass": "app", "Variant": "default", "WallTime": 3600, "Memory": 4096}
    assert refuse_change(old, old, held, COMPLEXES) is None
    assert refuse_change(old, {**old, "Memory": 5000}, held, COMPLEXES) is None
    found = refuse_change(old, {**old, "WallTime": 7200, "JobName": "n"}, held, COMPLEXES)
    assert found.sentence == (
        'job class "app.default" does not allow: l_hard: h_rt may not be changed; N may not be set'
    )
    assert found.error.message.startswith("Unable to change job: ")
    assert "7200 is from the change" in found.error.hint
    assert changed_attributes(old, {**old, "WallTime": "3600"}, COMPLEXES) == set()
    assert changed_attributes(old, {**old, "WallTime": 1, "JobName": "n"}, COMPLEXES) == {"l_hard", "N"}
    assert refuse_change(old, {**old, "WallTime": 7200}, None, COMPLEXES) is None


def own_of(found, *said, **usual):
    """What is its own of a job of a class, as it is kept."""
    origins = {path: str(one) for path, one in found.origins.items()}
    return own_record(found.record, origins, said, usual)


def rule_r15():
    old = {"Executable": "x", "JobClass": "app", "Variant": "default"}
    for other in ({**old, "JobClass": "b"}, {**old, "Variant": "v"}, {"Executable": "x"}):
        assert "jc" in changed_attributes(old, other, COMPLEXES)
    found, _ = run(
        {"JobClass": "app", "WallTime": 60, "Environment": {"A": "b"}, "NumberOfProcessors": 1},
        class_of(N="Old", P="p", l_hard="{+}h_cpu=5,{~}h_rt=7,matlab=1", v="{+}B=c,C=d"),
    )
    kept = {"Executable": "x", "WallTime": 60, "Environment": {"A": "b"}, "NumberOfProcessors": 1}
    assert own_of(found) == kept
    # What is usual is not in the record of a job; who said it keeps it, and so does a change of what the class gave.
    without = {name: one for name, one in found.record.items() if name != "NumberOfProcessors"}
    assert own_of(replace(found, record=without), NumberOfProcessors=1, CPUTime=9) == kept
    assert own_of(found, "CPUTime") == {**kept, "CPUTime": 5}
    other = class_of("b", N="New", l_hard="{+~}h_rt=1", v="{+}X=y", P="{+}UNSPECIFIED")
    again, _ = run({**own_of(found), "JobClass": "b"}, other)
    assert again.record == {
        **kept, "JobClass": "b", "Variant": "default", "JobName": "New", "Environment": {"A": "b", "X": "y"}
    }  # fmt: skip


def rule_r16():
    found, _ = run({"JobClass": "app"}, class_of(N="Old", P="p"))
    # The class has other values by now; the job is judged by its own.
    assert refuse_change(found.record, {**found.record, "JobGroup": "q"}, found.snapshot, COMPLEXES)
    assert refuse_change(found.record, {**found.record, "Memory": 5}, found.snapshot, COMPLEXES) is None
    assert (found.record["JobName"], found.snapshot.values) == ("Old", {"N": "Old", "P": "p"})


def rule_r17():
    """The caller takes a number for each submission that a JSV has seen."""
    assert run({"JobClass": "gone"}, rules=WITH_JSV, jsv=same)[0].jsv_runs == 0
    for found, _ in (
        run({"JobClass": "app"}, FIXED, rules=WITH_JSV, jsv=lambda view: replace(view, rejected="no")),
        run({"JobClass": "app"}, FIXED, rules=WITH_JSV, jsv=sets(l_hard="a=2")),
    ):
        assert (type(found), found.jsv_runs) == (SubmissionRefusal, 1)


STEPS = {name[5:].upper(): test for name, test in globals().items() if name.startswith("rule_r")}


@pytest.mark.parametrize("row", rows("resolution"), ids=lambda row: row["id"])
def test_a_rule(row):
    STEPS[row["id"]]()


def test_all_rules_are_in_the_table():
    assert [row["id"] for row in rows("resolution")] == [f"R{number}" for number in range(1, 18)]


# --- 2.2 and 2.3: vectors, through submission and through a JSV -------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["submission", "server JSV"])
def test_a_vector(way):
    hold_all([*VECTORS, *ALLOWED], lambda vector: check_vector(way, *vector))


def check_vector(way, row, variant, text, outcome):
    name = "default" if variant == "-" else variant
    job_class = class_of(variants="default,large,other,short,long", **{row["attr"]: row["class value"]})
    job = job_of(text, row["attr"])
    record = {"JobClass": "app", "Variant": name}
    if way == "server JSV":
        # A script that always makes the same job: CMDNAME is what the record says.
        found, _ = run(record, job_class, rules=WITH_JSV, jsv=sets(**{"N": None, "l_hard": None, **job}))
    else:
        of_class = job_class.values(name)
        gone = entries_of("l_hard", of_class.get("l_hard")).keys() - job.get("l_hard", {}).keys()
        edits = [EditEntry(verb=EntryVerb.CLEAR, attribute="l_hard", key=key) for key in sorted(gone)]
        if row["attr"] == "N":
            record |= {"JobName": job["N"]} if job else {}
            edits = [ClearAttribute(attribute="N")] if not job and of_class else []
        elif job:
            record["Consumables"] = resources(job)
        found, _ = run(record, job_class, edits=edits)
    if outcome == "ok":
        assert isinstance(found, ResolvedRecord), found
        wanted, _ = canonical(job, COMPLEXES)
        said, _ = values_of(found.record, COMPLEXES)
        assert said == {"CMDNAME": "x", **wanted}
        return
    breach = found.breaches[0]
    assert "reject" in outcome or outcome in found.sentence
    named = re.search(r"\b([abc]) (changed|added|removed)\b", outcome)
    assert not named or (breach.violation.key, str(breach.violation.deed)) == named.groups()
    assert str(breach.origin) == ("server JSV check.sh" if way == "server JSV" else "command line")


def test_no_vector_is_forgotten():
    assert len(VECTORS) == 27


@given(st.data())
def test_what_a_client_sends_beside_its_edits_is_what_its_script_made(data):
    """Without a class the server comes to the same job."""
    some = st.dictionaries(st.sampled_from(["a", "b", "h_rt"]), st.sampled_from(["1", "2"]), max_size=3)
    jobs = st.fixed_dictionaries({}, optional={"l_hard": some, "v": some, "N": st.sampled_from(["x", "y"])})
    said, after = (canonical(data.draw(jobs), COMPLEXES)[0] for _ in "12")
    one = st.builds(
        AttributeEdit, st.sampled_from(["adds", "mods", "clears"]), st.sampled_from(["l_hard", "v"]),
        st.sampled_from(["a", "b", "h_rt"]), st.sampled_from(["1", "2"]),
    )  # fmt: skip
    edits = data.draw(st.lists(one | st.sampled_from([AttributeEdit("clearp", name) for name in ("N", "v")])))
    keys = key_names(COMPLEXES)
    seen = merge(said, changes_of(edits), keys)
    assume(not seen.faults)
    values, left = beside_edits(said, edits, seen.values, after, keys)
    assert merge(values, changes_of(left), keys).values == after


# --- what clients say beside the description ---------------------------------------------------------


@pytest.mark.parametrize(
    ("of_class", "name"),
    [("Fix", "Fix"), ("{~}Sleeper", "Sleeper"), ("UNSPECIFIED", "sleep"), ("{+}UNSPECIFIED", "sleep")],
)
def test_the_name_of_a_program_counts_where_nobody_gives_one(of_class, name):
    found, _ = run({"JobName": "sleep", "JobClass": "app"}, class_of(N=of_class), usual_name=True)
    assert isinstance(found, ResolvedRecord), found
    assert found.record["JobName"] == name
    rules = replace(RULES, default_jc="app")
    assert (
        run({"JobName": "sleep"}, class_of(N=of_class), rules=rules, usual_name=True)[0].record["JobName"]
        == name
    )


def test_the_name_of_a_program_is_a_name_for_the_script():
    found, (seen,) = run({"JobName": "sleep"}, rules=WITH_JSV, jsv=same, usual_name=True)
    assert (seen.values["N"], found.record["JobName"]) == ("sleep", "sleep")
    found, _ = run({"JobName": "sleep"}, rules=replace(RULES, defaults={"N": "usual"}), usual_name=True)
    assert found.record["JobName"] == "usual"
    found, _ = run({"JobName": "sleep"}, edits=[ClearAttribute(attribute="N")], usual_name=True)
    assert "JobName" not in found.record


@pytest.mark.parametrize(
    ("of_class", "fine"), [("n", False), ("UNSPECIFIED", False), ("{~}n", True), ("u", True)]
)
def test_a_hold_is_an_attribute_for_class_and_script(of_class, fine):
    found, _ = run({"JobClass": "app"}, class_of(h=of_class), hold=True)
    assert isinstance(found, ResolvedRecord) is fine, found
    if not fine:
        assert "Held (h): u is from the command line" in found.error.hint


def test_a_script_sees_a_hold_and_can_take_it_away():
    found, (seen,) = run({}, rules=WITH_JSV, jsv=same, hold=True)
    assert (seen.values["h"], hold_of(found.record)) == ("u", "u")
    assert hold_of(run({}, rules=WITH_JSV, jsv=sets(h=None), hold=True)[0].record) == ""


@pytest.mark.parametrize("text", ["1-1", "8-8", "4"])
def test_a_range_of_one_number_is_a_number(text):
    found, _ = run({}, rules=WITH_JSV, jsv=sets(pe_range=text))
    assert (found.record["NumberOfProcessors"], found.notices) == (int(text[0]), ())


# --- names of the class -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "variant"),
    [
        ({"JobClass": "app"}, "default"),
        ({"JobClass": "app.large"}, "large"),
        ({"jobclass": "app", "variant": "large"}, "large"),
        ({"JobClass": "app.large", "Variant": "large"}, "large"),
    ],
)
def test_the_class_of_a_record(asked, variant):
    found, _ = run(asked, class_of(variants="default,large", N="S,[large=L]"))
    assert found.snapshot.name == f"app.{variant}"
    named = {name: found.record[name] for name in found.record if name.lower() in ("jobclass", "variant")}
    assert named == {"JobClass": "app", "Variant": variant}
    assert read_job(found.record).spec.variant == variant


@pytest.mark.parametrize("asked", [{"Variant": "large"}, {"JobClass": "app.large", "Variant": "small"}])
def test_a_variant_needs_its_class(asked):
    found, _ = run(asked, class_of(variants="default,large,small"))
    assert found.attribute == "Variant"
    assert found.error.data["attribute"] == "Variant"


def test_the_class_of_those_who_ask_for_none():
    rules = replace(RULES, default_jc="app1")
    found, _ = run({}, ONE, rules=rules)
    assert found.record["JobName"] == "One"
    assert found.origins["JobClass"] == Origin(step=Step.DEFAULT)
    found, _ = run({"JobClass": "NONE", "JobName": "n"}, ONE, rules=rules)
    assert found.record == {"Executable": "x", "JobName": "n"}
    found, _ = run({}, ONE, rules=replace(RULES, enforce_jc=True))
    assert "enforce_jc" in found.error.message
    assert "--class" in found.error.message
    nowhere = replace(RULES, default_jc="gone")
    assert "default_jc of the server" in run({}, ONE, rules=nowhere)[0].error.message
    assert "default_jc" not in run({"JobClass": "gone"}, ONE, rules=nowhere)[0].error.message


def test_a_class_by_a_placeholder_is_no_way_around():
    """Members could have classes that nobody checked."""
    found, _ = run({"JobClass": "%(c)s", "Parameters.c": ["app1", "app2"]}, ONE, TWO)
    assert "No job class" in found.sentence


# --- values by what they mean -----------------------------------------------------------------------

LARGE = class_of(
    l_hard="h_rt=1:0:0,vf=1G,s=4,{~}matlab=1",
    o="host:out",
    p="-5",
    j="no",
    t="1-10",
    CMDARG="{~}60",
    q_hard="a.q",
)


def test_a_job_keeps_to_its_class_in_other_words():
    found, _ = run(
        {
            "JobClass": "app", "WallTime": 3600, "Memory": 4096, "NumberOfProcessors": 4, "Consumables": "ml=3",
            "StdOutput": "out", "Priority": 0, "Parameters": 10, "Requirements": {"QueueName": "a.q"}, "Arguments": "5",
        },
        LARGE,
    )  # fmt: skip
    assert isinstance(found, ResolvedRecord), found
    assert found.record["Consumables"] == ["virtual_free=1G", "matlab=3"]
    assert (found.record["Memory"], found.record["Arguments"]) == (4096, "5")


@pytest.mark.parametrize("cores", [{}, {"NumberOfProcessors": 4}, {"NumberOfProcessors": 8}], ids=str)
def test_memory_is_for_all_cores_also_if_the_class_gives_them(cores):
    found, _ = run(
        {"JobClass": "app", "Memory": 4096, **cores}, class_of(l_hard="{~}h_vmem=9G", pe_range="{~}4")
    )
    assert isinstance(found, ResolvedRecord), found
    assert found.record["Memory"] == 4096
    assert found.record["NumberOfProcessors"] == cores.get("NumberOfProcessors", 4)


def test_memory_of_a_class_is_for_each_core_that_a_job_asks_for():
    found, _ = run(
        {"JobClass": "app", "NumberOfProcessors": 4}, class_of(l_hard="h_vmem=1G", pe_range="{~}1")
    )
    assert found.record["Memory"] == 4096
    found, _ = run({"JobClass": "app"}, class_of(l_hard="h_vmem=1G"), rules=WITH_JSV, jsv=sets(pe_range="2"))
    assert found.record["Memory"] == 2048


def test_every_breach_is_named_with_who_wrote_it():
    found, _ = run(
        {"JobClass": "app", "WallTime": 60, "NumberOfProcessors": 8, "StdOutput": "mine", "Parameters": 5},
        LARGE, rules=WITH_JSV, jsv=sets(p="0"), client_jsv={"t": "own.sh"},
    )  # fmt: skip
    names = {(one.violation.attribute, one.violation.key): str(one.origin) for one in found.breaches}
    assert names == {
        ("l_hard", "h_rt"): "command line", ("pe_range", None): "command line", ("o", None): "command line",
        ("t", None): "client JSV own.sh", ("p", None): "server JSV check.sh",
    }  # fmt: skip
    error = found.error
    assert isinstance(error, InvalidJob)
    assert error.message.startswith('Unable to run job: job class "app.default" does not allow: ')
    assert error.hint.count("; the class has ") == 5
    assert (
        "WallTime (l_hard h_rt): 60 is from the command line; the class has 3600 without a specifier."
        in error.hint
    )
    assert {"attribute": "l_hard", "key": "h_rt", "here": "WallTime", "deed": "changed", "specifier": "", "given": "60",
            "allowed": "3600", "origin": "command line"} in error.data["violations"]  # fmt: skip


def test_a_rejection_says_what_the_script_says():
    found, _ = run({}, rules=WITH_JSV, jsv=lambda view: replace(view, rejected="No way"))
    assert found.error.message == "Unable to run job: No way."


def test_a_list_of_a_script_that_cannot_be_read_is_refused():
    found, _ = run({}, rules=WITH_JSV, jsv=sets(l_hard="a=[1"))
    assert found.sentence == "JSV check.sh sets a value that cannot be read: a '[' is never closed"
    assert found.jsv_runs == 1


def test_an_edit_that_cannot_be_made_is_refused():
    edits = [EditEntry(verb=EntryVerb.MODIFY, attribute="l_hard", key="zz", value="1")]
    found, seen = run({"JobClass": "app"}, FIXED, edits=edits, rules=WITH_JSV, jsv=same)
    assert "no such entry" in found.sentence
    assert seen == []


def test_origins_name_who_wrote_last():
    job_class = class_of(N="{~}S", l_hard="{+~}h_rt=60,matlab=1", v="{+}A=1", CMDARG="{~}1,{~}2")
    found, _ = run(
        {"JobClass": "app", "Consumables": "ml=2", "Site": "X", "Environment": "B=1", "Arguments": "1"},
        job_class, rules=replace(WITH_JSV, defaults={"P": "d"}), jsv=sets(N="J"), client_jsv={"v": "own.sh"},
    )  # fmt: skip
    assert {name: str(origin) for name, origin in found.origins.items()} == {
        "Executable": "command line", "JobClass": "command line", "Variant": "command line", "JobGroup": "default",
        "JobName": "server JSV check.sh", "WallTime": "class", "Consumables.matlab": "command line",
        "Environment.A": "class", "Environment.B": "client JSV own.sh", "Arguments": "command line",
    }  # fmt: skip


# --- laws ---------------------------------------------------------------------------------------------


@given(RECORDS)
def test_without_class_and_script_the_record_itself_comes_back(record):
    with pytest.raises(StopIteration) as end:
        next(resolve(DraftRecord(record=record), RULES, nothing))
    assert end.value.value.record is record


@given(RECORDS)
def test_a_script_that_changes_nothing_changes_nothing(record):
    found, _ = run(record, rules=WITH_JSV, jsv=same)
    assert found.record == {"Executable": "x", **record}
    assert set(found.origins.values()) <= {Origin(step=Step.COMMAND_LINE)}


def job_of_record(record):
    """What is stored of a job, but for its class."""
    return replace(read_job(record).spec, job_class="", variant="")


@given(RECORDS)
def test_a_job_asks_for_the_same_without_anything_with_an_idle_script_and_with_an_empty_class(record):
    record = with_attributes(record, COMPLEXES)
    plain = job_of_record(record)

    def idle(view):
        return view_of(view, texts_of(view))

    empty = class_of("empty")
    for more, rules, jsv in (
        ({}, WITH_JSV, idle),
        ({"JobClass": "empty"}, RULES, None),
        ({"JobClass": "empty"}, WITH_JSV, idle),
    ):
        found, _ = run({**record, **more}, empty, rules=rules, jsv=jsv)
        assert isinstance(found, ResolvedRecord), found
        assert job_of_record(found.record) == plain


@given(RECORDS)
def test_a_script_that_changes_the_name_changes_nothing_else(record):
    """Nor does a class that gives it."""
    left_out = ("jobname", "GridEngine")  # the second is written anew, without what counts for nothing
    record = {name: one for name, one in with_attributes(record, COMPLEXES).items() if name not in left_out}
    plain = replace(job_of_record(record), name="new")
    for more, rules, jsv in (({}, WITH_JSV, sets(N="new")), ({"JobClass": "named"}, RULES, None)):
        found, _ = run({**record, **more}, class_of("named", N="new"), rules=rules, jsv=jsv)
        assert job_of_record(found.record) == plain


# --- amounts of memory are three ---------------------------------------------------------------------

OF_MEMORY = class_of(l_hard="{~}mem_free=2G,h_vmem=4G")


def test_a_class_gives_each_amount_of_memory():
    found, _ = run({"JobClass": "app"}, OF_MEMORY)
    assert (found.record["Memory"], found.record["Consumables"]) == (4096, ["mem_free=2G"])
    edits = [EditEntry(verb=EntryVerb.MODIFY, attribute="l_hard", key="mem_free", value="3G")]
    found, _ = run({"JobClass": "app"}, OF_MEMORY, edits=edits)
    assert (found.record["Memory"], found.record["Consumables"]) == (4096, ["mem_free=3G"])
    found, _ = run({"JobClass": "app", "Memory": 5000}, OF_MEMORY)
    assert found.sentence.endswith("does not allow: l_hard: h_vmem may not be changed")


@pytest.mark.parametrize("way", ["class", "server JSV", "edit", "defaults", "client JSV"])
def test_free_memory_that_others_than_the_description_ask_for_is_memory(way):
    """As much is kept free for the job. What the description says of it limits the job by quotas alone."""
    edits = [EditEntry(verb=EntryVerb.ADD, attribute="l_hard", key="mf", value="2G")]
    record = {"NumberOfProcessors": 2, "Consumables": ["vf=9G"]}
    ways = {
        "class": lambda: run({**record, "JobClass": "app"}, class_of(l_hard="{+}mem_free=2G")),
        "server JSV": lambda: run(record, rules=WITH_JSV, jsv=sets(l_hard="mem_free=2G,vf=9G")),
        "edit": lambda: run(record, edits=edits),
        "defaults": lambda: run(record, rules=replace(RULES, defaults={"l_hard": "mf=2G"})),
        "client JSV": lambda: run(
            {**record, "Consumables": ["vf=9G", "mf=2G"]}, client_jsv={"l_hard mem_free": "own.sh"}
        ),
    }  # fmt: skip
    found, _ = ways[way]()
    assert found.record["Memory"] == 4096
    assert str(found.origins["Memory"]) in {
        way,
        "server JSV check.sh",
        "client JSV own.sh",
        "default",
        "command line",
    }
    assert set(values_of(found.record, COMPLEXES)[0]["l_hard"]) == {"mem_free", "virtual_free", "h_vmem"}
    found, _ = run({"JobClass": "app", "Memory": 1000}, class_of(l_hard="{+}mem_free=2G"))
    assert found.record["Memory"] == 1000


def test_a_script_sees_the_memory_that_it_tests():
    record = {"Consumables": ["vf=2G", "mf=1G"], "Memory": 4096}
    _, (seen,) = run(record, rules=WITH_JSV, jsv=same)
    assert texts_of(seen).parameters["l_hard"] == "h_vmem=4G,virtual_free=2G,mem_free=1G"


def test_free_memory_of_a_class_can_be_changed_with_the_memory_that_follows_from_it():
    found, _ = run({"JobClass": "app"}, class_of(l_hard="{~}mem_free=2G"))
    job = {**found.record, "Consumables": ["mem_free=3G"]}
    assert refuse_change(found.record, {**job, "Memory": 3072}, found.snapshot, COMPLEXES) is None
    refused = refuse_change(found.record, {**found.record, "Memory": 3072}, found.snapshot, COMPLEXES)
    assert refused.sentence.endswith("l_hard: h_vmem may not be added")


@pytest.mark.slow
@at_most(30)
@given(classes(), RECORDS, NATIVE)
def test_what_is_resolved_keeps_to_its_class(job_class, record, native):
    def script(view):
        return replace(view, values={**view.values, **native})

    for rules, jsv in ((RULES, None), (WITH_JSV, script)):
        found, _ = run({**record, "JobClass": "app"}, job_class, rules=rules, jsv=jsv)
        if isinstance(found, SubmissionRefusal):
            assert found.breaches
            continue
        said, _ = values_of(found.record, COMPLEXES)
        assert violations(job_class.snapshot("default"), said, COMPLEXES) == ()


@given(classes())
def test_a_class_allows_a_job_that_adds_nothing(job_class):
    """The job has CMDNAME from its record: the class leaves it open."""
    found, _ = run({"JobClass": "app"}, job_class)
    assert isinstance(found, ResolvedRecord), found
    given_values, _ = canonical(found.snapshot.values | {"CMDNAME": "x"}, COMPLEXES)
    again, _ = record_of(found.record, given_values, COMPLEXES)
    free = FREE_MEMORY & entries_of("l_hard", given_values.get("l_hard")).keys()
    assert with_free_memory(again, given_values, free, COMPLEXES) == found.record
    assert refuse_change(found.record, found.record, found.snapshot, COMPLEXES) is None
