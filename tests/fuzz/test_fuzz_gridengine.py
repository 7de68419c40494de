"""Random and hostile texts of Grid Engine: they are read, or refused with faults that lie in the text, in bounded time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kits.damage import damaged

from lodesman.base.errors import TooLarge
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, read_complexes, write_complexes
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.quota.matching import QuotaJob, QuotaPlace, job_side, place_side
from lodesman.languages.quota.notices import find_notices
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import write_quota_sets

DATA = Path(__file__).parents[1] / "data" / "gridengine"
QUOTAS = """{
   name         t
   description  "a \\"b\\" c"
   enabled      TRUE
   limit        name r1 users {b,d,!a,!c} hosts {@lx,!vm} to \\
   slots=$num_proc*2+1,virtual_free=6G
   limit        projects !* pes {*} queues all.q jcs {app1, !*} to slots=2,h_rt=1:0:0
}
"""
SAMPLES = [QUOTAS, *(path.read_text(encoding="utf-8") for path in sorted(DATA.glob("qconf-s*.txt")))]
SECONDS = 10.0


def check_faults(faults, text):
    lines = text.removeprefix("\ufeff").split("\n")
    assert len(faults) <= 100
    for fault in faults:
        str(fault).encode()
        assert len(str(fault)) < 1_000
        assert 1 <= fault.data["line"] <= len(lines)
        assert 1 <= fault.data["column"] <= len(lines[fault.data["line"] - 1]) + 1


def survive(text):
    started = time.process_time()
    faults = []
    complexes = read_complexes(text, faults=faults)
    check_faults(faults, text)
    faults = []
    assert read_complexes(write_complexes(complexes), faults=faults) == complexes
    assert faults == []
    vocabulary = read_vocabulary({"f": text}, faults=faults)
    check_faults(faults, text)
    for group in vocabulary.host_groups:
        for host in vocabulary.hosts_of(group):
            assert group in vocabulary.groups_of(host)
    faults = []
    sets = read_quota_sets(text, STOCK_COMPLEXES, faults=faults)
    check_faults(faults, text)
    faults = []
    assert read_quota_sets(write_quota_sets(sets), STOCK_COMPLEXES, faults=faults) == sets
    assert faults == []
    for notice in find_notices(sets, vocabulary):
        notice.message.encode()
    for rule in (rule for one in sets for rule in one.rules):
        job_side(rule, QuotaJob(user="u", project="p[", pe="*", job_class="app1"))
        place_side(rule, QuotaPlace(queue="[!", host="h"))
    assert time.process_time() - started < SECONDS


@given(st.text(max_size=200))
def test_any_text(text):
    survive(text)


PIECES = st.sampled_from(
    ["{", "}", "name", "limit", "to", "users", "hosts", "jcs", "\n", "\n", " ", "a", ",", "!", "!*", "=", "slots=1",
     "{a, b}", "{*}", "$num_proc", "\\\n", "#", "enabled", "TRUE", "\x00", "\ud800", "\ufeff", "é", "\u2028", "\x85", "\r",
     "\t", "@a", "group_name", "hostlist", "entries", "acl", "NONE", "1e99", "9" * 70, "0x", "[", "x x INT <= YES NO 0 0\n"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_row_of_pieces(text):
    survive(text)


@given(damaged(SAMPLES, PIECES))
def test_damaged_texts(text):
    survive(text)


HEAD = "name t\nenabled TRUE\n"
HOSTILE = {
    "braces": "{" * 500_000,
    "open sets": "{\n" * 100_000,
    "closings": "}\n" * 100_000,
    "open lists": HEAD + "limit users " + "{a " * 200_000,
    "names": HEAD + "limit users {" + "a," * 200_000 + "b} to slots=1\n",
    "many names": HEAD + "limit users {" + ",".join(f"a{n}" for n in range(100_000)) + "} to slots=1\n",
    "limits": HEAD + "limit to " + "slots=1," * 100_000 + "slots=1\n",
    "rules": HEAD + "limit to slots=1\n" * 20_000,
    "sets": "".join(f"name t{n}\nlimit to slots=1\n" for n in range(10_000)),
    "same sets": "name t\nlimit to slots=1\n" * 10_000,
    "terms": HEAD + "limit hosts {*} to slots=" + "$num_proc+" * 50_000 + "1\n",
    "digits": HEAD + "limit to slots=" + "7" * 500_000 + "\n",
    "stars": HEAD + "limit users " + "*a" * 50_000 + " to slots=1\n",
    "continued": "name t\\\n" * 200_000,
    "commas": HEAD + "limit users " + "," * 500_000 + " to slots=1\n",
    "chain of groups": "".join(f"group_name @{n}\nhostlist @{n + 1} h\n" for n in range(500)),
    "cycle of groups": "".join(f"group_name @{n}\nhostlist @{(n + 1) % 3_000}\n" for n in range(3_000)),
    "small cycles": "".join(f"group_name @{n}\nhostlist @{n ^ 1}\n" for n in range(2_000)),
    "complexes": "".join(f"x{n} y{n} INT <= YES NO 0 0\n" for n in range(10_000)),
    "columns": "x " * 300_000,
    "blanks": " " * 1_000_000 + "x",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_answered_in_bounded_time(name):
    survive(HOSTILE[name])


def test_a_text_that_is_too_large_is_refused_at_once():
    with pytest.raises(TooLarge):
        read_quota_sets("x" * (17 << 20), STOCK_COMPLEXES, faults=[])
