"""The native text of quota sets: as Grid Engine 8.1.9 reads it (each row G of the reference), and faults with places."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.conftest import COMPLEXES, faults_of, sets_of, table

from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import (
    FilterTag,
    LoadTerm,
    QuotaFilter,
    QuotaLimit,
    QuotaRule,
    QuotaSet,
    write_quota_sets,
)


def whole(*limits, head="name t\nenabled TRUE"):
    """A text with these limits from line 4 on."""
    lines = "".join(f"limit {limit}\n" for limit in limits)
    return f"{{\n{head}\n{lines}}}\n"


def printed(*limits, name="t", enabled="TRUE", description="NONE"):
    lines = "".join(f"   limit        {limit}\n" for limit in limits)
    return (
        f"{{\n   name         {name}\n   description  {description}\n   enabled      {enabled}\n{lines}}}\n"
    )


HOSTS = "users u hosts {*} to "
# A text is accepted and printed back so, or refused with these words at this line and column.
GRAMMAR = {
    "G1": [(whole("hosts h users u to slots=1"), printed("users u hosts h to slots=1")),
           (whole("jcs j hosts h name r pes p to slots=1"), printed("name r pes p hosts h jcs j to slots=1"))],
    "G2": [(whole("users a users b to slots=1"), (4, 15, "attribute users appears more than once")),
           (whole("name a name b to slots=1"), (4, 14, "attribute name appears more than once"))],
    "G3": [(whole("user a to slots=1"), (4, 7, "unknown attribute name user")),
           ("{\nname t\nLIMIT to slots=1\n}\n", (3, 1, "unknown attribute name LIMIT")),
           (whole("USERS a to slots=1"), (4, 7, "unknown attribute name USERS"))],
    "G4": [(whole("users a slots=1"), (4, 15, "unknown attribute name slots=1")),
           (whole("users a"), (4, 1, "this limit has no 'to'")),
           (whole("users to slots=1"), (4, 16, "unknown attribute name slots=1"))],
    "G5": [("{\nname t\n}\n", (1, 1, "resource quota set has no rules")),
           ("{\nlimit to slots=1\n}\n", (1, 1, "resource quota set has no name"))],
    "G6": [(whole("to slots=1", head="name t"), printed("to slots=1", enabled="FALSE")),
           (whole("to slots=1", head='name t\ndescription "a b"\nenabled 1'), printed("to slots=1", description='"a b"')),
           (whole("to slots=1", head="name t\nenabled maybe"), (3, 9, "enabled is maybe"))],
    "G7": [(whole("users {a,b} to slots=1"), printed("users {a,b} to slots=1")),
           (whole("users {a, b} hosts { c } to slots=1"), printed("users {a,b} hosts {c} to slots=1")),
           ("name t\nlimit to slots=1\n", printed("to slots=1", enabled="FALSE")),
           ("name t\nlimit to slots=1\nname t2\nenabled 1\nlimit to slots=2\n",
            printed("to slots=1", enabled="FALSE") + printed("to slots=2", name="t2"))],
    "G8": [(whole("users a, b to slots=1"), (4, 16, "unknown attribute name b")),
           (whole("to slots=1, mc=2G"), printed("to slots=1,mc=2G"))],
    "G9": [(whole("users !{a,b} to slots=1"), (4, 13, "invalid users filter !{a,b}")),
           (whole("users {!a,!b} to slots=1"), printed("users {!a,!b} to slots=1"))],
    "G10": [(whole("users {a},b to slots=1"), (4, 13, "no valid expanded list: {a},b")),
            (whole("users {a}hosts {*}to slots=1"), (4, 13, "no valid expanded list: {a}hosts")),
            (whole("users a} to slots=1"), (4, 14, "unknown attribute name }"))],
    "G11": [(whole("users {} to slots=1"), (4, 13, "the list of users is empty")),
            (whole("users , to slots=1"), (4, 13, "the list of users is empty")),
            (whole("users {a,,b} to slots=1"), printed("users {a,b} to slots=1"))],
    "G12": [(whole("to gold=1"), (4, 10, "gold references not existing complex attribute"))],
    "G13": [(whole("users nn,@nn projects nn queues nn hosts nn,@nn to slots=1"),
             printed("users nn,@nn projects nn queues nn hosts nn,@nn to slots=1"))],
    "G14": [(whole("to s=2,vf=6G"), printed("to slots=2,virtual_free=6G"))],
    "G15": [(whole("to h_rt=1:0:0"), printed("to h_rt=3600")), (whole("to mc=1.5G"), printed("to mc=1.5G")),
            (whole("to h_rt=INFINITY"), printed("to h_rt=INFINITY")),
            (whole("to slots=-1"), (4, 10, "slots is consumable but has a negative value")),
            (whole("to h_vmem=-5"), printed("to h_vmem=-5")),
            (whole("to slots=INFINITY"), (4, 10, "cannot be limited to infinity")),
            (whole("to slots=abc"), (4, 10, "'abc' is no value of type INT"))],
    "G16": [(whole("to slots=1,slots=2"), printed("to slots=1,slots=2"))],
    "G17": [(whole("name r to slots=1", "name r to mc=1"), (5, 1, "the rule t/r is there twice, first at line 4")),
            (whole("name 2 to slots=1", "to mc=1"), (5, 1, "the rule t/2 is there twice"))],
    "G18": [("# top\n{\n\tname\tt\n # inside\nlimit users a,\\\n  b \\\n  to slots=1\n}\n",
             printed("users a,b to slots=1", enabled="FALSE")),
            (whole("to slots=1 # why"), (4, 10, "a limit is resource=value"))],
    "G19": [(whole("to slots=1") * 2, (7, 6, "the set t is given twice, first at line 1"))],
    "G20": [(whole("users {!a,b,!c,d} to slots=1"), printed("users {b,d,!a,!c} to slots=1"))],
    "G21": [(whole("jcs {app1, !*} to slots=1"), printed("jcs {app1,!*} to slots=1"))],
    "dynamic": [
        (whole(HOSTS + "slots=$num_proc*2+1"), printed(HOSTS + "slots=$num_proc*2+1")),
        (whole("queues {*} hosts {h} to slots=-1+$p"), printed("queues {*} hosts {h} to slots=-1+$p")),
        (whole(HOSTS + "slots=2*$num_proc"), (4, 28, "dynamic limit 2*$num_proc is no sum")),
        (whole(HOSTS + "slots=$num_proc/2"), (4, 28, "is no sum")), (whole(HOSTS + "slots=($num_proc)"), (4, 28, "no sum")),
        (whole(HOSTS + "mc=$mem_total*0.5-1G"), (4, 28, "is no sum")),
        (whole(HOSTS + "slots=$num_proc+"), (4, 28, "is no sum")),
        (whole(HOSTS + "slots=$num_proc$p"), (4, 28, "is no sum")),
        (whole(HOSTS + "slots=$num_proc * 2"), (4, 28, "a limit is resource=value")),
        (whole(HOSTS + "slots=$gold"), (4, 28, "references not existing complex attribute gold")),
        (whole(HOSTS + "slots=$arch"), (4, 28, "references text attribute arch")),
        (whole(HOSTS + "arch=$num_proc"), (4, 28, "arch is of type STRING, which has no dynamic limit")),
        (whole("hosts * to slots=$num_proc"), (4, 18, "dynamic limits are only supported for per host rules")),
        (whole("users {*} to slots=$num_proc"), (4, 20, "dynamic limits are only supported for per host rules"))],
    "others": [
        ("{\nname t\n", (1, 1, "this { is never closed")), ("}\n", (1, 1, "unknown attribute name }")),
        ("{ name t\n", (1, 1, "unknown attribute name {")),
        (whole("to slots=1 }"), (4, 10, "a limit is resource=value")), (whole("to"), (4, 9, "a limit is resource=value")),
        (whole("to slots=1,"), (4, 18, "a limit is resource=value")), (whole("to slots"), (4, 10, "and not 'slots'")),
        (whole("to slots = 1"), (4, 10, "a limit is resource=value")), (whole(""), (4, 1, "this limit has no 'to'")),
        (whole("users"), (4, 7, "users is the last word")), (whole("users ! to slots=1"), (4, 13, "! is no name")),
        (whole("users {a b} to slots=1"), (4, 13, "a b is no name")),
        (whole("name a/b to slots=1"), (4, 1, "has a slash or a brace")),
        ("{\nname a b\nlimit to slots=1\n}\n", (2, 6, "has a blank or a slash")),
        ("{\nname a/b\nlimit to slots=1\n}\n", (2, 6, "has a blank or a slash")),
        ("{\nname All\nlimit to slots=1\n}\n", (2, 6, "All is a keyword")),
        ("{\nname t\nname u\nlimit to slots=1\n}\n", (3, 1, "attribute name appears more than once")),
        ("{\nname t\nlimit to slots=1\nenabled TRUE\n}\n", (4, 1, "enabled stands after a limit")),
        ("{\nname\nlimit to slots=1\n}\n", (2, 1, "name has no value"))],
}  # fmt: skip
VECTORS = [(key, number) for key, rows in GRAMMAR.items() for number in range(len(rows))]


def test_every_row_of_the_grammar_has_vectors():
    assert {row["id"] for row in table("quota-grammar.md")} == {key for key in GRAMMAR if key.startswith("G")}


@pytest.mark.parametrize(("key", "number"), VECTORS, ids=lambda part: str(part))
def test_grammar(key, number):
    text, wanted = GRAMMAR[key][number]
    sets, faults = faults_of(text)
    if isinstance(wanted, str):
        assert [str(fault) for fault in faults] == []
        assert write_quota_sets(sets) == wanted
        assert sets_of(wanted) == sets
        return
    line, column, words = wanted
    first = faults[0]
    assert (first.data["line"], first.data["column"], first.data["source"]) == (line, column, "q")
    assert words in first.message
    assert [one.name for one in sets] == (["t"] if key == "G19" else [])


SEED = """name max_virtual_free_on_lx_hosts_for_app_1_2
   description "quota for virtual_free restriction"
   enabled true
   limit users {user1,user2} hosts {@lx_host} jcs {app1, app2} to vf=6G
   limit users {*} hosts {@lx_host} jcs {other_app, !*} to vf=4G
