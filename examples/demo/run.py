"""The demo: from an empty directory to a picture, with the program's own commands.

It starts a server with three sites on this machine, submits the example workload as two users, shows the
progress, fetches the results, puts them together and prints a summary. Server and pilots may be killed at any
moment: the server is started again, and every request is repeated until it is answered.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from examples.demo.compose import Composition, compose
from examples.demo.engines import SITES, engines_run, find_engines
from examples.demo.grid import Grid, free_port, running
from examples.demo.interrupts import Interrupts
from examples.demo.progress import DemoSnapshot, Display
from examples.demo.report import AttemptCheck, DemoReport, reasons, report_json, share_rows, site_rows
from examples.demo.store import store_runs, url_of
from examples.demo.summary import summary_text, summary_view
from examples.demo.workload import EXAMPLES, Submission, Workload, load_workload
from rich.console import Console

from lodesman.base.errors import Conflict, InvalidRequest, LodesmanError
from lodesman.wire import calls
from lodesman.wire.server import Usage

RESTING = frozenset({"Held", "Done", "Failed", "Killed", "Deleted"})
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 900.0


class Demo:
    """One run: its grid, its jobs and its results. `usage`: what was last known of the jobs."""

    def __init__(self, grid: Grid, workload: Workload, results: Path) -> None:
        self.grid = grid
        self.workload = workload
        self.results = results
        self.started, self.began_at = time.monotonic(), time.time()
        self.ended: float | None = None
        self.usage: Usage | None = None
        self.first_result: float | None = None
        self.jobs: dict[str, list[int]] = {}
        # The jobs that can have an output, by group, as ranges.
        self.ran: dict[str, list[str]] = {}
        self.tokens: dict[str, Path] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began, until its results were put together."""
        return (self.ended or time.monotonic()) - self.started

    def submit(self, display: Display) -> None:
        """Make a user per group and submit every description as that user."""
        for group in self.workload.groups:
            self.tokens[group] = self.grid.add_user(f"{group}-user", self.workload.vo, group)
        done = 0
        for number, submission in enumerate(self.workload.submissions, 1):
            self._show(display, f"submitting {done} of {self.workload.jobs}")
            self._submit_one(submission, request_id=f"demo-{number}")
            done += submission.jobs

    def _submit_one(self, submission: Submission, *, request_id: str) -> None:
        words = ["submit", str(submission.path), "--request-id", request_id]
        if submission.hold_if_impossible:
            words.append("--hold-if-impossible")
        (one,) = self.grid.lode(self.tokens[submission.group], *words)["submissions"]
        ids = range(one["first"], one["first"] + one["count"])
        self.jobs.setdefault(submission.composer, []).extend(ids)
        if not submission.hold_if_impossible:
            self.ran.setdefault(submission.group, []).append(f"{ids[0]}-{ids[-1]}")

    def watch(self, display: Display) -> None:
        """Show progress until every job is final or Held. Raises Conflict after the timeout."""
        while True:
            states = self._show(display).states
            if sum(states.values()) >= self.workload.jobs and set(states) <= RESTING:
                return
            if self.elapsed > TIMEOUT_SECONDS:
                raise Conflict(f"The demo is not done after {TIMEOUT_SECONDS:.0f} seconds.", states=states)
            time.sleep(POLL_SECONDS)

    def _show(self, display: Display, doing: str = "") -> Usage:
        """Show how it is now."""
        self.usage = usage = self.grid.call(calls.USAGE)
        pilots: dict[str, dict[str, int]] = {}
        for row in usage.pilots:
            if row.state in ("Prepared", "Submitted", "Running"):
                pilots.setdefault(row.site, {})[row.state] = row.pilots
        display.show(self.snapshot(usage.states, pilots, doing))
        if usage.states.get("Done") and self.first_result is None:
            admin = self.grid.home / "data" / "admin.token"
            done = self.grid.lode(admin, "status", "--jobs", "--all", "--state", "Done", "--limit", "100000")[
                "jobs"
            ]
            # By the events: it may have been done for long when it was seen.
            self.first_result = min(job["since"] for job in done) - self.began_at
        return usage

    def snapshot(
        self, states: Mapping[str, int], pilots: Mapping[str, Mapping[str, int]], doing: str
    ) -> DemoSnapshot:
        """The demo now."""
        return DemoSnapshot(
            states=states, total=self.workload.jobs, pilots=pilots, elapsed=self.elapsed, doing=doing
        )

    def fetch(self, display: Display) -> Composition:
        """Download every output sandbox and put the parts together."""
        self._show(display, "fetching the results")
        jobs = self.results / "jobs"
        for group, ids in self.ran.items():
            self.grid.lode(self.tokens[group], "output", ",".join(ids), "--dir", str(jobs), partly=True)
        members = {name: ids for name, ids in self.jobs.items() if name}
        composition = compose(jobs, members, self.results)
        self.ended = time.monotonic()
        self.grid.read_pilots()
        return composition

    def report(self, composition: Composition | None) -> DemoReport:
        """The values of the summary; without a composition, of a demo that was interrupted."""
        usage, interrupted = self.usage, composition is None
        if usage is None:
            return DemoReport(states=None, elapsed_seconds=self.elapsed, interrupted=True)
        starts = self.grid.payloads_started()
        states, waiting, ran = usage.states, usage.waiting_seconds, usage.running_seconds
        return DemoReport(
            states=states,
            expected=None if interrupted else self.workload.expected,
            elapsed_seconds=self.elapsed,
            first_result_seconds=self.first_result,
            interrupted=interrupted,
            sites=site_rows(usage),
            waiting=waiting if waiting.count else None,
            running=ran if ran.count else None,
            groups=share_rows(usage.claims, {row.group: row.share for row in usage.groups}),
            held=reasons(usage, "Held"),
            failed=reasons(usage, "Failed"),
            attempts=AttemptCheck(
                started=usage.attempts.jobs,
                attempts=usage.attempts.attempts,
                seen=len(starts),
                twice=sum(times > 1 for times in starts.values()),
                lost=0
                if interrupted
                else self.workload.jobs - sum(states.get(state, 0) for state in RESTING),
            ),
            composition=composition,
            results=self.results,
        )


