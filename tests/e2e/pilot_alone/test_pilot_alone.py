"""One pilot against a server from memory: payloads that end in every way there is."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest


def alive(mark: str) -> list[int]:
    """Processes whose command line holds `mark`; those that only wait to be buried do not count."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            if directory.name.isdigit() and mark.encode() in (directory / "cmdline").read_bytes():
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def until(condition, timeout: float = 200.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def archive(**files: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def part(
    fake, content: bytes, *, name: str = "input", unpack: bool = False, digest: str = ""
) -> dict[str, Any]:
    sha256 = fake.sandbox(content)
    url = f"/v1/sandboxes/{sha256}"
    return {"name": name, "url": url, "sha256": digest or sha256, "size": len(content), "unpack": unpack}


def test_success_with_output(fake, start, job):
    pilot = start()
    script = "echo hello; echo oops >&2; echo 42 > answer.txt; mkdir d; echo x > d/y"
    fake.submit(job(1, "/bin/sh", "-c", script, output_sandbox=["*.txt", "d", "missing.*"]))
    end = fake.end_of(1)
    assert (end["state"], end["cause"], end["exit_code"], end["signal"]) == ("Done", "ok", 0, None)
    assert fake.output(1) == {
        "std.out": b"hello\n",
        "std.err": b"oops\n",
        "answer.txt": b"42\n",
        "d/y": b"x\n",
    }
    assert end["output"]["size"] == len(fake.outputs[1, 1])
    assert end["tail"] == "--- std.out ---\nhello\n--- std.err ---\noops\n"
    assert "missing.*" in end["message"]
    assert end["ended"] >= end["started"] > 1e9
    pilot.terminate()
    assert pilot.end() == 0
    assert [leave["reason"] for leave in fake.leaves] == ["sigterm"]
    assert not (pilot.directory / "work").exists()
    assert not (pilot.directory / "outbox").exists()


def test_on_the_oldest_interpreter(fake, start, job, oldest_python):
    pilot = start(interpreter=oldest_python)
    packed = archive(
        **{"run.sh": b"#!/bin/sh\ncat; (setsid sleep 60 &); echo $JOBID > id\n", "in": b"input\n"}
    )
    fake.submit(
        job(
            1,
            "run.sh",
            std_input="in",
            output_sandbox=["id"],
            inputs=[part(fake, packed, unpack=True)],
            cpu_seconds=9,
        ),
        job(2, "sleep", "60", wall_seconds=0.3),
    )
    assert fake.end_of(1)["state"] == "Done"
    assert fake.output(1) == {"std.out": b"input\n", "std.err": b"", "id": b"1\n"}
    assert fake.end_of(2)["cause"] == "wall-limit"
    pilot.terminate()
    assert pilot.end() == 0


def test_exit_codes_signals_and_what_cannot_start(fake, start, job):
    start(cores=2)
    fake.submit(
        job(1, "sh", "-c", "exit 3"),
        job(2, "sh", "-c", "kill -SEGV $$"),
        job(3, "no-such-program"),
        job(4, "nothing/here.sh"),
        job(5, "cat", std_input="no-such-file"),
        job(6, "cat", std_output="../outside"),
        job(7, "cat", environment={"A=B": "x"}),
        {"id": 8, "attempt": 1, "spec": {"executable": 5, "cores": 1}},
    )
    ends = {number: fake.end_of(number) for number in range(1, 9)}
    assert (ends[1]["cause"], ends[1]["exit_code"]) == ("exit", 3)
    assert (ends[2]["cause"], ends[2]["signal"], ends[2]["exit_code"]) == ("signal", 11, None)
    assert {ends[number]["cause"] for number in range(3, 9)} == {"not-started"}
    assert {end["state"] for end in ends.values()} == {"Failed"}
    assert "no-such-program" in ends[3]["message"]
    assert "executable" in ends[8]["message"]


def test_inputs_environment_and_standard_input(fake, start, job):
    """A script that lost its mode runs, files are there, the environment is the job's and nothing else."""
    pilot = start(environment={"SECRET_OF_THE_SITE": "x"})
    script = b"#!/bin/sh\ncat; cat data/one.txt plain; pwd; ls -l /proc/$$/fd >&2; env\n"
    packed = archive(**{"run.sh": script, "data/one.txt": b"one\n"})
    fake.submit(
        job(
            1,
            "run.sh",
            std_input="data/one.txt",
            environment={"COLOUR": "grün", "LODESMAN_JOB": "9.9"},
            inputs=[part(fake, packed, unpack=True), part(fake, b"plain\n", name="plain")],
        )
    )
    end = fake.end_of(1)
    assert end["state"] == "Done", end
    files = fake.output(1)
    lines = files["std.out"].decode().splitlines()
    assert lines[:3] == ["one", "one", "plain"]
    home = lines[3]
    assert (Path(home).name, Path(home).parent.parent) == ("1.1", pilot.directory / "work")
    told = dict(line.split("=", 1) for line in lines[4:])
    assert told["COLOUR"] == "grün"
    assert (told["LODESMAN_JOB"], told["JOBID"], told["HOME"]) == ("1.1", "1", home)
    assert told["TMPDIR"] == f"{home}/.tmp" or len(told["TMPDIR"]) < 30  # a long one has a short name
    assert "SECRET_OF_THE_SITE" not in told
    descriptors = [line for line in files["std.err"].decode().splitlines() if "->" in line]
    # 0, 1, 2 and whatever the shell itself opened of the script.
    assert not [line for line in descriptors if "socket" in line or "pipe" in line or "journal" in line]


@pytest.mark.parametrize("home_writable", [False, True])
def test_what_a_payload_leaves_in_the_home_of_its_account(fake, start, job, tmp_path, home_writable):
    """Nothing, where payloads have namespaces: also where the pilot works below it."""
    library = tmp_path / ".local/lib"
    library.mkdir(parents=True)
    pilot = start(environment={"HOME": str(tmp_path)}, home_writable=home_writable)
    script = f"echo x > own; echo x > $TMPDIR/own; cat {tmp_path}/note && echo x > {library}/usercustomize.py"
    (tmp_path / "note").write_text("to be read\n")
    fake.submit(job(1, "/bin/sh", "-c", script, output_sandbox=["own"]), job(2, "readlink", "/proc/self"))
    ends = [fake.end_of(number) for number in (1, 2)]
    is_confined = int(fake.output(2)["std.out"]) < 10
    assert fake.output(1)["own"] == b"x\n"
    assert fake.output(1)["std.out"] == b"to be read\n"
    is_written = home_writable or not is_confined
    assert [end["state"] for end in ends] == ["Done" if is_written else "Failed", "Done"]
    assert (library / "usercustomize.py").exists() == is_written
    if not is_written:
        assert b"Read-only file system" in fake.output(1)["std.err"]
    told = [event["writable"] for event in pilot.events("weak-isolation") if "writable" in event]
    assert (str(tmp_path) in told) == (not is_confined and not home_writable)
    pilot.terminate()
    assert pilot.end() == 0


def test_bad_input_is_refused(fake, start, job):
    start(cores=3)
    hostile = archive(**{"../escape": b"x"})
    fake.submit(
        job(1, "cat", inputs=[part(fake, b"content", digest="0" * 64)]),
        job(2, "cat", inputs=[{"name": "x", "url": "/v1/sandboxes/none", "sha256": "1" * 64, "size": 3}]),
        job(3, "cat", inputs=[part(fake, hostile, unpack=True)]),
    )
    for number in (1, 2, 3):
        end = fake.end_of(number)
        assert (end["state"], end["cause"], end["output"]) == ("Failed", "input", None)


def test_cpu_limit_counts_the_whole_tree(fake, start, job):
    """Neither of the two processes alone comes near the limit when the payload is ended."""
    start(cores=2)
    spin = f"{sys.executable} -c 'while True: pass'"
    fake.submit(job(1, "sh", "-c", f"{spin} & {spin} & wait", cpu_seconds=1, cores=2))
    end = fake.end_of(1)
    assert (end["state"], end["cause"]) == ("Failed", "cpu-limit")
    assert 1.0 <= end["cpu_seconds"] < 20.0  # on a busy machine it is noticed late


def test_wall_memory_and_output_limits(fake, start, job):
    start(cores=3)
    hoard = "import time; x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"
    fake.submit(
        job(1, "sleep", "60", wall_seconds=0.5),
        job(2, sys.executable, "-c", hoard, memory_mb=100),
        job(3, "sh", "-c", "yes | head -c 30000000; sleep 60", output_mb=2),
    )
    walled, hoarder, writer = (fake.end_of(number) for number in (1, 2, 3))
    assert walled["cause"] == "wall-limit"
    assert 0.5 <= walled["wall_seconds"] < 50
    assert hoarder["cause"] == "memory-limit"
    assert hoarder["max_rss_mb"] > 100
    assert writer["cause"] == "output-limit"
    # Of a stream over the limit the end is kept, and not more than a little of it.
    assert len(fake.output(3)["std.out"]) == 1 << 20


def test_output_sandbox_over_its_limit_fails(fake, start, job):
    start()
    fake.submit(
        job(1, "sh", "-c", "echo short; head -c 3000000 /dev/zero > big", output_sandbox=["big"], output_mb=1)
    )
    end = fake.end_of(1)
    assert (end["state"], end["cause"], end["exit_code"]) == ("Failed", "output-limit", 0)
    assert fake.output(1) == {"std.out": b"short\n", "std.err": b""}


def test_without_a_limit_of_its_own_a_job_has_the_servers(fake, start, job):
    """The join answers with it; it limits standard output and the archive."""
    fake.terms["sandbox_mb"] = 3
    start(cores=2)
    fake.submit(
        job(1, "sh", "-c", "exec yes"),
        job(2, "sh", "-c", "truncate -s 60G hole; echo x > small", output_sandbox=["hole", "small"]),
    )
    writer, holed = fake.end_of(1), fake.end_of(2)
    assert (writer["state"], writer["cause"]) == ("Failed", "output-limit")
    assert "grew over 3 MB" in writer["message"]
    assert len(fake.output(1)["std.out"]) == 1 << 20
    assert (holed["state"], holed["cause"]) == ("Failed", "output-limit")
    assert holed["message"] == "The output sandbox is larger than 3 MB. Left out: hole."
    assert set(fake.output(2)) == {"std.out", "std.err", "small"}


def test_children_that_leave_the_session_are_ended(fake, start, job, gate):
    """setsid, a double fork and a cleaned environment: the attempt ends only when all of them are gone."""
    start()
    mark = f"61{os.getpid()}.5"
    runaway = f"setsid sh -c 'setsid sleep {mark} & env -i setsid sleep {mark} & exit 0' & {gate.wait}; true"
    fake.submit(job(1, "sh", "-c", runaway))
    until(lambda: len(alive(f"sleep\0{mark}")) == 2)
    gate.open()
    end = fake.end_of(1)
    assert end["state"] == "Done"
    assert alive(f"sleep\0{mark}") == []


def test_hostile_names(fake, start, job):
    start()
    names = ["grün und blau.txt", "a[1].txt", "-rf", "new\nline", "*.log"]
    script = "import sys; [open(n, 'w').write(n) for n in sys.argv[1:]]; open('x.log','w').write('log')"
    fake.submit(
        job(
            1,
            sys.executable,
            "-c",
            script,
            *names[:-1],
            std_output="out/ÄÖ ü",
            std_error="out/ÄÖ ü",
            output_sandbox=[*names, "/etc/passwd", "../../*"],
        )
    )
    end = fake.end_of(1)
    assert end["state"] == "Done", end
    files = fake.output(1)
    plain = [name for name in names[:-1] if name.isprintable()]
    assert set(files) == {"out/ÄÖ ü", *plain, "x.log"}
    assert all(files[name] == name.encode() for name in plain)
    assert r"new\nline (not a name inside the job's directory)" in end["message"]


def test_two_payloads_at_once(fake, start, job, tmp_path):
    """Each waits for the other: they can end only if both run."""
    start(cores=2)
    for name in "ab":
        os.mkfifo(tmp_path / name)
    fake.submit(
        job(1, "sh", "-c", f"echo x > {tmp_path}/a; cat {tmp_path}/b"),
        job(2, "sh", "-c", f"cat {tmp_path}/a; echo y > {tmp_path}/b"),
    )
    assert fake.end_of(1)["state"] == fake.end_of(2)["state"] == "Done"
    assert fake.claims[0]["count"] == 2


def test_free_room_is_announced_by_a_new_claim(fake, start, job, gate):
    start(cores=2)
    fake.submit(job(1, "sh", "-c", gate.wait))
    fake.until(lambda: any(claim["resource"]["cores"] == 1 for claim in fake.claims))
    gate.open()
    fake.end_of(1)
    fake.until(lambda: fake.claims[-1]["resource"]["cores"] == 2)
    fake.submit(job(2, "true", cores=2))
    assert fake.end_of(2)["state"] == "Done"
    # The poll that was under way and the one that replaced it carry the same token: no answer is lost.
    narrow, wide = fake.claims[1:3]
    assert narrow["claim_token"] == wide["claim_token"] != fake.claims[0]["claim_token"]


def test_output_is_visible_while_it_runs(fake, start, job, gate):
    start()
    fake.submit(job(1, "sh", "-c", f"echo first; {gate.wait}; echo second"))

    def tails():
        return [entry["tail"] for entry in fake.entries() if "tail" in entry]

    fake.until(lambda: "first\n" in tails())
    assert not fake.ends()
    heard = len(fake.beats)
    fake.until(lambda: len(fake.beats) >= heard + 3)
    gate.open()
    fake.end_of(1)
    assert tails().count("first\n") == 1  # sent again only when it changed


def test_job_description_is_not_kept_on_disk_with_a_token(fake, start, job):
    pilot = start()
    fake.submit(job(1, "sh", "-c", f"cat {pilot.directory}/* {pilot.directory}/outbox/* 2>/dev/null; true"))
    fake.end_of(1)
    assert not (pilot.directory / "pilot.json").exists()
    content = fake.output(1)["std.out"].decode()
    assert '"joined"' in content  # it did read the directory
    for secret in ("join-token", fake.token, *(claim["claim_token"] for claim in fake.claims)):
        assert secret not in content
        assert secret not in pilot.log()
    assert json.loads(pilot.log().splitlines()[0])["event"] == "joined"
