"""`./demo --backend ...` on real batch systems: the numbers of the README, and nothing of it left in their own lists.

The batch systems are those of the other tests, which the environment of the demo names; two tests have it start one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import wait_until
from tests.kits import arc_kit, gridengine_kit, htcondor_kit, slurm_kit

README = {"Done": 210, "Failed": 6, "Held": 4}
ALL = "slurm+gridengine+htcondor+arc"
BOUND = 800.0
GONE = 180.0

pytestmark = pytest.mark.engines


class Named:
    """Batch systems as an environment names them; `push` makes what they say new, `left` is what their lists have."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        self.pushes: list[Callable[[], object]] = []
        self.lists: list[Callable[[], str]] = []

    def add_slurm(self) -> None:
        self._add(slurm_kit.environment(slurm_kit.slurm_of_this_session()), "squeue", "-h")

    def add_gridengine(self) -> None:
        self._add(gridengine_kit.the_gridengine(), "qstat", "-u", "*")

    def add_htcondor(self) -> None:
        folder = htcondor_kit.service()
        asked = [f"{folder}/bin/condor_q", "-allusers", "-af", "ClusterId", "JobStatus"]
        self._add({"LODE_TEST_HTCONDOR": str(folder)}, *asked)

    def add_arc(self, service: Mapping[str, str]) -> None:
        self.environment |= service
        self.pushes.append(arc_kit.News(service).push)
        self.lists.append(lambda: " ".join(arc_kit.arc_backend(service).census().values()))

    def left(self) -> str:
        return "\n".join(filter(None, (one() for one in self.lists)))

    def push(self) -> None:
        for one in self.pushes:
            one()

    def _add(self, environment: Mapping[str, str], *words: str) -> None:
        self.environment |= environment

        def said() -> str:
            done = subprocess.run(
                ["/usr/bin/env", *words], env={**os.environ, **environment}, capture_output=True, text=True,
                check=True, timeout=300,
            )  # fmt: skip
            return done.stdout.strip()

        self.lists.append(said)


@pytest.fixture
def arc_service() -> Iterator[dict[str, str]]:
    with arc_kit.started_arc() as found:
        yield found


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Named:
    found = Named()
    for kind in request.param.split("+"):
        if kind == "arc":
            found.add_arc(request.getfixturevalue("arc_service"))
        else:
            getattr(found, f"add_{kind}")()
    return found


@pytest.fixture
def private_slurm() -> dict[str, str]:
    """An environment that names no Slurm, where there is one to start."""
    slurm_kit.slurm_of_this_session()
    return {name: value for name, value in os.environ.items() if name != "SLURM_CONF"}


class Demo:
    """A demo in a process of its own, with all that it makes below one folder."""

    def __init__(self, backend: str, environment: Mapping[str, str]) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="lode-demos-"))
        self.place.chmod(0o755)  # accounts of jobs pass through
        self.out, self.err = self.place / "out", self.place / "err"
        paths = {"TMPDIR": str(self.place), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo", "--json", "--backend", backend, "--results",
                 str(self.place / "results")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                env={**environment, **paths},
            )  # fmt: skip

    def said(self) -> str:
        logs = [path.read_text(errors="replace")[-3_000:] for path in self.place.glob("*/*.log")]
        return "\n".join([self.err.read_text(errors="replace")[-3_000:], *logs])

    def processes(self) -> dict[int, str]:
        """What runs for it: pid -> command line."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if os.fsencode(self.place) in command + (entry / "environ").read_bytes():
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def wait_for_one(self, word: str) -> None:
        wait_until(lambda: any(word in command for command in self.processes().values()), word)

    def ended(self) -> int:
        """Its exit code; nothing of it is left on this machine then."""
        code = self.process.wait(BOUND)
        assert list(self.place.glob("lode-demo-*")) == [], self.said()
        wait_until(lambda: not self.processes(), f"the end of {self.processes()}")
        return code

    def clean_up(self) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["/bin/rm", "-rf", self.place], check=True)


@pytest.fixture
def start() -> Iterator[Callable[..., Demo]]:
    made: list[Demo] = []

    def start(backend: str, environment: Mapping[str, str]) -> Demo:
        made.append(Demo(backend, environment))
        return made[-1]

    yield start
    for demo in made:
        demo.clean_up()


def wait_for_end(demo: Demo, named: Named) -> None:
    def has_ended() -> bool:
        named.push()
        return demo.process.poll() is not None

    wait_until(has_ended, "the end of the demo", patience=BOUND)


def check_report(demo: Demo) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(demo.out.read_text())
    assert report["states"] == README
    attempts = report["attempts"]
    assert (attempts["started"], attempts["twice"], attempts["lost"]) == (216, 0, 0)
    assert attempts["seen"] == attempts["attempts"] == 216, demo.said()
    return report


@pytest.mark.parametrize(
    ("backend", "named"),
    [
        *(pytest.param(one, one, marks=pytest.mark.thorough) for one in ALL.split("+")),
        ("all", ALL),
    ],
    indirect=["named"],
)
def test_the_demo_ends_as_the_readme_says_and_leaves_no_pilot(start, named, backend):
    demo = start(backend, named.environment)
    wait_for_end(demo, named)
    assert demo.ended() == 0, demo.said()
    sites = check_report(demo)["sites"]
    assert len(sites) == (4 if backend == "all" else 3)
    # On each there is work that no other site can do.
    assert [row["site"] for row in sites if not row["pilots"] or not row["done"]] == []
    wait_until(lambda: not named.left(), f"an empty list: {named.left()}", patience=GONE)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("backend", "named", "seed"),
    [*(("slurm", "slurm", seed) for seed in (1, 2, 3, 4, 5)), *(("all", ALL, seed) for seed in (6, 7))],
    indirect=["named"],
)
def test_ctrl_c_at_any_moment_leaves_no_pilot(start, named, backend, seed):
    demo = start(backend, named.environment)
    threading.Event().wait(random.Random(seed).uniform(0.0, 25.0))
    demo.process.send_signal(signal.SIGINT)
    wait_for_end(demo, named)
    # Before its first line Python itself ends by the signal.
    assert demo.ended() in (130, -signal.SIGINT), demo.said()
    wait_until(lambda: not named.left(), f"an empty list: {named.left()}", patience=GONE)


@pytest.mark.thorough
@pytest.mark.parametrize("word", ["examples.demo", "slurmctld", "lodesman.server.main", "pilot.pyz"])
def test_ctrl_c_while_a_slurm_of_its_own_starts_or_runs_leaves_nothing_of_it(start, private_slurm, word):
    demo = start("slurm", private_slurm)
    demo.wait_for_one(word)
    threading.Event().wait(random.Random(word).uniform(0.0, 1.0))
    demo.process.send_signal(signal.SIGINT)
    assert demo.ended() in (130, -signal.SIGINT), demo.said()


@pytest.mark.thorough
@pytest.mark.parametrize("named", ["slurm"], indirect=True)
def test_a_demo_that_is_killed_leaves_no_pilot(start, named):
    demo = start("slurm", named.environment)
    wait_until(named.left, "a pilot")
    demo.process.kill()
    demo.process.wait()
    wait_until(lambda: not named.left(), f"an empty list: {named.left()}", patience=GONE)
