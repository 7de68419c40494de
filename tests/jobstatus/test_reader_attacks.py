"""What a user may put into a directory that root reads: nothing is followed, waited for, printed or believed."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.jobstatus.kits.channels import USER, number_in, numbered, write_files

from lodesman.base import kernel
from lodesman.site.jobstatus import channel, reader
from lodesman.site.jobstatus.__main__ import main
from lodesman.site.jobstatus.channel import Reading, Unreadable, read
from lodesman.site.jobstatus.reader import read_apart, take_snapshot
from lodesman.site.jobstatus.values import KEYS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what others write"),
]
ROOT = Path(__file__).parents[2]
NOW = 1_000_000_100.0
LIMIT_S = 0.5
FOREVER_S = 60.0


@pytest.fixture
def directory():
    """Of the user, in a place of root's that all can enter."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    place.chmod(0o755)
    found = place / "17"
    found.mkdir(mode=0o755)
    write_files(found, USER)
    os.chown(found, USER, USER)
    yield found
    shutil.rmtree(place)


def fault(directory, **more):
    """Of the reading in this process and of that in another: both must see it."""
    snapshot = take_snapshot(directory, now=NOW, uid=USER, **more)
    assert snapshot.status is None
    with pytest.raises(Unreadable) as refused:
        read(directory, uid=USER, wait_s=0)
    assert snapshot.fault == ":".join(filter(None, (refused.value.reason, refused.value.key)))
    return snapshot.fault


@contextmanager
def as_user(script, *words):
    """A process of the user, which says when it is ready, and waits."""
    lines = [
        "import fcntl, os, signal, sys",
        f"os.setgid({USER}); os.setuid({USER})",
        script,
        "print(flush=True)",
        "signal.pause()",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines), *map(str, words)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_honest_directory(directory):
    snapshot = take_snapshot(directory, now=NOW, uid=USER)
    assert (snapshot.status, snapshot.fault, snapshot.flags) == (numbered(6), None, ("clock",))
    assert take_snapshot(directory, now=NOW).status == numbered(6)


# --- files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["used_CPU", "priority_factor"])
def file(request, directory):
    """The lock, and one of the others."""
    return directory / request.param


@pytest.mark.parametrize("target", ["/etc/shadow", "/nowhere/at/all", "last_job_start", "/proc/self/mem"])
def test_symbolic_links(directory, file, target):
    file.unlink()
    file.symlink_to(target)
    assert fault(directory) == f"symlink:{file.name}"


def test_a_dangling_link_makes_no_file(directory, file):
    file.unlink()
    file.symlink_to(directory.parent / "made")
    fault(directory)
    assert not (directory.parent / "made").exists()


def test_fifos_do_not_hang(directory, file):
    file.unlink()
    os.mkfifo(file, 0o644)
    os.chown(file, USER, USER)
    assert fault(directory) == f"not-a-file:{file.name}"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/ptmx"])
def test_devices(directory, file, device):
    file.unlink()
    os.mknod(file, 0o020666, Path(device).stat().st_rdev)
    os.chown(file, USER, USER)
    assert fault(directory) == f"not-a-file:{file.name}"


def test_devices_are_not_even_opened(directory, file, monkeypatch):
    def spy(name, *words, **more):
        assert name != file.name
        return opened(name, *words, **more)

    opened = os.open
    file.unlink()
    os.mknod(file, 0o020666, Path("/dev/zero").stat().st_rdev)
    os.chown(file, USER, USER)
    monkeypatch.setattr(os, "open", spy)
    with pytest.raises(Unreadable, match="not-a-file"):
        read(directory)


@pytest.mark.parametrize(
    ("make", "reason"), [(os.mkfifo, "not-a-file"), (lambda at: at.symlink_to("/etc/shadow"), "symlink")]
)
def test_a_file_that_is_swapped_after_it_was_asked(directory, file, monkeypatch, make, reason):
    def swap(name, *words, **more):
        if name == file.name:
            file.unlink()
            make(file)
        return opened(name, *words, **more)

    opened = os.open
    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(Unreadable, match=reason):
        read(directory)


