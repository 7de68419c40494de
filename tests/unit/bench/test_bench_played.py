"""Pilots that are played: they claim and end jobs in turn, and those that no job fits drop out."""

from __future__ import annotations

import json

import pytest
from bench.generator import LoadFault
from bench.rows.played import BATCH, play


class Played:
    """A server with some jobs for pilots whose token is known to it."""

    def __init__(self, jobs, *, accepts=True):
        self.jobs, self.accepts, self.ended, self.asked = jobs, accepts, [], []

    def ask(self, request):
        head, _, body = request.partition(b"\r\n\r\n")
        said = json.loads(body)
        if b" /v1/pilots/report " in head:
            self.ended += [one["id"] for one in said["reports"]]
            results = [{"accepted": self.accepts} for _ in said["reports"]]
            return 200, json.dumps({"results": results}).encode()
        token = head.partition(b"Bearer ")[2].split(b"\r")[0].decode()
        self.asked.append((token, said["claim_token"]))
        if token not in self.jobs:
            return 200, b'{"jobs":[]}'
        given, self.jobs[token] = self.jobs[token][: said["count"]], self.jobs[token][said["count"] :]
        return 200, json.dumps({"jobs": [{"id": one, "attempt": 1} for one in given]}).encode()


def test_each_job_is_ended_by_pilots_in_turn_until_none_is_left():
    server = Played({"a": [1, 2], "b": list(range(10, 10 + BATCH + 3))})
    played = play(server, ["a", "strange", "b"])
    assert [next(played) for _ in range(3)] == [2, BATCH, 3]
    with pytest.raises(LoadFault, match="no job fits"):
        next(played)
    assert sorted(server.ended) == [1, 2, *range(10, 13 + BATCH)]
    assert [token for token, _ in server.asked] == ["a", "strange", "b", "a", "b", "b"]
    assert len({claim for _, claim in server.asked}) == 6


def test_a_report_that_is_refused_fails_the_row():
    with pytest.raises(LoadFault, match="a report was refused"):
        next(play(Played({"a": [1]}, accepts=False), ["a"]))
