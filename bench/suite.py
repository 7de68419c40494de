"""The rows, in order, and their results: a table, JSON, a picture."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench import against, floors, machine
from bench.context import FULL, QUICK, SMOKE, Context
from bench.figures import Figure
from bench.generator import LoadFault, NoGenerator, need_wrk
from bench.oracle import WrongAnswer
from bench.picture import draw
from bench.rows import (
    black_hole,
    broker,
    choice,
    claims,
    director,
    fairness,
    isolation,
    jsv,
    latency,
    limits,
    packing,
    payloads,
    peer,
    pgqueuer,
    plan,
    played,
    pools,
    scale,
    submissions,
    vacate,
    why,
)
from bench.second import SUFFIX, on_postgresql
from bench.stores import PostgresServer
from bench.table import markdown, missed, plain

from lodesman.base.errors import LodesmanError

Row = Callable[[Context], list[Figure]]
ROWS: dict[str, Row] = {
    "choice": choice.measure,
    "claims-process": claims.in_process,
    "claims-http": claims.over_http,
    "submit-single": submissions.single,
    "submit-bulk": submissions.bulk,
    "arrays": submissions.arrays,
    "why": why.measure,
    "plan": plan.measure,
    "director": director.measure,
    "black-hole": black_hole.measure,
    "pools": pools.measure,
    "broker": broker.measure,
    "jsv": jsv.measure,
    "jsv-submit": jsv.submissions,
    "limits": limits.measure,
    "latency": latency.measure,
    **{name: kind.measure for name, kind in payloads.KINDS.items()},
    "payloads-mixed": payloads.measure_mixed,
    "played": played.measure,
    "isolation": isolation.measure,
    "fairness": fairness.measure,
    "packing": packing.measure,
    "scale": scale.measure,
    "scale-queues": scale.many_queues,
    "idle-pilots": scale.idle_pilots,
    "vacate": vacate.measure,
    "peer": peer.measure,
    "pgqueuer": pgqueuer.measure,
}
ON_POSTGRESQL = (
    "claims-process", "claims-http", "submit-single", "submit-bulk", "arrays", "why", "plan", "director", "latency", "scale",
    "pgqueuer",
)  # fmt: skip
NEED_WRK = ("claims-http", "submit-single", "jsv-submit", "limits")
FAILED, NO_GENERATOR, TERMINATED = 1, 2, 143


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Measure what the issue promises. Exit codes: 0 measured, 1 a row failed, 2 wrk is missing.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of every size, once: a check that all works"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a hundredth of every size: its numbers mean nothing"
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="ROW", help=f"some of: {' '.join(ROWS)}")
    parser.add_argument(
        "--samples", type=int, default=0, help="samples of each row, the best counts (3; quick: 1)"
    )
    parser.add_argument("--json", type=Path, help="write all figures and details here")
    parser.add_argument("--picture", type=Path, help="draw measured against target here (.svg or .png)")
    parser.add_argument("--markdown", type=Path, help="write the table as Markdown here")
    parser.add_argument(
        "--dirac",
        type=Path,
        help="folder of the harness that measures DIRAC's TaskQueueDB, or a report that it left",
    )
    parser.add_argument(
        "--store", choices=("sqlite", "postgresql", "both"), default="sqlite",
        help="where worlds are stored; postgresql: one that the run starts, for the rows that have one",
    )  # fmt: skip
    parser.add_argument(
        "--pgqueuer", type=Path, metavar="PYTHON", help="a Python that has pgqueuer, asyncpg and uvloop"
    )
    parser.add_argument(
        "--hyperqueue",
        type=Path,
        metavar="PYTHON",
        help="a Python that has hyperqueue, for the rows payloads",
    )
    parser.add_argument(
        "--home", type=Path, help="folder for databases, on the disk to measure (default: temporary)"
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="play each row here and at that commit in turn, each by its own benchmark",
    )
    parser.add_argument("--turns", type=int, default=3, help="of --against (3)")
    parser.add_argument("--prelude", default="", help="Python that the server runs first, for experiments")
    parser.add_argument(
        "--server-core", type=int, help="pin the server's processes to this core (default: free)"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the rows that were asked for."""
    given = parse(sys.argv[1:] if arguments is None else arguments)
    # As Ctrl-C does: servers under test end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    rows = given.only or list(ROWS)
    if given.against:
        return _play_against(given, rows)
    part = SMOKE if given.smoke else QUICK if given.quick else FULL
    lacking = _lacking_wrk(rows)
    rows_there = [row for row in rows if row not in lacking]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=given.home) as folder:
        home = Path(folder)
        begun = time.time()
        context = Context(
            home=home,
            part=part,
            samples=given.samples or (3 if part == FULL else 1),
            floors=floors.measure(home, 3.0 if part == FULL else 0.5),
            say=lambda text: print(f"... {text}", file=sys.stderr, flush=True),
            dirac=given.dirac,
            pgqueuer=given.pgqueuer,
            hyperqueue=given.hyperqueue,
            prelude=given.prelude,
            server_core=given.server_core,
        )
        with _second(context, given.store) as second:
            outcomes = _measure(None if given.store == "postgresql" else context, second, rows_there)
    figures = [figure for found in outcomes.values() for figure in found or ()]
    faulty = [row for row, found in outcomes.items() if found is None]
    _write(given, context, figures, begun)
    if faulty:
        print(f"Rows that failed: {', '.join(faulty)}.")
        return FAILED
    return NO_GENERATOR if lacking else 0


