"""Records and values of Grid Engine: both ways, with one text for each meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.decide.submission.native import record_of, values_of, with_attributes
from lodesman.decide.submission.native_table import (
    FORMS,
    HERE,
    IS_KEPT,
    MEANINGS,
    SCALARS,
    path_of,
    smallest_slots,
)
from lodesman.decide.submission.native_texts import canonical
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, read_complexes
from lodesman.languages.jobclass.attributes import BOOLEAN_DEFAULTS, KINDS, AttributeKind
from lodesman.languages.jobs import read_job

# Those that every site has, but for short names that the tables use; and three more.
_STOCK = (
    f"{one.name} {one.name if one.shortcut in 'abc' else one.shortcut} {one.kind} {one.relation} YES NO 0 0"
    for one in STOCK_COMPLEXES
)
_MORE = (
    "matlab ml INT <= YES YES 0 0",
    "scratch sc MEMORY <= YES YES 0 0",
    "gpu gpu BOOL == YES NO FALSE 0",
)
COMPLEXES = read_complexes("\n".join([*_MORE, *_STOCK]), faults=[])
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "gridengine.md"


def said(record):
    return values_of({"Executable": "x", **record}, COMPLEXES)[0].items() - {("CMDNAME", "x")}


def values(record):
    return values_of(record, COMPLEXES)[0]


def record(**given):
    return record_of({}, given, COMPLEXES)[0]


# --- the page ---------------------------------------------------------------------------------------


def test_the_page_shows_the_table():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| Attribute"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|")))
    assert rows == [(one.name, one.here, one.remark) for one in MEANINGS]


def test_the_table_has_each_attribute_in_its_order():
    names = [one.name for one in MEANINGS if " " not in one.name]
    assert names == list(KINDS)
    assert len({one.name for one in MEANINGS}) == len(MEANINGS)


def test_each_attribute_that_the_table_names_exists():
    from lodesman.languages.jobs.attributes import PARAMETERS, by_name  # noqa: PLC0415 - of this test alone

    for one in MEANINGS:
        if one.is_kept or one.name in ("ac", "h"):  # a state
            continue
        for name in one.here.split(", "):
            assert by_name(name.partition(".")[0]) or name in PARAMETERS, name


# --- one by one ---------------------------------------------------------------------------------------

PAIRS = [
    ({"WallTime": 3600}, {"l_hard": {"h_rt": "3600"}}),
    ({"WallTime": "3600"}, {"l_hard": {"h_rt": "3600"}}),
    ({"walltime": 0}, {"l_hard": {"h_rt": "INFINITY"}}),
    ({"CPUTime": 86400}, {"l_hard": {"h_cpu": "86400"}}),
    ({"Memory": 4096}, {"l_hard": {"h_vmem": "4G"}}),
    ({"MaxRAM": 4000}, {"l_hard": {"h_vmem": "4000M"}}),
    ({"Memory": 0}, {"l_hard": {"h_vmem": "0"}}),
    ({"Memory": 4096, "NumberOfProcessors": 4}, {"l_hard": {"h_vmem": "1G"}, "pe_range": "4"}),
    ({"Memory": 4000, "NumberOfProcessors": 3}, {"l_hard": {"h_vmem": "1334M"}, "pe_range": "3"}),
    ({"Consumables": "ml=1, scratch=1024M"}, {"l_hard": {"matlab": "1", "scratch": "1G"}}),
    ({"NumberOfProcessors": 8, "PE": "mpi"}, {"pe_name": "mpi", "pe_range": "8"}),
    ({"JobGroup": "atlas"}, {"P": "atlas"}),
    ({"Project": "atlas"}, {"P": "atlas"}),
    ({"JobName": "n"}, {"N": "n"}),
    ({"Executable": "/bin/sleep", "Arguments": "60 'a b'"}, {"CMDNAME": "/bin/sleep", "CMDARG": ("60", "a b")}),
    ({"Environment": "A=1;B="}, {"v": {"A": "1", "B": ""}}),
    ({"StdOutput": "o", "StdError": "e", "StdInput": "a=b:c"}, {"o": {"o": None}, "e": {"e": None}, "i": {":a=b:c": None}}),
    ({"Parameters": 5, "ParameterStart": 2, "ParameterStep": 3}, {"t": "2-14:3"}),
    ({"Parameters": 5}, {"t": "1-5:1"}),
    ({"Parameters": ["a", "b"]}, {"t": "1-2:1"}),
    ({"Parameters.X": ["a", "b", "c"]}, {"t": "1-3:1"}),
    ({"Parameters": 4, "ParameterStart": 0, "ParameterStep": 3}, {"t": "1-4:1"}),
    ({"MaxAttempts": 1}, {"r": "n"}),
    ({"MaxAttempts": 7}, {"r": "y"}),
    ({"Requirements": {"QueueName": ["all.q", "b.q"], "Other": 1}}, {"q_hard": {"all.q": None, "b.q": None}}),
    ({"Priority": 0}, {"p": "-1023"}),
    ({"UserPriority": 1}, {"p": "0"}),
    ({"Priority": 10}, {"p": "1024"}),
    ({"Colour": "blue", "Size": 4, "List": [1]}, {"ac": {"Colour": "blue", "Size": "4"}}),
    ({"GridEngine": ["m=be", "hold_jid=7", "ac=Memory=1"]}, {"m": "be", "hold_jid": {"7": None}, "ac": {"Memory": "1"}}),
    ({"Memory": "%(m)s", "Parameters.m": [1, 2]}, {"l_hard": {"h_vmem": "%(m)s"}, "t": "1-2:1"}),
    ({"Site": "A", "Tag": "T", "InputSandbox": ["a"]}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("given_record", "native"), PAIRS, ids=str)
def test_what_a_record_says(given_record, native):
    found, notices = values_of(given_record, COMPLEXES)
    assert found == native
    assert [one.attribute for one in notices] == ["GridEngine"] * (2 if "GridEngine" in given_record else 0)
    same, _ = record_of(given_record, found, COMPLEXES)
    assert same is given_record


TEXTS = [
    ("l_hard", {"h_rt": "1:0:0"}, {"WallTime": 3600}),
    ("l_hard", {"h_rt": "0:1:0"}, {"WallTime": 60}),
    ("l_hard", {"h_rt": "0"}, {"WallTime": 0}),
    ("l_hard", {"h_rt": "INFINITY"}, {"WallTime": 0}),
    ("l_hard", {"h_cpu": "INFINITY"}, {"CPUTime": 10**9}),
    ("l_hard", {"h_vmem": "1G"}, {"Memory": 1024}),
    ("l_hard", {"h_vmem": "1024M"}, {"Memory": 1024}),
    ("l_hard", {"mf": "1"}, {"Consumables": ["mem_free=1"]}),
    ("l_hard", {"vf": "1.5G", "h_vmem": "1G"}, {"Memory": 1024, "Consumables": ["virtual_free=1536M"]}),
    ("l_hard", {"h_vmem": "nonsense"}, {"Memory": "nonsense"}),
    ("l_hard", {"s": "4"}, {"NumberOfProcessors": 4}),
    ("l_hard", {"ml": "0x2", "gpu": None}, {"Consumables": ["matlab=2", "gpu=TRUE"]}),
    ("pe_range", "4-8", {"NumberOfProcessors": 4}),
    ("pe_range", "16,8-", {"NumberOfProcessors": 8}),
    ("pe_range", "-8", {"NumberOfProcessors": 1}),
    ("p", "-5", {"Priority": 0}),
    ("p", "1", {"Priority": 2}),
    ("p", "1025", {"Priority": "1025"}),
    ("r", "yes", {"MaxAttempts": 3}),
    ("o", {"host:/a": None, "b": None}, {"StdOutput": "b"}),
    ("o", {"host:b": None}, {"StdOutput": "b"}),
    ("t", "7", {"Parameters": 1, "ParameterStart": 7, "ParameterStep": 1}),
    ("t", "1-10:4", {"Parameters": 3, "ParameterStart": 1, "ParameterStep": 4}),
    ("q_hard", "a.q,b.q", {"Requirements": {"QueueName": ["a.q", "b.q"]}}),
    ("q_hard", "a.q@h,b.q", {"GridEngine": ["q_hard=a.q@h", "q_hard=b.q"]}),
    ("ac", {"Colour": None, "Memory": "1"}, {"GridEngine": ["ac=Memory=1"], "Colour": ""}),
    ("h", "u", {"GridEngine": ["h=u"]}),
    ("v", {"A": None}, {"Environment": {"A": ""}}),
    ("M", "a@b,c@d", {"GridEngine": ["M=a@b", "M=c@d"]}),
]


@pytest.mark.parametrize(("name", "value", "expected"), TEXTS, ids=str)
def test_what_a_value_is_here(name, value, expected):
    made = record(**{name: value})
    assert made == expected
    assert values(made) == canonical({name: value}, COMPLEXES)[0]


@pytest.mark.parametrize(
    ("name", "value", "said_of_it"),
    [
        ("pe_range", "4-8", "smallest number, 4"),
        ("o", "host:b", "b is taken for all"),
        ("M", "me", "No mail"),
        ("hold_jid", "7", "After, or AfterOk, names jobs"),
        ("j", "y", "joins the two"),
        ("q_hard", "*@h", "hosts or patterns"),
        ("nonsense", "1", "has no meaning"),
    ],
)
def test_what_is_lost_is_named(name, value, said_of_it):
    (notice,) = record_of({}, {name: value}, COMPLEXES)[1]
    assert said_of_it in notice.message


def test_a_truth_value_at_its_default_needs_no_notice():
    assert record_of({}, {"notify": "n", "shell": "y"}, COMPLEXES)[1] == ()


def test_what_stands_in_the_wrong_place_counts_for_nothing():
    found, notices = values_of({"GridEngine": ["N=x", "nonsense", 5]}, COMPLEXES)
    assert found == {}
    assert [re.search("say JobName|write attribute", one.message)[0] for one in notices] == [
        "say JobName", "write attribute", "write attribute",
    ]  # fmt: skip


def test_a_limit_among_the_consumables_is_written_where_it_counts():
    """Else a job could keep to its class, or pass a verifier, by a word that limits nothing."""
    start = {"consumables": ["h_rt=60", "vf=2G", "h_vmem=3G", "slots=2", "ml=1", "h_cpu=soon"]}
    made = with_attributes(start, COMPLEXES)
    assert made == {**start, "Memory": 6144, "WallTime": 60, "NumberOfProcessors": 2}
    assert values(made) == values(start)
    assert with_attributes(made, COMPLEXES) is made
    assert with_attributes({"Consumables": "ml=1,vf=1G"}, COMPLEXES) == {"Consumables": "ml=1,vf=1G"}


def test_a_limit_among_the_consumables_goes_when_it_is_changed():
    start = {"Consumables": ["h_rt=60", "slots=2", "vf=2G", "h_vmem=1G"], "WallTime": 30, "Memory": 1000}
    requests = {"h_rt": "60", "virtual_free": "2G", "h_vmem": "1G"}
    assert values(start) == {"l_hard": requests, "pe_range": "2"}
    made, _ = record_of(start, {"l_hard": {**requests, "h_rt": "90"}, "pe_range": "2"}, COMPLEXES)
    assert made == {**start, "WallTime": 90, "Consumables": ["slots=2", "h_vmem=1G", "virtual_free=2G"]}
    made, _ = record_of(start, {"l_hard": {"h_rt": "60"}, "pe_range": "3"}, COMPLEXES)
    assert made == {"Consumables": ["h_rt=60"], "WallTime": 30, "NumberOfProcessors": 3}


def test_memory_is_asked_for_each_core_and_said_for_all():
    native = {"pe_name": "smp", "pe_range": "4", "l_hard": {"h_vmem": "1G"}}
    made = record(**native)
    assert made == {"PE": "smp", "NumberOfProcessors": 4, "Memory": 4096}
    # As a verifier does that changes the cores alone.
    more, _ = record_of(made, {**values(made), "pe_range": "8"}, COMPLEXES)
    assert more == {"PE": "smp", "NumberOfProcessors": 8, "Memory": 8192}
    assert values(more)["l_hard"] == values(made)["l_hard"]
    said = values({"Consumables": ["s=2", "vf=1G"], "Memory": 4096})["l_hard"]
    assert said == {"h_vmem": "2G", "virtual_free": "1G"}
    odd = {"Memory": 4000, "NumberOfProcessors": 3}
    renamed, _ = record_of(odd, {**values(odd), "N": "n"}, COMPLEXES)
    assert renamed == {**odd, "JobName": "n"}
    less, _ = record_of(odd, {"pe_range": "3"}, COMPLEXES)
    assert less == {"NumberOfProcessors": 3}
    assert record_of(odd, {"pe_range": "2"}, COMPLEXES)[0] == {"NumberOfProcessors": 2}


def test_memory_that_is_used_up_once_per_job_is_not_multiplied():
    lines = (
        f"{one.name} {one.shortcut} {one.kind} <= YES NO 0 0"
        for one in STOCK_COMPLEXES
        if one.name != "virtual_free"
    )
    by_job = read_complexes("\n".join(["virtual_free vf MEMORY <= YES JOB 0 0", *lines]), faults=[])
    made, _ = record_of({}, {"pe_range": "4", "l_hard": {"h_vmem": "1G"}}, by_job)
    assert made == {"NumberOfProcessors": 4, "Memory": 1024}
    assert values_of(made, by_job)[0]["l_hard"] == {"h_vmem": "1G"}


def test_only_what_changed_is_written_anew():
    start = {"executable": "a.sh", "maxram": "4e3", "Consumables": "ml=1", "Site": "X", "Arguments": "a  b"}
    changed, _ = record_of(start, {**values(start), "N": "n", "CMDNAME": "b.sh"}, COMPLEXES)
    assert changed == {**start, "executable": "b.sh", "JobName": "n"}
    assert list(changed)[:5] == list(start)
    less, _ = record_of(start, {"CMDNAME": "a.sh"}, COMPLEXES)
    assert less == {"executable": "a.sh", "Site": "X"}


def test_taking_the_tasks_away_takes_all_that_belongs_to_them():
    start = {"Parameters": 5, "parameterstart": 1, "Parameters.X": [1, 2, 3, 4, 5], "Site": "A"}
    assert record_of(start, {}, COMPLEXES)[0] == {"Site": "A"}


def test_other_requirements_stay():
    start = {"Requirements": {"queuename": "a.q", "Other": [1]}}
    assert record_of(start, {}, COMPLEXES)[0] == {"Requirements": {"Other": [1]}}
    assert record_of(start, {"q_hard": "b.q"}, COMPLEXES)[0] == {
        "Requirements": {"Other": [1], "QueueName": ["b.q"]}
    }


def test_priorities_rise_with_priorities():
    levels = [FORMS["p"].to_record(str(priority)) for priority in range(-1023, 1025)]
    assert levels == sorted(levels)
    assert set(levels) == set(range(11))
    for level in range(11):
        text = FORMS["p"].to_native(level)
        assert FORMS["p"].to_record(text) == level
        assert FORMS["p"].canonical(text) == text


def test_where_a_value_is():
    assert path_of("l_hard", "h_rt") == "WallTime"
    assert path_of("l_hard", "matlab") == "Consumables.matlab"
    assert path_of("l_hard", "mem_free") == "Consumables.mem_free"
    assert path_of("l_hard", "slots") == "NumberOfProcessors"
    assert path_of("v", "A") == "Environment.A"
    assert path_of("CMDARG", "1") == "Arguments"
    assert path_of("ac", "Colour") == "Colour"
    assert path_of("M", "x") == "GridEngine.M"
    assert path_of("nonsense", None) == "GridEngine.nonsense"
    assert path_of("t", None) == "Parameters"


# --- laws -------------------------------------------------------------------------------------------

WORD = st.text("abcXYZ09._-", min_size=1, max_size=6).filter(lambda word: ".." not in word)
AMOUNT = st.integers(0, 10**9)
MEMORY = st.builds(
    lambda n, unit: f"{n}{unit}", st.integers(0, 2000), st.sampled_from(["", "K", "M", "g", "G"])
)
TIME = AMOUNT.map(str) | st.builds("{}:{}:{}".format, *[st.integers(0, 99)] * 3) | st.just("INFINITY")
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "h_rt": TIME, "h_cpu": TIME.filter(lambda text: text not in ("0", "0:0:0")), "h_vmem": MEMORY, "mf": MEMORY,
        "virtual_free": MEMORY, "slots": st.integers(1, 4096).map(str), "ml": AMOUNT.map(str), "scratch": MEMORY,
        "gpu": st.none() | st.sampled_from(["true", "0"]), "arch": WORD, "unknown": WORD,
    },
)  # fmt: skip
RANGES = st.builds(
    "{}-{}:{}".format, st.integers(1, 50), st.integers(50, 99), st.integers(1, 9)
) | st.integers(1, 9).map(str)
NATIVE = st.fixed_dictionaries(
    {},
    optional={
        "CMDNAME": WORD, "CMDARG": st.lists(WORD | st.just(""), max_size=3).map(tuple), "N": WORD, "P": WORD,
        "pe_name": WORD,
        "pe_range": RANGES.filter(lambda text: smallest_slots(text)), "p": st.integers(-1023, 1024).map(str),
        "r": st.sampled_from(["y", "n", "no", "TRUE"]), "t": RANGES, "l_hard": REQUESTS, "l_soft": REQUESTS,
        "v": st.dictionaries(WORD, st.none() | WORD, max_size=3),
        "ac": st.dictionaries(
            WORD | st.sampled_from(["Memory", "memory", "Parameters.x", "GridEngine"]), st.none() | WORD, max_size=3
        ),
        "q_hard": st.dictionaries(WORD | st.sampled_from(["*", "a@b", "c@@d"]), st.none(), max_size=3),
        **{name: st.dictionaries(WORD | st.sampled_from(["h:x", ":y", "a:b:c"]), st.none(), max_size=2) for name in "eio"},
        **dict.fromkeys(("a", "m", "h", "notify", "j", "umask", "nonsense"), WORD),
        "hold_jid": st.dictionaries(WORD, st.none() | WORD, max_size=2),
    },
)  # fmt: skip


@given(NATIVE)
def test_a_record_made_of_values_says_them(native):
    wanted, _ = canonical(native, COMPLEXES)
    assert canonical(wanted, COMPLEXES)[0] == wanted
    made, _ = record_of({}, native, COMPLEXES)
    assert values(made) == wanted


@given(NATIVE, NATIVE)
def test_values_come_over_others(first, second):
    """What was there before leaves nothing behind."""
    made, _ = record_of(record(**first), second, COMPLEXES)
    assert values(made) == canonical(second, COMPLEXES)[0]


RECORDS = st.fixed_dictionaries(
    {"Executable": WORD},
    optional={
        "Arguments": st.lists(WORD | st.integers(0, 9), max_size=3) | st.sampled_from(["a 'b c'", ""]),
        "jobname": WORD | st.just(""), "StdOutput": WORD | st.sampled_from(["a:b", ":c", ""]),
        "Environment": st.dictionaries(WORD, WORD, max_size=2), "UserPriority": st.integers(0, 10), "Project": WORD,
        "WallTime": AMOUNT | AMOUNT.map(str) | st.just(6e1), "CPUTime": st.integers(1, 10**9),
        "MaxRAM": st.integers(0, 2**30),
        "NumberOfProcessors": st.integers(1, 4096), "PE": WORD, "MaxAttempts": st.integers(1, 100), "Site": WORD,
        "Consumables": st.lists(
            st.sampled_from(["ml=1", "sc=1G", "gpu=true", "odd=x", "vf=1G", "mem_free=3000M", "h_vmem=2G", "h_rt=1:0:0",
                             "h_cpu=60", "s=2", "h_vmem=x"]),
            unique=True,
        ),
        "Requirements": st.fixed_dictionaries({}, optional={"QUEUENAME": WORD | st.lists(WORD, min_size=1), "Other": WORD}),
        "Own": WORD | AMOUNT | st.booleans() | st.lists(AMOUNT, max_size=2),
        "Parameters": st.integers(1, 9) | st.just(["a", "b"]),
        "GridEngine": st.lists(st.sampled_from(["m=x", "M=y", "hold_jid=3", "q_hard=a@b", "ac=Memory=1", "N=1", "odd"])),
    },
)  # fmt: skip


@given(RECORDS)
def test_a_record_that_says_it_already_stays(given_record):
    read_job(given_record)
    found = values(given_record)
    assert canonical(found, COMPLEXES)[0] == found
    assert record_of(given_record, found, COMPLEXES)[0] is given_record


@given(RECORDS, NATIVE)
def test_what_the_table_does_not_know_stays(given_record, native):
    changed, _ = record_of(given_record, {**native, "CMDNAME": "c"}, COMPLEXES)
    assert changed.get("Site") == given_record.get("Site")
    assert isinstance(given_record.get("Own"), list) is isinstance(changed.get("Own"), list)
    assert values(changed) == canonical({**native, "CMDNAME": "c"}, COMPLEXES)[0]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = [name for one in MEANINGS if not one.is_kept for name in one.here.split(", ") if "." not in name]


@given(
    st.dictionaries(st.sampled_from([*NAMES, "GridEngine", "Requirements", "ParameterStart.x"]), JUNK), NATIVE
)
def test_a_wrong_record_is_left_to_the_reader(wrong, native):
    """What no job can have stays wrong: it is never made right in silence."""
    found = values(wrong)
    assert record_of(wrong, found, COMPLEXES)[0] is wrong or "Consumables" in wrong
    record_of(wrong, native, COMPLEXES)


def test_a_value_that_cannot_be_read_is_refused_when_the_job_is_read():
    for native in (
        {"l_hard": {"h_rt": "soon"}},
        {"p": "9999"},
        {"pe_range": "many"},
        {"t": "x"},
        {"r": "perhaps"},
    ):
        with pytest.raises(InvalidJob):
            read_job(record(CMDNAME="x", **native))


def test_the_table_covers_what_the_code_does():
    assert {name for name in HERE if " " not in name} | IS_KEPT == set(KINDS)
    assert set(SCALARS) <= HERE.keys()
    assert {name for name in KINDS if KINDS[name] is AttributeKind.POSITIONAL} == {"CMDARG"}
    assert BOOLEAN_DEFAULTS.keys() <= KINDS.keys()
