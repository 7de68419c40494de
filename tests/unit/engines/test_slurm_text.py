"""What Slurm 22.05 printed, as values; what it never printed is not believed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import BackendFault
from lodesman.server.engines import slurm_text
from lodesman.server.engines.backend import NativeState

DATA = Path(__file__).parents[2] / "data" / "slurm"
MARK = "~0123456789abcdef~"
QUEUE, ACCOUNTING, LOADS, CONFIG = (
    (DATA / f"{name}.txt").read_text(encoding="utf-8") for name in ("queue", "sacct", "loads", "config")
)
TITLES = QUEUE.partition("\n")[0] + "\n"


def line(*fields: str) -> str:
    return "".join(f"{field}{MARK}" for field in fields) + "\n"


def one(state: str, *, reason: str = "None", code: str = "0", host: str = "n1", ended: str = "7") -> str:
    return line("9", "1", state, code, host, "5", ended, reason, "lode-x")


def seen(text: str, name: str = "lode-x", native_id: str = "9_1"):
    """The status of a pilot by a list; None if the list does not have it."""
    record = slurm_text.parse_squeue(text, MARK, "lode-").record(native_id, name)
    return record and slurm_text.status_of(record, 100.0)


def states(listed: slurm_text.PilotList, name: str, array: int, count: int) -> list[str]:
    found = (listed.record(f"{array}_{number}", name) for number in range(1, count + 1))
    return ["" if one is None else slurm_text.status_of(one, 1.0).state.value for one in found]


def test_the_list_of_the_controller():
    listed = slurm_text.parse_squeue(QUEUE, MARK, "lode-")
    assert states(listed, "lode-ends", 78, 9) == ["ended"] * 5 + ["running"] * 2 + ["ended", ""]
    assert states(listed, "lode-held", 86, 2) == ["held"] * 2
    assert states(listed, "lode-held", 78, 2) == ["", ""], "a number of another submission"


def test_exit_codes_of_the_controller():
    found = [seen(QUEUE, "lode-ends", f"78_{number}") for number in (1, 2, 3, 4, 8)]
    assert [status.exit_code for status in found] == [0, 3, 137, 143, None]
    assert [status.word for status in found] == [
        "COMPLETED", "FAILED (NonZeroExitCode)", "FAILED (JobLaunchFailure)", "CANCELLED", "CANCELLED (JobHeldAdmin)",
    ]  # fmt: skip


def test_host_and_times():
    ran, never = (seen(QUEUE, "lode-ends", native_id) for native_id in ("78_1", "78_8"))
    assert (ran.host, ran.started_at, ran.ended_at) == ("vm", 1795443059.0, 1795443060.0)
    assert (never.host, never.started_at, never.ended_at) == ("", None, 1795443063.0)
    runs = seen(QUEUE, "lode-ends", "78_6")
    assert (runs.host, runs.started_at, runs.ended_at) == ("vm", 1795443065.0, None)


def test_tasks_cancelled_together_while_they_waited_have_one_record():
    listed = slurm_text.parse_squeue(QUEUE, MARK, "lode-")
    assert states(listed, "lode-rest", 85, 9) == ["ended"] * 9
    assert states(listed, "lode-ends", 85, 9) == [""] * 9
    in_accounting = slurm_text.parse_sacct(ACCOUNTING, MARK, "lode-")
    assert states(in_accounting, "lode-rest", 85, 9) == ["ended"] * 9


def test_the_rest_of_an_array_says_nothing_beside_an_odd_record():
    assert seen(QUEUE, "lode-rest", "85_2").state is NativeState.ENDED
    odd = line("85", "2", "RUNNING", "lode-rest")
    assert seen(QUEUE + odd, "lode-rest", "85_2") is None


def test_what_waits_in_the_accounting_alone_has_no_record():
    listed = slurm_text.parse_sacct(ACCOUNTING, MARK, "lode-")
    assert states(listed, "lode-held", 86, 2) == ["", ""]


def test_the_accounting():
    listed = slurm_text.parse_sacct(ACCOUNTING, MARK, "lode-")
    assert states(listed, "lode-ends", 78, 8) == ["ended"] * 5 + ["", "running", "ended"]
    found = [slurm_text.status_of(listed.record(f"78_{n}", "lode-ends"), 1.0) for n in (1, 2, 3, 4, 8)]
    assert [status.exit_code for status in found] == [0, 3, 137, None, None]
    assert [status.host for status in found] == ["vm"] * 4 + [""]
    assert found[3].word == "CANCELLED by 0"


def test_a_name_cannot_forge_a_record():
    name = "lode-y~\n1~1~COMPLETED"
    forged = line("9", "1", "RUNNING", "0", "n1", "5", "7", "None", name)
    assert seen(TITLES + forged, name).state is NativeState.RUNNING
    assert seen(QUEUE, "lode-rest~\n1~1~COMPLETED", "87_1").state is NativeState.WAITING
    assert seen(QUEUE, "lode-rest", "87_1") is None


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("BOOT_FAIL", "ended"), ("CANCELLED by 1000", "ended"), ("COMPLETED", "ended"), ("COMPLETING", "running"),
        ("CONFIGURING", "waiting"), ("DEADLINE", "ended"), ("FAILED", "ended"), ("NODE_FAIL", "ended"),
        ("OUT_OF_MEMORY", "ended"), ("PENDING", "waiting"), ("PREEMPTED", "ended"), ("REQUEUED", "waiting"),
        ("REQUEUE_HOLD", "held"), ("REQUEUE_FED", "waiting"), ("RESIZING", "running"), ("RESV_DEL_HOLD", "held"),
        ("REVOKED", "unknown"), ("RUNNING", "running"), ("SIGNALING", "running"), ("SPECIAL_EXIT", "held"),
        ("STAGE_OUT", "running"), ("STOPPED", "running"), ("SUSPENDED", "running"), ("TIMEOUT", "ended"),
        ("", "unknown"), ("ENDED", "unknown"), ("completed", "unknown"),
    ],
)  # fmt: skip
def test_all_states(word, state):
    assert seen(TITLES + one(word)).state.value == state


NEVER_ENDING = """JobHeldUser JobHeldAdmin BadConstraints DependencyNeverSatisfied PartitionTimeLimit PartitionNodeLimit
PartitionConfig QOSMaxWallDurationPerJobLimit AssocMaxCpuPerJobLimit AssocGrpCPUMinutesLimit InvalidAccount InvalidQOS
QOSGrpCPUMinutesLimit AccountNotAllowed launch_failed_requeued_held QOSMinCpuNotSatisfied""".split()


@pytest.mark.parametrize(
    "reason",
    [*NEVER_ENDING, "launch failed requeued held", "user env retrieval failed requeued held"],
)
def test_reasons_that_never_go_away(reason):
    status = seen(TITLES + one("PENDING", reason=reason, host="n/a"))
    assert status.state is NativeState.HELD
    assert reason in status.word
    assert reason in status.detail


@pytest.mark.parametrize(
    "reason",
    "None Priority Resources Dependency PartitionDown ReqNodeNotAvail Reservation QOSMaxJobsPerUserLimit QOSGrpCpuLimit"
    " AssocGrpJobsLimit AssocGrpCPURunMinutesLimit JobArrayTaskLimit Licenses BeginTime NodeDown Cleaning".split(),
)
def test_reasons_that_go_away(reason):
    assert seen(TITLES + one("PENDING", reason=reason, host="n/a")).state is NativeState.WAITING


@pytest.mark.parametrize(
    ("code", "expected"),
    [("0", 0), ("768", 3), ("65280", 255), ("9", 137), ("15", 143), ("139", 139), ("3:0", 3), ("0:9", 137), ("1:15", 143),
     ("", None), ("x", None), ("1:", None), (":1", None), ("-1", None), ("²", None), ("9" * 40, 128 + (999999999 & 127))],
)  # fmt: skip
def test_exit_codes(code, expected):
    state = "COMPLETED" if code == "0" else "FAILED"
    assert seen(TITLES + one(state, code=code)).exit_code == expected


def test_an_end_by_slurm_has_no_exit_code_zero():
    assert seen(TITLES + one("TIMEOUT", code="0")).exit_code is None
    assert seen(TITLES + one("NODE_FAIL", code="0:0")).exit_code is None


def test_another_clock_and_another_alphabet():
    record = line("9", "1", "RUNNING", "0", "nœud-1", "4000000000", "N/A", "Grund: ü", "lode-x")
    status = seen(TITLES + record)
    assert (status.observed_at, status.started_at, status.host) == (100.0, 4e9, "nœud-1")
    assert status.word == "RUNNING (Grund: ü)"


def test_times_that_are_not_known():
    status = seen(TITLES + one("COMPLETED", ended="Unknown"))
    assert (status.started_at, status.ended_at) == (5.0, None)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "Welcome to the cluster\n", TITLES.rstrip("\n"), TITLES.replace("ARRAY", ""), QUEUE[:-1], QUEUE[:-30],
     QUEUE.partition("\n")[2], "slurm_load_jobs error: Unable to contact slurm controller\n", "\0\xff\n"],
)  # fmt: skip
def test_a_list_that_is_not_whole_is_not_believed(text):
    with pytest.raises(BackendFault) as fault:
        slurm_text.parse_squeue(text, MARK, "lode-")
    assert fault.value.data["transient"]


def test_a_banner_before_the_list_is_passed_over():
    assert seen("Welcome!\n\n  to the cluster\n" + QUEUE, "lode-ends", "78_1").state is NativeState.ENDED


def test_an_odd_record_is_left_out_alone():
    text = TITLES + line("9", "1", "COMPLETED") + one("RUNNING").replace("9", "10", 1)
    assert seen(text) is None
    assert seen(text, native_id="10_1").state is NativeState.RUNNING


def test_a_record_that_comes_twice_counts_once():
    assert seen(TITLES + one("RUNNING") * 2).state is NativeState.RUNNING
    assert seen(TITLES + one("RUNNING") + one("COMPLETED")) is None
    assert seen(TITLES + one("RUNNING") + one("COMPLETED") + one("RUNNING")) is None


def test_the_loads():
    load = slurm_text.loads_of(LOADS, MARK, lambda user, name: user == "root" and name.startswith("lode-"))
    found = load("pilots", 5.0)
    assert (found.waiting, found.running, found.held, found.observed_at) == (0, 2, 2, 5.0)
    assert (found.others_waiting, found.others_running) == (1, 0)
    wide = load("wide", 5.0)
    assert (wide.running, wide.others_waiting, wide.others_running) == (0, 1, 1)
    assert load("down", 5.0).waiting == 1
    assert load("nosuch", 5.0).waiting == 0
    assert found.slots is found.free_cores is None


def test_loads_of_an_odd_list_are_not_counted():
    with pytest.raises(BackendFault):
        slurm_text.loads_of(LOADS + line("RUNNING", "pilots"), MARK, lambda user, name: True)


def test_what_is_in_no_known_state_counts_as_running():
    text = LOADS + line("DREAMING", "pilots", "root", "None", "lode-ends")
    assert slurm_text.loads_of(text, MARK, lambda user, name: True)("pilots", 1.0).running == 3


def test_the_configuration():
    found = slurm_text.settings_of("Welcome\n" + CONFIG)
    assert found["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert found["PrivateData"] == "none"
    for text in ("", "Welcome\n", CONFIG[:200]):
        with pytest.raises(BackendFault):
            slurm_text.settings_of(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1234\n", "1234"), ("1234;other\n", "1234"), ("Welcome to 22\n1234\n", "1234"), ("", ""), ("Welcome\n", ""),
     ("12 34\n", ""), ("1234", "1234"), ("12_3\n", "")],
)  # fmt: skip
def test_the_number_of_a_submission(text, number):
    assert slurm_text.number_of(text) == number


# Standard error of sbatch 22.05.
NOSUCH = """sbatch: error: invalid partition specified: nosuch
sbatch: error: Batch job submission failed: Invalid partition name specified
"""
NEVER = [
    NOSUCH,
    "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    "allocation failure: Requested node configuration is not available\n",
    "sbatch: error: Batch job submission failed: Invalid job array specification\n",
    "sbatch: unrecognized option '--bad'\nTry \"sbatch --help\" for more information\n",
    "sbatch: error: Invalid generic resource (gres) specification\n",
]
LATER = [
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
    "sbatch: error: Batch job submission failed: Required partition not available (inactive or drain)\n",
    "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates a policy\n",
    "sbatch: error: Batch job submission failed: Invalid authentication credential\n",
    "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n",
]
UNSURE = [
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
    "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n",
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)\n",
]


def test_refusals_are_in_the_words_of_slurm():
    assert slurm_text.refusal_of(NOSUCH) == (
        "invalid partition specified: nosuch; Invalid partition name specified"
    )
    assert slurm_text.refusal_of(NEVER[4]) == "unrecognized option '--bad'"
    assert slurm_text.refusal_of("") == ""


def test_which_refusals_may_pass():
    for texts, later, unsure in ((NEVER, False, False), (LATER, True, False), (UNSURE, False, True)):
        for text in texts:
            reason = slurm_text.refusal_of(text)
            assert (slurm_text.may_pass(reason), slurm_text.is_unsure(reason)) == (later, unsure), reason


# --- whatever is printed ------------------------------------------------------------------------------

TEXTS = [QUEUE, ACCOUNTING, LOADS]


@st.composite
def damaged(draw) -> str:
    """A list that is cut, has lines twice, or has something in it."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        at, to = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        noise = draw(st.text(max_size=20))
        changed = [
            text[:at],
            text[at:],
            text[:to] + text[at:],
            text[:at] + text[to:],
            text[:at] + noise + text[at:],
        ]
        text = draw(st.sampled_from(changed))
    return text