def test_sockets_and_directories(directory, file):
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(file))
        os.chown(file, USER, USER)
        assert fault(directory) == f"not-a-file:{file.name}"
    file.unlink()
    file.mkdir()
    os.chown(file, USER, USER)
    assert fault(directory) == f"not-a-file:{file.name}"


def test_hard_links_to_files_of_others(directory, file):
    secret = directory.parent / "secret"
    secret.write_text("4\n")
    file.unlink()
    os.link(secret, file)
    assert fault(directory) == f"wrong-owner:{file.name}"


def test_hard_links_to_own_files(directory, file):
    os.link(file, directory / "second")
    assert fault(directory) == f"hard-link:{file.name}"


def test_files_of_others(directory, file):
    os.chown(file, USER + 1, USER + 1)
    assert fault(directory) == f"wrong-owner:{file.name}"


@pytest.mark.parametrize("size", [65, 1 << 20, 1 << 43])
def test_huge_files_are_not_read(directory, file, size):
    os.truncate(file, size)
    assert fault(directory) == f"too-long:{file.name}"


def test_a_file_that_grows_meanwhile(directory, file, monkeypatch):
    monkeypatch.setattr(channel._Folder, "_fault", lambda *_: None)
    os.truncate(file, 1 << 43)
    assert fault(directory) == f"too-long:{file.name}"


def test_empty_files(directory, file):
    file.write_bytes(b"")
    assert take_snapshot(directory, now=NOW, uid=USER).fault == f"not-a-number:{file.name}"


def test_a_lease_delays_nothing(directory, file):
    """The kernel lets its holder think about an open for 45 s; that open does not wait."""
    script = "fd = os.open(sys.argv[1], os.O_RDWR); fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    with as_user(f"signal.signal(signal.SIGIO, signal.SIG_IGN); {script}", file):
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        assert fault(directory) == f"busy:{file.name}"
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used < 2


def test_files_of_another_file_system(directory, file):
    """A mount over a file, in name spaces of its own."""
    program = (
        "import sys, pathlib; from lodesman.site.jobstatus.channel import *\n"
        "try: read(pathlib.Path(sys.argv[1]))\nexcept Unreadable as fault: print(fault)"
    )
    foreign = Path(tempfile.mkstemp(dir="/dev/shm")[1])
    foreign.write_text("5\n")
    os.chown(foreign, USER, USER)
    script = f"mount --bind {foreign} {file} && exec {sys.executable} -c '{program}' {directory}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    foreign.unlink()
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mounts here")
    assert done.stdout == f"{file.name}: other-device\n", done.stderr


ESCAPES = b"\x1b[31m\x1b]0;title\x07\xff\x00"


def test_bytes_of_users_are_never_printed(directory, file, capfdbinary):
    file.write_bytes(ESCAPES)
    for words in (["show"], ["check"], ["show", "--json"], ["check", "--json", "--strict"]):
        assert main([*words, str(directory), "--now", str(NOW)]) == 3
        out, err = capfdbinary.readouterr()
        assert all(byte == 10 or 32 <= byte < 127 for byte in out + err)
        assert b"not-a-number" in out or b"not a whole number" in out


def test_the_name_of_a_directory_is_printed_without_escapes(directory, capfdbinary):
    hostile = directory.with_name("17" + os.fsdecode(b"\x1b[31m\xff\n"))
    directory.rename(hostile)
    main(["show", str(hostile), "--now", str(NOW)])
    main(["show", str(hostile), "--now", str(NOW), "--json"])
    out, err = capfdbinary.readouterr()
    assert all(byte == 10 or 32 <= byte < 127 for byte in out + err)
    hostile.rename(directory)


