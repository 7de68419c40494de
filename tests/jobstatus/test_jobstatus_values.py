from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.site.jobstatus.values import KEYS, InvalidStatus, KeyValue, Status, parse, read, render, repair

START = "last_job_start"
POSTPONE = "can_postpone_last_job"
GOOD = Status(4, 900, 2_000, 3_000, 4_000, 10, 20, can_postpone_last_job=False, priority_factor=-3)


@pytest.mark.parametrize(
    "data", [b"12\n", b"12", b" 12 ", b"\t\r\n12\x0b\x0c\n\n", b"+12", b"012", b"12" + b"\n" * 62]
)
def test_white_space_a_sign_and_zeros_change_nothing(data):
    assert parse(START, data, strict=True) == KeyValue(12)


def test_eighteen_digits_are_a_number_and_nineteen_are_not():
    assert parse(START, b"9" * 18).value == 10**18 - 1
    with pytest.raises(InvalidStatus, match="not-a-number"):
        parse(START, b"9" * 19)


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"1 2", b"1\x002", b"1\x00", b"0x10", b"1e3", b"1_000", b"1,000", b"--1", b"True", b".5", b"nan",
     b"\xd9\xa1", b"\xc2\xa012", b"12\x1b[2J", b"\xef\xbb\xbf12", b"4\n0000\n"],
)  # fmt: skip
def test_anything_else_is_no_number(data):
    with pytest.raises(InvalidStatus) as refused:
        parse(START, data)
    assert (refused.value.reason, refused.value.key) == ("not-a-number", START)


def test_more_than_64_bytes_are_refused_whatever_they_are():
    with pytest.raises(InvalidStatus, match="too-long"):
        parse(START, b"12" + b"\n" * 63)


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (b"1391212345.67", 1_391_212_345),
        (b"5.", 5),
        (b"-1.5", -2),
        (b"-1.0", -1),
        (b"+0.9", 0),
        (b"-0.5", -1),
    ],
)
def test_a_decimal_point_is_rounded_down_and_flagged_or_refused(data, number):
    key = "priority_factor"
    assert parse(key, data) == KeyValue(number, f"float:{key}")
    with pytest.raises(InvalidStatus, match="priority_factor: float"):
        parse(key, data, strict=True)


@pytest.mark.parametrize(
    ("data", "value"), [(b"1", True), (b"true", True), (b"0\n", False), (b"false", False)]
)
def test_other_spellings_of_true_and_false_are_flagged_or_refused(data, value):
    assert parse(POSTPONE, data) == KeyValue(value, f"spelling:{POSTPONE}")
    with pytest.raises(InvalidStatus, match="spelling"):
        parse(POSTPONE, data, strict=True)


def test_true_and_false_are_words():
    assert parse(POSTPONE, b"True\n", strict=True) == KeyValue(value=True)
    assert parse(POSTPONE, b" False", strict=True) == KeyValue(value=False)
    for data in (b"TRUE", b"yes", b"2", b"-1", b"", b"True False"):
        with pytest.raises(InvalidStatus, match="not-true-or-false"):
            parse(POSTPONE, data)


@pytest.mark.parametrize("key", [*KEYS[:5]])
def test_cores_and_times_are_not_negative(key):
    with pytest.raises(InvalidStatus, match="negative"):
        parse(key, b"-1")


@pytest.mark.parametrize("key", ["add_uncom_time", "add_final_exp_waste"])
def test_negative_core_seconds_are_borne_with_or_refused(key):
    assert parse(key, b"-5") == KeyValue(-5, f"negative:{key}")
    with pytest.raises(InvalidStatus, match="negative"):
        parse(key, b"-5", strict=True)


def test_a_priority_may_be_negative():
    assert parse("priority_factor", b"-7\n", strict=True) == KeyValue(-7)


@given(st.sampled_from([key for key in KEYS if key != POSTPONE]), st.integers(0, 10**18 - 1))
def test_what_is_rendered_is_read_again(key, number):
    assert render(key, number).endswith(b"\n")
    assert parse(key, render(key, number), strict=True).value == number


