"""How a payload is started: its command, environment, streams and the kernel's limits."""

from __future__ import annotations

import errno
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot.launch import NotStarted, _environment_for, _find_executable, _kernel_limits, prepare
from lodesman.pilot.protocol import PayloadLimits

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SECRET": "x", "PYTHONPATH": "/x"}


def test_environment(make_job, tmp_path):
    job = make_job(
        7,
        attempt=2,
        environment={
            "A": "ä", "HOME": "/mine", "JOBID": "9", "LODESMAN_STAMP": "no", "LODESMAN_COMMIT": "/x", "JOBSTATUS": "/x",
            "LODE_SITE": "no", "LODESMAN_PILOTS": "no",
        },
    )  # fmt: skip
    values = _environment_for(
        job, tmp_path, {**ENVIRONMENT, "JOBSTATUS": "/y", "LODESMAN_PILOTS": "of-here"}, "s1"
    )
    assert values == {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "LODESMAN_STAMP": "s1",
        "LODESMAN_PILOTS": "of-here",
        "HOME": "/mine",
        "TMPDIR": str(tmp_path / ".tmp"),
        "OMP_NUM_THREADS": "1",
        "A": "ä",
        "LODESMAN_JOB": "7.2",
        "JOBID": "7",
        "LODESMAN_COMMIT": str(tmp_path / ".tmp/.commit"),
    }
    assert _environment_for(make_job(), tmp_path, {}, "s1")["PATH"]


@pytest.mark.slow
def test_a_job_is_told_what_it_is_and_nothing_of_its_pilot_s_tokens(run, make_job, tmp_path):
    pilot = {**ENVIRONMENT, "LODE_TOKEN": "secret", "LODE_SERVER": "http://here", "LODE_SITE": "elsewhere"}
    echo = ("/bin/sh", "-c", "env | grep -e ^LODE_ -e ^OMP_ | sort")
    job = make_job(7, *echo, attempt=2, cores=4, memory_mb=2000, index=0)
    launch = prepare(job, tmp_path, pilot, "s1", site="North")
    assert run(launch) == 0
    launch.close()
    assert (tmp_path / "std.out").read_text().split() == [
        "LODE_ARRAY_INDEX=0", "LODE_ATTEMPT=2", "LODE_CORES=4", "LODE_JOB_ID=7", "LODE_MEMORY_MB=2000",
        "LODE_SITE=North", "OMP_NUM_THREADS=4",
    ]  # fmt: skip