def _play_against(given: argparse.Namespace, rows: list[str]) -> int:
    options = [f"--{name}" for name in ("quick", "smoke") if getattr(given, name)]
    try:
        with against.checkout(given.against, given.home) as (that, data):
            failed = against.play(rows, given.turns, options, that, data)
    except ValueError as fault:
        print(fault)
        return FAILED
    if failed:
        print(f"Rows that failed: {', '.join(failed)}.")
    return FAILED if failed else 0


def _lacking_wrk(rows: list[str]) -> list[str]:
    """The rows that need wrk, if it is not installed."""
    try:
        need_wrk()
    except NoGenerator as lacking:
        left_out = [row for row in rows if row in NEED_WRK]
        if left_out:
            print(f"{lacking} (left out: {' '.join(left_out)})", file=sys.stderr)
        return left_out
    return []


@contextmanager
def _second(context: Context, store: str) -> Iterator[Context | None]:
    """The same run with its worlds on PostgreSQL, if that was asked for."""
    if store == "sqlite":
        yield None
        return
    home = context.home / "postgresql"
    home.mkdir()
    context.home.chmod(0o755)
    with PostgresServer.started(home) as server:
        yield replace(context, home=home, postgresql=server)


def _measure(
    first: Context | None, second: Context | None, rows: list[str]
) -> dict[str, list[Figure] | None]:
    """Row by row, so that both stores are measured in the same minutes."""
    outcomes: dict[str, list[Figure] | None] = {}
    for row in rows:
        if first and row != "pgqueuer":
            outcomes[row] = _run(first, row)
        if second and row in ON_POSTGRESQL:
            outcomes[row + SUFFIX] = _run(second, row, beside=outcomes.get(row))
    return outcomes


def _run(context: Context, row: str, *, beside: list[Figure] | None = None) -> list[Figure] | None:
    """The figures of a row; None if it failed (then the end of the server's log is shown). `beside`: the first store's."""
    context.say(f"{row} (load {machine.describe()['load'][0]})")
    begun, cpu = time.perf_counter(), _cpu_seconds()
    try:
        figures = ROWS[row](context)
    except (LodesmanError, LoadFault, WrongAnswer, OSError, ValueError) as fault:
        context.say(f"{row} FAILED: {type(fault).__name__}: {fault}")
        for log in context.home.rglob("server.log"):
            context.say(log.read_text(errors="replace")[-3_000:])
        return None
    if context.postgresql:
        figures = on_postgresql(figures, beside or [])
    for figure in figures:
        print(plain([figure]).splitlines()[-1], flush=True)
    context.say(f"{row}: {time.perf_counter() - begun:.0f} s, {_cpu_seconds() - cpu:.0f} s of CPU time")
    return figures


def _cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    return sum(os.times()[:4])


def _write(given: argparse.Namespace, context: Context, figures: list[Figure], begun: float) -> None:
    print()
    print(plain(figures))
    behind = missed(figures)
    print(f"\nTargets missed: {', '.join(figure.row for figure in behind) or 'none'}.")
    about = machine.describe()
    print(
        f"Measured on {time.strftime('%d %B %Y', time.gmtime(begun))}, commit {about['commit'] or 'not known'}."
    )
    if given.json:
        report = {
            "begun": begun, "ended": time.time(), "part": context.part, "machine": about,
            "floors": context.floors.as_dict(), "figures": [figure.as_dict() for figure in figures],
        }  # fmt: skip
        given.json.write_text(json.dumps(report, indent=1, default=str) + "\n")
    if given.markdown:
        given.markdown.write_text(markdown(figures) + "\n")
    if given.picture:
        title = f"Lodesman, measured / target ({about['cores']} cores, {about['system']})"
        draw(figures, given.picture, title)
