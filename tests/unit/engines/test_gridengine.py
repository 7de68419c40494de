"""The Grid Engine backend against commands that answer as the engine does when something is wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.kits.shell_pilots import shell_spec
from tests.unit.engines.test_gridengine_text import EMPTY, a_list, account, row

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import CancelOutcome, NativeState, PilotSpec
from lodesman.server.engines.gridengine import GridEngineBackend
from lodesman.server.engines.run import CommandResult

QUEUE = QueueId("Site.A", "ce.example", "all.q")
OWN = "lodesman-account lodegrid\n"
NOTHING = CommandResult(0, OWN + EMPTY, "")
REFUSED = CommandResult(
    1,
    "",
    "error: commlib error: got select error (Connection refused)\n"
    'Unable to run job: unable to send message to qmaster using port 6444 on host "m": got send error\nExiting.\n',
)
Answer = CommandResult | BackendFault | Callable[[bytes], CommandResult]


@dataclass
class Engine:
    """A runner whose commands have answers by their names; the scripts of the backend by a word in them."""

    answers: dict[str, Answer] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)
    stdin: list[bytes] = field(default_factory=list)

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 60.0) -> CommandResult:
        name = self.name_of(words)
        self.called.append(name)
        self.words.append(list(words))
        self.stdin.append(stdin)
        answer = self.answers.get(name, NOTHING if name == "qstat" else CommandResult(0, "", ""))
        if isinstance(answer, BackendFault):
            raise answer
        return answer if isinstance(answer, CommandResult) else answer(stdin)

    @staticmethod
    def name_of(words: Sequence[str]) -> str:
        kinds = {
            "mkdir": "submit", "accounting": "ended", "lodesman-output": "output", "$over": "forget", '/$1"': "give up",
        }  # fmt: skip
        if "-c" in words and "exec" not in words[words.index("-c") + 1].splitlines()[-1]:
            script = words[words.index("-c") + 1]
            return next((kind for mark, kind in kinds.items() if mark in script), "note")
        if "qsub" in words:
            return "check" if "-w" in words else "submit"
        if "qstat" in words:
            return "reasons" if "-j" in words else "qstat"
        assert "qdel" in words
        return "qdel"


def backend(**answers: Answer) -> tuple[GridEngineBackend, Engine]:
    engine = Engine({name.replace("_", " "): answer for name, answer in answers.items()})
    return GridEngineBackend(runner=engine, clock=lambda: 5_000.0), engine


def spec(**more) -> PilotSpec:
    return shell_spec(QUEUE, "abc", "true", **({"count": 3} | more))


def qstat(*, running: str = "", pending: str = "") -> CommandResult:
    return CommandResult(0, "Welcome!\n" + OWN + a_list(running=running, pending=pending), "")


def ended(*lines: str) -> CommandResult:
    return CommandResult(0, OWN + "".join(lines), "")


def states(found) -> dict[str, str]:
    return {stamp: str(status.state) for stamp, status in found.items()}


# --- submitting -----------------------------------------------------------------------------------------


def test_one_command_submits_all_copies():
    tested, engine = backend(submit=CommandResult(0, "12.1-1000:1\n", ""))
    accepted = tested.submit(spec(count=1000)).accepted
    assert len(accepted) == 1000
    assert (accepted["abc-1"], accepted["abc-1000"]) == ("12.1", "12.1000")
    assert engine.called == ["submit"]


def test_no_secret_is_in_a_word_or_in_the_script():
    tested, engine = backend(submit=CommandResult(0, "12.1-3:1\n", ""))
    one = spec()
    tested.submit(one)
    first, _, script = engine.stdin[0].partition(b"\n")
    assert base64.b64decode(first) == one.pilot_file
    assert base64.b64decode(b"".join(script.partition(b"\n\n")[2].split(b"\n")[:1])) != one.pilot_file
    assert b'cp "$HOME/.lodesman/output/abc/pilot.json" pilot.json' in script
    assert not [word for word in engine.words[0] if '"submission"' in word or first.decode() in word]


def test_nodes_without_the_folder_get_the_secret_in_the_script():
    tested, engine = backend(submit=CommandResult(0, "12.1-3:1\n", ""))
    tested.shared = False
    tested.submit(spec())
    assert engine.stdin[0].startswith(b"\n#!/bin/sh")
    assert b"cp " not in engine.stdin[0].partition(b"END-OF-PILOT\n")[2]
    assert engine.words[0][engine.words[0].index("-o") + 1] == "/dev/null"


def test_what_a_pilot_needs_is_requested():
    tested, engine = backend(submit=CommandResult(0, "12.1-3:1\n", ""))
    tested.memory_resource, tested.parallel_environment = "h_vmem", "smp"
    tested.environment = {"SGE_ROOT": "/opt/sge"}
    tested.submit(spec(cores=4, memory_mb=9_001, wall_seconds=3600, options=("-P", "grid")))
    words = " ".join(engine.words[0])
    assert words.startswith("env SGE_ROOT=/opt/sge sh -c ")
    assert "-q all.q -pe smp 4 -l h_rt=3600,h_vmem=2251M -P grid -o" in words
    assert words.endswith("$JOB_ID.$TASK_ID -terse -t 1-3 -N lode-abc")
    assert "-r n -notify" in words
    assert " -V" not in words


def test_what_cannot_be_requested_is_refused_for_good():
    tested, engine = backend()
    refusals = tested.submit(spec(cores=2)).refused
    assert {(one.reason, one.transient) for one in refusals.values()} == {
        ("2 cores need a parallel environment, and none is configured", False)
    }
    tested.folder = "a b"
    assert "cannot use in a path" in tested.submit(spec()).refused["abc-1"].reason
    assert engine.called == []
    assert tested.check(spec()).possible is False


@pytest.mark.parametrize(
    ("code", "err", "transient"),
    [
        (1, 'Unable to run job: Job was rejected because job requests unknown queue "x"\nExiting.\n', False),
        (1, 'Unable to run job: unknown resource "foo"\nExiting.\n', False),
        (
            1,
            "Unable to run job: job rejected: only 5 jobs are allowed per user (current job count: 5)\nExiting.\n",
            True,
        ),
        (25, "Unable to run job: the cluster is full\nExiting.\n", True),
        (*REFUSED[::2], True),
        (81, "mkdir: cannot create directory: No space left on device\n", True),
    ],
)
def test_a_refusal_refuses_all_copies_and_leaves_nothing(code, err, transient):
    tested, engine = backend(submit=CommandResult(code, "", err))
    result = tested.submit(spec())
    assert (len(result.accepted), len(result.refused)) == (0, 3)
    assert {one.transient for one in result.refused.values()} == {transient}
    assert "Exiting" not in result.refused["abc-1"].reason
    assert engine.called == (["submit"] if code == 81 else ["submit", "give up"]), "it was not made"


def test_a_submission_that_was_made_is_refused_and_left_alone():
    tested, engine = backend(submit=CommandResult(80, "", ""))
    assert not tested.submit(spec()).refused["abc-1"].transient
    assert engine.called == ["submit"]


@pytest.mark.parametrize(
    "answer",
    [
        BackendFault("sh did not end within 60 s.", transient=True),
        CommandResult(0, "", ""),
        CommandResult(0, "12.1-3", ""),
        CommandResult(0, "12.1-2:1\n", ""),
        CommandResult(1, "", ""),
        CommandResult(255, "", "Connection to submit.example closed by remote host.\n"),
        CommandResult(1, "12.1-3:1\n", ""),
        CommandResult(1, "", "Unable to run job: Error reading answer list from qmaster\nExiting.\n"),
        CommandResult(
            1,
            "",
            'error: commlib error: got read error (closing "m/qmaster/1")\nUnable to run job: x\nExiting.\n',
        ),
    ],
)
def test_an_unclear_answer_is_not_taken_for_a_refusal(answer):
    tested, engine = backend(submit=answer)
    with pytest.raises(BackendFault) as fault:
        tested.submit(spec())
    assert fault.value.data["transient"] is True
    assert engine.called == ["submit"], "what may have been submitted keeps its folder"


def test_a_submission_without_an_answer_is_found_again():
    tested, _ = backend(
        submit=BackendFault("sh did not end within 60 s.", transient=True),
        qstat=qstat(pending=row(12, "2-3:1", "lode-abc", "qw") + row(13, "1", "other", "qw")),
        ended=ended(account(12, 1, "lode-abc")),
    )
    with pytest.raises(BackendFault):
        tested.submit(spec())
    assert tested.census() == {"abc-1": "12.1", "abc-2": "12.2", "abc-3": "12.3"}


# --- asking ---------------------------------------------------------------------------------------------

PILOTS = {"abc-1": "12.1", "abc-2": "12.2", "abc-3": "12.3"}


def test_an_array_is_found_part_by_part():
    tested, engine = backend(
        qstat=qstat(
            running=row(12, "1", "lode-abc", "r", host="node1"), pending=row(12, "2,3", "lode-abc", "qw")
        )
    )
    found = tested.status(PILOTS)
    assert states(found) == {"abc-1": "running", "abc-2": "waiting", "abc-3": "waiting"}
    assert (found["abc-1"].host, found["abc-1"].started_at, found["abc-1"].word) == (
        "node1",
        1_795_442_660.0,
        "r",
    )
    assert {status.observed_at for status in found.values()} == {5_000.0}
    assert engine.called == ["qstat"]


def test_what_is_not_listed_is_unknown_until_the_accounting_knows_it():
    tested, engine = backend()
    assert set(states(tested.status(PILOTS)).values()) == {"unknown"}
    assert engine.stdin[-1] == b"abc\n"
    engine.answers["ended"] = ended(account(12, 2, "lode-abc", status=4, start=9_000_000_000))
    found = tested.status(PILOTS)
    assert states(found) == {"abc-1": "unknown", "abc-2": "ended", "abc-3": "unknown"}
    end = found["abc-2"]
    assert (end.exit_code, end.host, end.started_at, end.observed_at) == (4, "node7", 9e9, 5_000.0), (
        "another clock"
    )
    assert engine.called == ["qstat", "ended"] * 2


def test_accounting_that_cannot_be_read_ends_no_pilot():
    tested, _ = backend(
        qstat=qstat(running=row(12, "1", "lode-abc", "r", host="node1")),
        ended=CommandResult(82, "", "/opt/sge/default/common/accounting cannot be read\n"),
    )
    found = tested.status(PILOTS)
    assert states(found) == {"abc-1": "running", "abc-2": "unknown", "abc-3": "unknown"}
    assert "accounting cannot be read" in found["abc-2"].detail


@pytest.mark.parametrize(
    "answer",
    [
        BackendFault("qstat did not end within 60 s.", transient=True),
        REFUSED,
        CommandResult(0, "", ""),
        CommandResult(0, OWN, ""),
        CommandResult(0, "Welcome to the cluster!\n", ""),
        CommandResult(0, OWN + EMPTY[:-20], ""),
        CommandResult(255, OWN + EMPTY, "Connection closed\n"),
    ],
)
def test_an_engine_that_is_down_is_a_passing_fault(answer):
    tested, engine = backend(qstat=answer, ended=ended(account(12, 1, "lode-abc")))
    calls = (
        lambda: tested.status(PILOTS),
        lambda: tested.cancel(PILOTS),
        tested.census,
        lambda: tested.loads([QUEUE]),
        lambda: tested.forget(PILOTS),
    )
    for call in calls:
        with pytest.raises(BackendFault) as fault:
            call()
        assert fault.value.data["transient"] is True
    assert set(engine.called) == {"qstat"}, "nothing is deleted or removed"


def test_a_number_that_was_given_out_again_is_another_pilot():
    tested, engine = backend(
        qstat=qstat(running=row(12, "1-2:1", "lode-xyz", "r", host="node1")),
        ended=ended(account(12, 3, "lode-xyz")),
    )
    assert set(states(tested.status(PILOTS)).values()) == {"unknown"}
    assert set(tested.cancel(PILOTS).values()) == {CancelOutcome.UNKNOWN}
    assert "qdel" not in engine.called


@pytest.mark.parametrize("native_id", ["12", "12.2", "12.1 13.1", "-f", "", "12.1-3", "١٢.1"])
def test_a_native_id_that_is_not_of_this_stamp_is_unknown(native_id):
    tested, engine = backend(qstat=qstat(running=row(12, "1-3:1", "lode-abc", "r", host="node1")))
    assert states(tested.status({"abc-1": native_id})) == {"abc-1": "unknown"}
    assert tested.cancel({"abc-1": native_id}) == {"abc-1": CancelOutcome.UNKNOWN}
    assert tested.output("abc-1", native_id) is None
    assert "qdel" not in engine.called


def test_a_job_in_error_is_held_with_the_reason_that_is_asked_for_once():
    reasons = (
        "=====\njob_number:      12\nerror reason    1:    11/23/2026 13:51:39 [1:2]: error: can't chdir\n"
    )
    tested, engine = backend(
        qstat=qstat(pending=row(12, "1-2:1", "lode-abc", "Eqw") + row(12, "3", "lode-abc", "hqw")),
        reasons=CommandResult(0, reasons, ""),
    )
    found = tested.status(PILOTS)
    assert {status.state for status in found.values()} == {NativeState.HELD}
    assert [found[stamp].word for stamp in PILOTS] == ["Eqw: error: can't chdir", "Eqw", "hqw: it has a hold"]
    assert found["abc-1"].detail == "error: can't chdir"
    tested.status(PILOTS)
    assert engine.called == ["qstat", "reasons", "qstat"]
    assert engine.words[1][-2:] == ["-j", "12"]
    engine.answers["qstat"] = qstat(pending=row(12, "1-3:1", "lode-abc", "qw"))
    tested.status(PILOTS)
    engine.answers["qstat"] = qstat(pending=row(12, "1", "lode-abc", "Eqw"))
    del engine.called[:]
    tested.status(PILOTS)
    assert engine.called == ["qstat", "reasons"], "an error that is new, and first; then what is missing"
    tested.status(PILOTS)
    assert engine.called[2:] == ["qstat", "ended"]


def test_what_is_finished_without_a_record_was_deleted():
    tested, engine = backend(
        qstat=qstat(
            running=row(12, "2", "lode-abc", "r", host="node1"), pending=row(12, "1-2:1", "lode-abc", "z")
        )
    )
    pilots = {"abc-1": "12.1", "abc-2": "12.2"}
    assert states(tested.status(pilots)) == {"abc-1": "unknown", "abc-2": "running"}, "its record may come"
    engine.answers["qstat"] = qstat(running=row(12, "2", "lode-abc", "r", host="node1"))
    tested.clock = lambda: 5_119.0
    assert states(tested.status(pilots))["abc-1"] == "unknown"
    tested.clock = lambda: 5_120.0
    end = tested.status(pilots)["abc-1"]
    assert (end.state, end.exit_code, end.detail) == (
        NativeState.ENDED,
        None,
        "it was deleted before it began",
    )
    engine.answers["qdel"] = CommandResult(
        0, "lodegrid has registered the job-array task 12.2 for deletion\n", ""
    )
    assert tested.cancel(pilots) == {"abc-1": CancelOutcome.ENDED, "abc-2": CancelOutcome.ORDERED}
    engine.answers["ended"] = ended(account(12, 1, "lode-abc", status=4))
    assert tested.status(pilots)["abc-1"].exit_code == 4, "a record says more"


def test_what_is_finished_is_not_believed_of_another_pilot():
    tested, _ = backend(qstat=qstat(pending=row(12, "1-3:1", "lode-xyz", "z")))
    tested.status(PILOTS)
    tested.clock = lambda: 9_000.0
    assert set(states(tested.status(PILOTS)).values()) == {"unknown"}


def test_a_suspended_pilot_runs():
    tested, _ = backend(qstat=qstat(running=row(12, "1", "lode-abc", "s", host="node1")))
    one = tested.status({"abc-1": "12.1"})["abc-1"]
    assert (one.state, one.word) == (NativeState.RUNNING, "s: it is suspended")


@pytest.mark.slow
def test_ten_thousand_pilots_are_asked_about_in_two_commands():
    pilots = {f"{n:016x}-1": f"{100 + n}.1" for n in range(10_000)}
    rows = "".join(row(100 + n, "1", f"lode-{n:016x}", "r", host="node1") for n in range(5_000))
    tested, engine = backend(
        qstat=qstat(running=rows),
        ended=ended(*(account(100 + n, 1, f"lode-{n:016x}") for n in range(5_000, 10_000))),
    )
    found = states(tested.status(pilots))
    assert list(found.values()) == ["running"] * 5_000 + ["ended"] * 5_000
    assert engine.called == ["qstat", "ended"]
    assert max(len(word) for words in engine.words for word in words) < 10_000, "names travel on stdin"


# --- cancelling -----------------------------------------------------------------------------------------


def test_a_cancel_may_succeed_in_part():
    tested, engine = backend(
        qstat=qstat(running=row(12, "1", "lode-abc", "r", host="node1"), pending=row(12, "2-4:1", "lode-abc", "qw")),
        qdel=CommandResult(1, "lodegrid has registered the job-array task 12.1 for deletion\n"
            "lodegrid has deleted job-array tasks 2,3 of job 12\n", 'job "12" task "4" does not exist\n'),
        ended=ended(account(12, 5, "lode-abc")),
    )  # fmt: skip
    pilots = {f"abc-{number}": f"12.{number}" for number in range(1, 7)}
    assert tested.cancel(pilots) == {
        "abc-1": CancelOutcome.ORDERED,
        "abc-2": CancelOutcome.REMOVED,
        "abc-3": CancelOutcome.REMOVED,
        "abc-4": CancelOutcome.FAILED,
        "abc-5": CancelOutcome.ENDED,
        "abc-6": CancelOutcome.UNKNOWN,
    }
    assert engine.called == ["qstat", "qdel", "note", "ended"]
    assert engine.words[1][-1] == "12.1-4"
    assert engine.stdin[2] == b"abc 12.2\nabc 12.3\n"


def test_what_runs_is_not_removed_with_the_rest_of_its_job():
    tested, _ = backend(
        qstat=qstat(
            running=row(12, "1", "lode-abc", "r", host="node1"), pending=row(12, "2", "lode-abc", "qw")
        ),
        qdel=CommandResult(0, "lodegrid has deleted job 12\n", ""),
    )
    assert tested.cancel({"abc-1": "12.1", "abc-2": "12.2"}) == {
        "abc-1": CancelOutcome.ORDERED,
        "abc-2": CancelOutcome.REMOVED,
    }


def test_what_began_meanwhile_is_ordered_to_end():
    tested, engine = backend(
        qstat=qstat(pending=row(12, "1", "lode-abc", "qw")),
        qdel=CommandResult(0, "lodegrid has registered the job-array task 12.1 for deletion\n", ""),
    )
    assert tested.cancel({"abc-1": "12.1"}) == {"abc-1": CancelOutcome.ORDERED}
    assert "note" not in engine.called


def test_rights_that_were_lost_are_a_failed_cancel():
    said = 'lodegrid - you do not have the necessary privileges to delete the job "12"\n'
    tested, _ = backend(
        qstat=qstat(pending=row(12, "1-3:1", "lode-abc", "qw")), qdel=CommandResult(1, "", said)
    )
    assert set(tested.cancel(PILOTS).values()) == {CancelOutcome.FAILED}


def test_accounting_that_cannot_be_read_does_not_hinder_a_cancel():
    tested, _ = backend(
        qstat=qstat(pending=row(12, "1", "lode-abc", "qw")),
        qdel=CommandResult(0, "lodegrid has deleted job-array task 12.1\n", ""),
        note=BackendFault("sh did not end within 60 s.", transient=True),
        ended=REFUSED,
    )
    assert list(tested.cancel(PILOTS).values()) == [
        CancelOutcome.REMOVED,
        CancelOutcome.FAILED,
        CancelOutcome.FAILED,
    ]


# --- the rest -------------------------------------------------------------------------------------------


def test_loads_of_all_queues_are_asked_for_together():
    tested, engine = backend(qstat=qstat(pending=row(12, "1-30:1", "lode-abc", "qw")))
    other = QueueId("Site.A", "ce.example", "long.q")
    found = tested.loads([QUEUE, other])
    assert engine.called == ["qstat"]
    assert (found[QUEUE].others_waiting, found[QUEUE].slots) == (0, None)


def test_loads_need_the_account():
    tested, _ = backend(qstat=CommandResult(0, EMPTY, ""))
    with pytest.raises(BackendFault):
        tested.loads([QUEUE])


@pytest.mark.parametrize(
    ("answer", "possible", "final"),
    [
        (CommandResult(0, "verification: found suitable queue(s)\n", ""), True, False),
        (CommandResult(1, "", 'Unable to run job: Job 10 cannot run in PE "smp" because it only offers 0 slots\n'
            "verification: no suitable queues\nExiting.\n"), False, False),
        (CommandResult(1, "", 'Unable to run job: unknown resource "foo"\nExiting.\n'), False, True),
        (REFUSED, None, False),
        (CommandResult(1, "", "Unable to run job: Error reading answer list from qmaster\nExiting.\n"), None, False),
        (CommandResult(0, "", ""), None, False),
    ],
)  # fmt: skip
def test_a_check_knows_three_answers(answer, possible, final):
    tested, engine = backend(check=answer)
    check = tested.check(spec())
    assert (check.possible, check.final) == (possible, final)
    assert engine.called == ["check"]


def shown(content: bytes) -> CommandResult:
    return CommandResult(
        0, f"Welcome!\nlodesman-output\n{base64.encodebytes(content).decode()}lodesman-end\n", ""
    )


@pytest.mark.parametrize("content", [b"", b"a\0b", bytes(range(256)) * 256])
def test_any_output_comes_as_it_is(content):
    tested, _ = backend(output=shown(content))
    assert tested.output("abc-1", "12.1") == content


def test_an_output_that_is_not_there_or_unclear():
    tested, engine = backend(output=CommandResult(82, "", ""))
    assert tested.output("abc-1", "12.1") is None
    assert tested.output("../../etc/passwd-1", "12.1") is None
    assert len(engine.called) == 1
    for answer in (
        CommandResult(255, "", "closed"),
        CommandResult(0, "", ""),
        CommandResult(0, "lodesman-output\nYQ==\n", ""),
    ):
        engine.answers["output"] = answer
        with pytest.raises(BackendFault):
            tested.output("abc-1", "12.1")


def test_the_last_that_is_forgotten_takes_the_folder_along():
    tested, engine = backend(qstat=qstat(running=row(12, "3", "lode-abc", "r", host="node1")))
    tested.forget(PILOTS | {"xyz-1": "13.1"})
    assert engine.stdin[-1] == b"abc 12.1 more\nabc 12.2 more\nxyz 13.1 over\n"


def test_a_census_leaves_out_what_no_pilot_can_be():
    tested, _ = backend(
        qstat=qstat(pending=row(12, "1-999999999:1", "lode-abc", "qw") + row(13, "1", "lode-a b", "qw")),
        ended=ended(account(14, 1, "lode-ok"), account(15, 1, "lode-x").replace(":lodegrid:", ":another:")),
    )
    assert tested.census() == {"ok-1": "14.1"}
