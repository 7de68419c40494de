"""The HTCondor backend on commands that answer as a test wants: what it runs, believes and makes of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import htcondor_text as text
from lodesman.server.engines.backend import CancelOutcome, NativeState, stamp_of
from lodesman.server.engines.htcondor import HTCondorBackend
from lodesman.server.engines.run import CommandResult
from lodesman.server.engines.run.here import Here

QUEUE = QueueId("LCG.One.de", "condor", "long")
SPEC = shell_spec(QUEUE, "abc", "true", count=2)
TOTALS = "{} jobs; 0 completed, 0 removed, {} idle, {} running, 0 held, 0 suspended"


def job(number: str, submission: str = "abc", status: int = 2, **more: object) -> dict[str, object]:
    cluster, proc = map(int, number.split("."))
    known = {"ClusterId": cluster, "ProcId": proc, "JobStatus": status, "LodesmanSubmission": submission}
    return {**known, "LodesmanQueue": text.queue_word(QUEUE), **more}


def printed(jobs: list[dict[str, object]], others: tuple[int, int] = (0, 0)) -> str:
    """The answer of condor_q."""
    lines = []
    for ad in jobs:
        values = [ad.get(name) for name in text.ATTRIBUTES]
        lines.append(
            " ".join("undefined" if v is None else f'"{v}"' if isinstance(v, str) else str(v) for v in values)
        )
    idle, running = (sum(ad["JobStatus"] == status for ad in jobs) for status in (1, 2))
    mine = TOTALS.format(len(jobs), idle, running)
    all_of_them = TOTALS.format(len(jobs) + sum(others), idle + others[0], running + others[1])
    owner = f"Total for lode: {mine} "
    return "\n".join(
        [*lines, "", f"Total for query: {mine} ", owner, f"Total for all users: {all_of_them}", ""]
    )


@dataclass
class Fake:
    """A submit host. `queue` and `history` are jobs; `answers` replaces what a program does: Done, or a fault."""

    queue: list[dict[str, object]] = field(default_factory=list)
    history: list[dict[str, object]] = field(default_factory=list)
    others: tuple[int, int] = (0, 0)
    answers: dict[str, CommandResult | BackendFault | Callable[[], CommandResult]] = field(
        default_factory=dict
    )
    ran: list[tuple[str, ...]] = field(default_factory=list)
    stdins: list[bytes] = field(default_factory=list)

    def run(self, words, *, stdin=b"", seconds=60.0):
        assert 0 < seconds <= 60
        self.ran.append(tuple(words))
        self.stdins.append(stdin)
        name = words[0]
        if name == "sh":
            name = next(
                part for part in ("condor_submit", "condor_status", "tail", "xargs") if part in words[2]
            )
        answer = self.answers.get(name, self._usual(name))
        if isinstance(answer, BackendFault):
            raise answer
        return answer() if callable(answer) else answer

    def _usual(self, name: str) -> CommandResult:

        if name == "condor_q":
            return CommandResult(0, printed(self.queue, self.others), "")
        if name == "condor_status":
            return CommandResult(0, printed(self.queue, self.others) + "\n-- free cores --\n2\n6\n", "")
        if name == "condor_history":
            return CommandResult(0, json.dumps(self.history), "")
        if name == "condor_submit":
            return CommandResult(0, "7.0 - 7.1\n", "")
        return CommandResult(0, "", "")

    def programs(self) -> list[str]:
        return [words[0] for words in self.ran]


def backend(fake: Fake, **more) -> HTCondorBackend:
    return HTCondorBackend(runner=fake, clock=lambda: 1_000.0, **more)


def states(fake: Fake, pilots: dict[str, str]) -> dict[str, str]:
    return {stamp: status.state for stamp, status in backend(fake).status(pilots).items()}


# --- submit ------------------------------------------------------------------------------------------


def test_one_command_submits_all_copies_and_no_secret_is_an_argument():
    fake = Fake()
    assert backend(fake).submit(SPEC).accepted == {"abc-1": "7.0", "abc-2": "7.1"}
    ((shell, *words),) = fake.ran
    assert shell == "sh"
    assert words[2:5] == ["lodesman", ".lodesman/submit", "abc"]
    assert words[-3:] == ["-terse", "-single-cluster", "-"]
    assert b"END-OF-PILOT" in fake.stdins[0]
    assert not any("END-OF-PILOT" in word for word in words)


def test_options_are_words_for_condor_submit():
    fake = Fake()
    backend(fake).submit(replace(SPEC, options=("-append", "accounting_group=atlas $(x); rm")))
    assert fake.ran[0][-3:] == ("-append", "accounting_group=atlas $(x); rm", "-")


def test_a_gateway_is_named_in_each_command():
    fake = Fake(queue=[job("7.0"), job("7.1", status=4)])
    there = backend(fake, schedd="ce.example.org", collector="ce.example.org:9619")
    assert there.submit(SPEC).accepted
    remote = ("-remote", "ce.example.org", "-pool", "ce.example.org:9619")
    assert fake.ran[0][-5:] == (*remote, "-")
    assert "+queue" in fake.ran[0][6]
    assert fake.ran[0][7] == "yes"
    pilots = {"abc-1": "7.0", "abc-2": "7.1", "old-1": "3.0"}
    there.status(pilots)
    there.cancel(pilots)
    there.loads([QUEUE])
    there.census()
    there.forget(pilots)
    for words in fake.ran[1:]:
        assert words[0] == "sh" or words[1:5] == ("-name", *remote[1:]), words
    fake.ran.clear()
    there.output("abc-2", "7.1")
    assert fake.ran[-1][-6:] == ("condor_transfer_data", "-name", *remote[1:], "7.1")


def test_a_submission_without_copies_asks_nothing():
    fake = Fake()
    assert backend(fake).submit(replace(SPEC, count=0)).accepted == {}
    assert fake.ran == []


def test_a_submission_that_was_made_is_refused_for_good():
    (refusal,) = {
        *backend(Fake(answers={"condor_submit": CommandResult(91, "", "")})).submit(SPEC).refused.values()
    }
    assert not refusal.transient


def test_a_full_disk_refuses_for_now():
    full = CommandResult(93, "", "cat: write error: No space left on device\n")
    (refusal,) = {*backend(Fake(answers={"condor_submit": full})).submit(SPEC).refused.values()}
    assert refusal.transient
    assert "No space left" in refusal.reason


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        ("ERROR: Parse error in expression: \n\tRequestCpus = (\n", False),
        ("ERROR: Failed to connect to local queue manager\n", True),
        ("ERROR: Number of submitted jobs would exceed MAX_JOBS_PER_OWNER\n", True),
    ],
)
def test_a_refusal_has_its_reason_and_leaves_no_script(error, transient):
    fake = Fake(answers={"condor_submit": CommandResult(1, "", error)})
    result = backend(fake).submit(SPEC)
    assert {(one.reason, one.transient) for one in result.refused.values()} == {
        (error.splitlines()[0].strip(), transient)
    }
    assert len(result.refused) == 2
    assert fake.stdins[-1] == b"abc"
    assert "xargs rm" in fake.ran[-1][2]


@pytest.mark.parametrize(
    "done",
    [
        CommandResult(0, "", ""),
        CommandResult(0, "7.0 - 7", ""),
        CommandResult(0, "7.0 - 7.0\n", ""),
        CommandResult(255, "", ""),
    ],
)
def test_an_answer_that_got_lost_is_asked_for_in_the_queue(done):
    fake = Fake(queue=[job("7.0", status=1), job("7.1", status=1)], answers={"condor_submit": done})
    assert backend(fake).submit(SPEC).accepted == {"abc-1": "7.0", "abc-2": "7.1"}
    fake.queue.clear()
    with pytest.raises(BackendFault) as fault:
        backend(fake).submit(SPEC)
    assert fault.value.data["transient"]


def test_a_token_that_expired_between_two_commands_leaves_it_open():
    error = CommandResult(
        1, "", "ERROR: Failed to connect to queue manager\nAUTHENTICATE:1003:Failed to authenticate\n"
    )
    fake = Fake(answers={"condor_submit": error, "condor_q": error})
    with pytest.raises(BackendFault, match="Failed to connect"):
        backend(fake).submit(SPEC)


def test_of_a_part_of_a_submission_the_rest_is_left_open():
    fake = Fake(
        queue=[job("7.1", status=1)],
        answers={"condor_submit": CommandResult(1, "", "ERROR: lost the schedd\n")},
    )
    result = backend(fake).submit(SPEC)
    assert (result.accepted, result.refused) == ({"abc-2": "7.1"}, {})


def test_what_nothing_needs_any_more_is_swept_with_the_rest(tmp_path):
    """The script that removes, on this machine; the folder is not ours alone."""
    old, young, emptied, new_and_empty, with_more, forgotten = (digit * 24 for digit in "abcdef")
    for name in (old, young, with_more, forgotten, "of-others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "script").touch()
        (tmp_path / name / "1.out").touch()
    (tmp_path / with_more / "notes").touch()
    for name in (emptied, new_and_empty, "empty-of-others"):
        (tmp_path / name).mkdir()
    day = 86_400
    for name in (old, with_more, "of-others", "empty-of-others"):
        os.utime(tmp_path / name, (time.time() - 61 * day,) * 2)
    os.utime(tmp_path / young, (time.time() - 50 * day,) * 2)
    os.utime(tmp_path / emptied, (time.time() - 700,) * 2)
    fake = Fake(queue=[job("7.0", forgotten, status=4)])
    backend(fake).forget({f"{forgotten}-1": "7.0"})
    done = Here().run([*fake.ran[-1][:4], str(tmp_path)], stdin=fake.stdins[-1])
    assert done == (0, "", "")
    left = {path.name: {file.name for file in path.iterdir()} for path in tmp_path.iterdir()}
    assert left == {
        young: {"script", "1.out"}, new_and_empty: set(), with_more: {"notes"}, forgotten: set(),
        "of-others": {"script", "1.out"}, "empty-of-others": set(),
    }  # fmt: skip


def test_the_folder_of_a_submission_is_made_once_for_its_account_alone(tmp_path, monkeypatch):
    """The script that submits, on this machine, with a condor_submit that says what it was given."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    (programs / "condor_submit").write_text('#!/bin/sh\ncat >given\necho "$@" >>given\n')
    (programs / "condor_submit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    fake = Fake()
    backend(fake).submit(SPEC)
    words, script = fake.ran[0], fake.stdins[0]
    assert Here().run(words, stdin=script[:-1]).code == 93, "the connection broke"
    assert Here().run(words, stdin=script).code == 0
    folder = home / ".lodesman" / "submit" / "abc"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "script")] == [0o700, 0o700]
    assert (folder / "script").read_bytes() == script
    assert (folder / "given").read_text() == words[6] + "-terse -single-cluster -\n"
    assert Here().run(words, stdin=script).code == 91
    folder.parent.rename(folder.parent.with_name("moved"))
    folder.parent.write_text("no folder")
    assert Here().run(words, stdin=script).code == 93


