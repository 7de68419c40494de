"""The lock on used_CPU beside those of foreign readers and writers: of each kind, and held by processes in every state."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest
from tests.jobstatus.kits.channels import KINDS, compiled, held, is_held, number_in, numbered, on_disk

from lodesman.site.jobstatus import channel
from lodesman.site.jobstatus.channel import Publication, Unreadable, read
from lodesman.site.jobstatus.locks import Lock

pytestmark = pytest.mark.slow
SHORT_S = 0.05
LONG_S = 60.0


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("reader"))


@pytest.fixture
def publication(tmp_path):
    found = Publication(tmp_path)
    assert found.publish(numbered(1))
    yield found
    found.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(channel, "WRITER_WAIT_S", SHORT_S)


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(channel, "WRITER_WAIT_S", LONG_S)


def is_free(directory):
    """Nobody holds a lock of either kind, nor waits and then keeps it."""
    for _ in range(2):
        lock = Lock(os.open(directory / "used_CPU", os.O_RDWR | os.O_CLOEXEC), ranges=True)
        free = lock.acquire(LONG_S)
        lock.release()
        lock.close()
        if not free:
            return False
    return True


# --- the writer -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_while_a_reader_of_any_kind_reads(publication, tmp_path, reader, kind, impatient):
    with held(reader, kind, tmp_path):
        assert not publication.publish(numbered(2))
        assert number_in(on_disk(tmp_path)) == 1
    assert is_free(tmp_path)
    assert publication.publish(numbered(3))
    assert number_in(on_disk(tmp_path)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_writer_goes_on_as_soon_as_the_reader_ends(publication, tmp_path, reader, kind, patient):
    with held(reader, kind, tmp_path) as process:
        killer = threading.Timer(0.1, process.kill)
        killer.start()
        assert publication.publish(numbered(2))
        killer.join()
    assert number_in(on_disk(tmp_path)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_no_reader_of_any_kind_reads_while_the_writer_writes(
    publication, tmp_path, reader, kind, monkeypatch
):
    seen = []
    write = channel._write_in_place

    def spy(descriptor, content):
        seen.append(is_held(reader, kind, tmp_path))
        write(descriptor, content)

    assert not is_held(reader, kind, tmp_path)
    monkeypatch.setattr(channel, "_write_in_place", spy)
    publication.publish(numbered(2))
    assert seen == [True]
    assert not is_held(reader, kind, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_reader_costs_publications_and_nothing_else(publication, tmp_path, reader, kind, impatient):
    others = set(threading.enumerate())
    with held(reader, kind, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        for n in range(2, 7):
            assert not publication.publish(numbered(n))
        assert len(set(threading.enumerate()) - others) == 1
        # It waits in vain, and stands in nobody's way.
        assert not is_held(reader, kind, tmp_path)
    assert is_free(tmp_path)
    assert publication.publish(numbered(7))
    assert number_in(on_disk(tmp_path)) == 7


def test_it_can_be_closed_while_it_waits_in_vain(tmp_path, reader, impatient):
    publication = Publication(tmp_path)
    assert publication.publish(numbered(1))
    files, others = len(os.listdir("/proc/self/fd")), set(threading.enumerate())
    with held(reader, "flock", tmp_path):
        assert not publication.publish(numbered(2))
        waiting = set(threading.enumerate()) - others
        publication.close()
    for thread in waiting:
        thread.join(LONG_S)
    assert is_free(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == files - 1  # that of the directory


def test_a_forked_process_does_not_keep_the_lock(publication, tmp_path, reader, monkeypatch):
    """It has copies of all descriptors, and closes none."""
    children = []
    write = channel._write_in_place

    def fork(descriptor, content):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
        write(descriptor, content)

    monkeypatch.setattr(channel, "_write_in_place", fork)
    assert publication.publish(numbered(2))
    try:
        assert [is_held(reader, kind, tmp_path) for kind in KINDS] == [False] * 3
        assert number_in({key: data.decode() for key, data in read(tmp_path).contents.items()}) == 2
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_another_descriptor_that_is_closed_does_not_unlock(publication, tmp_path, reader, monkeypatch):
    """As it would with locks of fcntl that belong to the process."""
    seen = []
    write = channel._write_in_place

    def spy(descriptor, content):
        (tmp_path / "used_CPU").read_bytes()
        seen.extend(is_held(reader, kind, tmp_path) for kind in KINDS)
        write(descriptor, content)

    monkeypatch.setattr(channel, "_write_in_place", spy)
    publication.publish(numbered(2))
    assert seen == [True] * 3


def test_without_a_thread_nothing_is_written(publication, tmp_path, reader, impatient, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with held(reader, "flock", tmp_path):
        assert not publication.publish(numbered(2))
    assert publication.publish(numbered(3))


def test_a_file_system_with_one_kind_of_lock_has_one_kind(publication, tmp_path, reader, monkeypatch):
    call = fcntl.fcntl

    def refuse(descriptor, command, *more):
        if command in (fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW):
            raise OSError(22, "Invalid argument")
        return call(descriptor, command, *more)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert publication.publish(numbered(2))
    with held(reader, "fcntl", tmp_path):
        assert publication.publish(numbered(3))


# --- the reader -----------------------------------------------------------------------------------------------------------

HOLD = """
import fcntl, os, signal, struct, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "flock":
    fcntl.flock(descriptor, fcntl.LOCK_EX)
