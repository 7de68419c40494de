"""Grid Engine's answers as values: recorded ones, and all that could stand there instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import BackendFault
from lodesman.server.engines import gridengine_text as text
from lodesman.server.engines.backend import CancelOutcome, NativeState

DATA = Path(__file__).parents[2] / "data" / "gridengine"
OWN, ALL, DISABLED, ERRORS, ACCOUNTING = (
    (DATA / name).read_text()
    for name in ("qstat-own.xml", "qstat-all.xml", "qstat-disabled.xml", "qstat-errors.txt", "accounting")
)
HEAD = "<?xml version='1.0'?>\n<job_info>"
EMPTY = f"{HEAD}<queue_info></queue_info><job_info></job_info></job_info>"


def row(job: int, tasks: str, name: str, state: str, *, host: str = "") -> str:
    """A line as qstat writes it."""
    place = (
        f"<queue_name>all.q@{host}</queue_name><JAT_start_time>2026-11-23T14:04:20</JAT_start_time>"
        if host
        else ""
    )
    return (
        f"<job_list><JB_job_number>{job}</JB_job_number><JB_name>{name}</JB_name><JB_owner>lodegrid</JB_owner>"
        f"<state>{state}</state>{place}<slots>1</slots><tasks>{tasks}</tasks></job_list>"
    )


def a_list(*, running: str = "", pending: str = "") -> str:
    return f"{HEAD}<queue_info>{running}</queue_info><job_info>{pending}</job_info></job_info>"


def account(job: int, task: int, name: str, *, failed: int = 0, status: int = 0, start: int = 1_000) -> str:
    """A line of the accounting file."""
    end = start + 60 if start else 0
    zeros = ":".join("0" * 18)
    return (
        f"all.q:node7:group:lodegrid:{name}:{job}:sge:0:900:{start}:{end}:{failed}:{status}:{zeros}"
        f":NONE:dept:NONE:1:{task}:0:0:0:-q all.q:0:NONE:0:0:0\n"
    )


def test_what_qsub_submitted():
    assert text.parse_submission("12.1-4:1\n", 4) == 12
    assert text.parse_submission("Welcome to the cluster\n12.1-1:1\n", 1) == 12


@pytest.mark.parametrize(
    "out",
    [
        "",
        "12\n",
        "12.1-4:1",
        "12.1-3:2\n",
        "12.1-3",
        "12.1-3:1\n13.1-3:1\n",
        "Your job 12.1-3:1",
        "\u0661.1-3:1",
    ],
)
def test_an_unclear_answer_names_no_job(out):
    assert text.parse_submission(out, 3) is None


def test_own_jobs_are_read():
    jobs = text.jobs(OWN)
    assert jobs.account == "lodegrid"
    assert [(one.job, one.name, one.letters, one.state, one.size()) for one in jobs.listed] == [
        (1, "lode-9f3a61c02b7d", "hr", NativeState.RUNNING, 1),
        (2, "lode-1c44d0a7e9b2", "Eqw", NativeState.HELD, 1),
        (6, "lode-000000000001", "qw", NativeState.WAITING, 1),
        (1, "lode-9f3a61c02b7d", "hqw", NativeState.HELD, 1),
        (3, "lode-77e01b5f3c8a", "hqw", NativeState.HELD, 3),
    ]
    first, second, *_ = jobs.listed
    assert (first.queue, first.host, first.started_at) == ("all.q", "vm", 1_795_442_660.0)
    assert (second.queue, second.host, second.started_at) == ("", "", None)


def test_all_jobs_and_their_queues_are_read():
    jobs = text.jobs(ALL)
    assert [(one.queue, one.used, one.total, one.is_open) for one in jobs.instances] == [
        ("all.q", 7, 7, True)
    ]
    assert {one.name: (one.owner, one.queue) for one in jobs.listed if one.owner == "root"} == {
        "other": ("root", ""),
        "weird&%lt;name": ("root", "al*"),
    }
    assert not text.jobs(DISABLED).instances[0].is_open


def test_the_load_of_a_queue():
    load = text.load(text.jobs(ALL), "all.q", 5.0)
    assert (load.observed_at, load.waiting, load.running, load.held) == (5.0, 3, 1, 5)
    assert (load.others_waiting, load.others_running, load.slots, load.free_cores) == (15, 6, 7, 0)


def test_pilots_of_another_server_of_the_account_are_others():
    every, none = (text.load(text.jobs(ALL), "all.q", 5.0, mark) for mark in ("", "zz"))
    assert (none.waiting, none.running, none.held) == (0, 0, 0)
    assert none.others_running == every.others_running + every.running
    assert none.others_waiting >= every.others_waiting + every.waiting


def test_the_load_of_a_queue_that_is_shut_or_not_there():
    shut = text.load(text.jobs(DISABLED), "all.q", 5.0)
    assert (shut.slots, shut.free_cores) == (7, 0), "what runs there goes on"
    unknown = text.load(text.jobs(ALL), "no.q", 5.0)
    assert (unknown.waiting, unknown.running, unknown.others_running, unknown.slots) == (0, 0, 0, None)
    assert unknown.others_waiting == 14, "jobs that ask for no queue"


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", "waiting"), ("dqw", "waiting"), ("Rq", "waiting"), ("hqw", "held"), ("hRwq", "held"), ("Eqw", "held"),
        ("dEqw", "held"), ("Ehqw", "held"), ("r", "running"), ("t", "running"), ("hr", "running"), ("dr", "running"),
        ("dt", "running"), ("Rr", "running"), ("s", "running"), ("S", "running"), ("T", "running"), ("hs", "running"),
        ("", "unknown"), ("z", "ended"), ("zr", "unknown"), ("?", "unknown"), ("r\n", "unknown"),
    ],
)  # fmt: skip
def test_letters_combine(letters, state):
    (one,) = text.jobs(a_list(pending=row(1, "1", "lode-a", letters))).listed
    assert one.state == state


def test_arrays_are_collapsed():
    (one,) = text.jobs(a_list(pending=row(1, "3-9:2,12,20-1000:1", "lode-a", "qw"))).listed
    assert one.size() == 4 + 1 + 981
    assert [any(task in part for part in one.tasks) for task in (3, 4, 9, 12, 20, 1001)] == [
        True, False, True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("tasks", ["x", "1-", "5-1:1", "1-5:0", "1,,2", "-1", "9" * 30, "1-3:1,x"])
def test_an_odd_line_is_left_out(tasks):
    both = row(1, tasks, "lode-a", "r") + row(2, "1", "lode-b", "r")
    assert [one.job for one in text.jobs(a_list(running=both)).listed] == [2]


def test_a_host_may_have_any_name():
    (one,) = text.jobs(a_list(running=row(1, "1", "lode-a", "r", host="nœud-é.example"))).listed
    assert one.host == "nœud-é.example"


@pytest.mark.parametrize(
    "out",
    [
        "",
        "\n",
        "Welcome to the cluster!\n",
        "error: commlib error: got select error (Connection refused)\n",
        EMPTY.replace("</job_info>", ""),
        EMPTY + "trailing words",
        EMPTY + EMPTY,
        OWN[: len(OWN) // 2],
        HEAD + "</job_info>",
        f"{HEAD}<queue_info></queue_info></job_info>",
        "<?xml version='1.0'?><html></html>",
        pytest.param("<?xml version='1.0'?>" + "<a>" * 200_000, marks=pytest.mark.slow),
        "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b 'c'><!ENTITY d '&b;&b;&b;&b;'>]>"
        + EMPTY.partition("?>")[2],
        "<?xml version='1.0'?>\0" + EMPTY.partition("?>")[2],
    ],
)
def test_what_is_no_answer_is_not_believed(out):
    with pytest.raises(BackendFault, match="not to be believed") as fault:
        text.jobs(out)
    assert fault.value.data["transient"] is True


def test_an_answer_after_a_banner_is_believed():
    assert text.jobs("Welcome to <the> cluster!\n" + EMPTY).listed == ()


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(text, "_MOST_CHARACTERS", 10)
    with pytest.raises(BackendFault):
        text.jobs(EMPTY)


def test_reasons_of_errors():
    why = 'error: can\'t open output file "/no/such/place": No such file or directory'
    assert text.parse_error_reasons(ERRORS) == {(2, 1): why}
    assert text.parse_error_reasons("Following jobs do not exist:\n9\nerror reason 1: x\n") == {}


def test_what_qdel_did():
    out = (DATA / "qdel.txt").read_text()
    asked = [(1, 1), (1, 4), (2, 1), (3, 2), (99, 1)]
    assert [str(outcome) for outcome in text.parse_deletions(out, asked).values()] == [
        "ordered", "removed", "removed", "removed", "failed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("out", "outcome"),
    [
        ("lodegrid has deleted job-array tasks 3-7:2,9 of job 14", "removed"),
        ("lodegrid has deleted job-array task 14.9", "removed"),
        ("lodegrid has registered the job-array task 14.9 for deletion", "ordered"),
        ("lodegrid has registered the job 14 for deletion", "ordered"),
        ("job 14 is already in deletion", "ordered"),
        ("lodegrid has deleted job-array tasks 3-7:2 of job 14", "failed"),
        ("lodegrid has deleted job-array task 14.99", "failed"),
        ("lodegrid has deleted job 144", "failed"),
        ('job "14" task "9" does not exist', "failed"),
        ('denied: job "14" does not exist', "failed"),
        ('lodegrid - you do not have the necessary privileges to delete the job "14"', "failed"),
        ("error: commlib error: got select error (Connection refused)", "failed"),
        ("lodegrid has deleted job-array tasks x of job 14", "failed"),
        ("", "failed"),
    ],
)
def test_each_line_of_qdel(out, outcome):
    assert text.parse_deletions(f"Welcome\n{out}\n", [(14, 9)]) == {(14, 9): CancelOutcome(outcome)}


def test_what_ended_by_the_accounting_file():
    found = text.parse_ends(f"lodesman-account lodegrid\n{ACCOUNTING}")
    assert {key: (one.name, one.exit_code, one.word) for key, one in found.items()} == {
        (1, 1): ("lode-9f3a61c02b7d", 140, "failed 100: assumedly after job; exit_status 140"),
        (1, 2): ("lode-9f3a61c02b7d", 140, "failed 100: assumedly after job; exit_status 140"),
        (1, 3): ("lode-9f3a61c02b7d", 138, "failed 100: assumedly after job; exit_status 138"),
        (2, 1): ("lode-1c44d0a7e9b2", None, "failed 26: opening output file"),
        (6, 1): ("lode-000000000001", 3, "exit_status 3"),
        (7, 1): ("lode-000000000002", 137, "failed 100: assumedly after job; exit_status 137"),
        (8, 1): (
            "lode-000000000003",
            140,
            "failed 37: qmaster enforced h_rt, h_cpu, or h_vmem limit; exit_status 140",
        ),
    }
    assert (found[1, 2].host, found[1, 2].started_at, found[1, 2].ended_at) == (
        "vm",
        1_795_442_660.0,
        1_795_442_664.0,
    )
    assert (found[2, 1].started_at, found[2, 1].ended_at) == (None, None)
    assert found[6, 1].detail == ""


def test_records_of_other_accounts_are_not_ours():
    assert text.parse_ends(f"lodesman-account another\n{ACCOUNTING}") == {}


def test_the_last_record_of_a_task_counts():
    lines = account(1, 1, "lode-a", failed=26, start=0) + account(1, 1, "lode-a", status=4)
    assert text.parse_ends(lines)[1, 1].exit_code == 4


def test_an_end_that_failed_is_no_success():
    assert text.parse_ends(account(1, 1, "lode-a", failed=19))[1, 1].exit_code is None


def test_half_a_record_is_left_out():
    line = account(123, 17, "lode-a").rstrip("\n")
    assert text.parse_ends(line).keys() == {(123, 17)}
    for end in range(len(line) - 1):
        assert text.parse_ends(line[:end]) == {}
    beginning = line.index(":")
    assert all(text.parse_ends(line[start:]) == {} for start in range(beginning + 1, len(line)))


def test_notes_of_removed_pilots():
    out = "lodesman-removed abc 12.3.removed\nlodesman-removed abc 12.4.remo\nlodesman-removed ../x 1.1.removed\n"
    assert {key: (one.name, one.exit_code) for key, one in text.parse_ends(out).items()} == {
        (12, 3): ("lode-abc", None)
    }


def test_neighbours_are_one_word_of_qdel():
    keys = [(7, 3), (5, 1), (7, 1), (7, 2), (7, 5), (6, 2)]
    assert text.deletion_words(keys) == [["5.1", "6.2", "7.1-3", "7.5"]]
    assert text.deletion_words([]) == []
    many = text.deletion_words((1, task) for task in range(1, 20_000, 2))
    assert len(many) == 3
    assert all(sum(len(word) + 1 for word in words) < 100_000 for words in many)


WORDS = st.sampled_from(
    [
        "1",
        "1.1",
        "qw",
        "r",
        "E",
        ":",
        "\n",
        " ",
        "<state>",
        "</state>",
        "<job_list>",
        "</job_list>",
        "lode-a",
        "\0",
        "é",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(WORDS).map("".join))


@given(st.data())
def test_nothing_but_a_fault_is_raised(data):
    whole = data.draw(st.sampled_from([OWN, ALL, ACCOUNTING, ERRORS, EMPTY]))
    lines = whole.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    changed = data.draw(
        st.sampled_from([
            whole[: data.draw(st.integers(0, len(whole)))],
            "".join([*lines[: at + 1], *lines[at:]]),
            "".join([*lines[:at], *lines[at + 1 :]]),
            "".join([*lines[:at], data.draw(TEXTS), *lines[at:]]),
        ])
    )  # fmt: skip
    for out in (changed, data.draw(TEXTS)):
        text.parse_submission(out, 1)
        text.parse_error_reasons(out)
        text.parse_deletions(out, [(1, 1)])
        text.parse_ends(out)
        try:
            jobs = text.jobs(out)
        except BackendFault:
            continue
        text.load(jobs, "all.q", 1.0)
        assert all(one.state in NativeState for one in jobs.listed)


@pytest.mark.slow
def test_ten_thousand_pilots_are_read():
    running = "".join(
        row(1 + n // 1000, str(n % 1000 + 1), f"lode-{n // 1000:016x}", "r", host=f"node{n % 300}")
        for n in range(10_000)
    )
    lines = "".join(account(1 + n // 1000, n % 1000 + 1, f"lode-{n // 1000:016x}") for n in range(10_000))
    wanted = {(1 + n // 1000, n % 1000 + 1): f"{n // 1000:016x}-{n % 1000 + 1}" for n in range(10_000)}
    out = a_list(running=running)
    assert len(text.match_rows(wanted, text.jobs(out).listed)) == len(text.parse_ends(lines)) == 10_000
