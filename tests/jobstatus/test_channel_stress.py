"""One writer that never rests beside foreign readers, four of each kind; without a lock the same readers find mixtures.

LODE_TEST_STRESS_SECONDS=60: for as long; else each reader reads a number of times.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import select
import shutil
import signal
import struct
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest
from tests.jobstatus.kits.channels import KINDS, compiled, number_in, numbered, parts

from lodesman.site.jobstatus.channel import Publication, read
from lodesman.site.jobstatus.values import KEYS

pytestmark = pytest.mark.slow
SECONDS = int(os.environ.get("LODE_TEST_STRESS_SECONDS", "0"))
READERS = 4
BY_SHELL, BY_C = 25, 250
"""Readings of each reader, unless seconds are given."""
ROUNDS = 20
"""How often readers may begin again on a machine where they meet too few publications, or no mixture."""
LIMIT_S = 300 + SECONDS
PAUSE_S = 0.001
FILES = "used_CPU last_* first_* add_* can_* priority_factor"
ONE_LINER = f"""flock -s -w 5 "$1/used_CPU" sh -c 'cd "$0" && grep -H . {FILES}' "$1" | tr '\\n' ';'; echo; sleep 0.02"""
BY_COUNT = 'n=0; while [ $n -lt "$2" ]; do n=$((n + 1)); %s; done'
BY_TIME = "ends=$(($(date +%%s) + $3)); while [ $(date +%%s) -lt $ends ]; do %s; done"


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("reader"))


@contextmanager
def restless_writer(directory):
    """A process that publishes a thousand times a second, if it can; it ends by writing how often it did, and did not."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            done, ends = Counter(), []
            signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
            publication, number = Publication(directory), 0
            publication.publish(numbered(0))
            os.write(sending, b".")
            while not ends:
                number = (number + 1) % 10_000
                done[publication.publish(numbered(number))] += 1
                select.select([], [], [], PAUSE_S)
            os.write(sending, b"%d %d" % (done[True], done[False]))
        finally:
            os._exit(0)
    os.close(sending)
    assert os.read(receiving, 1) == b"."
    done = []
    try:
        yield done
        os.kill(pid, signal.SIGTERM)
        done.extend(int(word) for word in os.read(receiving, 100).split())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(receiving)


def readings(directory, commands):
    """What all readers print together, reading by reader, as which publication it was; None: a mixture."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    found = []
    for process in running:
        out, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        for line in out.splitlines():
            contents = parts(line)
            assert list(contents) == [key for key in KEYS if key in contents] or len(contents) == len(KEYS)
            found.append(number_in(contents))
    return found


def by_c(reader, kind, directory):
    return [reader, kind, str(directory), "0" if SECONDS else str(BY_C), str(SECONDS)]


def by_shell(directory):
    loop = (BY_TIME if SECONDS else BY_COUNT) % ONE_LINER
    return ["sh", "-c", loop, "sh", str(directory), str(BY_SHELL), str(SECONDS)]


@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock(1)")
def test_foreign_readers_find_whole_publications(tmp_path, reader):
    commands = [by_shell(tmp_path)] * READERS
    for kind in KINDS:
        commands += [by_c(reader, kind, tmp_path)] * READERS
    found = []
    with restless_writer(tmp_path) as done:
        for _ in range(ROUNDS):
            found += readings(tmp_path, commands)
            if len(set(found)) > 20:
                break
    published, skipped = done
    print(f"{len(found)} readings of {len(set(found))} publications; {published} and {skipped} skipped")  # noqa: T201
    assert found.count(None) == 0
    assert len(found) >= 1_000
    assert len(set(found)) > 20
    assert published > 20


@contextmanager
def foreign_writer(directory, kind):
    """A process that writes all files in place, one after the other, under a lock of one kind, and never rests."""
    publication = Publication(directory)
    publication.publish(numbered(0))
    publication.close()
    pid = os.fork()
    if pid == 0:
        try:
            lock, files = (
                os.open(directory / "used_CPU", os.O_RDWR),
                {key: os.open(directory / key, os.O_RDWR) for key in KEYS},
            )
            for number in itertools.cycle(range(10_000)):
                _take(lock, kind, fcntl.F_WRLCK, fcntl.LOCK_EX)
                for key, value in numbered(number).items().items():
                    os.ftruncate(files[key], 0)
                    os.pwrite(files[key], f"{value}\n".encode(), 0)
                _take(lock, kind, fcntl.F_UNLCK, fcntl.LOCK_UN)
                select.select([], [], [], PAUSE_S)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _take(descriptor, kind, range_kind, flock):
    if kind == "flock":
        fcntl.flock(descriptor, flock)
        return
    command = fcntl.F_OFD_SETLKW if kind == "ofd" else fcntl.F_SETLKW
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", range_kind, os.SEEK_SET, 0, 0, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_our_reader_finds_whole_publications_of_foreign_writers(tmp_path, kind):
    """By whichever kind of lock; beside fcntl's, an eighth of the readings were mixtures."""
    found = []
    with foreign_writer(tmp_path, kind):
        for _ in range(ROUNDS):  # on a busy machine the writer seldom comes between two readings
            found += [
                number_in({key: data.decode() for key, data in read(tmp_path).contents.items()})
                for _ in range(1_000)
            ]
            if len(set(found)) > 20:
                break
    assert found.count(None) == 0
    assert len(set(found)) > 20


def test_each_value_is_whole_also_without_a_lock_and_together_they_are_not(tmp_path, reader):
    """The control: if these readers found nothing wrong either, the test above would prove nothing."""
    found = []
    with restless_writer(tmp_path):
        for _ in range(ROUNDS):
            found += readings(tmp_path, [by_c(reader, "none", tmp_path)] * READERS)
            if None in found:
                break
    print(f"{found.count(None)} of {len(found)} readings without a lock were mixtures")  # noqa: T201
    assert found.count(None) > 0
    assert len(found) >= 1_000