def test_a_submit_that_timed_out_is_found_by_its_stamp():
    fake = Fake(answers={"condor_submit": BackendFault("condor_submit did not end.", transient=True)})
    with pytest.raises(BackendFault):
        backend(fake).submit(SPEC)
    fake.queue = [job("7.0", status=1), job("7.1", status=1)]
    assert backend(fake).census() == {"abc-1": "7.0", "abc-2": "7.1"}


# --- status --------------------------------------------------------------------------------------------


def test_a_poll_is_one_command_and_two_if_a_pilot_has_left_the_queue():
    fake = Fake(queue=[job("7.0")], history=[job("7.1", status=3)])
    assert states(fake, {"abc-1": "7.0"}) == {"abc-1": "running"}
    assert fake.programs() == ["condor_q"]
    assert states(fake, {"abc-1": "7.0", "abc-2": "7.1"}) == {"abc-1": "running", "abc-2": "ended"}
    assert fake.programs() == ["condor_q", "condor_q", "condor_history"]


@pytest.mark.slow
def test_ten_thousand_pilots_are_two_commands():
    pilots = {stamp_of(f"s{number}", 1): f"{number}.0" for number in range(10_000)}
    fake = Fake(queue=[job(f"{number}.0", f"s{number}") for number in range(9_000)])
    seen = backend(fake).status(pilots)
    assert len(seen) == 10_000
    assert fake.programs() == ["condor_q", "condor_history"]
    assert max(len(word) for words in fake.ran for word in words) < 128 << 10


