"""HTCondor's negotiator with ads of sites: how many jobs it matches with each of them, cycle by cycle.

The ads say WantAdRevaluate, so that each match is added to CurMatches, and WantClaiming = False: the schedd keeps its jobs,
and there are always as many as are asked for. The pool is one of its own, whose negotiator begins no cycle by itself.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterable

from tests.kits.htcondor_kit import runner, started

_CONFIG = """
NEGOTIATOR_INTERVAL = 86400
NEGOTIATOR_DEBUG = D_FULLDEBUG
MAX_NEGOTIATOR_LOG = 1000000000
# As HTCondor's manual asked for such ads: else Requirements are not evaluated for each match, and one match is all.
NEGOTIATOR_MATCHLIST_CACHING = False
NEGOTIATOR_IGNORE_USER_PRIORITIES = True
START = False
"""
_JOBS = """
universe = vanilla
executable = /bin/sleep
arguments = 600
transfer_executable = false
requirements = regexp("^SAMGRID", TARGET.Name)
queue {count}
"""
_OTHERS = {
    "MyType": '"Machine"', "TargetType": '"Job"', "State": '"Unclaimed"', "Activity": '"Idle"', "Arch": '"X86_64"',
    "OpSys": '"LINUX"', "Memory": 4000, "Disk": 1000000, "HasFileTransfer": "true", "Rank": 0.0, "CurrentRank": 0.0,
    "StartdIpAddr": '"<127.0.0.1:9618>"', "MyAddress": '"<127.0.0.1:9618>"', "WantAdRevaluate": "true",
    "WantClaiming": "false",
}  # fmt: skip
_BEGUN, _ENDED = "Started Negotiation Cycle", "Finished Negotiation Cycle"
_MATCH = re.compile(r"Successfully matched with (\S+)")


class Negotiator:
    """A pool, and what its negotiator did. Names of sites begin with SAMGRID."""

    def __init__(self, jobs: int) -> None:
        self._pool = started()
        self._place = self._pool / "place"
        self._log = self._pool / "log" / "NegotiatorLog"
        with (self._pool / "config").open("a") as config:
            config.write(_CONFIG)
        self._run("condor_reconfig")
        (self._place / "jobs").write_text(_JOBS.format(count=jobs))
        self._run("condor_submit", str(self._place / "jobs"), account="lode")
        # The new configuration holds when it has had a cycle; the jobs are known to the collector then, too.
        self._wait(lambda: f"{jobs}" in self._run("condor_status", "-submitters", "-af", "IdleJobs").split())
        self.cycle()

    def advertise(self, texts: Iterable[str]) -> None:
        """Send ads, each with what an ad of a machine must have."""
        more = "".join(f"{name} = {value}\n" for name, value in _OTHERS.items())
        (self._place / "ads").write_text("\n".join(f"{text}\n{more}" for text in texts))
        self._run("condor_advertise", "-multiple", "UPDATE_STARTD_AD_WITH_ACK", str(self._place / "ads"))

    def cycle(self) -> Counter[str]:
        """Matches by site since the last call, when a cycle has begun and ended."""
        begun, ended = self._log.read_text(errors="replace"), self._count(_ENDED)
        self._run("condor_reschedule")
        self._wait(lambda: self._count(_ENDED) > ended and self._count(_ENDED) == self._count(_BEGUN))
        return Counter(_MATCH.findall(self._log.read_text(errors="replace")[len(begun) :]))

    def _count(self, words: str) -> int:
        return self._log.read_text(errors="replace").count(words)

    def _run(self, *words: str, account: str = "root") -> str:
        done = runner(account, self._pool).run([f"{self._pool}/bin/inside", *words])
        assert done.code == 0, done
        return done.out

    @staticmethod
    def _wait(holds) -> None:
        begun = time.monotonic()
        while not holds():
            assert time.monotonic() - begun < 120.0
            threading.Event().wait(0.05)