def test_a_thousand_other_names_are_not_seen(directory):
    for n in range(1000):
        (directory / f"{n:064}").symlink_to("/etc/shadow")
    assert take_snapshot(directory, now=NOW, uid=USER).status == numbered(6)


# --- the directory --------------------------------------------------------------------------------------------------------


def test_the_directory_of_another_user(directory):
    os.chown(directory, USER + 1, USER + 1)
    assert fault(directory) == "wrong-owner"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_directory_in_which_others_write(directory, mode):
    directory.chmod(mode)
    assert fault(directory) == "writable-by-others"


def test_a_directory_that_cannot_be_entered(directory):
    directory.chmod(0o600)
    assert take_snapshot(directory, now=NOW, uid=USER).fault == "unreadable:used_CPU"
    directory.chmod(0o000)
    assert take_snapshot(directory, now=NOW, uid=USER).fault == "unreadable"


def test_no_directory(directory):
    link = directory.with_name("link")
    link.symlink_to(directory, target_is_directory=True)
    assert fault(link) == "not-a-directory"
    assert fault(directory / "used_CPU") == "not-a-directory"
    assert fault(directory / "none") == "absent"


def test_a_directory_that_is_swapped_meanwhile(directory, monkeypatch):
    """What was opened is read, whatever has its name by then."""
    other, opened = directory.with_name("other"), channel._Folder.open

    def swap(folder, key):
        if not other.exists():
            directory.rename(other)
            directory.symlink_to("/etc", target_is_directory=True)
        return opened(folder, key)

    monkeypatch.setattr(channel._Folder, "open", swap)
    contents = read(directory, uid=USER).contents
    assert number_in({key: data.decode() for key, data in contents.items()}) == 6
    directory.unlink()
    other.rename(directory)


def test_a_directory_that_is_swapped_before_the_rights_are_dropped(directory, monkeypatch):
    """Without --uid the owner is found first: of another directory than is read then."""
    monkeypatch.setattr(reader, "owner_of", lambda _: USER + 1)
    with pytest.raises(Unreadable, match="wrong-owner"):
        read_apart(directory)


# --- the process that reads -----------------------------------------------------------------------------------------------


def is_dumpable():
    return kernel._libc.prctl(3, 0, 0, 0, 0)


def answers(monkeypatch, facts):
    """The process tells these facts in place of used_CPU and so on."""

    def tell(directory, *, uid, wait_s):
        return Reading(
            {KEYS[at]: str(one).encode() for at, one in enumerate(facts())}, dict.fromkeys(KEYS, 0.0)
        )

    monkeypatch.setattr(reader, "read", tell)


def test_it_has_the_rights_of_the_user_alone(directory, monkeypatch):
    answers(
        monkeypatch,
        lambda: [os.getresuid(), os.getresgid(), os.getgroups(), os.access("/etc/shadow", os.R_OK)],
    )
    contents = read_apart(directory, uid=USER).contents
    assert list(contents.values()) == [
        f"({USER}, {USER}, {USER})".encode(),
        b"(65534, 65534, 65534)",
        b"[]",
        b"False",
    ]


def test_it_has_the_groups_of_the_user(directory, monkeypatch):
    known = pwd.getpwnam("daemon")
    os.chown(directory, known.pw_uid, known.pw_gid)
    answers(monkeypatch, lambda: [os.getresuid(), os.getresgid(), os.getgroups()])
    contents = read_apart(directory).contents
    uid, gid = known.pw_uid, known.pw_gid
    groups = os.getgrouplist("daemon", gid)
    assert list(contents.values()) == [str(one).encode() for one in ((uid,) * 3, (gid,) * 3, groups)]


def test_it_has_nothing_of_the_process_that_forked_it(directory, monkeypatch):
    with socket.socket():
        limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE)
        answers(monkeypatch, lambda: [
            len(os.listdir("/proc/self/fd")), *(resource.getrlimit(one)[1] for one in limits), is_dumpable(),
        ])  # fmt: skip
        contents = read_apart(directory, uid=USER).contents
    # Its end of the pipe, and the list of its files; DUMPABLE is not set: the user cannot read its memory.
    assert list(contents.values()) == [b"2", b"16", b"2", b"0", b"0", b"0"]