else:
    command = {"fcntl": fcntl.F_SETLKW, "ofd": fcntl.F_OFD_SETLKW}[sys.argv[2]]
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
if os.fork() == 0:
    signal.pause()
print("held", flush=True)
signal.pause()
"""


@pytest.fixture(params=KINDS)
def writer(request, tmp_path, publication):
    """A foreign writer with a forked child; both hold the lock, but for that of fcntl, which belongs to a process."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "used_CPU", request.param],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "held\n"
    process.kind = request.param
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("state", ["runs", "stopped", "killed, with a child that lives"])
def test_a_lock_that_is_not_given_back_ends_the_reading(writer, tmp_path, state):
    if state == "stopped":
        writer.send_signal(signal.SIGSTOP)
    elif state != "runs":
        writer.kill()
        writer.wait()
        if writer.kind == "fcntl":
            assert read(tmp_path, wait_s=LONG_S).contents["used_CPU"] == b"10\n"
            return
    with pytest.raises(Unreadable, match="locked") as fault:
        read(tmp_path, wait_s=SHORT_S)
    assert (fault.value.reason, fault.value.key) == ("locked", "used_CPU")


def test_the_end_of_the_holder_is_enough(writer, tmp_path):
    killer = threading.Timer(0.1, os.killpg, (writer.pid, signal.SIGKILL))
    killer.start()
    assert read(tmp_path, wait_s=LONG_S).contents["used_CPU"] == b"10\n"
    killer.join()


@pytest.mark.parametrize("kind", KINDS)
def test_readers_do_not_wait_for_each_other(publication, tmp_path, reader, kind):
    with held(reader, kind, tmp_path):
        assert read(tmp_path, wait_s=0).contents["used_CPU"] == b"10\n"


def test_a_used_cpu_that_is_replaced_meanwhile_is_read_anew(publication, tmp_path, monkeypatch):
    """By writers that rename it, whose lock is on another file then."""
    opened = channel._Folder.open
    times = []

    def replace(folder, key):
        descriptor = opened(folder, key)
        if key == "used_CPU" and len(times) < 2:
            times.append(key)
            (tmp_path / "new").write_text(f"{len(times)}\n")
            (tmp_path / "new").rename(tmp_path / "used_CPU")
        return descriptor

    monkeypatch.setattr(channel._Folder, "open", replace)
    assert read(tmp_path).contents["used_CPU"] == b"2\n"
    times.clear()
    monkeypatch.setattr(channel, "_TRIES", 2)
    with pytest.raises(Unreadable, match="busy"):
        read(tmp_path)
