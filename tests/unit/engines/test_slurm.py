"""The backend of Slurm against commands that answer what a test says: the faults that a real one cannot be made to have."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import CancelOutcome, NativeState, stamp_of
from lodesman.server.engines.run import CommandResult
from lodesman.server.engines.slurm import SlurmBackend

DATA = Path(__file__).parents[2] / "data" / "slurm"
RECORDED = "~0123456789abcdef~"
MARK = re.compile(r"~[0-9a-f]{16}~")
QUEUE = QueueId("Site", "ce", "pilots")
SPEC = shell_spec(QUEUE, "ends", "true", count=8)
PILOTS = {stamp_of("ends", number): f"78_{number}" for number in range(1, 9)}
NO_ACCOUNTING = "AccountingStorageType   = accounting_storage/none\nPrivateData             = none\n"
TIMED_OUT = BackendFault("It did not end within 60 s.", transient=True)
TITLES = {
    "queue": "ARRAY_JOB_ID ARRAY_TASK_ID STATE EXIT_CODE EXEC_HOST START_TIME END_TIME REASON NAME".split(),
    "loads": "STATE PARTITION USER REASON NAME".split(),
}

Answer = CommandResult | BackendFault | Callable[[list[str]], CommandResult]


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def done(out: str = "", err: str = "", code: int = 0) -> CommandResult:
    return CommandResult(code, out, err)


def listing(kind: str, *records: str) -> CommandResult:
    """A list; the fields of a record are parted by blanks."""
    lines = [TITLES[kind], *(record.split() for record in records)]
    return done("".join("".join(f"{field}{RECORDED}" for field in line) + "\n" for line in lines))


class Commands:
    """A runner: the answers of programs, in turn; the last one stays. Marks are those that were asked for."""

    def __init__(self, **answers: Answer | list[Answer]) -> None:
        self.answers: dict[str, list[Answer]] = {
            "id": [done("pilot\n")],
            "printenv": [done("/home/pilot\n")],
            "scontrol": [done(NO_ACCOUNTING)],
            "squeue": [done(recorded("queue"))],
        }
        self.answers |= {name: one if isinstance(one, list) else [one] for name, one in answers.items()}
        self.asked: list[list[str]] = []
        self.stdin: dict[str, bytes] = {}

    def run(self, words, *, stdin=b"", seconds=60.0):
        words = list(words)
        if words[0] == "env":
            words = words[2:]
        if words[:2] == ["sh", "-c"]:
            assert int(words[4]) == len(stdin) + 1
            words = words[5:]
        self.asked.append(words)
        self.stdin[words[0]] = stdin
        answers = self.answers.get(words[0], [done()])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, BackendFault):
            raise answer
        found = answer if isinstance(answer, CommandResult) else answer(words)
        mark = MARK.search(" ".join(words))
        return found._replace(out=found.out.replace(RECORDED, mark[0])) if mark else found

    def count(self, program: str) -> int:
        return sum(words[0] == program for words in self.asked)

    def words(self, program: str) -> list[str]:
        return next(words for words in self.asked if words[0] == program)


def backend(**answers) -> tuple[SlurmBackend, Commands]:
    commands = Commands(**answers)
    return SlurmBackend(commands, clock=lambda: 100.0), commands


def states(slurm: SlurmBackend, pilots=PILOTS) -> list[str]:
    return [status.state.value for status in slurm.status(pilots).values()]


# --- submit -------------------------------------------------------------------------------------------


def test_one_command_submits_all():
    slurm, commands = backend(sbatch=done("1234\n"))
    spec = shell_spec(
        QUEUE, "s", "true", count=1000, cores=4, memory_mb=500, wall_seconds=61, options=("-A", "x")
    )
    accepted = slurm.submit(spec).accepted
    assert len(accepted) == 1000
    assert accepted["s-1000"] == "1234_1000"
    assert commands.count("sbatch") == 1
    words = commands.words("sbatch")
    assert words[1:3] == ["-A", "x"], "what an administrator gave does not outdo what is asked for here"
    assert {
        "--parsable", "--array=1-1000", "--job-name=lode-s", "--no-requeue", "--export=NONE",
        "--propagate=NONE", "--signal=B:USR2@120",
        "--partition=pilots", "--cpus-per-task=4", "--mem=500M", "--time=2", "--nodes=1", "--ntasks=1",
        "--output=/home/pilot/.lodesman/output/s/%A_%a.out",
    } <= set(words)  # fmt: skip


def test_the_secret_is_on_standard_input_alone():
    slurm, commands = backend(sbatch=done("1234\n"))
    slurm.submit(SPEC)
    assert b"END-OF-PILOT" in commands.stdin["sbatch"]
    slurm.check(replace(SPEC, program=b""))
    assert commands.stdin["sbatch"] == b"#!/bin/sh\n", "nothing of the pilot is needed to be refused"
    assert all(len(word) < 200 for words in commands.asked for word in words)


def test_outputs_are_in_a_private_folder():
    slurm, commands = backend(sbatch=done("1234\n"))
    slurm.submit(SPEC)
    folder = "/home/pilot/.lodesman"
    slurm.submit(SPEC)
    of_outputs = ["mkdir", "-p", "-m", "0700", "--", folder, f"{folder}/output"]
    of_submission = ["mkdir", "-m", "0700", "--", f"{folder}/output/ends"]
    assert [one for one in commands.asked if one[0] == "mkdir"] == [of_outputs, of_submission, of_submission]
    assert commands.count("id") == 1


def test_a_banner_is_no_answer():
    banner = "Welcome to cluster 7\n\n"
    slurm, commands = backend(
        sbatch=done(banner + "1234;here\n"), id=done(banner + "pilot\n"), printenv=done(banner + "/home/p\n")
    )
    assert slurm.submit(SPEC).accepted["ends-2"] == "1234_2"
    made = [one for one in commands.asked if one[0] == "mkdir"]
    assert made[-1][-1] == "/home/p/.lodesman/output/ends"


def test_a_known_submission_is_refused_for_good():
    err = "mkdir: cannot create directory '/home/pilot/.lodesman/output/ends': File exists\n"
    slurm, commands = backend(mkdir=[done(), done(err=err, code=1)])
    refused = slurm.submit(SPEC).refused
    assert len(refused) == 8
    assert not any(one.transient for one in refused.values())
    assert commands.count("sbatch") == 0


def test_a_folder_that_is_gone_is_made_again():
    gone = done(err="mkdir: cannot create directory 'x': No such file or directory\n", code=1)
    slurm, commands = backend(mkdir=[done(), gone, done(), done()], sbatch=done("5\n"))
    assert all(one.transient for one in slurm.submit(SPEC).refused.values())
    assert slurm.submit(SPEC).accepted
    assert [one[1] for one in commands.asked if one[0] == "mkdir"] == ["-p", "-m", "-p", "-m"]


REFUSED = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"
DOWN = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"


@pytest.mark.parametrize(("err", "transient"), [(REFUSED, False), (DOWN, True)])
def test_a_refusal_leaves_nothing_behind(err, transient):
    slurm, commands = backend(sbatch=done(err=err, code=1))
    refused = slurm.submit(SPEC).refused
    assert {one.transient for one in refused.values()} == {transient}
    assert "sbatch: error" not in refused["ends-1"].reason
    assert commands.words("rmdir")[-1] == "/home/pilot/.lodesman/output/ends"


def test_a_missing_sbatch_is_a_refusal_for_good():
    slurm, _ = backend(sbatch=done(err="bash: line 1: sbatch: command not found\n", code=127))
    assert not slurm.submit(SPEC).refused["ends-1"].transient


@pytest.mark.parametrize(
    "answer",
    [
        TIMED_OUT,
        done(),
        done("Welcome\n"),
        done(
            err="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
            code=1,
        ),
        done(code=137),
    ],
)
def test_a_submission_whose_answer_did_not_come_is_found_by_its_stamp(answer):
    slurm, commands = backend(sbatch=answer)
    with pytest.raises(BackendFault) as fault:
        slurm.submit(SPEC)
    assert fault.value.data["transient"]
    assert commands.count("rmdir") == 0, "the same submission is refused from now on"
    assert PILOTS.items() <= slurm.census().items()


def test_a_host_that_is_not_reached_has_no_submission():
    slurm, commands = backend(mkdir=TIMED_OUT)
    assert all(one.transient for one in slurm.submit(SPEC).refused.values())
    assert commands.count("sbatch") == 0


# --- status -------------------------------------------------------------------------------------------


def test_one_command_asks_for_all():
    slurm, commands = backend()
    assert states(slurm) == ["ended"] * 5 + ["running"] * 2 + ["ended"]
    assert [words[0] for words in commands.asked] == ["squeue"]
    assert {"--me", "--array", "--states=all"} <= set(commands.words("squeue"))
    assert not any("78" in word.partition("~")[0] for word in commands.words("squeue"))


def test_absent_is_unknown_without_accounting():
    slurm, commands = backend(squeue=listing("queue"))
    for _ in range(2):
        assert states(slurm) == ["unknown"] * 8
    assert commands.count("sacct") == 0
    assert commands.count("scontrol") == 1


def test_what_the_controller_forgot_is_asked_of_the_accounting_at_once():
    slurm, commands = backend(
        squeue=listing("queue"), scontrol=done(recorded("config")), sacct=done(recorded("sacct"))
    )
    pilots = PILOTS | {"held-1": "86_1", "rest-7": "85_7", "none-1": "4000000"}
    assert states(slurm, pilots) == ["ended"] * 5 + ["unknown"] * 2 + ["ended", "unknown", "ended", "unknown"]
    assert commands.count("squeue") == commands.count("sacct") == 1
    (ids,) = (word for word in commands.words("sacct") if word.startswith("--jobs="))
    assert sorted(ids.removeprefix("--jobs=").split(",")) == ["78", "85", "86"]


def test_the_accounting_alone_brings_no_pilot_to_life():
    slurm, _ = backend(
        squeue=listing("queue"), scontrol=done(recorded("config")), sacct=done(recorded("sacct"))
    )
    assert slurm.status({"ends-7": "78_7"})["ends-7"].state is NativeState.UNKNOWN


@pytest.mark.parametrize(
    "answer", [TIMED_OUT, done("", "sacct: error: down\n", 1), done(), done("Welcome\n")]
)
def test_an_accounting_that_does_not_answer_hides_no_answer_of_the_controller(answer):
    slurm, _ = backend(scontrol=done(recorded("config")), sacct=answer)
    seen = slurm.status(PILOTS | {"gone-1": "9_1"})
    assert seen["ends-6"].state is NativeState.RUNNING
    assert seen["gone-1"].state is NativeState.UNKNOWN
    assert "accounting" in seen["gone-1"].detail


BAD = [
    TIMED_OUT,
    done(),
    done("\n"),
    done("Welcome to the cluster\n"),
    done(recorded("queue")[:-40]),
    done(recorded("queue").partition("\n")[2]),
    done(recorded("queue"), code=1),
    done(err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1),
    done("garbage \0\n" * 50),
]


@pytest.mark.parametrize("answer", BAD)
def test_an_answer_that_cannot_be_believed_says_nothing_of_any_pilot(answer):
    slurm, commands = backend(squeue=answer)
    calls = [
        lambda: slurm.status(PILOTS),
        lambda: slurm.cancel(PILOTS),
        slurm.census,
        lambda: slurm.loads([QUEUE]),
        lambda: slurm.forget(PILOTS),
    ]
    for call in calls:
        with pytest.raises(BackendFault) as fault:
            call()
        assert fault.value.data["transient"]
    assert commands.count("scancel") == commands.count("rm") == 0


def test_a_number_that_was_given_out_again_is_another_pilot():
    slurm, commands = backend()
    others = {"other-6": "78_6", "ends-1": "78_6", "ends-x": "78_6"}
    assert states(slurm, others) == ["unknown"] * 3
    assert set(slurm.cancel(others).values()) == {CancelOutcome.UNKNOWN}
    assert commands.count("scancel") == 0


@pytest.mark.slow
def test_ten_thousand_pilots_are_one_command():
    records = (
        f"{array} {task} RUNNING 0 n1 5 7 None lode-s{array}" for array in range(10) for task in range(1000)
    )
    slurm, commands = backend(squeue=listing("queue", *records))
    pilots = {f"s{array}-{task}": f"{array}_{task}" for array in range(10) for task in range(1000)}
    slurm.status({"s0-0": "0_0"})
    seen = slurm.status(pilots)
    assert all(status.state is NativeState.RUNNING for status in seen.values())
    assert commands.count("squeue") == 2


# --- cancel -------------------------------------------------------------------------------------------

WAITS, RUNS, ENDS = (
    f"9 1 {words} lode-c"
    for words in ("PENDING 0 n/a N/A N/A None", "RUNNING 0 n1 5 7 None", "CANCELLED 15 n1 5 6 None")
)
NEVER_RAN = "9 1 CANCELLED 0 n/a 6 6 JobHeldUser lode-c"
PILOT = {"c-1": "9_1"}


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (WAITS, NEVER_RAN, "removed"),
        (WAITS, RUNS, "ordered"),  # it started meanwhile
        (WAITS, ENDS, "ordered"),
        (WAITS, WAITS, "failed"),
        (WAITS, "", "failed"),
        (RUNS, RUNS, "ordered"),
        (RUNS, ENDS, "ordered"),
        (RUNS, "", "failed"),
        (ENDS, "", "ended"),
        ("", "", "unknown"),
    ],
)
def test_the_outcome_of_a_cancel_is_what_was_seen(before, after, outcome):
    slurm, commands = backend(squeue=[listing("queue", *filter(None, [one])) for one in (before, after)])
    assert slurm.cancel(PILOT)["c-1"].value == outcome
    assert commands.count("scancel") == (before in {WAITS, RUNS})


def test_what_waits_is_held_before_it_is_cancelled():
    slurm, commands = backend(squeue=[listing("queue", WAITS), listing("queue", NEVER_RAN)])
    slurm.cancel(PILOT)
    assert [words[0] for words in commands.asked] == ["squeue", "scontrol", "scancel", "squeue"]
    assert commands.words("scontrol") == ["scontrol", "hold", "9_1"]
    assert commands.words("scancel") == ["scancel", "9_1"], "a name would end all tasks that wait"


def test_an_order_that_did_not_arrive_is_given_again():
    down = done(err="scancel: error: Unable to contact slurm controller (connect failure)\n", code=8)
    slurm, _ = backend(squeue=listing("queue", RUNS), scancel=down)
    assert slurm.cancel(PILOT) == {"c-1": CancelOutcome.FAILED}


@pytest.mark.slow
def test_long_lists_of_ids_are_several_commands():
    records = [f"{n} 1 RUNNING 0 n1 5 7 None lode-c{n}" for n in range(100_000, 120_000)]
    slurm, commands = backend(squeue=listing("queue", *records))
    slurm.cancel({f"c{n}-1": f"{n}_1" for n in range(100_000, 120_000)})
    lengths = [sum(map(len, words)) + len(words) for words in commands.asked if words[0] == "scancel"]
    assert len(lengths) == 3
    assert max(lengths) < 100_000


# --- loads, check, census, outputs --------------------------------------------------------------------


def test_one_command_asks_for_all_queues():
    slurm, commands = backend(squeue=done(recorded("loads")), id=done("root\n"))
    queues = [QUEUE, QueueId("Site", "ce", "wide"), QueueId("Site", "ce", "empty")]
    loads = slurm.loads(queues)
    assert [(loads[q].waiting, loads[q].running, loads[q].held) for q in queues] == [
        (0, 2, 2),
        (0, 0, 0),
        (0, 0, 0),
    ]
    assert [(loads[q].others_waiting, loads[q].others_running) for q in queues] == [(1, 0), (1, 1), (0, 0)]
    slurm.loads(queues)
    assert commands.count("squeue") == 2


@pytest.mark.parametrize(("mark", "ours"), [("", (0, 2, 2)), ("zz", (0, 0, 0))])
def test_our_pilots_are_those_of_our_server(mark, ours):
    slurm, _ = backend(squeue=done(recorded("loads")), id=done("root\n"))
    slurm.mark = mark
    load = slurm.loads([QUEUE])[QUEUE]
    assert (load.waiting, load.running, load.held) == ours
    assert sum(ours) + load.others_waiting + load.others_running == 5


def test_our_pilots_are_those_of_our_account():
    slurm, _ = backend(squeue=done(recorded("loads")))
    load = slurm.loads([QUEUE])[QUEUE]
    assert (load.waiting, load.running, load.held) == (0, 0, 0)
    assert (load.others_waiting, load.others_running) == (3, 2)


def test_others_are_unknown_where_jobs_are_private():
    private = done(
        NO_ACCOUNTING.replace("PrivateData             = none", "PrivateData             = jobs,usage")
    )
    slurm, _ = backend(squeue=done(recorded("loads")), scontrol=private, id=done("root\n"))
    load = slurm.loads([QUEUE])[QUEUE]
    assert (load.running, load.others_waiting, load.others_running) == (2, None, None)


@pytest.mark.parametrize(
    ("answer", "possible", "final"),
    [
        (
            done(err="sbatch: Job 60 to start at 2026-11-23T14:03:19 using 1 processors on nodes vm\n"),
            True,
            False,
        ),
        # One that asks for too much, and any while the nodes are down.
        (
            done(err="allocation failure: Requested node configuration is not available\n", code=1),
            False,
            False,
        ),
        (done(err="allocation failure: Invalid feature specification\n", code=1), False, False),
        (
            done(
                err="sbatch: error: invalid partition specified: nosuch\n"
                "allocation failure: Invalid partition name specified\n",
                code=1,
            ),
            False,
            True,
        ),
        (
            done(
                err="allocation failure: Invalid account or account/partition combination specified\n", code=1
            ),
            False,
            True,
        ),
        (done(err="allocation failure: Invalid qos specification\n", code=1), False, True),
        (
            done(
                err="sbatch: unrecognized option '--bad'\nTry \"sbatch --help\" for more information\n",
                code=255,
            ),
            False,
            True,
        ),
        (done(err=DOWN, code=1), None, False),
        (done(err="allocation failure: Socket timed out on send/recv operation\n", code=1), None, False),
        (done(err="sbatch: command not found\n", code=127), None, False),
        (done(code=137), None, False),
    ],
)
def test_whether_a_pilot_could_ever_run(answer, possible, final):
    slurm, commands = backend(sbatch=answer)
    check = slurm.check(SPEC)
    assert (check.possible, check.final) == (possible, final)
    assert check.detail or answer.code == 137
    assert "--test-only" in commands.words("sbatch")
    assert commands.count("mkdir") == 0


def test_a_census_asks_the_accounting_too():
    slurm, commands = backend(
        squeue=listing("queue"), scontrol=done(recorded("config")), sacct=done(recorded("sacct"))
    )
    assert set(slurm.census()) == {f"ends-{number}" for number in (1, 2, 3, 4, 5, 7, 8)}
    assert "--starttime=now-7days" in commands.words("sacct")
    commands.answers["sacct"] = [TIMED_OUT]
    with pytest.raises(BackendFault):
        slurm.census()


def test_a_census_passes_over_other_jobs():
    slurm, _ = backend(
        squeue=listing("queue", "7 1 RUNNING 0 n1 5 7 None lode-..", "8 N/A RUNNING 0 n 5 7 None lode-a")
    )
    assert slurm.census() == {}


def test_what_an_output_may_be():
    slurm, commands = backend(tail=done("end\n"))
    assert slurm.output("ends-1", "78_1") == b"end\n"
    assert commands.words("tail")[-1] == "/home/pilot/.lodesman/output/ends/78_1.out"
    commands.answers["tail"] = [
        done(err="tail: cannot open 'x' for reading: No such file or directory\n", code=1)
    ]
    assert slurm.output("ends-1", "78_1") is None
    commands.answers["tail"] = [done(err="tail: error reading 'x': Input/output error\n", code=1)]
    with pytest.raises(BackendFault):
        slurm.output("ends-1", "78_1")
    commands.answers["tail"] = [done("ü\ufffd" * 40_000)]
    assert len(slurm.output("ends-1", "78_1")) == 64 << 10


@pytest.mark.parametrize(
    ("stamp", "native_id"),
    [("ends-1", "78_2"), ("ends-1", "../1"), ("../x-1", "78_1"), ("ends", "78_1"), ("ends-1", "")],
)
def test_no_other_file_is_read_or_removed(stamp, native_id):
    slurm, commands = backend()
    assert slurm.output(stamp, native_id) is None
    slurm.forget({stamp: native_id})
    assert commands.count("tail") == commands.count("rm") == commands.count("rmdir") == 0


def test_outputs_of_pilots_that_live_stay():
    slurm, commands = backend()
    slurm.forget(PILOTS)
    folder = "/home/pilot/.lodesman/output/ends"
    assert commands.words("rm")[3:] == [f"{folder}/78_{number}.out" for number in (1, 2, 3, 4, 5, 8)]
    assert commands.count("rmdir") == 0, "what waits could not start without it"


def test_the_folder_of_a_submission_goes_with_its_last_pilot():
    ended, waits, odd = (
        "9 1 COMPLETED 0 n1 5 6 None lode-c",
        "9 2 PENDING 0 n/a N/A N/A None lode-c",
        "9 COMPLETED",
    )
    for records, removed in (([ended], 1), ([ended, waits], 0), ([ended, odd], 0), ([], 1)):
        slurm, commands = backend(squeue=listing("queue", *records))
        slurm.forget(PILOT)
        assert commands.words("rm")[3:] == ["/home/pilot/.lodesman/output/c/9_1.out"]
        assert commands.count("rmdir") == removed
        assert commands.count("sacct") == commands.count("scontrol") == 0
    slurm, commands = backend(squeue=listing("queue", RUNS, ENDS))
    slurm.forget(PILOT)
    assert commands.count("rm") == 0, "two records that contradict each other"
