"""Jobs by state: what Slurm 22.05, Grid Engine 8.1.9, HTCondor 23.9 and ARC 6.17 printed, and what is no whole count."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lodesman.site.advertise.counts import (
    CONDOR_FORMAT,
    JobCounts,
    NotCounted,
    count_jobs,
    read_arc,
    read_command,
    read_condor_q,
    read_qstat,
    read_squeue,
    squeue_words,
)

DATA = Path(__file__).resolve().parents[2] / "data" / "advertise"
MARK = "~M~"


def recorded(name):
    return (DATA / name).read_text(encoding="utf-8")


def squeue(*rows):
    return "".join(
        f"{MARK.join(row)}{MARK}\n" for row in (("STATE", "ARRAY_JOB_ID", "ARRAY_TASK_ID", "NAME"), *rows)
    )


def test_slurm_as_it_was_recorded():
    """One completes, one runs, one is held, three wait; a name has two lines."""
    found = read_squeue(recorded("squeue.txt"), MARK)
    assert found == JobCounts(2, 0, 4, ["abc_1-3", "abc_1-2", "abc_1-1"])


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("RUNNING", (1, 0)), ("COMPLETING", (1, 0)), ("SUSPENDED", (1, 0)), ("STAGE_OUT", (1, 0)), ("NEWEST", (1, 0)),
        ("PENDING", (0, 1)), ("CONFIGURING", (0, 1)), ("REQUEUE_HOLD", (0, 1)), ("SPECIAL_EXIT", (0, 1)),
        ("COMPLETED", (0, 0)), ("TIMEOUT", (0, 0)), ("CANCELLED", (0, 0)), ("REVOKED", (0, 0)),
    ],
)  # fmt: skip
def test_states_of_slurm(word, wanted):
    """What is in no known state has resources, perhaps."""
    found = read_squeue(squeue((word, "7", "N/A", "job")), MARK)
    assert (found.running, found.pending) == wanted
    assert found.submitting == 0
    assert found.stamps == []


def test_the_newest_pilots_come_first_and_others_are_no_pilots():
    rows = [("PENDING", "9", "2", "lode-new"), ("RUNNING", "7", "1", "lode-old"), ("RUNNING", "8", "N/A", "lode-x"),
            ("RUNNING", "8", "1", "lodestar"), ("RUNNING", "8", "1", "lode-a b"),
            ("COMPLETED", "8", "1", "lode-end")]  # fmt: skip
    assert read_squeue(squeue(*rows), MARK).stamps == ["new-2", "old-1"]


@pytest.mark.parametrize(
    "text",
    [
        "", "slurm_load_jobs error: Unable to contact slurm controller", squeue()[:-1], squeue(("RUNNING", "7", "1")),
        squeue(("RUNNING", "seven", "1", "x")), squeue(("RUNNING", "7", "1", "x"))[:-3], "STATE~M~NAME~M~\n",
        squeue(("RUNNING", "7", "1", "x")) + "RUNNING",
    ],
)  # fmt: skip
def test_what_squeue_did_not_print_whole_is_no_count(text):
    with pytest.raises(NotCounted, match="squeue printed"):
        read_squeue(text, MARK)


def test_slurm_without_jobs():
    assert read_squeue(squeue(), MARK) == JobCounts(0, 0, 0, [])
    assert squeue_words(MARK)[0] == "squeue"


def test_grid_engine_as_it_was_recorded():
    """Two of twelve run, one other job is held, and one waits."""
    found = read_qstat(recorded("qstat.xml"))
    assert (found.running, found.submitting, found.pending) == (2, 0, 12)
    assert sorted(found.stamps) == sorted(f"abc_1-{number}" for number in range(1, 13))


def qstat(*states, name="job", number="7"):
    rows = "".join(
        f"<job_list><JB_job_number>{number}</JB_job_number><JB_name>{name}</JB_name><state>{state}</state></job_list>"
        for state in states
    )
    return f"<?xml version='1.0'?>\n<job_info><queue_info></queue_info><job_info>{rows}</job_info></job_info>"


@pytest.mark.parametrize(
    ("state", "wanted"),
    [("r", (1, 0)), ("t", (1, 0)), ("hr", (1, 0)), ("dr", (1, 0)), ("s", (1, 0)), ("Rr", (1, 0)), ("qw", (0, 1)),
     ("hqw", (0, 1)), ("Eqw", (0, 1)), ("Rq", (0, 1)), ("z", (0, 0))],
)  # fmt: skip
def test_states_of_grid_engine(state, wanted):
    found = read_qstat(qstat(state))
    assert (found.running, found.pending) == wanted


def test_a_pilot_that_is_no_array():
    assert read_qstat(qstat("r", name="lode-abc")).stamps == ["abc-1"]


@pytest.mark.parametrize(
    "text",
    [
        "", "error: commlib error: got select error (Connection refused)", qstat("r")[:-1], qstat(""),
        qstat("r", number=""), "<job_info><job_info/></job_info>",
        '<!DOCTYPE x [<!ENTITY a "b">]>' + qstat("r").partition("\n")[2],
    ],
)  # fmt: skip
def test_what_qstat_did_not_print_whole_is_no_count(text):
    with pytest.raises(NotCounted, match="qstat"):
        read_qstat(text)


def test_grid_engine_without_jobs():
    assert read_qstat(qstat()) == JobCounts(0, 0, 0, [])


def condor(*rows, total=None):
    end = f"\nTotal for query: {len(rows) if total is None else total} jobs; 0 completed, 0 removed\n"
    return "".join(f"{row}\n" for row in rows) + end + "Total for all users: 99 jobs; 0 completed\n"


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("7 0 1 undefined undefined undefined", (0, 0, 1)), ("7 0 2 undefined 1 undefined", (1, 0, 0)),
        ("7 0 5 15 1 undefined", (0, 0, 1)), ("7 0 5 16 undefined undefined", (0, 1, 0)),
        ("7 0 6 undefined 1 undefined", (1, 0, 0)), ("7 0 7 undefined 1 undefined", (1, 0, 0)),
        ("7 0 4 undefined 1 undefined", (0, 0, 0)), ("7 0 3 undefined 1 undefined", (1, 0, 0)),
        ("7 0 3 undefined undefined undefined", (0, 0, 0)), ("7 0 3 undefined 0 undefined", (0, 0, 0)),
        ('7 0 1 undefined undefined "a b c"', (0, 0, 1)),
    ],
)  # fmt: skip
def test_states_of_htcondor(row, wanted):
    found = read_condor_q(condor(row))
    assert (found.running, found.submitting, found.pending) == wanted
    assert found.stamps == []


def test_htcondor_as_it_was_recorded():
    """Two of four pilots run; one other job is held, and one that ended is kept."""
    found = read_condor_q(recorded("condor_q.txt"))
    assert found == JobCounts(2, 0, 3, ["abc_1-4", "abc_1-3", "abc_1-2", "abc_1-1"])


def test_pilots_in_htcondor():
    rows = ['7 0 1 undefined undefined "old"', '9 4 2 undefined 1 "new"', '8 0 4 undefined 1 "gone"']
    assert read_condor_q(condor(*rows)).stamps == ["new-5", "old-1"]
    assert read_condor_q(condor()) == JobCounts(0, 0, 0, [])
    assert CONDOR_FORMAT.startswith("SELECT")


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", condor(total=1), condor("7 0 1 undefined undefined undefined", total=2), condor() + condor(),
        condor("7 0 8 undefined undefined undefined"), condor("7 0 1 undefined undefined"),
        "Error: Failed to fetch ads", condor().partition("Total")[0],
    ],
)  # fmt: skip
def test_what_condor_q_did_not_print_whole_is_no_count(text):
    with pytest.raises(NotCounted, match="condor_q printed"):
        read_condor_q(text)


# --- a control directory of ARC -------------------------------------------------------------------------------------------


@pytest.fixture
def control(tmp_path):
    for name in ("accepting", "processing", "restarting", "finished"):
        (tmp_path / name).mkdir()

    def put(number, word, *, kind="processing", xml="", stamp=""):
        (tmp_path / kind / f"job.{number}.status").write_text(f"{word}\n")
        if xml:
            text = f"<ComputingActivity>\n  <State>nordugrid:{xml}</State>\n  <State>bes:x</State>\n"
            (tmp_path / f"job.{number}.xml").write_text(text)
        (tmp_path / f"job.{number}.local").write_text(f"queue=pilots\njobname={stamp}\nlrms=fork\n")

    return put


def test_states_of_arc(control, tmp_path):
    control("a", "ACCEPTED", kind="accepting", stamp="abc-1")
    control("b", "PENDING:PREPARING")
    control("c", "SUBMIT")
    control("d", "INLRMS", xml="INLRMS:R", stamp="abc-2")
    control("e", "INLRMS", xml="INLRMS:Q", stamp="abc-3")
    control("f", "INLRMS", xml="SUBMIT")  # what ARC heard of it is older
    control("g", "INLRMS")
    control("h", "FINISHING")
    control("i", "CANCELING", kind="restarting")
    control("j", "FINISHED", kind="finished")
    found = read_arc(tmp_path)
    assert (found.running, found.submitting, found.pending) == (3, 3, 3)
    assert sorted(found.stamps) == ["abc-1", "abc-2", "abc-3"]


def test_no_control_directory_is_no_count(tmp_path):
    with pytest.raises(NotCounted, match=r"there is no .*accepting"):
        read_arc(tmp_path)
    (tmp_path / "accepting").write_text("")
    with pytest.raises(NotCounted, match="Not a directory"):
        read_arc(tmp_path)


def test_jobs_that_go_on_meanwhile_are_read_again(control, tmp_path, monkeypatch):
    control("a", "SUBMIT")
    reads = []

    def read_text(path, **more):
        reads.append(path.name)
        if len(reads) == 1:
            path.rename(tmp_path / "finished" / path.name)
        with path.open(**more) as file:
            return file.read()

    monkeypatch.setattr(Path, "read_text", read_text)
    assert read_arc(tmp_path) == JobCounts(0, 0, 0, [])


# --- a command of the site, and how commands fail -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("running=3 submitting=0 pending=7\n", JobCounts(3, 0, 7, [])),
        ("pending=7\nrunning=3", JobCounts(3, None, 7, [])),
        ('{"running": 3, "stamps": ["abc-1"]}', JobCounts(3, None, None, ["abc-1"])),
        ('  {"running": 3.0, "submitting": 1, "pending": 2}', JobCounts(3, 1, 2, [])),
    ],
)
def test_what_a_command_may_print(text, wanted):
    assert read_command(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "running=", "running=-1", "running=three", "running=3.5", "pending=7", "running=3 waiting=7",
        "running=3 running=4", '{"running": 3, "running": 4}', "{", "[3]",
        '{"running": true}', '{"running": null}', '{"running": 3, "stamps": [7]}', '{"running": 3, "stamps": 7}',
        '{"running": 3, "stamps": ["x"]}', '{"running": 1e400}', "running=3 pending", '{"running": "' + "9" * 5_000 + '"}',
    ],
)  # fmt: skip
def test_what_no_command_may_print(text):
    with pytest.raises(NotCounted, match="the command printed"):
        read_command(text)


def test_a_command_is_run():
    script = "import sys; print('running=3', 'pending=' + sys.argv[1])"
    assert count_jobs("command", [sys.executable, "-c", script, "4"]) == JobCounts(3, None, 4, [])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/no/such/command"], "No such file"),
        (
            [sys.executable, "-c", "import sys; print('running=3'); sys.exit('full of woe')"],
            "exit code 1.*woe",
        ),
    ],
)
def test_a_command_that_fails_counts_nothing(words, why):
    with pytest.raises(NotCounted, match=why):
        count_jobs("command", words)


def test_a_command_that_does_not_end_counts_nothing(monkeypatch):
    monkeypatch.setattr("lodesman.site.advertise.counts._COUNT_SECONDS", 0.1)
    with pytest.raises(NotCounted, match="did not end"):
        count_jobs("command", ["sleep", "60"])


def test_each_batch_system_is_asked_with_the_words_that_were_given():
    asked = []

    def run(words, given=""):
        asked.append((words, given))
        mark = words[3].rpartition("Name:0")[2] if words[0] == "squeue" else ""
        answers = {"squeue": squeue().replace(MARK, mark), "qstat": qstat(), "condor_q": condor()}
        return answers[words[0]]

    for source in ("slurm", "gridengine", "htcondor"):
        assert count_jobs(source, ["-x", "y"], run) == JobCounts(0, 0, 0, [])
    assert [(words[0], words[-2:], bool(given)) for words, given in asked] == [
        ("squeue", ["-x", "y"], False), ("qstat", ["-x", "y"], False), ("condor_q", ["-x", "y"], True),
    ]  # fmt: skip


def test_arc_is_read_by_its_folder(control, tmp_path):
    control("a", "SUBMIT")
    assert count_jobs("arc", [str(tmp_path)]).submitting == 1