def test_what_is_absent_is_unknown_and_never_ended():
    assert states(Fake(), {"abc-1": "7.0", "odd": "x", "abc-2": "7.1; rm"}) == dict.fromkeys(
        ["abc-1", "odd", "abc-2"], "unknown"
    )


def test_a_number_that_was_given_out_again_is_another_pilot():
    again = [job("7.0", "other", status=4, ExitCode=0), job("7.1", "abc", status=4)]
    pilots = {"abc-1": "7.0", "abc-3": "7.1"}
    assert states(Fake(queue=again), pilots) == {"abc-1": "unknown", "abc-3": "unknown"}
    assert states(Fake(history=again), pilots) == {"abc-1": "unknown", "abc-3": "unknown"}
    fake = Fake(queue=[job("7.0", "other"), job("7.1", "abc")])
    assert set(backend(fake).cancel(pilots).values()) == {CancelOutcome.UNKNOWN}
    assert "condor_rm" not in fake.programs()


BROKEN = [
    CommandResult(1, "", "Error: Couldn't contact the condor_collector\n"),
    CommandResult(1, printed([job("7.0", status=4)]), "half way\n"),
    CommandResult(0, "", ""),
    CommandResult(0, "The submit host is closed for maintenance\n", ""),
    CommandResult(0, printed([job("7.0", status=4)])[:40], ""),
    CommandResult(0, printed([job("7.0", status=4)]).partition("Total for all")[0], ""),
    BackendFault("condor_q did not end within 60 s.", transient=True),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_queue_that_does_not_answer_is_a_fault_of_all_calls(broken):
    fake = Fake(answers={"condor_q": broken, "condor_status": broken})
    pilots = {"abc-1": "7.0"}
    calls: list[Callable[[], object]] = [
        lambda: backend(fake).status(pilots),
        lambda: backend(fake).cancel(pilots),
        lambda: backend(fake).forget(pilots),
        lambda: backend(fake).loads([QUEUE]),
        lambda: backend(fake).census(),
    ]
    for call in calls:
        with pytest.raises(BackendFault) as fault:
            call()
        assert fault.value.data["transient"]
    assert {*fake.programs()} <= {"condor_q", "condor_history", "sh"}


@pytest.mark.parametrize("broken", [*BROKEN, CommandResult(1, "[\n", "Unable to locate remote schedd\n")])
def test_a_history_that_does_not_answer_ends_nothing(broken):
    fake = Fake(queue=[job("7.0")], answers={"condor_history": broken})
    seen = backend(fake).status({"abc-1": "7.0", "abc-2": "7.1"})
    assert (seen["abc-1"].state, seen["abc-2"].state) == (NativeState.RUNNING, NativeState.UNKNOWN)
    assert seen["abc-2"].detail


def test_a_clock_that_differs_changes_no_state():
    later = {"JobCurrentStartDate": 9_000, "CompletionDate": 9_100, "EnteredCurrentStatus": 9_100}
    fake = Fake(queue=[job("7.0", status=4, ExitCode=3, **later)])
    (seen,) = backend(fake).status({"abc-1": "7.0"}).values()
    assert (seen.state, seen.exit_code, seen.observed_at) == (NativeState.ENDED, 3, 1_000.0)
    assert (seen.started_at, seen.ended_at) == (9_000, 9_100)


@given(st.data())
def test_an_answer_that_is_cut_anywhere_ends_and_counts_no_other_pilot(data):
    whole = printed([job("7.0", status=1), job("7.1", status=4, ExitCode=0), job("8.0", "def")])
    at = data.draw(st.integers(0, len(whole)))
    cut = data.draw(
        st.sampled_from([whole[:at], whole[at:], whole[:at] + whole[:at], whole[:at] + "\n" + whole[at:]])
    )
    fake = Fake(answers={"condor_q": CommandResult(0, cut, "")})
    try:
        seen = states(fake, {"abc-1": "7.0", "abc-2": "7.1", "def-1": "8.0"})
    except BackendFault:
        return
    assert seen["abc-1"] in {"waiting", "unknown"}
    assert seen["def-1"] in {"running", "unknown"}


# --- cancel ----------------------------------------------------------------------------------------------


def test_what_became_of_each_cancelled_pilot():
    pilots = {stamp_of("abc", number + 1): f"7.{number}" for number in range(7)}
    fake = Fake(
        queue=[
            job("7.0", status=1),
            job("7.1", NumShadowStarts=1),
            job("7.2", status=5),
            job("7.3", status=4, NumShadowStarts=1),
            job("7.4", NumShadowStarts=1),
            job("7.5", status=1),
        ]
    )

    def remove() -> CommandResult:
        fake.queue = [
            job("7.1", status=3, NumShadowStarts=1),
            job("7.3", status=4, NumShadowStarts=1),
            job("7.4", status=4, NumShadowStarts=1),
            job("7.5", status=1),
        ]
        fake.history = [job("7.0", status=3)]
        return CommandResult(0, "All jobs matching constraint have been marked for removal\n", "")

    fake.answers["condor_rm"] = remove
    assert backend(fake).cancel(pilots) == {
        "abc-1": CancelOutcome.REMOVED,
        "abc-2": CancelOutcome.ORDERED,
        "abc-3": CancelOutcome.REMOVED,  # gone, and the history does not have it
        "abc-4": CancelOutcome.ENDED,
        "abc-5": CancelOutcome.ENDED,  # it ended meanwhile
        "abc-6": CancelOutcome.FAILED,
        "abc-7": CancelOutcome.UNKNOWN,
    }
    (words,) = (words for words in fake.ran if words[0] == "condor_rm")
    assert words[2] == '(ClusterId == 7 && LodesmanSubmission == "abc" && member(ProcId, {0, 1, 2, 4, 5}))'


def test_a_waiting_pilot_that_began_meanwhile_was_ordered_to_end():
    fake = Fake(queue=[job("7.0", status=1)])

    def remove() -> CommandResult:
        fake.queue, fake.history = [], [job("7.0", status=3, NumShadowStarts=1)]
        return CommandResult(0, "", "")

    fake.answers["condor_rm"] = remove
    assert backend(fake).cancel({"abc-1": "7.0"}) == {"abc-1": CancelOutcome.ORDERED}


def test_many_pilots_are_cancelled_in_portions():
    pilots = {stamp_of(f"s{number}", 1): f"{number}.0" for number in range(1_200)}
    fake = Fake(queue=[job(f"{number}.0", f"s{number}", status=1) for number in range(1_200)])
    assert set(backend(fake).cancel(pilots).values()) == {CancelOutcome.FAILED}
    assert fake.programs().count("condor_rm") == 3


# --- loads, census, output, forget ---------------------------------------------------------------------------


def test_one_command_for_the_loads_of_all_queues():
    other = QueueId("LCG.One.de", "condor", "short")
    fake = Fake(
        queue=[
            job("7.0"),
            job("7.1", status=1),
            job("7.2", status=4),
            job("7.3", status=5),
            job("8.0", LodesmanQueue="x"),
        ],
        others=(5, 3),
    )
    loads = backend(fake).loads([QUEUE, other])
    assert len(fake.ran) == 1
    load = loads[QUEUE]
    assert (load.waiting, load.running, load.held) == (1, 1, 1)
    assert (load.others_waiting, load.others_running, load.free_cores, load.slots) == (5, 3, 8, None)
    assert (loads[other].waiting, loads[other].running) == (0, 0)


def test_pilots_of_another_server_of_the_account_are_others():
    fake = Fake(queue=[job("7.0"), job("7.1", status=1), job("7.2", status=1)], others=(5, 3))
    mine, theirs = (
        backend(fake, mark="ab").loads([QUEUE])[QUEUE],
        backend(fake, mark="x").loads([QUEUE])[QUEUE],
    )
    assert (mine.waiting, mine.running, mine.others_waiting, mine.others_running) == (2, 1, 5, 3)
    assert (theirs.waiting, theirs.running, theirs.others_waiting, theirs.others_running) == (0, 0, 7, 4)
    assert backend(fake, mark="x").census() == backend(fake).census()  # of before, too


def test_free_cores_that_are_not_known_are_not_zero():
    fake = Fake()
    fake.answers["condor_status"] = CommandResult(
        0, printed([]) + "\n-- free cores --\n", "Error: communication error\n"
    )
    (load,) = backend(fake).loads([QUEUE]).values()
    assert (load.waiting, load.free_cores) == (0, None)


def test_a_census_has_what_left_the_queue():
    fake = Fake(
        queue=[job("7.0"), job("9.0", "new", status=1)], history=[job("7.1", status=3), {"ClusterId": 1}]
    )
    assert backend(fake).census() == {"abc-1": "7.0", "abc-2": "7.1", "new-1": "9.0"}


def test_the_first_of_two_with_one_stamp_is_ours():
    fake = Fake(queue=[job("10.0"), job("9.0")], history=[job("11.0")])
    assert backend(fake).census() == {"abc-1": "9.0"}


def test_a_census_takes_no_ended_jobs_of_other_accounts():
    fake = Fake()
    backend(fake).census()
    assert fake.ran[-1][-1] == 'LodesmanSubmission =!= undefined && Owner == "lode"'
    lines = (line for line in printed([]).splitlines() if "lode" not in line)
    fake = Fake(history=[job("7.0")], answers={"condor_q": CommandResult(0, "\n".join(lines), "")})
    assert backend(fake).census() == {}, "who sees all jobs of the queue is not known by name"


def test_the_output_of_a_running_pilot_comes_from_its_node():
    fake = Fake(queue=[job("7.0")], answers={"condor_tail": CommandResult(0, "so far\n", "")})
    assert backend(fake).output("abc-1", "7.0") == b"so far\n"
    fake.answers = {
        "condor_tail": BackendFault("it waits", transient=True),
        "tail": CommandResult(0, "x" * 100_000, ""),
    }
    assert backend(fake).output("abc-1", "7.0") == b"x" * (64 << 10)


def test_an_output_that_is_not_there_is_none_and_one_that_cannot_be_read_is_a_fault():
    fake = Fake(answers={"tail": CommandResult(92, "", "")})
    assert backend(fake).output("abc-1", "7.0") is None
    assert backend(fake).output("../../etc/passwd", "7.0") is None
    fake.answers["tail"] = CommandResult(1, "", "tail: read error\n")
    with pytest.raises(BackendFault, match="read error"):
        backend(fake).output("abc-1", "7.0")


def test_a_script_stays_while_a_copy_may_need_it():
    fake = Fake(queue=[job("7.0", status=4), job("7.1", status=1)])
    backend(fake).forget({"abc-1": "7.0", "abc-2": "7.1"})
    assert fake.programs() == ["condor_q", "condor_qedit", "sh"]
    assert fake.ran[1][2:] == (text.these_jobs({"abc-1": "7.0"}), "LeaveJobInQueue", "false")
    assert fake.stdins[-1] == b"abc/1.out"
    fake.queue[1]["JobStatus"] = 4
    backend(fake).forget({"abc-2": "7.1"})
    assert fake.stdins[-1].split() == [b"abc/2.out", b"abc/script"]


@pytest.mark.parametrize("stays", [False, True])
def test_a_job_that_left_the_queue_just_before_it_was_let_go_is_forgotten(stays):
    class Leaving(Fake):
        def run(self, words, **more):
            if words[0] == "condor_qedit" and not stays:
                self.queue.clear()
            return super().run(words, **more)

    failed = CommandResult(1, "", "Queue transaction failed.  No attributes were set.\n")
    fake = Leaving(queue=[job("7.0", status=4)], answers={"condor_qedit": failed})
    if stays:
        with pytest.raises(BackendFault, match="No attributes were set"):
            backend(fake).forget({"abc-1": "7.0"})
    else:
        backend(fake).forget({"abc-1": "7.0"})
        assert fake.stdins[-1].split() == [b"abc/1.out", b"abc/script"]


def test_what_is_not_known_to_have_ended_is_not_forgotten():
    fake = Fake(queue=[job("7.0"), job("8.0", "other", status=4)])
    backend(fake).forget({"abc-1": "7.0", "abc-2": "7.1", "third-1": "8.0"})
    assert fake.programs() == ["condor_q", "condor_history"]


def test_htcondor_does_not_say_whether_a_pilot_could_run():
    assert backend(Fake()).check(SPEC).possible is None