"""


def test_the_set_as_the_seed_prints_it():
    (found,) = sets_of(SEED)
    assert (found.name, found.enabled) == ("max_virtual_free_on_lx_hosts_for_app_1_2", True)
    assert found.description == '"quota for virtual_free restriction"'
    first, second = found.rules
    assert first == QuotaRule(
        label=f"{found.name}/1",
        filters={
            FilterTag.USERS: QuotaFilter(names=("user1", "user2"), braced=True),
            FilterTag.HOSTS: QuotaFilter(names=("@lx_host",), braced=True),
            FilterTag.JCS: QuotaFilter(names=("app1", "app2"), braced=True),
        },
        limits=(QuotaLimit(resource="virtual_free", text="6G", value=6 << 30),),
    )
    assert second.filters[FilterTag.JCS] == QuotaFilter(names=("other_app",), excluded=("*",), braced=True)
    assert [rule.line for rule in found.rules] == [4, 5]


def test_what_the_real_program_prints_is_printed_again():
    """Recorded of qconf -srqs."""
    text = r"""{
   name         t
   description  "a \"b\" c"
   enabled      TRUE
   limit        name r1 users {b,d,!a,!c} hosts {@lx,!vm} to \
   slots=$num_proc*2+1,virtual_free=6G
   limit        projects !* pes {*} queues all.q to slots=2
}
"""
    assert write_quota_sets(sets_of(text)) == re.sub(r"\\\n +", "", text)


def test_terms_of_a_dynamic_limit():
    (found,) = sets_of(whole("hosts {*} to slots=-1+$p*0.5-$m_core*2+3"))
    assert found.rules[0].limits[0].terms == (
        LoadTerm(weight=-1),
        LoadTerm(weight=0.5, name="num_proc"),
        LoadTerm(weight=-2, name="m_core"),
        LoadTerm(weight=3),
    )


@pytest.mark.parametrize(
    "text", ["٣", "1_0", "$p*٣", "$p*1_0", "$p*inf", "nan", "9" * 5_000, "$p*" + "9" * 5_000]
)
def test_what_is_no_number_of_ascii_digits_is_no_limit(text):
    sets, faults = faults_of(whole(f"hosts {{*}} to slots={text}"))
    assert (len(sets), len(faults)) == (0, 1)


def test_all_faults_are_found_and_good_sets_are_kept():
    text = (
        whole("users !{a} hosts {b},c to gold=1,slots=x,silver=2", "user a to slots=1", "to mc=1")
        + whole("to slots=1", head="name good")
        + whole("to slots=1", head="name NONE\nenabled perhaps\nsize 3")
    )
    sets, faults = faults_of(text)
    assert [one.name for one in sets] == ["good"]
    places = [(fault.data["line"], fault.data["column"]) for fault in faults]
    assert sorted(places) == [(4, 13), (4, 24), (4, 33), (4, 40), (4, 48), (5, 7), (13, 6), (14, 9), (15, 1)]


def test_a_hundred_faults_are_enough_and_no_set_with_one_is_kept():
    text = whole(*["user a to slots=1"] * 200) + whole("user b to slots=1", head="name u")
    sets, faults = faults_of(text)
    assert (sets, len(faults)) == ((), 100)


NAMES = st.text("ab1*?@_-", min_size=1, max_size=4)
LIMITS = st.sampled_from([
    QuotaLimit(resource="slots", text="3", value=3),
    QuotaLimit(resource="mc", text="1.5G", value=3 << 29),
    QuotaLimit(resource="h_rt", text="60", value=60),
    QuotaLimit(resource="arch", text="lx*", value="lx*"),
])  # fmt: skip


@st.composite
def filters(draw):
    names, excluded = draw(st.tuples(*[st.lists(NAMES, max_size=3, unique=True).map(tuple)] * 2))
    if not names and not excluded:
        names = ("*",)
    return QuotaFilter(names=names, excluded=excluded, braced=draw(st.booleans()))


@st.composite
def quota_sets(draw):
    sets = []
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        rules = []
        for number in range(1, draw(st.integers(1, 3)) + 1):
            own = draw(st.sampled_from(["", f"r{number}"]))
            tags = draw(st.lists(st.sampled_from(FilterTag), unique=True))
            rules.append(
                QuotaRule(
                    label=f"{name}/{own or number}",
                    name=own,
                    filters={tag: draw(filters()) for tag in tags},
                    limits=tuple(draw(st.lists(LIMITS, min_size=1, max_size=3))),
                )
            )
        about = draw(st.sampled_from(["NONE", "two words", '"in \\" quotes"']))
        sets.append(QuotaSet(name=name, description=about, enabled=draw(st.booleans()), rules=tuple(rules)))
    return tuple(sets)


@given(quota_sets(), st.booleans())
def test_what_is_written_reads_as_the_same_sets(sets, braces):
    text = write_quota_sets(sets)
    if not braces:
        text = re.sub(r"^[{}]\n", "", text, flags=re.MULTILINE)
    assert sets_of(text) == sets


WORDS = st.sampled_from(
    ["{", "}", "name", "limit", "to", "users", "hosts", "\n", "\n", "a", ",", "!", "=", "slots=1", "{a, b}", "{*}",
     "$num_proc", "slots=$p*2", "\\\n", "#", "enabled", "1", "\x00"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=30))
def test_any_row_of_words_is_read_or_refused(words):
    text = " ".join(words)
    faults = []
    sets = read_quota_sets(text, COMPLEXES, faults=faults)
    lines = text.split("\n")
    for fault in faults:
        assert 1 <= fault.data["line"] <= len(lines)
        assert 1 <= fault.data["column"] <= len(lines[fault.data["line"] - 1]) + 1
    assert sets_of(write_quota_sets(sets)) == sets
