"""The end of a slot that comes nearer, or goes away."""

from __future__ import annotations

import pytest

from lodesman.pilot.decisions import DRAINED, Load, Slot, next_claim, why_leave
from lodesman.pilot.features import Features
from lodesman.pilot.protocol import AssignedJob, AttemptKey
from lodesman.pilot.slots import KnownSlot, SlotHabits

START = 1_000_000.0
SLOT = Slot(cores=4, memory_mb=8000, jobs_at_once=4, scaling=2.0)


class Site:
    """A slot of which a site declares an end now and then; the monotonic clock begins at 0."""

    def __init__(self, *, life=0.0, **features) -> None:
        habits = SlotHabits(life, retire_s=1800.0, grace_s=10.0, flush_s=20.0)
        self.known = KnownSlot(SLOT, habits, Features(**features), clock=START, tick=0.0)

    def says(self, now=0.0, ahead=0.0, **features) -> Slot:
        self.changed = self.known.follow(Features(**features), clock=START + now + ahead, tick=now)
        return self.known.slot


def at(seconds: float) -> int:
    return int(START + seconds)


def test_an_end_that_comes_changes_what_is_asked():
    site = Site()
    assert next_claim(site.known.slot, Load(), 0.0, idle_s=9).norm_cpu_seconds == 2**31 - 1
    slot = site.says(100.0, shutdowntime=at(10_000))
    assert (site.changed, slot.ends, slot.shutdown, slot.retires) == (True, 10_000, 10_000, 8_200)
    # The grace before SIGKILL, and the time for the results, are kept.
    assert next_claim(slot, Load(), 100.0, idle_s=9).norm_cpu_seconds == 2 * (9_900 - 10 - 60)
    assert next_claim(slot, Load(), 8_199.0, idle_s=9) is not None
    assert next_claim(slot, Load(), 8_200.0, idle_s=9) is None
    assert why_leave(slot, Load(idle_since=8_000.0), 8_200.0, idle_s=900) == DRAINED


def test_an_end_that_goes_away_is_forgotten():
    site = Site(life=50_000.0)
    site.says(shutdowntime=at(100))
    slot = site.says(10.0)
    assert (slot.ends, slot.shutdown, slot.retires, slot.reserve_s) == (50_000, None, None, 60)


def test_the_same_end_is_no_change():
    site = Site()
    site.says(shutdowntime=at(5_000))
    before = site.known.slot
    assert site.says(60.0, ahead=0.5, shutdowntime=at(5_000)) is before
    assert not site.changed
    # A clock that was set is followed.
    assert site.says(120.0, ahead=30.0, shutdowntime=at(5_000)).ends == 4_970


def test_an_end_that_was_known_at_the_start_is_a_limit():
    site = Site(shutdowntime_job=at(5_000))
    assert (site.known.slot.ends, site.known.slot.shutdown, site.known.slot.retires) == (5_000, None, None)
    assert site.says(4_000.0, shutdowntime_job=at(5_000)).retires is None
    assert site.says(4_000.0, shutdowntime_job=at(9_000)).retires is None
    # Nearer than that, it is asked for.
    assert site.says(4_000.0, shutdowntime_job=at(4_900)).is_over(4_000.0)


def test_a_shutdown_of_this_job_retires_at_once():
    slot = Site().says(5.0, shutdowntime_job=at(80_000))
    assert (slot.ends, slot.is_over(5.0)) == (80_000, True)


def test_of_a_short_notice_little_is_kept_back():
    """However old the pilot is: what ends in time goes on."""
    site = Site()
    slot = site.says(80_000.0, shutdowntime_job=at(80_120))
    assert (slot.ends, slot.reserve_s) == (80_120, 10 + 20)
    assert site.says(80_060.0, shutdowntime_job=at(80_120)) is slot
    assert site.says(80_060.0, shutdowntime_job=at(99_999)).reserve_s == 10 + 60


def test_a_notice_of_the_batch_system_is_a_shutdown_of_this_job():
    site = Site(life=50_000.0)
    site.known.notice(120, START + 1_000)
    slot = site.says(1_000.0)
    assert (slot.ends, slot.shutdown, slot.reserve_s, slot.is_over(1_000.0)) == (1_120, 1_120, 30, True)
    assert site.says(1_060.0) is slot


@pytest.mark.parametrize(("life", "features"), [(1_200.0, {}), (0.0, {"shutdowntime_job": at(1_200)})])
def test_a_notice_says_nothing_new_if_the_end_is_known(life, features):
    """It comes up to a minute too early; if what it announced is taken back, it is void."""
    site = Site(life=life)
    before = site.says(1_000.0, **features)
    site.known.notice(120, START + 1_030)
    assert site.says(1_030.0, **features) is before
    assert before.ends == 1_200
    assert site.says(1_060.0).ends == (life or None)


def test_a_notice_counts_if_a_known_end_is_later_than_it_can_be():
    site = Site(life=1_300.0)
    site.known.notice(120, START + 1_000)
    assert site.says(1_000.0, shutdowntime_job=at(9_000)).ends == 1_120


@pytest.mark.parametrize(
    ("grace", "retires"),
    [
        ({}, 1800),
        ({"grace_secs": 300}, 300),
        ({"grace_secs": 86_400}, 1800),
        ({"grace_secs": 300, "grace_secs_job": 60}, 60),
    ],
)
def test_the_sites_grace_shortens_the_retirement(grace, retires):
    assert Site(**grace).says(shutdowntime=at(10_000), **grace).retires == 10_000 - retires


def test_a_life_that_ends_before_the_shutdown():
    slot = Site(life=1_000.0).says(shutdowntime=at(5_000))
    assert (slot.ends, slot.reserve_s, slot.shutdown) == (1_000, 20, 5_000)


def test_a_shutdown_before_the_start_is_none():
    assert Site().says(shutdowntime=at(-5), shutdowntime_job=at(-1)) == SLOT
    assert Site().says(shutdowntime=at(-5), shutdowntime_job=at(500)).ends == 500


def job(expected_seconds: float = 0) -> AssignedJob:
    return AssignedJob(AttemptKey(1, 1), "x", expected_seconds=expected_seconds)


def test_what_ends_before_an_announced_shutdown_may_start():
    plain = Slot(cores=1, memory_mb=0, jobs_at_once=1, ends=100.0, reserve_s=20.0)
    assert plain.has_time_for(job(10**6), 0.0)  # the server knew that end
    slot = Slot(cores=1, memory_mb=0, jobs_at_once=1, ends=100.0, reserve_s=20.0, shutdown=100.0)
    assert slot.has_time_for(job(80), 0.0)
    assert not slot.has_time_for(job(80), 1.0)
    assert not slot.has_time_for(job(), 0.0)
