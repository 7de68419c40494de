"""The thread that waits for all jobs of a program: what it asks the server, and when it asks anew."""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import Any, cast

from lodesman.base.errors import Unauthorized
from lodesman.user.python.watcher import Watcher
from lodesman.wire.client import Aborted


class Silent:
    """A server under which no job ends, with its client: a question lasts until it is aborted."""

    def __init__(self) -> None:
        self.client = self
        self.asked: queue.Queue[str] = queue.Queue()
        self._aborted = threading.Event()

    def call(self, call, query):
        self.asked.put(query.jobs)
        assert self._aborted.wait(60)
        raise Aborted("The question was aborted.")

    def abort(self):
        self._aborted.set()

    def rearm(self):
        self._aborted.clear()

    def close(self):
        self.abort()


def test_a_job_that_comes_later_is_asked_for_at_once():
    server, told = Silent(), []
    watcher = Watcher(cast("Any", server))
    watcher.when_ended(5, told.append)
    assert server.asked.get(timeout=60) == "5"
    watcher.when_ended(7, told.append)
    # The first question may be asked twice: whoever asked for job 5 aborted it, too, in case one was under way.
    assert {*iter(partial(server.asked.get, timeout=60), "5,7")} <= {"5"}
    watcher.close()
    assert told == []


def test_a_token_that_is_revoked_meanwhile_is_said_of_each_job_and_no_server_is_asked_again():
    class Refusing(Silent):
        def call(self, call, query):
            self.asked.put(query.jobs)
            raise Unauthorized("This token is unknown.")

    server, told = Refusing(), queue.Queue()
    watcher = Watcher(cast("Any", server))
    watcher.when_ended(5, told.put)
    assert isinstance(told.get(timeout=60), Unauthorized)
    watcher.close()
    assert server.asked.qsize() == 1