@pytest.mark.parametrize(
    "trick",
    [
        signal.pause,
        lambda: os.kill(os.getpid(), signal.SIGSTOP),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: os._exit(0),
        lambda: os.close(0),  # its end of the pipe, or another
        lambda: (*(signal.signal(number, signal.SIG_IGN) for number in (1, 2, 15)), signal.sigwait([])),
    ],
    ids=["hangs", "stopped", "killed", "ends", "closes", "ignores signals"],
)
def test_whatever_becomes_of_it_costs_a_bounded_time(directory, monkeypatch, trick):
    before = set(os.listdir("/proc/self/fd"))
    children = []
    fork = os.fork

    def spy():
        children.append(fork())
        return children[-1]

    def play(directory, **more):
        trick()
        raise OSError

    monkeypatch.setattr(os, "fork", spy)
    monkeypatch.setattr(reader, "read", play)
    with pytest.raises(Unreadable, match="no-answer"):
        read_apart(directory, uid=USER, limit_s=LIMIT_S)
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):  # it is gone, and waited for
        os.waitpid(children[0], os.WNOHANG)


def test_a_process_whose_children_are_not_waited_for(directory):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for _ in range(5):
            assert take_snapshot(directory, now=NOW, uid=USER).status == numbered(6)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_half_an_answer_is_none(directory, monkeypatch):
    monkeypatch.setattr(reader, "_answer", lambda *_: b"x" * 40)
    with pytest.raises(Unreadable, match="no-answer"):
        read_apart(directory, uid=USER)


def test_an_answer_that_makes_no_sense_is_bounded(directory, monkeypatch):
    for byte in (0, 1, 100, 255):
        monkeypatch.setattr(reader, "_answer", lambda *_, byte=byte: bytes([byte]) * reader._ANSWER.size)
        try:
            found = read_apart(directory, uid=USER)
        except Unreadable as refused:
            assert refused.reason in channel.REASONS  # noqa: PT017
        else:
            assert all(len(data) <= 64 for data in found.contents.values())


def test_without_the_right_to_become_the_user(directory, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setresuid", refuse)
    assert take_snapshot(directory, now=NOW, uid=USER).fault == "not-permitted"


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python for all users")
def test_a_reader_that_is_not_root_stays_who_it_is(directory):
    """It reads what all may read."""
    package, copy = Path(reader.__file__).parents[2], directory.with_name("lodesman")
    shutil.copytree(package / "site" / "jobstatus", copy / "site" / "jobstatus")
    shutil.copytree(package / "base", copy / "base")
    for name in ("__init__.py", "site/__init__.py"):
        shutil.copy(package / name, copy / name)
    words = [
        "setpriv",
        "--reuid",
        str(USER + 1),
        "--clear-groups",
        "/usr/bin/python3",
        "-m",
        "lodesman.site.jobstatus",
        "show",
    ]

    def show():
        done = subprocess.run(
            [*words, directory, "--json", "--now", str(NOW)],
            cwd=copy.parent,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return json.loads(done.stdout)

    assert show()["keys"]["used_CPU"] == numbered(6).used_cpu
    (directory / "used_CPU").chmod(0o600)
    assert show()["error"] == "unreadable:used_CPU"


def test_a_writer_that_is_stopped_costs_the_time_of_the_lock(directory):
    """The whole of it once: 5 s, after which the answer is `locked`, not `no-answer`."""
    script = "fd = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX)"
    with as_user(script, directory / "used_CPU") as process:
        process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        snapshot = take_snapshot(directory, now=NOW, uid=USER)
        waited = time.monotonic() - begun
    assert snapshot.fault == "locked:used_CPU"
    assert 4 < waited < 8