def test_true_and_false_are_rendered_exactly():
    assert (render(POSTPONE, True), render(POSTPONE, False)) == (b"True\n", b"False\n")


@pytest.mark.parametrize(("key", "value"), [(START, -1), (START, 10**18), ("add_uncom_time", -1)])
def test_what_no_reader_would_take_is_not_rendered(key, value):
    with pytest.raises(ValueError, match=key):
        render(key, value)


@given(st.sampled_from(KEYS), st.binary(max_size=70), st.booleans())
def test_any_bytes_are_a_value_or_refused(key, data, strict):
    with suppress(InvalidStatus):
        found = parse(key, data, strict=strict)
        assert not (strict and found.flag)
        assert abs(found.value) <= 10**18


def test_the_files_of_a_directory_are_one_status():
    files = {key: render(key, value) for key, value in GOOD.items().items()}
    assert read(files, strict=True) == (GOOD, ())
    assert read({**files, "other": b"\xff", START: b"900.5"}) == (GOOD, (f"float:{START}",))
    assert read({"used_CPU": b"1"}) == (Status(used_cpu=1), ())


def test_what_is_not_published_stays_unknown_but_for_its_defaults():
    repaired, flags = repair(Status(used_cpu=0), now=1_000, allocated=8, strict=True)
    assert repaired == Status(used_cpu=0, can_postpone_last_job=True, priority_factor=0)
    assert flags == ()
    assert repair(GOOD, now=1_000, allocated=None) == (GOOD, ())


def test_without_used_cores_there_is_no_status():
    with pytest.raises(InvalidStatus) as refused:
        repair(replace(GOOD, used_cpu=None), now=1_000, allocated=8)
    assert (refused.value.reason, refused.value.key) == ("no-status", "used_CPU")


@pytest.mark.parametrize(
    ("ends", "repaired"),
    [
        ((3_001, 3_000, 4_000), (3_000, 3_000, 4_000)),
        ((2_000, 3_000, 2_500), (2_000, 3_000, 3_000)),
        ((9_000, 3_000, 1_000), (3_000, 3_000, 3_000)),
        ((3_000, None, 2_500), (3_000, None, 3_000)),
        ((None, 3_000, 2_500), (None, 3_000, 3_000)),
    ],
)
def test_ends_are_put_in_order_or_refused(ends, repaired):
    first, last, enforced = ends
    status = replace(GOOD, first_exp_job_end=first, last_exp_job_end=last, last_max_job_end=enforced)
    found, flags = repair(status, now=1_000, allocated=8)
    assert (found.first_exp_job_end, found.last_exp_job_end, found.last_max_job_end) == repaired
    assert flags == ("ends-out-of-order",)
    with pytest.raises(InvalidStatus, match="last_exp_job_end: ends-out-of-order"):
        repair(status, now=1_000, allocated=8, strict=True)


def test_used_cores_are_at_most_those_allocated():
    found, flags = repair(GOOD, now=1_000, allocated=3)
    assert (found.used_cpu, flags) == (3, ("used-above-allocated",))
    with pytest.raises(InvalidStatus, match="used_CPU: used-above-allocated"):
        repair(GOOD, now=1_000, allocated=3, strict=True)


def test_a_start_in_the_future_is_borne_with_for_five_minutes():
    for now, flags in ((895, ()), (894, ("skew",)), (600, ("skew",))):
        assert repair(GOOD, now=now, allocated=8) == (GOOD, flags)
    with pytest.raises(InvalidStatus, match="last_job_start: start-in-future"):
        repair(GOOD, now=599, allocated=8)
    assert repair(GOOD, now=895, allocated=8, strict=True) == (GOOD, ())
    with pytest.raises(InvalidStatus, match="start-in-future"):
        repair(GOOD, now=894, allocated=8, strict=True)


@given(st.builds(Status, *[st.none() | st.integers(0, 9)] * 7, st.none() | st.booleans()), st.integers(0, 9))
def test_what_was_repaired_needs_no_repair(status, allocated):
    if status.used_cpu is None:
        return
    repaired, _ = repair(status, now=9, allocated=allocated)
    assert repair(repaired, now=9, allocated=allocated, strict=True) == (repaired, ())
