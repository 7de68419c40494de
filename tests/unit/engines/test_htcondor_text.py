"""What HTCondor prints, recorded from version 23.9.6, and what it is given to read."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import htcondor_text as text
from lodesman.server.engines.backend import NativeState

DATA = Path(__file__).parents[2] / "data" / "htcondor"
QUEUE = (DATA / "condor_q.txt").read_text(encoding="utf-8")
HISTORY = (DATA / "condor_history.json").read_text(encoding="utf-8")
# For no job at all, and the same of another account that may not see the others.
NONE = """
Total for query: 0 jobs; 0 completed, 0 removed, 0 idle, 0 running, 0 held, 0 suspended 
Total for other: 0 jobs; 0 completed, 0 removed, 0 idle, 0 running, 0 held, 0 suspended 
Total for all users: 3 jobs; 0 completed, 0 removed, 2 idle, 1 running, 0 held, 0 suspended

"""  # noqa: W291 - as it is printed
SPEC = shell_spec(QueueId("LCG.One.de", "condor", "long"), "abc", "true", count=2)


def row(*values: str, **named: str) -> str:
    """A line of condor_q; attributes that are not named are undefined."""
    base = {"ClusterId": "5", "ProcId": "0", "JobStatus": "1", "LodesmanSubmission": '"abc"', **named}
    assert base.keys() <= set(text.ATTRIBUTES)
    return " ".join([*(base.get(name, "undefined") for name in text.ATTRIBUTES), *values])


def answer(*rows: str, jobs: int | None = None) -> str:
    count = len(rows) if jobs is None else jobs
    totals = f"{count} jobs; 0 completed, 0 removed, 0 idle, 0 running, 0 held, 0 suspended"
    return "\n".join([*rows, "", f"Total for query: {totals} ", f"Total for all users: {totals}", ""])


def only(*rows: str) -> text.CondorJob:
    (job,) = text.parse_queue(answer(*rows)).jobs.values()
    return job


def test_each_state_of_a_queue():
    jobs = text.parse_queue(QUEUE).jobs
    assert {job.stamp: (number, job.state, job.word) for number, job in jobs.items()} == {
        "ended-1": ("1.0", NativeState.ENDED, "Completed"),
        "killed-1": ("2.0", NativeState.ENDED, "Completed"),
        "gone-2": ("3.1", NativeState.WAITING, "Idle"),
        "heldone-1": ("4.0", NativeState.HELD, "Held 1/0"),
        "runs-1": ("5.0", NativeState.RUNNING, "Removed"),
        "runs-2": ("5.1", NativeState.RUNNING, "Running"),
    }
    assert [jobs[number].exit_code for number in ("1.0", "2.0", "4.0", "5.0")] == [5, 137, None, None]
    assert jobs["4.0"].detail == 'said by "ada", ü (by user lode)'
    assert jobs["3.1"].detail == "no match found"
    assert (jobs["5.1"].host, jobs["5.1"].started_at, jobs["5.1"].ended_at) == ("vm", 1795443223, None)
    assert jobs["1.0"].ended_at == 1795443219
    assert {job.queue for job in jobs.values()} == {text.queue_word(SPEC.queue)}


def test_the_counts_of_a_queue():
    found = text.parse_queue(QUEUE)
    assert found.asked == found.everyone == text.Totals(jobs=6, waiting=1, running=1)
    nothing = text.parse_queue(NONE)
    assert (nothing.jobs, nothing.asked.jobs, nothing.everyone.waiting) == ({}, 0, 2)


def test_each_end_in_the_history():
    jobs = text.parse_history(HISTORY)
    assert {number: (job.stamp, job.state, job.exit_code, job.starts) for number, job in jobs.items()} == {
        "5.1": ("runs-2", NativeState.ENDED, 137, 1),
        "5.0": ("runs-1", NativeState.ENDED, 7, 1),
        "3.0": ("gone-1", NativeState.ENDED, None, 0),
    }
    assert "PeriodicRemove" in jobs["5.1"].detail
    assert (jobs["5.0"].host, jobs["5.0"].ended_at) == ("vm", 1795443229)
    assert jobs["5.0"].detail == "via condor_rm (by user lode)"
    assert text.parse_history("[\n]\n") == {}


def test_a_removed_job_has_ended_at_once_only_if_it_never_began():
    assert only(row(JobStatus="3")).state is NativeState.ENDED
    assert only(row(JobStatus="3", NumShadowStarts="1")).state is NativeState.RUNNING


def test_an_evicted_job_is_no_waiting_one():
    job = only(row(JobStatus="1", NumShadowStarts="1"))
    assert job.state is NativeState.UNKNOWN
    assert "no second time" in job.detail


def test_a_job_whose_files_are_on_their_way_is_not_held():
    held = {"JobStatus": "5", "HoldReasonSubCode": "0"}
    assert only(row(**held, HoldReasonCode="16")).state is NativeState.WAITING
    job = only(row(**held, HoldReasonCode="13", HoldReason='"no such \\\\ file"'))
    assert (job.state, job.word, job.detail) == (NativeState.HELD, "Held 13/0", "no such \\\\ file")


@pytest.mark.parametrize("status", ["2", "6", "7"])
def test_a_job_that_is_suspended_or_brings_its_output_back_runs(status):
    assert only(row(JobStatus=status, RemoteHost='"slot1_2@wörker.example.org"')).host == "wörker.example.org"
    assert only(row(JobStatus=status)).state is NativeState.RUNNING


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "\n",
        "Welcome to the submit host\n",
        "[\n]\n",
        QUEUE[: len(QUEUE) // 2],
        QUEUE[: QUEUE.index("Total for all")],
        QUEUE + QUEUE,
        QUEUE.replace("6 jobs", "7 jobs"),
        "\n".join(QUEUE.splitlines()[:1] + QUEUE.splitlines()),
        "\n".join(QUEUE.splitlines()[1:]),
    ],
)
def test_an_answer_that_is_not_whole_is_a_fault(printed):
    with pytest.raises(BackendFault) as fault:
        text.parse_queue(printed)
    assert fault.value.data["transient"]


def test_a_banner_around_an_answer_does_no_harm():
    assert text.parse_queue("Welcome!\n*** 3 users ***\n" + QUEUE) == text.parse_queue(QUEUE)


@pytest.mark.parametrize(
    "odd",
    [
        "7 0 2 half a li",
        row(ClusterId="7", LodesmanSubmission="undefined"),
        row(ClusterId="7", LodesmanSubmission='"../../etc"'),
        row(ClusterId="7", JobStatus="9"),
        row(ClusterId="7", JobStatus="true"),
        row("1", ClusterId="7"),
        row(ClusterId="7", HoldReason='"it ends in \\"'),
        row(ClusterId="7", ProcId="-1"),
        row(ClusterId="9" * 30),
    ],
)
def test_an_odd_record_is_left_out(odd):
    assert list(text.parse_queue(answer(odd, row(), jobs=2)).jobs) == ["5.0"]


@pytest.mark.parametrize(
    "printed",
    ["", "[", "[\n{", "{}", "null", HISTORY[:-3], HISTORY + HISTORY, "[" * 100_000, "banner\n" + HISTORY],
)
def test_a_history_that_is_not_whole_is_a_fault(printed):
    with pytest.raises(BackendFault):
        text.parse_history(printed)


@pytest.mark.parametrize(
    "odd", ["1", "null", "[]", "{}", '{"ClusterId": 1.5}', '{"ClusterId": NaN, "ProcId": 0}']
)
def test_an_odd_record_of_the_history_is_left_out(odd):
    assert text.parse_history(f"[{odd}]") == {}


@given(st.text() | st.text('0123456789 "\\\n.jobs;Total for query:'))
def test_any_text_is_an_answer_or_a_fault(printed):
    for parse in (text.parse_queue, text.parse_history):
        with contextlib.suppress(BackendFault):
            parse(printed)
    text.parse_free_cores(printed)
    text.parse_cluster(printed, 1)
    assert len(text.reason_of(printed)) <= 300


@given(st.data())
def test_a_cut_or_doubled_answer_ends_no_pilot(data):
    whole = text.parse_queue(QUEUE).jobs
    lines = QUEUE.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(QUEUE)))
    line = data.draw(st.integers(0, len(lines) - 1))
    for printed in (QUEUE[:at], QUEUE[at:], "".join(lines[:line] + lines[line:][:1] + lines[line:])):
        with contextlib.suppress(BackendFault):
            for number, job in text.parse_queue(printed).jobs.items():
                assert whole[number].state is job.state


@given(
    st.lists(
        st.sampled_from(["undefined", "true", "1", "-5", "1.5", '"x"', '"@"', "9" * 40]),
        min_size=15,
        max_size=15,
    )
)
def test_any_values_make_a_record(values):
    head = ["5", "0", "2", '"abc"']
    text.parse_queue(answer(" ".join([*head, *values])))


def test_what_condor_submit_says():
    assert text.parse_cluster("12.0 - 12.2\n", 3) == 12
    assert text.parse_cluster("WARNING: old files\n12.0 - 12.0\n", 1) == 12
    for printed in (
        "",
        "12.0 - 12.1\n",
        "12.0 - 13.2\n",
        "12.0 - 12.2\n13.0 - 13.2\n",
        "12.0 - 12.2 and more\n",
        "2 job(s)",
    ):
        assert text.parse_cluster(printed, 3) is None


def test_why_condor_submit_refuses():
    syntax = "\nERROR: on Line 2 of submit file: \n\nERROR: Failed to parse command file (line 2).\n"
    assert text.reason_of(syntax) == "ERROR: on Line 2 of submit file:"
    assert text.is_permanent(syntax)
    assert text.is_permanent("ERROR: Parse error in expression: \n\tRequestCpus = (\n\t\n")
    for error in (
        "ERROR: Can't find address of local schedd\n",
        "ERROR: Failed to connect to local queue manager\n",
        "",
    ):
        assert not text.is_permanent(error)
    assert text.reason_of("") == "no reason"


def test_what_slots_are_free():
    assert text.parse_free_cores("2\n16\n0\n") == 18
    for printed in ("", "\n", "2\nbanner\n", "-1\n", "²\n", "undefined\n"):
        assert text.parse_free_cores(printed) is None


def test_a_description_asks_for_what_a_pilot_needs():
    spec = replace(SPEC, cores=8, memory_mb=16_000, wall_seconds=3_601)
    lines = text.make_description(spec, keep_seconds=60, remote=False).splitlines()
    assert {"request_cpus = 8", "request_memory = 16000", "getenv = false", "queue 2"} <= set(lines)
    assert '+LodesmanSubmission = "abc"' in lines
    assert '+LodesmanQueue = "LCG.One.de/condor/long"' in lines
    assert "requirements = !((NumShadowStarts ?: 0) > 0)" in lines
    (remove,) = (line for line in lines if line.startswith("periodic_remove"))
    assert "(NumShadowStarts ?: 0) > 0" in remove
    assert "JobCurrentStartDate > 3601" in remove
    assert not any(line.startswith(("+queue", "+maxWallTime")) for line in lines)


@pytest.mark.parametrize(
    ("queue", "group"),
    [("long", "long"), ("group_a.b", "group_a.b"), ("default", ""), ("two words", ""), ("a\n", "")],
)
def test_the_name_of_a_queue_is_the_accounting_group_in_a_pool(queue, group):
    spec = replace(SPEC, queue=QueueId("s", "ce", queue))
    lines = text.make_description(spec, keep_seconds=60, remote=False).splitlines()
    assert [line for line in lines if line.startswith("acc")] == (
        [f"accounting_group = {group}"] if group else []
    )
    assert "accounting_group" not in text.make_description(spec, keep_seconds=60, remote=True)


def test_a_pilot_without_limits_has_none():
    lines = text.make_description(SPEC, keep_seconds=60, remote=False)
    assert "request_memory" not in lines
    assert "JobCurrentStartDate" not in lines


def test_a_gateway_is_given_limits_in_its_own_words():
    spec = replace(SPEC, cores=8, memory_mb=16_000, wall_seconds=3_601)
    lines = text.make_description(spec, keep_seconds=60, remote=True).splitlines()
    assert {'+queue = "long"', "+xcount = 8", "+maxMemory = 16000", "+maxWallTime = 61"} <= set(lines)


def test_no_name_of_a_queue_breaks_a_description():
    queue = QueueId("S$(HOME)", 'a"b\n', "ü $ENV(X)\\")
    lines = text.make_description(replace(SPEC, queue=queue), keep_seconds=60, remote=True)
    for bad in ("$(HOME)", '"b', "$ENV", "ü", "\\"):
        assert bad not in lines
    assert lines.count("\n") == text.make_description(SPEC, keep_seconds=60, remote=True).count("\n")


def test_a_constraint_names_number_and_submission():
    pilots = {"a-1": "7.0", "a-3": "7.2", "b-1": "8.0", "no stamp": "9.0", "c-1": "7.0 || true"}
    assert text.these_jobs(pilots) == (
        '(ClusterId == 7 && LodesmanSubmission == "a" && member(ProcId, {0, 2}))'
        ' || (ClusterId == 8 && LodesmanSubmission == "b" && member(ProcId, {0}))'
    )
    assert text.these_jobs({}) == "false"
    assert text.our_jobs({"b", "a"}) == 'member(LodesmanSubmission, {"a", "b"})'
    assert text.our_jobs([f"s{number}" for number in range(501)]) == text.our_jobs()


def test_constraints_fit_into_one_argument():
    names = [f"{number:048}" for number in range(text.MOST_NAMES)]
    assert len(text.our_jobs(names)) < 128 << 10
    assert len(text.these_jobs({f"{name}-1000": f"{10**9}.999" for name in names})) < 128 << 10


@pytest.mark.slow
def test_ten_thousand_pilots_are_read():
    rows = [
        row(
            ClusterId=str(number // 1000), ProcId=str(number % 1000), JobStatus="2", NumShadowStarts="1",
            LodesmanSubmission=f'"{number // 1000:016}"', LodesmanQueue='"LCG.One.de/condor/long"',
            RemoteHost=f'"slot1_{number % 64}@node{number % 500}.example.org"',
            JobCurrentStartDate=str(1795440000 + number), EnteredCurrentStatus=str(1795440000 + number),
            LastRejMatchReason='"no match found "', ExitBySignal="false",
        )
        for number in range(10_000)
    ]  # fmt: skip
    printed = answer(*rows)
    seen = {job.stamp: job.status(1.0) for job in text.parse_queue(printed).jobs.values()}
    assert len(seen) == 10_000
