"""What earlier looks teach: how far ends of owners are from what was published, and which jobs claim too much."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.site.jobstatus.vacate.candidates import SIGMA, Candidate, Confidence, Terms, price
from lodesman.site.jobstatus.vacate.history import (
    CREDULITY,
    MOST_AGE_S,
    MOST_AT_CAP,
    MOST_ENDS,
    JobEnd,
    VacateHistory,
    after_list,
    after_look,
    sigma,
)
from lodesman.site.jobstatus.vacate_memory import VacateMemory
from lodesman.site.jobstatus.values import Status
from lodesman.site.jobstatus.waste import Estimate, estimate

T0 = 1_800_000_000
HOUR = 3600


def job(
    name="1",
    *,
    left=HOUR,
    now=T0,
    start=T0 - 100,
    owner="ada",
    uncommitted=0,
    used=4,
    postpone=True,
    began=T0 - HOUR,
):
    """A job of 4 cores that publishes at `now` that it ends after `left` seconds."""
    end = now + left
    status = Status(used, start, end, end, end + HOUR, uncommitted, 0, postpone, 0)
    known = estimate(status, now=now, allocated=4, jobstart=began, age=0)
    return Candidate(name, owner, ("n",), 4, began, status=status, estimate=known, age=0.0)


def look(history, now, *jobs):
    return after_look(after_list(history, jobs, now), jobs, now)


def seen_until(one, ended, *, every=60.0, history=None):
    """Looks at a job that publishes always the same, and then at a site without it."""
    history, now = history or VacateHistory(), float(T0)
    while now < ended:
        history, now = look(history, now, one), now + every
    return after_list(history, (), now)


# --- ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("took", [900, 3600, 7200])
def test_an_end_is_compared_with_what_was_published_first(took):
    history = seen_until(job(), T0 + took)
    (end,) = history.ends["ada"]
    assert end.error == pytest.approx(math.log(took / HOUR), abs=60 / took)
    assert not history.running


def test_estimates_that_are_corrected_do_not_hide_that_they_were_wrong():
    history = VacateHistory()
    for now in range(T0, T0 + 2 * HOUR, 60):
        history = look(
            history, now, job(left=HOUR if now < T0 + 3000 else 600, now=now if now >= T0 + 3000 else T0)
        )
    (end,) = after_list(history, (), T0 + 2 * HOUR).ends["ada"]
    assert end.error == pytest.approx(math.log(2), abs=0.02)


def test_after_a_start_or_a_commit_it_is_expected_anew():
    history = look(VacateHistory(), T0, job(left=HOUR))
    again = T0 + 1800
    history = look(history, again, job(left=HOUR, now=again, start=again - 10))
    for now in range(again, again + HOUR, 60):
        history = after_list(history, [job()], now)
    (end,) = after_list(history, (), again + HOUR).ends["ada"]
    assert end.error == pytest.approx(0, abs=0.02)


def test_a_job_that_leaves_may_commit_and_is_still_measured_by_its_promise():
    history = look(VacateHistory(), T0, job(left=HOUR, postpone=False))
    history = look(history, T0 + 1800, job(left=1800, now=T0 + 1800, start=T0 + 1700, postpone=False))
    assert history.running["1"].ends == T0 + HOUR


@pytest.mark.parametrize("gap", [2 * HOUR, 13 * HOUR])
def test_nothing_is_learned_from_an_end_that_nobody_saw(gap):
    history = look(VacateHistory(), T0, job(left=HOUR))
    assert after_list(history, (), T0 + gap).ends == {}


def test_nothing_is_learned_of_ends_that_are_near_or_not_published():
    for one in (job(left=30), replace(job(), status=Status(4, T0 - 5)), job(used=0)):
        assert seen_until(one, T0 + 600).ends == {}
    silent = replace(job(), age=7200.0)
    assert not look(VacateHistory(), T0, silent).running


def test_a_job_that_was_killed_says_only_that_it_was_late():
    for took, learned in ((1800, 0), (7200, 1)):
        history = VacateHistory()
        for now in range(T0, T0 + took, 60):
            history = look(history, now, job())
        history = after_list(history, [job()], T0 + took, killed=["1"])
        assert len(after_list(history, (), T0 + took + 10).ends.get("ada", ())) == learned


def test_a_job_that_began_anew_under_its_id_has_ended():
    history = seen_until(job(), T0 + 1000)
    again = look(look(VacateHistory(), T0 + 10, job()), T0 + 100, job(began=T0 + 90))
    assert len(history.ends["ada"]) == len(again.ends["ada"]) == 1
    assert again.running["1"].started == T0 + 90


def test_old_ends_are_forgotten_and_few_are_kept():
    history = VacateHistory(ends={"ada": (JobEnd(T0, 1.0),) * 3, "bob": (JobEnd(T0 + MOST_AGE_S, 1.0),)})
    assert list(after_list(history, (), T0 + MOST_AGE_S + 1).ends) == ["bob"]
    for _ in range(MOST_ENDS + 5):
        history = seen_until(job(), T0 + 200, history=history)
    assert len(history.ends["ada"]) == MOST_ENDS


# --- sigma ----------------------------------------------------------------------------------------------------------------


def test_without_data_the_default_holds_and_few_data_change_little():
    assert VacateHistory().sigmas() == {"": pytest.approx(SIGMA)}
    assert sigma([0.0], SIGMA) == pytest.approx(SIGMA * math.sqrt(CREDULITY / (CREDULITY + 1)))
    assert SIGMA < sigma([0.5], SIGMA) < 0.33


@pytest.mark.parametrize("real", [0.05, 0.3, 1.2])
def test_with_many_data_it_is_that_of_the_owner(real):
    rng = random.Random(3)
    ends = {"ada": tuple(JobEnd(T0, rng.gauss(0, real)) for _ in range(MOST_ENDS))}
    learned = VacateHistory(ends=ends).sigmas()
    assert learned["ada"] == pytest.approx(real, rel=0.3, abs=0.12)
    # An owner of whom nothing is known is like the others of this site.
    assert sorted((SIGMA, learned[""], learned["ada"]))[1] == pytest.approx(learned[""])


@given(st.lists(st.floats(-3, 3), max_size=60), st.floats(0.05, 3))
def test_it_is_between_what_was_assumed_and_what_was_seen(errors, assumed):
    seen = math.sqrt(sum(one * one for one in errors) / len(errors)) if errors else assumed
    assert min(seen, assumed) - 1e-9 <= sigma(errors, assumed) <= max(seen, assumed) + 1e-9


def test_a_drain_of_an_owner_who_is_often_wrong_costs_more():
    known = Estimate(remaining_expected=3000, draining_waste=1000, kill_waste=10**6)
    ada, bob = (
        Candidate("1", owner, ("n",), 4, T0 - 10**6, estimate=known, age=0.0) for owner in ("ada", "bob")
    )
    terms = Terms(4000.0, Confidence("risk", None), sigmas={"ada": 0.05, "": 0.8})
    costs = [price(one, terms, None, T0).cost for one in (ada, bob)]
    assert costs[0] < 2000
    assert costs[1] > 100_000
    fixed = replace(terms, confidence=Confidence("risk", 0.3))
    assert price(ada, fixed, None, T0).cost == price(bob, fixed, None, T0).cost


# --- claims ---------------------------------------------------------------------------------------------------------------


def believed(*looks):
    """Whether the job is believed after these looks, 100 s apart."""
    history, found = VacateHistory(), []
    for number, one in enumerate(looks):
        now = T0 + 100 * number
        history = look(history, now, one(now))
        found.append(history.judged(one(now)).is_believed)
    return found


def liar(now):
    return job(now=now, uncommitted=10**15)


def honest(now):
    return job(now=now, start=now - 10)


def test_more_than_the_cap_too_often_in_a_row_is_not_believed():
    assert believed(*[liar] * 6) == [True] * MOST_AT_CAP + [False] * 3
    assert all(believed(*[liar] * 3, honest, *[liar] * 3))
    assert believed(*[liar] * 5, honest)[-2:] == [False, True]


def test_a_job_at_its_cap_that_has_never_committed_is_believed():
    def plain(now):
        return job(now=now, start=T0 - HOUR, left=50)

    assert plain(T0 + 500).estimate.kill_waste == 4 * (HOUR + 500)
    assert all(believed(*[plain] * 20))


def test_a_job_at_its_cap_after_payloads_have_ended_is_not():
    def moving(now):
        """A new start each time, and yet it claims to lose all since its own."""
        return job(now=now, start=now, uncommitted=4 * (now - T0 + HOUR))

    assert believed(*[moving] * 6) == [True] * (MOST_AT_CAP + 1) + [False] * 2


def test_looks_of_one_call_count_once():
    history = VacateHistory()
    for now in range(T0, T0 + 50):
        history = look(history, now, liar(now))
    assert history.running["1"].at_cap == 1


def test_it_counts_as_silent_and_says_why():
    history = VacateHistory()
    for number in range(5):
        history = look(history, T0 + 100 * number, liar(T0 + 100 * number))
    one = history.judged(liar(T0 + 500))
    assert one.is_silent
    assert price(one, Terms(), 100.0, T0 + 500).cost == 400
    assert "5 times in a row" in price(one, Terms(), 100.0, T0 + 500).reason
    assert history.judged(replace(one, is_believed=True, started=T0)).is_believed


# --- the file -------------------------------------------------------------------------------------------------------------


def test_it_is_kept_for_each_batch_system_and_read_by_the_next_call(tmp_path):
    path = tmp_path / "history"
    VacateMemory(path, "slurm", keeps=False).update([job()], T0, [job()])
    assert not path.exists()
    VacateMemory(path, "slurm", keeps=True).update([job()], T0, [job()])
    other = VacateMemory(path, "htcondor", keeps=False)
    assert other.update([], T0 + 60).running == {}
    again = VacateMemory(path, "slurm", keeps=False)
    learned = again.update([], T0 + 60)
    assert list(learned.ends) == ["ada"]
    assert (again.fault, other.fault, path.stat().st_mode & 0o777) == ("", "", 0o600)
    assert VacateMemory(path, "slurm", keeps=False).update([], T0 + 61) == learned
    assert list(tmp_path.iterdir()) == [path]


def test_a_call_without_a_file_knows_what_it_saw_itself(tmp_path):
    memory = VacateMemory(tmp_path / "history", "slurm", keeps=False)
    memory.update([job()], T0, [job()])
    assert memory.update([], T0 + 60).ends


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"slurm": 3}', '{"slurm": {"running": {"1": [1,2,3,4,5,6,7,8,9,10,11,12,13]}}}', "\ud800"],
)
def test_a_file_that_is_none_is_left_alone(tmp_path, text):
    path = tmp_path / "history"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    before = path.read_bytes()
    memory = VacateMemory(path, "slurm", keeps=True)
    assert memory.update([job()], T0, [job()]).running
    assert str(path) in memory.fault
    assert path.read_bytes() == before


def test_a_file_that_others_can_write_is_not_believed(tmp_path):
    path = tmp_path / "history"
    path.write_text(json.dumps({"slurm": {"ends": {"ada": [[T0, 3.0]]}}}))
    path.chmod(0o666)
    memory = VacateMemory(path, "slurm", keeps=True)
    assert memory.update([], T0).ends == {}
    assert "others" in memory.fault
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    memory = VacateMemory(link, "slurm", keeps=True)
    assert memory.update([], T0).ends == {}
    assert memory.fault