@given(st.text() | damaged())
def test_no_text_raises_anything_else(text):
    for read in (slurm_text.parse_squeue, slurm_text.parse_sacct):
        try:
            listed = read(text, MARK, "lode-")
        except BackendFault:
            continue
        for native_id in (*listed.tasks, "85_2"):
            record = listed.record(native_id, "lode-ends")
            if record:
                slurm_text.status_of(record, 1.0)
    with contextlib.suppress(BackendFault):
        slurm_text.loads_of(text, MARK, lambda user, name: True)("pilots", 1.0)
    with contextlib.suppress(BackendFault):
        slurm_text.settings_of(text)
    slurm_text.number_of(text)
    slurm_text.may_pass(slurm_text.refusal_of(text))
    slurm_text.last_line(text)


@given(st.integers(0, len(QUEUE)), st.text(max_size=30))
def test_a_cut_list_ends_no_pilot_that_runs(at, noise):
    for text in (QUEUE[:at] + noise, QUEUE[:at] + noise + "\n", noise + QUEUE[at:]):
        try:
            listed = slurm_text.parse_squeue(text, MARK, "lode-")
        except BackendFault:
            continue
        runs = listed.record("78_6", "lode-ends")
        assert runs is None or slurm_text.status_of(runs, 1.0).state is NativeState.RUNNING
