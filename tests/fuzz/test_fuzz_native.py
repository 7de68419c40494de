"""Random and hostile values of Grid Engine: one canonical text, a record that can be written, and never a crash."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodesman.decide.submission.native import record_of, values_of
from lodesman.decide.submission.native_texts import canonical
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES
from lodesman.languages.gridengine.values import UnreadableValue
from lodesman.languages.jobclass.attributes import KINDS

SECONDS = 10.0
TEXTS = st.text(max_size=30) | st.text("0123456789-:,.eExKMGkT+ [{", max_size=40) | st.sampled_from(
    ["9" * 100_000, "1," * 50_000, "0x" + "f" * 9_999, "-" * 99_999, "INFINITY", "1e99", "\0", "\ud800"]
)  # fmt: skip
NAMES = st.sampled_from([*KINDS, "nonsense"])
LISTS = st.dictionaries(
    TEXTS | st.sampled_from(["h_rt", "vf", "s", "GridEngine", "Memory"]), st.none() | TEXTS, max_size=4
)


def survive(values):
    started = time.process_time()
    try:
        found, _ = canonical(values, STOCK_COMPLEXES)
    except UnreadableValue:
        return
    assert canonical(found, STOCK_COMPLEXES)[0] == found
    made, notices = record_of({}, values, STOCK_COMPLEXES)
    values_of(made, STOCK_COMPLEXES)
    assert all(len(notice.message) < 1_000 for notice in notices)
    assert time.process_time() - started < SECONDS


@pytest.mark.slow
@settings(deadline=None)
@given(st.dictionaries(NAMES, TEXTS | LISTS | st.lists(TEXTS, max_size=3).map(tuple), max_size=6))
def test_any_values_have_one_text(values):
    survive(values)


def test_texts_without_an_entry():
    for text in ("=", ",", "=,=", "==", ",=:", ":", "::", " "):
        for name in KINDS:
            survive({name: text})


@pytest.mark.slow
@pytest.mark.parametrize("name", list(KINDS))
def test_long_texts(name):
    for text in ("9" * 1_000_000, "1-" * 300_000, "a=1," * 200_000, "[" * 5, "1:" * 400_000, ".1e" * 300_000):
        survive({name: text})
        survive({name: {text: text}})
