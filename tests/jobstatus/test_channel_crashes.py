"""Writers that die or are stopped at any moment: what readers find then, and what the next start makes of it."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from contextlib import contextmanager

import pytest
from tests.jobstatus.kits.channels import contents_of, number_in, numbered, on_disk

from lodesman.site.jobstatus import channel, locks
from lodesman.site.jobstatus.channel import Publication, Unreadable, read
from lodesman.site.jobstatus.reader import read_apart
from lodesman.site.jobstatus.values import KEYS

pytestmark = pytest.mark.slow
MOMENTS = int(os.environ.get("LODE_TEST_MOMENTS", "40"))
"""How often a writer is killed, and stopped, at random."""
MOST_CALLS = 200


class CountedCalls:
    """A module whose n-th call of any function ends this process, before it is done."""

    def __init__(self, module, counter, n):
        self._module, self._counter, self._n = module, counter, n

    def __getattr__(self, name):
        found = getattr(self._module, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*words, **more):
            self._counter.append(name)
            if len(self._counter) == self._n:
                os.kill(os.getpid(), signal.SIGKILL)
            return found(*words, **more)

        return call


def killed_at_call(directory, n, first, last):
    """Publish from `first` to `last` in a process that is killed at its n-th call in the last; whether it was."""
    pid = os.fork()
    if pid == 0:
        try:
            publication = Publication(directory)
            for number in range(first, last):
                publication.publish(numbered(number))
            calls = []
            channel.os = CountedCalls(os, calls, n)
            locks.fcntl = CountedCalls(locks.fcntl, calls, n)
            publication.publish(numbered(last))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def text_of(reading):
    return {key: data.decode() for key, data in reading.contents.items()}


def assert_whole_values(found, numbers):
    """Each value is one that was published, never a part of it or of two."""
    for key, text in found.items():
        assert text.strip() in {contents_of(number)[key] for number in numbers}, (key, text)


def test_killed_at_each_call_of_the_first_publication(tmp_path):
    """There is nothing, or all nine."""
    complete = 0
    for n in range(1, MOST_CALLS):
        folder = tmp_path / str(n)
        folder.mkdir()
        if not killed_at_call(folder, n, 7, 7):
            break
        found = text_of(read(folder, wait_s=0))
        assert found == {} or number_in(found) == 7
        complete += bool(found)
        next_start(folder, 8)
    assert n > 30
    assert complete == 2  # the locks are given back after the file is there


@pytest.mark.parametrize("numbers", [(7, 8), (8, 7)], ids=["shrinks", "grows"])
def test_killed_at_each_call_of_a_later_publication(tmp_path, numbers):
    before, after = numbers
    seen = set()
    for n in range(1, MOST_CALLS):
        folder = tmp_path / str(n)
        folder.mkdir()
        next_start(folder, before)
        if not killed_at_call(folder, n, after, after):
            break
        found = text_of(read(folder, wait_s=0))
        assert list(found) == list(KEYS)
        assert_whole_values(found, numbers)
        seen.add(number_in(found))
        next_start(folder, 9)
    assert n > 30
    assert seen == {before, None, after}  # None: of both; its times are those of a writer that died


def next_start(folder, number):
    publication = Publication(folder)
    assert publication.publish(numbered(number))
    publication.close()
    assert number_in(text_of(read(folder, wait_s=0))) == number
    assert number_in(on_disk(folder)) == number


@contextmanager
def busy_writer(directory):
    """A process that publishes again and again, and has begun."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            publication, number = Publication(directory), 0
            os.write(sending, b"." if publication.publish(numbered(number)) else b"")
            while True:
                number += 1
                publication.publish(numbered(number % 10_000))
        finally:
            os._exit(0)
    os.close(sending)
    assert os.read(receiving, 1) == b"."
    os.close(receiving)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def pass_time(seconds):
    """The moment of a signal is by chance."""
    select.select([], [], [], seconds)


def test_killed_at_random_moments(tmp_path):
    moments = random.Random(14)
    seen = []
    for n in range(MOMENTS):
        with busy_writer(tmp_path):
            pass_time(moments.uniform(0, 0.01))
        found = text_of(read(tmp_path, wait_s=0))
        assert list(found) == list(KEYS)
        assert_torn_by_one(found)
        seen.append(number_in(found))
        next_start(tmp_path, n)
    assert None in seen  # some were killed while they wrote


def assert_torn_by_one(found):
    """Of a publication and of the next."""
    uncommitted = int(found["add_uncom_time"])
    assert_whole_values(found, range(max(0, uncommitted - 1), uncommitted + 2))


def test_stopped_at_random_moments(tmp_path):
    """A reader waits no longer than it may, and finds a whole publication or none."""
    moments = random.Random(14)
    outcomes = []
    with busy_writer(tmp_path) as pid:
        for _ in range(MOMENTS):
            pass_time(moments.uniform(0, 0.01))
            os.kill(pid, signal.SIGSTOP)
            try:
                outcomes.append(number_in(text_of(read(tmp_path, wait_s=0.02))))
            except Unreadable as fault:
                outcomes.append(fault.reason)
            os.kill(pid, signal.SIGCONT)
    assert None not in outcomes
    assert "locked" in outcomes
    next_start(tmp_path, 3)


def test_a_reader_never_waits_more_than_five_seconds(tmp_path):
    """By default, and in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            write = channel._write_in_place

            def stop(descriptor, content):
                write(descriptor, content)
                os.kill(os.getpid(), signal.SIGSTOP)

            channel._write_in_place = stop
            Publication(tmp_path).publish(numbered(3))
        finally:
            os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    (tmp_path / ".used_CPU.new").rename(tmp_path / "used_CPU")
    try:
        for reader in (read, read_apart):
            begun = time.monotonic()
            with pytest.raises(Unreadable, match="locked"):
                reader(tmp_path)
            assert 4 < time.monotonic() - begun < 60
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
