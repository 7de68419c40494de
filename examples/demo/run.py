"""The main job from an empty directory to a picture, with the program's own commands.

It starts a server with three sites on this machine, submits the example workload as two users, shows how
the jobs run, fetches the results, puts them together and tells what happened. Server and pilots may be killed at any
moment: the server is started again, and every question is asked again until it is answered.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from examples.demo.compose import Composition, compose
from examples.demo.grid import Grid, free_port, ranges, running
from examples.demo.interrupts import Interrupts
from examples.demo.progress import DemoSnapshot, open_display
from examples.demo.report import AttemptCheck, DemoReport, SiteRow, reasons, report_json, spread
from examples.demo.shares import Claim, share_rows
from examples.demo.summary import summary_text, summary_view
from examples.demo.workload import EXAMPLES, Submission, Workload, load_workload
from rich.console import Console

from lodesman.errors import Conflict, InvalidRequest, LodesmanError

RESTING = frozenset({"Held", "Done", "Failed", "Killed", "Deleted"})
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 900.0


class Demo:
    """One run: where results go, what was submitted, what was seen."""

    def __init__(self, grid: Grid, workload: Workload, results: Path) -> None:
        self.grid = grid
        self.workload = workload
        self.results = results
        self.started = time.monotonic()
        self.first_result: float | None = None
        self.jobs: dict[str, list[int]] = {}
        # The jobs that can have an output, by group, as ranges.
        self.ran: dict[str, list[str]] = {}
        self.tokens: dict[str, Path] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.started

    def submit(self) -> None:
        """Make a user per group and submit every description as that user."""
        for group in self.workload.groups:
            self.tokens[group] = self.grid.add_user(f"{group}-user", self.workload.vo, group)
        for number, submission in enumerate(self.workload.submissions, 1):
            self._submit_one(submission, request_id=f"demo-{number}")

    def _submit_one(self, submission: Submission, *, request_id: str) -> None:
        words = ["submit", str(submission.path), "--request-id", request_id]
        if submission.hold_if_impossible:
            words.append("--hold-if-impossible")
        (one,) = self.grid.lode(self.tokens[submission.group], *words)["submissions"]
        ids = ranges(one["first"], one["count"])
        self.jobs.setdefault(submission.composer, []).extend(ids)
        if not submission.hold_if_impossible:
            self.ran.setdefault(submission.group, []).append(f"{ids[0]}-{ids[-1]}")

    def watch(self, console: Console) -> dict[str, Any]:
        """Show progress until every job rests. Raises Conflict if that takes far too long."""
        with open_display(console) as display:
            while True:
                standing: dict[str, Any] = self.grid.ask("GET", "/v1/usage")
                display.show(self._snapshot(standing))
                states = standing["states"]
                if states.get("Done") and self.first_result is None:
                    self.first_result = self.elapsed
                if sum(states.values()) >= self.workload.jobs and set(states) <= RESTING:
                    return standing
                if self.elapsed > PATIENCE_SECONDS:
                    raise Conflict(
                        f"The demo is not done after {PATIENCE_SECONDS:.0f} seconds.", states=states
                    )
                time.sleep(POLL_SECONDS)

    def _snapshot(self, standing: dict[str, Any]) -> DemoSnapshot:
        pilots: dict[str, dict[str, int]] = {}
        for row in standing["pilots"]:
            if row["state"] in ("Prepared", "Submitted", "Running"):
                pilots.setdefault(row["site"], {})[row["state"]] = row["pilots"]
        return DemoSnapshot(
            states=standing["states"], total=self.workload.jobs, pilots=pilots, elapsed=self.elapsed
        )

    def fetch(self) -> Composition:
        """Download every output sandbox and put the parts together."""
        jobs = self.results / "jobs"
        for group, ids in self.ran.items():
            self.grid.lode(self.tokens[group], "output", ",".join(ids), "--dir", str(jobs), partly=True)
        members = {name: ids for name, ids in self.jobs.items() if name}
        return compose(jobs, members, self.results)


def make_report(demo: Demo, standing: dict[str, Any] | None, composition: Composition | None) -> DemoReport:
    """All that the summary tells, from what the server says."""
    if standing is None:
        return DemoReport(states=None, elapsed_seconds=demo.elapsed, interrupted=True)
    pilots = Counter[str]()
    for row in standing["pilots"]:
        pilots[row["site"]] += row["pilots"]
    shares = {row["group"]: row["share"] for row in standing["groups"]}
    claims = [
        Claim(
            group=c["group"],
            eligible=None if c["eligible"] is None else frozenset(c["eligible"]),
            count=c["count"],
        )
        for c in standing["claims"]
    ]
    counted = standing["attempts"]
    started = demo.grid.payloads_started()
    states = standing["states"]
    return DemoReport(
        states=states,
        expected=demo.workload.expected,
        elapsed_seconds=demo.elapsed,
        first_result_seconds=demo.first_result,
        interrupted=composition is None,
        sites=tuple(_site(row, pilots) for row in standing["sites"]),
        waiting=spread(standing["waiting_seconds"]),
        running=spread(standing["running_seconds"]),
        groups=share_rows(claims, shares),
        held=reasons(_faulty(standing, "Held")),
        failed=reasons(_faulty(standing, "Failed")),
        attempts=AttemptCheck(
            started=counted["jobs"],
            attempts=counted["all"],
            seen=len(started),
            twice=sum(times > 1 for times in started.values()),
            lost=demo.workload.jobs - sum(n for state, n in states.items() if state in RESTING),
        ),
        composition=composition,
        results=demo.results,
    )


def _site(row: dict[str, Any], pilots: Counter[str]) -> SiteRow:
    outcomes = row["outcomes"]
    return SiteRow(
        site=row["site"],
        done=outcomes.get("Done", 0),
        failed=outcomes.get("Failed", 0),
        pilots=pilots[row["site"]],
        cpu_seconds=row["cpu_seconds"],
    )


def _faulty(standing: dict[str, Any], state: str) -> list[tuple[int, str]]:
    return [
        (row["id"] + n, row["reason"])
        for row in standing["faulty"]
        if row["state"] == state
        for n in range(row["count"])
    ]


def run_demo(
    *, results: Path, port: int = 0, keep: bool = False, as_json: bool = False, workload: Path | None = None
) -> int:
    """Run the demo; 0 if every job ended as the workload says, 1 if not, 130 after Ctrl-C, SIGTERM or SIGHUP.

    The server's data stay there if `keep` says so, and after a failure. Raises LodesmanError for that.
    """
    wanted = load_workload(workload or EXAMPLES / "workload" / "workload.toml")
    console = Console(stderr=as_json)
    _need_place(results)
    with Interrupts() as interrupts:
        home = Path(tempfile.mkdtemp(prefix="lode-demo-"))
        grid = Grid(
            home,
            EXAMPLES / "three-sites.toml",
            port=port or free_port(),
            tell=console.print,
            interrupts=interrupts,
        )
        demo = Demo(grid, wanted, results.resolve())
        try:
            code, report = _play(demo, console, interrupts)
        except (LodesmanError, OSError):
            console.print(f"What the server left is in {home}.")
            raise
        if keep:
            console.print(f"The server's data and log are in {home}.")
        else:
            shutil.rmtree(home, ignore_errors=True)
        _tell(report, console, as_json=as_json)
    return code


def _need_place(results: Path) -> None:
    """Where the results go at the end: told now if that cannot be. Raises InvalidRequest."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as fault:
        raise InvalidRequest(
            f"The results cannot be written to {results}: {fault.strerror}.",
            hint="Choose another place: --results DIR.",
        ) from None


def _play(demo: Demo, console: Console, interrupts: Interrupts) -> tuple[int, DemoReport]:
    """The exit code, and what the summary tells. Raises LodesmanError."""
    standing: dict[str, Any] | None = None
    composition: Composition | None = None
    code = 130
    try:
        with running(demo.grid, interrupts):
            demo.submit()
            standing = demo.watch(console)
            composition = demo.fetch()
            code = 0 if _as_expected(demo.workload, standing) else 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything is stopped.")
    return code, make_report(demo, standing, composition)


def _tell(report: DemoReport, console: Console, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(report_json(report)) + "\n")
    elif console.is_terminal:
        console.print(summary_view(report))
    else:
        sys.stdout.write(summary_text(report) + "\n")


def _as_expected(workload: Workload, standing: dict[str, Any]) -> bool:
    return {state: n for state, n in standing["states"].items() if n} == workload.expected