def run_demo(
    *,
    results: Path,
    port: int = 0,
    keep: bool = False,
    as_json: bool = False,
    workload: Path | None = None,
    store: str = "sqlite",
    backend: str = "local",
) -> int:
    """Run the demo; 0 if every job ended as the workload says, 1 if not, 130 after Ctrl-C, SIGTERM or SIGHUP.

    The server's data stay there if `keep` says so, and after a failure. Raises LodesmanError for that.
    """
    jobs = load_workload(workload or EXAMPLES / "workload" / "workload.toml")
    console = Console(stderr=as_json)
    _need_place(results)
    with Interrupts() as interrupts, ExitStack() as stack:
        engines = {} if backend == "local" else find_engines(backend, console.print)
        with interrupts.held():
            home = Path(tempfile.mkdtemp(prefix="lode-demo-"))
            stack.callback(shutil.rmtree, home, ignore_errors=True)
        url = url_of(store, home)
        grid = Grid(
            home, SITES, port=port or free_port(), store=url, note=console.print, interrupts=interrupts
        )
        try:
            code, report = _play(Demo(grid, jobs, results.resolve()), console, interrupts, store, engines)
        except (LodesmanError, OSError):
            console.print(f"What the server left is in {home}.")
            stack.pop_all()
            raise
        if keep:
            console.print(f"The server's data and log are in {home}.")
            stack.pop_all()
        if console.is_terminal and not as_json:
            console.print(summary_view(report))
        else:
            sys.stdout.write((report_json(report) if as_json else summary_text(report)) + "\n")
    return code


def _need_place(results: Path) -> None:
    """Fail before anything is started if the results could not be written. Raises InvalidRequest."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as fault:
        raise InvalidRequest(
            f"The results cannot be written to {results}: {fault.strerror}.",
            hint="Choose another place: --results DIR.",
        ) from None


def _play(
    demo: Demo,
    console: Console,
    interrupts: Interrupts,
    store: str = "sqlite",
    engines: Mapping[str, str] = {},
) -> tuple[int, DemoReport]:
    """The exit code and the report. Raises LodesmanError."""
    composition: Composition | None = None
    code = 130
    try:
        with Display(console) as display:
            to_start = [kind for kind, queue in engines.items() if not queue]
            display.show(
                demo.snapshot({}, {}, f"starting {', '.join(to_start)}" if to_start else "preparing")
            )
            home = demo.grid.home
            with store_runs(store, home), engines_run(engines, home, interrupts) as there:
                if there:
                    demo.grid.send_to(there)
                with running(demo.grid, interrupts):
                    demo.submit(display)
                    demo.watch(display)
                    composition = demo.fetch(display)
        found = demo.report(composition)
        states = {state: n for state, n in (found.states or {}).items() if n}
        code = 0 if states == demo.workload.expected else 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything is stopped.")
        found = demo.report(None)
    return code, found