@pytest.mark.slow
def test_what_is_not_known_of_a_job_is_not_said(run, make_job, tmp_path):
    job = make_job(
        7, "/bin/sh", "-c", "env | grep -e ^LODE_ -e ^OMP_ | sort", environment={"OMP_NUM_THREADS": "3"}
    )
    launch = prepare(job, tmp_path, ENVIRONMENT, "s1")
    assert run(launch) == 0
    launch.close()
    assert (tmp_path / "std.out").read_text().split() == [
        "LODE_ATTEMPT=1", "LODE_CORES=1", "LODE_JOB_ID=7", "OMP_NUM_THREADS=3"
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0"}])
def test_environments_that_none_can_have(make_job, tmp_path, wrong):
    with pytest.raises(NotStarted):
        _environment_for(make_job(environment=wrong), tmp_path, ENVIRONMENT, "s1")


def test_executables(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/run").write_text("#!/bin/sh\n")
    assert _find_executable("run.sh", tmp_path, "/bin") == str(tmp_path / "run.sh")
    assert os.access(tmp_path / "run.sh", os.X_OK)
    assert _find_executable("./d/run", tmp_path, "/bin").endswith("d/run")
    assert _find_executable("/bin/sh", tmp_path, "") == "/bin/sh"
    assert _find_executable("sh", tmp_path, "/usr/bin:/bin").endswith("/sh")


def test_the_sandbox_goes_before_the_path(tmp_path):
    (tmp_path / "sh").write_text("")
    assert _find_executable("sh", tmp_path, "/bin") == str(tmp_path / "sh")


@pytest.mark.parametrize("first", [b"#!/bin/sh\r\n", b"#!/usr/bin/env python3 -u\r\nprint()\r\n"])
def test_a_script_whose_interpreter_no_node_has_is_named(tmp_path, first):
    (tmp_path / "run.sh").write_bytes(first)
    with pytest.raises(NotStarted, match=r"^The first line of the executable './run.sh' ends with CR LF"):
        _find_executable("./run.sh", tmp_path, "/bin")


@pytest.mark.parametrize(
    "first", [b"#!/bin/sh\necho\r\n", b"echo\r\n", b"#!/bin/sh\r", b"#!" + b" " * 254 + b"\r\n", b""]
)
def test_other_programs_are_executed(tmp_path, first):
    (tmp_path / "run.sh").write_bytes(first)
    assert _find_executable("run.sh", tmp_path, "/bin") == str(tmp_path / "run.sh")


@pytest.mark.parametrize(
    "name", ["", "nothing", "/nothing", "d", "d/x", "../../bin/sh", "out", "a\0b", "/dev/null"]
)
def test_executables_that_are_none(tmp_path, name):
    (tmp_path / "d").mkdir()
    (tmp_path / "out").symlink_to("/etc/hostname")
    with pytest.raises(NotStarted):
        _find_executable(name, tmp_path, "/usr/bin:/bin")


def test_limits_per_process_lie_above_those_of_the_tree():
    none = {resource.RLIMIT_CORE: (0, 0)}
    assert _kernel_limits(PayloadLimits()) == none
    # What the server takes says nothing about scratch files.
    assert _kernel_limits(PayloadLimits(sandbox_mb=200)) == none
    size, addresses = 1025 << 20, (2 * 100 + 4096) << 20
    assert _kernel_limits(PayloadLimits(cpu_seconds=9.5, output_mb=1, memory_mb=100)) == {
        **none,
        resource.RLIMIT_CPU: (15, 25),
        resource.RLIMIT_FSIZE: (size, size),
        resource.RLIMIT_AS: (addresses, addresses),
    }


@given(st.floats(0.1, 1e9), st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_the_net_never_bites_first(cpu, output, memory):
    found = _kernel_limits(PayloadLimits(cpu_seconds=cpu, output_mb=output, memory_mb=memory))
    soft, hard = found[resource.RLIMIT_CPU]
    assert cpu < soft < hard
    assert found[resource.RLIMIT_FSIZE][0] > output * (1 << 20)
    assert found[resource.RLIMIT_AS][0] > memory * (1 << 20)


@pytest.fixture
def run(nursery):
    """Run a launch under a warden; its exit code."""

    def run(launch):
        warden = nursery.take()
        warden.start(launch)
        end = warden.wait()
        warden.close()
        os.waitpid(warden.pid, 0)
        assert end is not None
        return os.waitstatus_to_exitcode(end.status)

    return run


@pytest.mark.slow
def test_limits_are_set_and_the_payload_is_run(run, make_job, tmp_path):
    script = 'ulimit -c; ulimit -S -t; ulimit -H -t; ulimit -f; echo "$@"; readlink /proc/$$/exe'
    job = make_job(
        1,
        "/bin/sh",
        "-c",
        script,
        "name",
        "two words",
        "",
        "*",
        "$HOME",
        limit_cpu_seconds=100,
        limit_output_mb=1,
    )
    launch = prepare(job, tmp_path, ENVIRONMENT, "s1")
    assert run(launch) == 0
    launch.close()
    lines = (tmp_path / "std.out").read_text().splitlines()
    assert lines[:5] == ["0", "105", "115", str((1025 << 20) // 512), "two words  * $HOME"]
    assert (tmp_path / "std.err").read_text() == ""


@pytest.mark.slow
def test_a_stricter_limit_of_the_site_stays(run, make_job, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (10**9 << 10, before[1]))
    try:
        job = make_job(1, "/bin/sh", "-c", "ulimit -S -v", limit_memory_mb=10**9)
        launch = prepare(job, tmp_path, ENVIRONMENT, "s1")
        assert run(launch) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    launch.close()
    assert (tmp_path / "std.out").read_text() == f"{10**9}\n"


@pytest.mark.slow
def test_a_script_without_its_first_line_runs(run, make_job, tmp_path):
    (tmp_path / "plain").write_text("echo hello\n")
    launch = prepare(make_job(1, "plain"), tmp_path, ENVIRONMENT, "s1")
    assert run(launch) == 0
    launch.close()
    assert (tmp_path / "std.out").read_text() == "hello\n"


@pytest.mark.slow
def test_streams(run, make_job, tmp_path):
    (tmp_path / "in").write_text("input")
    (tmp_path / "d").mkdir()
    job = make_job(1, "/bin/cat", std_input="in", std_output="d/o", std_error="e")
    launch = prepare(job, tmp_path, ENVIRONMENT, "s1")
    assert list(launch.outputs) == ["d/o", "e"]
    assert run(launch) == 0
    launch.close()
    assert (tmp_path / "d/o").read_text() == "input"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(launch.outputs["d/o"])


@pytest.mark.slow
def test_one_file_for_both_streams(run, make_job, tmp_path):
    job = make_job(1, "/bin/sh", "-c", "echo a; echo b >&2; echo c", std_output="x", std_error="./x")
    launch = prepare(job, tmp_path, ENVIRONMENT, "s1")
    assert len(launch.outputs) == 1
    run(launch)
    launch.close()
    assert (tmp_path / "x").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"std_output": "../x"},
        {"std_output": "/tmp/x"},
        {"std_error": "d"},
        {"std_output": "link"},
        {"std_input": "a\0b"},
    ],
)
def test_streams_that_cannot_be_opened_leave_none_open(make_job, tmp_path, wrong):
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("/tmp/elsewhere")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotStarted):
        prepare(make_job(1, "/bin/true", **wrong), tmp_path, ENVIRONMENT, "s1")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_stream_that_cannot_be_opened_is_named_as_in_the_job(make_job, tmp_path):
    """Where the pilot keeps the job's directory is nothing that a user knows."""
    (tmp_path / "d").mkdir()
    with pytest.raises(NotStarted) as caught:
        prepare(make_job(1, "/bin/true", std_error="d"), tmp_path, ENVIRONMENT, "s1")
    assert (
        caught.value.message
        == "A standard stream of the job cannot be opened: [Errno 21] Is a directory: 'd'"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO])
def test_a_stream_that_the_node_does_not_open_is_not_the_job_s_fault(make_job, tmp_path, monkeypatch, number):
    before, os_open = os.listdir("/proc/self/fd"), os.open

    def refuse(path, *arguments, **more):
        if str(path).endswith("std.err"):
            raise OSError(number, os.strerror(number))
        return os_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        prepare(make_job(1, "/bin/true"), tmp_path, ENVIRONMENT, "s1")
    assert os.listdir("/proc/self/fd") == before


def test_arguments_with_nul(make_job, tmp_path):
    with pytest.raises(NotStarted):
        prepare(make_job(1, "/bin/true", "a\0b"), tmp_path, ENVIRONMENT, "s1")
